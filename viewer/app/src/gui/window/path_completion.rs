//! Completes a path that is being typed, from the files and folders that exist.

use std::path::{Path, PathBuf};

use highwater_snapshots::natural;

/// The completion of a typed path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Completion {
    /// The path as far as all candidates agree.
    pub(super) text: String,
    /// The names of the candidates, folders with a slash at their end; empty if none exists.
    pub(super) names: Vec<String>,
}

/// Completes the last part of `text`, whose folder `absolute` finds; with `only_folders`, by folders alone. Hidden
/// files are offered once a dot is typed.
pub(super) fn complete(text: &str, absolute: impl Fn(&str) -> PathBuf, only_folders: bool) -> Completion {
    let (folder, start) = text.split_at(text.rfind(std::path::is_separator).map_or(0, |at| at + 1));
    let mut names = names_in(&absolute(if folder.is_empty() { "." } else { folder }), start, only_folders);
    names.sort_by(|a, b| natural::compare(a, b));
    let common = match names.as_slice() {
        [first, others @ ..] => others.iter().fold(first.as_str(), |common, name| in_common(common, name)),
        [] => start,
    };
    Completion { text: format!("{folder}{common}"), names }
}

fn names_in(folder: &Path, start: &str, only_folders: bool) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_offered = name.starts_with(start) && (!name.starts_with('.') || start.starts_with('.'));
        let is_folder = is_offered && entry.path().is_dir();
        let slash = if is_folder { "/" } else { "" };
        (is_offered && (is_folder || !only_folders)).then(|| format!("{name}{slash}"))
    };
    entries.filter_map(name).collect()
}

/// The beginning that both have.
fn in_common<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    &one[..same.map(|(sign, _)| sign.len_utf8()).sum()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_completed_as_far_as_all_candidates_agree() {
        let folder = std::env::temp_dir().join(format!("highwater-completion-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("runs/été")).unwrap();
        for name in ["rank10.snap", "rank2.snap", ".hidden", "runs/été2.snap"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let completed = |text: &str, only_folders| complete(text, |part| folder.join(part), only_folders);
        let is = |text: &str, names: &[&str]| Completion {
            text: text.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(completed("ra", false), is("rank", &["rank2.snap", "rank10.snap"]));
        assert_eq!(completed("rank1", false), is("rank10.snap", &["rank10.snap"]));
        assert_eq!(completed("r", true), is("runs/", &["runs/"]));
        assert_eq!(completed("runs/", false), is("runs/été", &["été/", "été2.snap"]));
        assert_eq!(completed(".", false), is(".hidden", &[".hidden"]));
        assert_eq!(completed("nothing", false), is("nothing", &[]));
        assert_eq!(completed("missing/a", false), is("missing/a", &[]));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
