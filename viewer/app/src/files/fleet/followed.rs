//! The recordings of ranks while they are being written: changed recordings are read again, and new ones are added.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use highwater_analysis::Source;
use highwater_snapshots::{Error, RotatedFiles};
use web_time::Instant;

use super::inputs::Inputs;
use super::{Fleet, Outcome, on_workers};

/// The number of files of a recording, their bytes, and the time of the last change; used to detect changes.
type Stamp = (usize, u64, Option<SystemTime>);

/// Minimum time between two checks of the files.
const LOOK: Duration = Duration::from_secs(2);

/// Checks take at most this fraction of the time (one divided by this), however many and long the recordings are.
const LOOK_SHARE: u32 = 10;

/// The recordings of a run that are still being written, as summaries.
#[derive(Debug)]
pub struct FollowedFleet {
    paths: Vec<PathBuf>,
    /// The elements of `paths` that were folders when last read.
    folders: Vec<PathBuf>,
    due: Instant,
    /// The state of each recording when it was last read; `None` before the first time.
    known: Option<HashMap<PathBuf, (Stamp, Outcome)>>,
}

impl FollowedFleet {
    /// Follows the recordings among `paths`, and those in the folders among them.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, folders: Vec::new(), due: Instant::now(), known: None }
    }

    /// Returns the earliest time of the next check.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Reads the recordings that have changed, as [`Fleet::read`] does. `watch` receives the number of finished and of
    /// changed recordings. If `watch` breaks, the remaining recordings are left for the next call. Returns `None` if
    /// nothing has changed since the last call.
    ///
    /// # Errors
    /// Fails if a folder cannot be listed, for example because it was deleted.
    pub fn read(
        &mut self,
        open: impl Fn(&Path, bool) -> Result<Source<'static>, Error> + Sync,
        watch: impl Fn(usize, usize) -> ControlFlow<()> + Sync,
    ) -> io::Result<Option<Fleet>> {
        let begun = Instant::now();
        let read = self.read_changed(open, watch);
        self.due = Instant::now() + LOOK.max(begun.elapsed() * LOOK_SHARE);
        read
    }

    fn read_changed(
        &mut self,
        open: impl Fn(&Path, bool) -> Result<Source<'static>, Error> + Sync,
        watch: impl Fn(usize, usize) -> ControlFlow<()> + Sync,
    ) -> io::Result<Option<Fleet>> {
        for folder in &self.folders {
            fs::read_dir(folder)?;
        }
        let inputs = Inputs::of(&self.paths)?.with_rotations_joined();
        self.folders = self.paths.iter().filter(|path| path.is_dir()).cloned().collect();
        let is_first = self.known.is_none();
        let known = self.known.get_or_insert_default();
        let count = known.len();
        known.retain(|path, _| inputs.files.iter().any(|file| file.path == *path));
        let stamps: Vec<Stamp> = inputs.files.iter().map(|file| stamp(&file.path)).collect();
        let has_changed =
            |row: &usize| known.get(&inputs.files[*row].path).is_none_or(|(then, _)| *then != stamps[*row]);
        let changed: Vec<usize> = (0..inputs.files.len()).filter(has_changed).collect();
        if changed.is_empty() && known.len() == count && !is_first {
            return Ok(None);
        }
        let open = |path: &Path, is_whole: bool| match open(path, is_whole) {
            // Each file of a PyTorch program is a recording of its own: the newest one counts.
            Err(why @ Error::NotAPart { .. }) => {
                let newest = RotatedFiles::find(path).and_then(|rotated| rotated.files.into_iter().next_back());
                newest.map_or(Err(why), |(_, newest)| open(&newest, is_whole))
            }
            opened => opened,
        };
        let done = AtomicUsize::new(0);
        let read = |at: usize| {
            let outcome = inputs.files[changed[at]].summarized(open);
            (outcome, watch(done.fetch_add(1, Ordering::Relaxed) + 1, changed.len()))
        };
        for (row, outcome) in changed.iter().zip(on_workers(changed.len(), read)) {
            known.insert(inputs.files[*row].path.clone(), (stamps[*row], outcome));
        }
        let outcomes = inputs.files.iter().filter_map(|file| known.get(&file.path)).map(|(_, outcome)| outcome.clone());
        Ok(Some(Fleet::of(&inputs, outcomes)))
    }
}

