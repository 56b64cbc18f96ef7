//! Reads recordings, guesses categories that were not recorded, and sets the lines to skip.

use std::ops::ControlFlow;
use std::path::Path;

use highwater_analysis::guess::{Rules, guess};
use highwater_pytorch::open::{FileKind, open_file};
use highwater_snapshots::Error;

use crate::args::{Categories, CategoryChoice};
use crate::input::recording::{Recording, read};
use crate::output::{Failure, unreadable};

pub(crate) fn read_with(file: &Path, choice: &CategoryChoice) -> Result<Recording, Failure> {
    // Errors in a rules file are reported before a long read.
    let rules = rules(choice)?;
    Ok(apply(read(file)?, choice, rules.as_ref()))
}

/// Returns a function that reads one of many recordings without a progress bar, with categories according to `choice`.
pub(crate) fn reader(choice: &CategoryChoice) -> Result<impl Fn(&Path) -> Result<Recording, Error> + Sync, Failure> {
    let rules = rules(choice)?;
    Ok(move |file: &Path| {
        let recording = open_file(file, &mut |_| ControlFlow::Continue(()))?;
        Ok(apply(recording, choice, rules.as_ref()))
    })
}

/// Returns the requested rules; `None` if categories are not to be guessed.
fn rules(choice: &CategoryChoice) -> Result<Option<Rules>, Failure> {
    match &choice.categories {
        None | Some(Categories::Guess) => Ok(Some(Rules::default())),
        Some(Categories::None) => Ok(None),
        Some(Categories::Rules(path)) => {
            let text = std::fs::read_to_string(path).map_err(|why| unreadable(path, why))?;
            text.parse().map(Some).map_err(|source| Failure::Read { file: path.clone(), source })
        }
    }
}

fn apply(Recording { trace, format }: Recording, choice: &CategoryChoice, rules: Option<&Rules>) -> Recording {
    let trace = match choice.skip.is_empty() {
        true => trace,
        false => trace.edited(|trace| trace.tables.skipped.clone_from(&choice.skip)),
    };
    // A .snap file stores what was guessed when it was written.
    let is_asked = choice.categories.is_some() || format.kind != FileKind::Snap;
    match rules.filter(|_| is_asked) {
        Some(rules) => Recording { trace: guess(trace, rules), format },
        None => Recording { trace, format },
    }
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;
    use highwater_pytorch::open::FileFormat;
    use highwater_snapshots::Category;

    use super::*;

    fn categories_by(choice: &str) -> Result<Vec<Category>, Failure> {
        let categories = (!choice.is_empty()).then(|| choice.parse().unwrap());
        let choice = CategoryChoice { categories, skip: Vec::new() };
        let trace = trace_from_text("alloc a 1 < build < main\nalloc b 2 input < main\n").unwrap();
        let recording = Recording { format: FileFormat { kind: FileKind::Snap, is_gzipped: false }, trace };
        let recording = apply(recording, &choice, rules(&choice)?.as_ref());
        Ok(recording.trace.blocks.category.clone())
    }

    #[test]
    fn a_rules_file_decides_what_the_recording_leaves_open() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.txt");
        std::fs::write(&file, "# mine\nparameter if frame=build\nbuffer if size>=1\n").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(categories_by(file).unwrap(), [Category::Parameter, Category::Input]);
        for choice in ["none", "guess", ""] {
            assert_eq!(categories_by(choice).unwrap(), [Category::Unknown, Category::Input], "{choice}");
        }
    }

    #[test]
    fn a_mistake_in_a_rules_file_is_reported_with_its_file_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.txt");
        std::fs::write(&file, "\nweights if size>1\n").unwrap();
        let why = categories_by(file.to_str().unwrap()).unwrap_err().to_string();
        assert!(why.contains("rules.txt: line 2: unknown category 'weights'"), "{why}");
        let why = categories_by("there/is/none.txt").unwrap_err().to_string();
        assert!(why.contains("cannot read") && why.contains("none.txt"), "{why}");
    }
}
