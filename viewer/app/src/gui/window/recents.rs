//! Size, age and existence of recently opened files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::SystemTime;

use highwater_snapshots::format_bytes;

use crate::background;

/// Size and time of a file; `None` if it does not exist.
type Known = Option<(u64, Option<SystemTime>)>;

/// Facts about recent files. They are read on a background thread, so that a sleeping disk or a disconnected network
/// drive does not block the window.
#[derive(Debug, Default)]
pub(crate) struct Recents {
    asked: Vec<PathBuf>,
    facts: HashMap<PathBuf, Known>,
    answers: Option<Receiver<(PathBuf, Known)>>,
}

/// The state of a file in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// Not known yet.
    Unknown,
    /// The file does not exist.
    Missing,
    /// The size and age, as text.
    There(String),
}

impl Recents {
    /// Requests the facts about `files`, once for each list, and receives available results. `wake` is called on the
    /// background thread when there is a new one.
    pub(crate) fn refresh(&mut self, files: &[PathBuf], wake: impl Fn() + Send + 'static) {
        if let Some(answers) = &self.answers {
            self.facts.extend(answers.try_iter());
        }
        if self.asked == files {
            return;
        }
        self.asked = files.to_vec();
        let (sender, answers) = channel();
        self.answers = Some(answers);
        let asked = self.asked.clone();
        let ask = move || {
            for file in asked {
                let facts = std::fs::metadata(&file).ok().filter(std::fs::Metadata::is_file);
                let known = facts.map(|facts| (facts.len(), facts.modified().ok()));
                if sender.send((file, known)).is_err() {
                    return;
                }
            }
            wake();
        };
        // Without a thread only the names are shown.
        let _ = background::start("highwater-recent", ask);
    }

    /// The state of `file`; `now` is the current time.
    pub(crate) fn fact(&self, file: &Path, now: SystemTime) -> Fact {
        match self.facts.get(file) {
            None => Fact::Unknown,
            Some(None) => Fact::Missing,
            Some(Some((bytes, modified))) => {
                let age = modified.map(|then| format!(", {}", age(then, now))).unwrap_or_default();
                Fact::There(format!("{}{age}", format_bytes(*bytes)))
            }
        }
    }
}

/// The age of `then`, as text.
fn age(then: SystemTime, now: SystemTime) -> String {
    let seconds = now.duration_since(then).map_or(0, |age| age.as_secs());
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        86_400..5_184_000 => (seconds / 86_400, "day"),
        5_184_000..63_072_000 => (seconds / 2_592_000, "month"),
        _ => (seconds / 31_536_000, "year"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn files_that_are_there_show_their_size_and_age_and_others_that_they_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (there, gone) = (folder.path().join("a.snap"), folder.path().join("b.snap"));
        std::fs::write(&there, [0; 2048]).unwrap();
        let mut recents = Recents::default();
        let (wake, woken) = channel();
        let files = [there.clone(), gone.clone()];
        assert_eq!(recents.fact(&there, SystemTime::now()), Fact::Unknown);
        recents.refresh(&files, move || wake.send(()).unwrap());
        woken.recv().unwrap();
        recents.refresh(&files, || panic!("asked once only"));
        let later = std::fs::metadata(&there).unwrap().modified().unwrap() + Duration::from_secs(7300);
        assert_eq!(recents.fact(&there, later), Fact::There("2 KiB, 2 hours ago".to_owned()));
        assert_eq!(recents.fact(&gone, later), Fact::Missing);
    }

    #[test]
    fn ages_are_reported_in_the_largest_unit_that_fits() {
        let now = SystemTime::now();
        let ages = [0, 59, 60, 3600, 90_000, 200_000, 6_000_000, 70_000_000].map(Duration::from_secs);
        let told = ages.map(|age_of| age(now - age_of, now));
        let expected = [
            "just now",
            "just now",
            "1 minute ago",
            "1 hour ago",
            "1 day ago",
            "2 days ago",
            "2 months ago",
            "2 years ago",
        ];
        assert_eq!(told, expected);
        assert_eq!(age(now + ages[3], now), "just now", "clocks may differ");
    }
}