fn stamp(path: &Path) -> Stamp {
    let files = RotatedFiles::find(path).map_or_else(|| vec![(0, path.to_owned())], |rotated| rotated.files);
    let facts = files.iter().filter_map(|(_, file)| fs::metadata(file).ok());
    facts.fold((0, 0, None), |(count, bytes, changed), facts| {
        (count + 1, bytes + facts.len(), changed.max(facts.modified().ok()))
    })
}

#[cfg(test)]
mod tests {
    use highwater_analysis::Metric;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::write_trace;
    use highwater_snapshots::rotation::numbered;

    use super::*;

    #[test]
    fn what_appears_grows_or_goes_is_read_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(path, write_trace(Vec::new(), &trace_from_text(text).unwrap()).unwrap()).unwrap();
        };
        let reads = AtomicUsize::new(0);
        let open = |path: &Path, _: bool| {
            reads.fetch_add(1, Ordering::Relaxed);
            let opened = highwater_pytorch::open::open_file(path, &mut |_| ControlFlow::Continue(()))?;
            Ok(Source::in_memory(opened.trace))
        };
        let mut followed = FollowedFleet::new(vec![folder.path().to_owned()]);
        let mut now = || {
            let fleet = followed.read(open, |_, _| ControlFlow::Continue(())).unwrap();
            let peak = |rank: &super::super::Rank| (rank.name.clone(), rank.peak(Metric::Requested).bytes);
            let found = fleet.map(|fleet| fleet.ranks.iter().map(peak).collect::<Vec<_>>());
            (found, reads.swap(0, Ordering::Relaxed))
        };
        assert_eq!(now(), (Some(vec![]), 0), "an empty folder");
        assert_eq!(now(), (None, 0));
        write("rank0.snap", "alloc a 10");
        write("rank1.snap", "alloc a 20");
        let [first, second] = [("rank0.snap".to_owned(), 10), ("rank1.snap".to_owned(), 20)];
        assert_eq!(now(), (Some(vec![first, second.clone()]), 2));
        assert_eq!(now(), (None, 0), "nothing has changed");
        write("rank0.snap", "alloc a 10\nalloc b 500");
        let first = ("rank0.snap".to_owned(), 510);
        assert_eq!(now(), (Some(vec![first.clone(), second.clone()]), 1), "only what has grown is read");
        // A rotation is one recording, whatever the number of its files.
        for number in 1..3 {
            let name = numbered(Path::new("rank2.snap"), number);
            write(name.to_str().unwrap(), &format!("alloc a {}", 30 * number));
            let (found, reads) = now();
            let names: Vec<String> = found.unwrap().into_iter().map(|(name, _)| name).collect();
            assert_eq!((names.join(" "), reads), ("rank0.snap rank1.snap rank2.snap".to_owned(), 1));
        }
        for (number, bytes) in [(1, 70), (2, 60)] {
            let name = numbered(Path::new("rank3.snap"), number);
            write(name.to_str().unwrap(), &format!("begin work\nalloc a {bytes}\nend work"));
            assert_eq!(now().0.unwrap().pop(), Some(("rank3.snap".to_owned(), bytes)), "of PyTorch, the newest file");
        }
        for name in ["rank2.0001.snap", "rank2.0002.snap", "rank3.0001.snap", "rank3.0002.snap"] {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        assert_eq!(now(), (Some(vec![first, second]), 0), "deleted files are removed from the list");
    }

    #[test]
    fn what_a_stopped_reading_leaves_out_is_read_the_next_time() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = write_trace(Vec::new(), &trace_from_text("alloc a 10").unwrap()).unwrap();
        for rank in 0..20 {
            fs::write(folder.path().join(format!("rank{rank}.snap")), &bytes).unwrap();
        }
        let open = |path: &Path, _: bool| {
            let opened = highwater_pytorch::open::open_file(path, &mut |_| ControlFlow::Continue(()))?;
            Ok(Source::in_memory(opened.trace))
        };
        let mut followed = FollowedFleet::new(vec![folder.path().to_owned()]);
        let mut count =
            |flow: ControlFlow<()>| followed.read(open, |_, _| flow).unwrap().map(|fleet| fleet.ranks.len());
        let read = count(ControlFlow::Break(())).unwrap();
        assert!((1..=super::super::worker_count()).contains(&read), "{read}");
        assert_eq!(count(ControlFlow::Continue(())), Some(20));
        assert_eq!(count(ControlFlow::Continue(())), None);
    }
}
