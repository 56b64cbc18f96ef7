//! Peak, steps, age and existence of recently opened files.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::SystemTime;

use highwater_analysis::Metric;
use highwater_snapshots::{count_of, format_bytes};

use crate::background;
use crate::files::fleet::{Fleet, Inputs};
use crate::files::loader::open_rank;

/// Maximum size in bytes of a file that is read to show its figures.
const MAX_READ: u64 = 8 << 20;

/// The name in the list of the engine's accounting device.
pub(crate) const SIMULATED: &str = "simulated (no GPU)";

/// What is known of a file: its figures, or otherwise its size, and its modification time; `None` if the file does not
/// exist.
type Known = Option<([String; 3], Option<SystemTime>)>;

/// Facts about recent files. They are read on a background thread, so that a sleeping disk or a disconnected network
/// drive does not block the window.
#[derive(Debug, Default)]
pub(crate) struct Recents {
    asked: Vec<PathBuf>,
    facts: HashMap<PathBuf, Known>,
    answers: Option<Receiver<(PathBuf, Known)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Unknown,
    Missing,
    /// The peak, or otherwise the size; steps and failures; the device; and the age.
    There([String; 4]),
}

impl Fact {
    pub(crate) fn texts(&self) -> [&str; 4] {
        match self {
            Self::Unknown => [""; 4],
            Self::Missing => ["no longer exists", "", "", ""],
            Self::There(facts) => facts.each_ref().map(String::as_str),
        }
    }
}

impl Recents {
    /// Requests the facts about `files`, once for each list, and receives available results. `wake` is called on the
    /// background thread when there is a new result.
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
            let facts = asked.iter().map(|file| std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file));
            let facts: Vec<_> = asked.iter().zip(facts).collect();
            for (file, facts) in &facts {
                let size = |facts: &std::fs::Metadata| [format_bytes(facts.len()), String::new(), String::new()];
                let known = facts.as_ref().map(|facts| (size(facts), facts.modified().ok()));
                let _ = sender.send(((*file).clone(), known));
            }
            wake();
            for (file, facts) in facts {
                let small = facts.filter(|facts| facts.len() <= MAX_READ);
                let Some((facts, figures)) = small.and_then(|facts| Some((facts, figures(file)?))) else { continue };
                if sender.send((file.clone(), Some((figures, facts.modified().ok())))).is_err() {
                    return;
                }
                wake();
            }
        };
        // Without a thread only the names are shown.
        let _ = background::start("highwater-recent", ask);
    }

    pub(crate) fn fact(&self, file: &Path, now: SystemTime) -> Fact {
        match self.facts.get(file) {
            None => Fact::Unknown,
            Some(None) => Fact::Missing,
            Some(Some(([size, steps, device], modified))) => {
                let age = modified.map(|then| age(then, now)).unwrap_or_default();
                Fact::There([size.clone(), steps.clone(), device.clone(), age])
            }
        }
    }
}

/// Returns the peak, the steps, the failures and the device of the recording in `file`; `None` if it cannot be read.
fn figures(file: &Path) -> Option<[String; 3]> {
    let flow = || ControlFlow::Continue(());
    let inputs = Inputs::of(&[file.to_owned()]).ok()?;
    let fleet = Fleet::read(&inputs, |file, is_whole| open_rank(file, is_whole, flow), |_| flow())?;
    let summary = &fleet.ranks.first()?.main().summary;
    let peak = format!("peak {}", format_bytes(summary.peak(Metric::Requested)?.bytes));
    let failed = (summary.oom_events > 0).then(|| "out of memory".to_owned());
    let steps = (summary.steps > 0).then(|| count_of(summary.steps, "step"));
    let run: Vec<String> = steps.into_iter().chain(failed).collect();
    let device: &str = if summary.name == "accounting device" { SIMULATED } else { &summary.name };
    Some([peak, run.join(", "), device.to_owned()])
}

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

    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::write_trace;
    use highwater_snapshots::trace::DeviceFacts;

    use super::*;

    #[test]
    fn recordings_show_their_peak_and_steps() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.snap");
        let trace = trace_from_text("step 0\nalloc a 2048\nfree a\nstep 1\nalloc b 4096").unwrap();
        let facts = DeviceFacts { name: "accounting device".to_owned(), ..DeviceFacts::default() };
        let trace = trace.edited(|trace| trace.devices = vec![facts]);
        std::fs::write(&file, write_trace(Vec::new(), &trace).unwrap()).unwrap();
        let mut recents = Recents::default();
        let (wake, woken) = channel();
        let files = [file.clone()];
        recents.refresh(&files, move || wake.send(()).unwrap());
        // After the sizes, then after each recording.
        (0..2).for_each(|_| woken.recv().unwrap());
        recents.refresh(&files, || panic!("asked once only"));
        assert_eq!(
            recents.fact(&file, SystemTime::now()),
            Fact::There(["peak 4 KiB", "2 steps", SIMULATED, "just now"].map(str::to_owned))
        );
    }

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
        assert_eq!(recents.fact(&there, later), Fact::There(["2 KiB", "", "", "2 hours ago"].map(str::to_owned)));
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
