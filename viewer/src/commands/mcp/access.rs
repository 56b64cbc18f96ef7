//! The files that a client may query: those named when the server was started.

use std::fs;
use std::path::{Path, PathBuf};

use highwater_snapshots::format::Windows;

#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The files and folders as given by the user, each with its resolved path.
    roots: Vec<(PathBuf, PathBuf)>,
}

/// Maximum number of files that are listed when folders are searched.
const MAX_LISTED: usize = 50;

/// Maximum depth of nested folders that are listed.
const MAX_DEPTH: usize = 3;

/// File extensions of recordings.
const ENDINGS: [&str; 8] = ["snap", "pickle", "json", "html", "gz", "prof", "sqlite", "pkl"];

impl Access {
    /// Allows access to `paths`, which are files or folders.
    ///
    /// # Errors
    /// Fails if one of the paths does not exist.
    pub(super) fn new(paths: &[PathBuf]) -> Result<Self, String> {
        let root = |path: &PathBuf| match fs::canonicalize(path) {
            Ok(real) => Ok((path.clone(), real)),
            Err(why) => Err(format!("{}: {why}; name recordings, or folders of them", path.display())),
        };
        Ok(Self { roots: paths.iter().map(root).collect::<Result<_, _>>()? })
    }

    /// Returns the path of the recording that a client calls `name`, which is a path named at the start, or the path of
    /// a file in a folder named at the start. Without a name, returns the only recording.
    ///
    /// # Errors
    /// Fails if the recording is not allowed.
    pub(super) fn find(&self, name: Option<&str>) -> Result<PathBuf, String> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let files = self.files();
            return match files.as_slice() {
                [(name, _)] => Ok(as_word(name.clone())),
                _ => Err(format!("file is missing, and there are {}: {}", files.len(), listed(&files))),
            };
        };
        let in_folders = self.roots.iter().filter(|(_, root)| root.is_dir()).map(|(folder, _)| folder.join(name));
        let mut candidates = std::iter::once(PathBuf::from(name)).chain(in_folders);
        let found = candidates.find(|path| fs::canonicalize(path).is_ok_and(|real| self.allows(&real)));
        found.map(as_word).ok_or_else(|| {
            let files = self.files();
            format!("{name}: not one of the recordings that this server was started with: {}", listed(&files))
        })
    }

    /// Returns whether a resolved path is a recording, or a folder of recordings, that may be read.
    fn allows(&self, real: &Path) -> bool {
        // A named folder may itself be the run of several ranks.
        let is_below = |root: &Path| real.starts_with(root) && (real.is_file() || (real.is_dir() && is_plain(real)));
        self.roots.iter().any(|(_, root)| root == real && root.is_file() || root.is_dir() && is_below(root))
    }

    /// Returns the recordings, each with its name for clients and its resolved path.
    pub(super) fn files(&self) -> Vec<(PathBuf, PathBuf)> {
        let mut files = Vec::new();
        for (name, root) in &self.roots {
            if root.is_dir() && !is_rotated(root) {
                list(name, root, MAX_DEPTH, &mut files);
            } else {
                files.push((name.clone(), root.clone()));
            }
        }
        files
    }
}

/// Returns a path that no command interprets as an option or as standard input.
fn as_word(path: PathBuf) -> PathBuf {
    if path.as_os_str().as_encoded_bytes().starts_with(b"-") { Path::new(".").join(path) } else { path }
}

/// Returns whether a folder contains the files of a single recording, which commands open by the folder's name.
pub(super) fn is_rotated(folder: &Path) -> bool {
    Windows::find_rotated(folder).is_some()
}

/// Returns whether a folder and its subfolders can be listed and contain no links, since a link could lead out of the
/// folder.
fn is_plain(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().all(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => is_plain(&entry.path()),
        Ok(kind) => !kind.is_symlink(),
        Err(_) => false,
    })
}

/// Adds the recordings in a folder and its subfolders, `depth` levels in all, sorted by name, until `files` has
/// [`MAX_LISTED`].
fn list(name: &Path, folder: &Path, depth: usize, files: &mut Vec<(PathBuf, PathBuf)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if files.len() >= MAX_LISTED {
            return;
        }
        let (name, path) = (name.join(entry.file_name()), entry.path());
        let is_recording = path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && is_rotated(&path) => files.push((name, path)),
            Ok(kind) if kind.is_dir() && depth > 1 => list(&name, &path, depth - 1, files),
            Ok(kind) if kind.is_file() && is_recording => files.push((name, path)),
            _ => {}
        }
    }
}

/// Formats the names of recordings, followed by … if there may be more.
pub(super) fn listed(files: &[(PathBuf, PathBuf)]) -> String {
    let mut names: Vec<String> = files.iter().map(|(name, _)| name.display().to_string()).collect();
    if files.len() >= MAX_LISTED {
        names.push("…".to_owned());
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("runs")).unwrap();
        for name in ["a.snap", "secret.snap", "runs/b.snap", "runs/notes.txt"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        folder
    }

    #[test]
    fn only_what_was_named_is_found() {
        let folder = folder();
        let [one, runs] = ["a.snap", "runs"].map(|name| folder.path().join(name));
        let access = Access::new(&[one.clone(), runs.clone()]).unwrap();
        let at = |name: &Path| access.find(Some(name.to_str().unwrap()));
        assert!(at(&one).unwrap().ends_with("a.snap"));
        assert!(at(Path::new("b.snap")).unwrap().ends_with("runs/b.snap"));
        assert!(at(&runs.join("b.snap")).is_ok() && at(&runs).is_ok());
        for other in ["secret.snap", "runs/../secret.snap", "../secret.snap", "/etc/passwd", "-", "", "--json"] {
            let why = at(Path::new(other)).unwrap_err();
            assert!(why.contains("a.snap") && why.contains("b.snap") && !why.contains("notes"), "{why}");
            assert!(at(&folder.path().join(other)).is_err(), "{other}");
        }
        assert!(access.find(None).unwrap_err().contains("there are 2"));
        assert!(Access::new(&[one]).unwrap().find(None).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn links_do_not_lead_out_of_a_folder() {
        let folder = folder();
        let runs = folder.path().join("runs");
        std::os::unix::fs::symlink(folder.path().join("secret.snap"), runs.join("link.snap")).unwrap();
        let access = Access::new(std::slice::from_ref(&runs)).unwrap();
        assert!(access.find(Some("link.snap")).is_err() && access.find(Some("b.snap")).is_ok());
        assert!(access.find(runs.to_str()).is_err(), "a folder whose files are read must have no links");
    }

    #[test]
    fn a_file_that_does_not_exist_is_an_error_at_the_start() {
        let why = Access::new(&["nowhere.snap".into()]).unwrap_err();
        assert!(why.starts_with("nowhere.snap:"), "{why}");
    }
}
