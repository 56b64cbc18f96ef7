//! Records a built-in training step on a background thread, for users who have no recording yet.

use std::path::{Path, PathBuf};
use std::time::Duration;

use web_time::Instant;

use crate::Pending;
use crate::answers::plan::RerunOf;

/// A training step offered on the start screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// The name of the scenario in `highwater record`.
    pub name: &'static str,
    /// The title of its card on the start screen.
    pub title: &'static str,
    /// A description for its card: the model and the training data.
    pub about: &'static str,
    /// A picture of its timeline, as PNG data.
    pub picture: &'static [u8],
}

/// The built-in training steps, and the functions that record them and run them again.
#[derive(Clone, Copy, Debug)]
pub struct Examples {
    /// The examples in display order.
    pub list: &'static [Example],
    /// Records the example with this name to a file. The error is a sentence for the user.
    pub record: fn(&str, &Path) -> Result<(), String>,
    /// Runs the step of a recording again with changes; `None` if this build has no training steps.
    pub rerun: Option<RerunOf>,
}

impl Default for Examples {
    fn default() -> Self {
        Self { list: &[], record: |name, _| Err(format!("this build cannot record {name}")), rerun: None }
    }
}

/// An example that is being recorded. Dropping this does not cancel the recording.
#[derive(Debug)]
pub struct Running {
    /// The training step that is being recorded.
    pub example: Example,
    /// The file being written.
    pub file: PathBuf,
    begun: Instant,
    outcome: Pending<PathBuf>,
}

impl Running {
    /// Starts recording `example` into `file`, or into a temporary file if `None`. `run` records; `wake` is called on
    /// the recording thread when the recording is complete.
    pub fn start(
        example: Example,
        file: Option<PathBuf>,
        run: fn(&str, &Path) -> Result<(), String>,
        wake: impl Fn() + Send + 'static,
    ) -> Self {
        let file = file.unwrap_or_else(|| temporary_file(example.name));
        let to = file.clone();
        let work = move || run(example.name, &to).map(|()| to);
        let outcome = Pending::start("highwater-record", "cannot record", work, wake);
        Self { example, file, begun: Instant::now(), outcome }
    }

    /// Returns the elapsed time and the size of the file so far.
    pub fn progress(&self) -> (Duration, u64) {
        (self.begun.elapsed(), std::fs::metadata(&self.file).map_or(0, |facts| facts.len()))
    }

    /// Takes the path of the file once it is recorded, or the reason recording failed, as a sentence; `None` before
    /// that. Must not be called again after that.
    pub fn poll(&self) -> Option<Result<PathBuf, String>> {
        self.outcome.poll()
    }
}

/// Returns a path for a temporary file that no other process of this program uses.
fn temporary_file(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("highwater-{}", std::process::id()));
    // If the folder cannot be created, writing the file reports why.
    let _ = std::fs::create_dir_all(&folder);
    folder.join(format!("{name}.snap"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: Example = Example { name: "made-up", title: "Made up", about: "Nothing.", picture: &[] };

    fn wait(run: fn(&str, &Path) -> Result<(), String>, file: Option<PathBuf>) -> (Running, Result<PathBuf, String>) {
        let (wake, woken) = std::sync::mpsc::channel();
        let running = Running::start(EXAMPLE, file, run, move || wake.send(()).unwrap_or_default());
        loop {
            if let Some(outcome) = running.poll() {
                return (running, outcome);
            }
            woken.recv().unwrap();
        }
    }

    #[test]
    fn what_was_recorded_is_reported_with_its_file_and_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chosen.snap");
        let run = |name: &str, to: &Path| std::fs::write(to, name).map_err(|why| why.to_string());
        let (running, outcome) = wait(run, Some(file.clone()));
        assert_eq!((outcome, running.progress().1), (Ok(file), 7));
        let (running, outcome) = wait(run, None);
        assert_eq!(outcome.as_ref(), Ok(&running.file));
        assert!(running.file.ends_with("made-up.snap"));
        std::fs::remove_file(&running.file).unwrap();
    }

    #[test]
    fn what_goes_wrong_is_reported() {
        let (_, outcome) = wait(|_, _| Err("the disk is full".to_owned()), None);
        assert_eq!(outcome, Err("the disk is full".to_owned()));
    }
}
