//! `highwater skill`: instructions for assistants in the format of Agent Skills, embedded in the binary.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use highwater_app::files::destination::{io_error, write_whole};

use crate::output::{Failure, Page, Status};

/// Arguments of `highwater skill`.
#[derive(Clone, Debug, Args)]
pub struct SkillArguments {
    /// Folder of skills, such as .claude/skills or .agents/skills: the skill is written to its folder `highwater`
    #[arg(long, value_name = "DIR")]
    pub install: Option<PathBuf>,
    /// Replace files that differ
    #[arg(long, requires = "install")]
    pub force: bool,
}

const NAME: &str = "highwater";

/// Lists the files of the skill, which are also in the Python package.
macro_rules! files {
    ($($path:literal,)+) => {
        [$(($path, include_str!(concat!("../../../recorder/python/highwater/skill/", $path)))),+]
    };
}

const FILES: [(&str, &str); 7] = files![
    "SKILL.md",
    "references/out-of-memory.md",
    "references/leak.md",
    "references/regression.md",
    "references/fit.md",
    "references/ci.md",
    "references/serving.md",
];

pub(crate) fn run(arguments: &SkillArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let Some(folder) = &arguments.install else {
        page.line(
            "The skill `highwater` teaches an assistant to answer questions about GPU memory with this program:",
        )?;
        for (path, text) in FILES {
            let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
            page.line(&format!("  {path}: {title}"))?;
        }
        page.gap()?.line("Write it where your assistant looks for skills, in the project or in your home folder:")?;
        page.line("  highwater skill --install .claude/skills   # Claude Code")?;
        page.line("  highwater skill --install .agents/skills   # others that read Agent Skills")?;
        return Ok(Status::Fine);
    };
    let folder = folder.join(NAME);
    let files: Vec<(PathBuf, &str)> = FILES.iter().map(|(path, text)| (folder.join(path), *text)).collect();
    let is_missing = |path: &PathBuf, text: &str| fs::read(path).map_or(true, |found| found != text.as_bytes());
    let wanted: Vec<&(PathBuf, &str)> = files.iter().filter(|(path, text)| is_missing(path, text)).collect();
    if let Some((path, _)) = wanted.iter().find(|(path, _)| !arguments.force && fs::symlink_metadata(path).is_ok()) {
        return Err(Failure::Usage(format!("{}: exists and differs; --force replaces it", path.display())));
    }
    for (path, text) in &wanted {
        let parent = path.parent().unwrap_or(&folder);
        let unwritable =
            |why| Failure::Write(format!("cannot create {}: {why}; name another folder", parent.display()));
        fs::create_dir_all(parent).map_err(unwritable)?;
        write_whole(path, |out| out.write_all(text.as_bytes()).map_err(io_error))?;
    }
    let count = wanted.len();
    let what =
        if count == 0 { "nothing to do".to_owned() } else { format!("{count} of {} files written", FILES.len()) };
    page.line(&format!("The skill is in {}: {what}.", folder.display()))?;
    Ok(Status::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_skill_is_carried_and_linked() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../recorder/python/highwater/skill");
        let references = fs::read_dir(folder.join("references")).unwrap();
        let mut found: Vec<String> = references
            .map(|entry| format!("references/{}", entry.unwrap().file_name().into_string().unwrap()))
            .chain(["SKILL.md".to_owned()])
            .collect();
        let mut carried: Vec<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        found.sort();
        carried.sort();
        assert_eq!(found, carried);
        let skill = FILES[0].1;
        assert!(FILES[1..].iter().all(|(path, _)| skill.contains(&format!("]({path})"))), "links");
    }

    #[test]
    fn the_skill_begins_as_the_format_asks() {
        let fields = FILES[0].1.strip_prefix("---\n").and_then(|text| text.split_once("\n---\n")).unwrap().0;
        let field = |name: &str| fields.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        assert_eq!(field("name: "), NAME);
        // Plain YAML: a colon with a space would begin another field.
        let description = field("description: ");
        assert!((1..=1024).contains(&description.len()) && !description.contains(": "), "{}", description.len());
        assert!(FILES.iter().all(|(_, text)| text.lines().count() < 100));
    }
}
