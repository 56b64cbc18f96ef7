//! Follows a `.snap` file that is still being written: watches its path, or receives its bytes from the caller.

mod feed;
mod watcher;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use highwater_snapshots::format::Follower;

use self::feed::Feed;
use self::watcher::{Stop, Watcher};
use crate::files::file_name;
use crate::session::run::Run;
use crate::{Recording, background};

/// An update about a file that is being followed.
#[derive(Debug)]
pub enum Followed {
    /// The file has grown. Contains the recording so far.
    Grown(Box<Recording>),
    /// The program has finished the recording, which is complete. This is the last update.
    Finished(Box<Recording>),
    /// The recording has become too long to be in memory, and is now read in parts.
    Long(Arc<Run>),
    /// The long recording has grown.
    Lengthened,
    /// The program has finished the long recording. This is the last update.
    Completed,
    /// The recording is unfinished, but nothing more will be written. This is the last update.
    Abandoned,
    /// The file cannot be followed any further. Contains the reason as a message, with a remedy if there is one. This
    /// is the last update.
    Lost(String),
}

/// A file that is being followed, until this is dropped.
#[derive(Debug)]
pub struct Following {
    path: PathBuf,
    news: Receiver<Followed>,
    has_ended: bool,
    /// Whether [`Followed::Abandoned`] is still to be reported.
    is_abandoned: bool,
    has_input_ended: bool,
    input: Input,
}

#[derive(Debug)]
enum Input {
    /// A thread that watches the file, and ends when this value is dropped.
    Watched { _stop: Sender<()> },
    /// The caller passes the bytes to [`Following::feed`].
    Fed(Feed),
}

impl Following {
    /// Starts following the file of `recording`. With more than `most_resident` events, the recording is read in parts.
    /// `wake` is called on the following thread when there is an update. `None` if the recording has no file.
    pub(crate) fn start(recording: &Recording, most_resident: u64, wake: impl Fn() + Send + 'static) -> Option<Self> {
        let events = recording.trace.events.len();
        let path = recording.path.clone()?;
        Some(Self::watch(path, events, (recording.run.clone(), most_resident), wake))
    }

    fn watch(
        path: PathBuf,
        known: usize,
        (run, most_resident): (Option<Arc<Run>>, u64),
        wake: impl Fn() + Send + 'static,
    ) -> Self {
        let (outbox, news) = channel();
        let (stop, stopped) = channel();
        let (from, failed) = (path.clone(), outbox.clone());
        let work = move || {
            let watch = std::panic::AssertUnwindSafe(|| {
                let (stopped, outbox, wake) = (&stopped, &outbox, &wake);
                Watcher { path: &from, known, run, most_resident, stopped, outbox, wake }.watch()
            });
            let end = std::panic::catch_unwind(watch).unwrap_or_else(|_| {
                Err(Stop::Lost("cannot read the file: internal error; please report it".to_owned()))
            });
            if let Err(Stop::Lost(why)) = end {
                let _ = outbox.send(Followed::Lost(why));
                wake();
            }
        };
        if let Err(why) = background::start("highwater-follow", work) {
            let _ = failed.send(Followed::Lost(format!("cannot follow the file: {why}")));
        }
        let input = Input::Watched { _stop: stop };
        Self { path, news, has_ended: false, is_abandoned: false, has_input_ended: false, input }
    }

    /// Follows the file called `path`, whose bytes the caller passes to [`Self::feed`]. `wake` is called after updates.
    pub(crate) fn fed(path: PathBuf, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let (outbox, news) = channel();
        let feed = Feed::new(path.clone(), outbox, wake);
        Self { path, news, has_ended: false, is_abandoned: false, has_input_ended: false, input: Input::Fed(feed) }
    }

    /// Reports that no more bytes will be fed.
    pub(crate) fn end(&mut self) {
        self.has_input_ended = true;
        if let Input::Fed(feed) = &mut self.input {
            feed.end();
        }
    }

    pub(crate) fn has_input_ended(&self) -> bool {
        self.has_input_ended
    }

    pub(crate) fn feed(&mut self, bytes: Vec<u8>) {
        if let Input::Fed(feed) = &mut self.input {
            feed.take(bytes);
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the latest update since the last call; `None` if there is none.
    pub(crate) fn poll(&mut self) -> Option<Followed> {
        if std::mem::take(&mut self.is_abandoned) {
            self.has_ended = true;
            return Some(Followed::Abandoned);
        }
        let mut last = None;
        loop {
            match self.news.try_recv() {
                Ok(Followed::Abandoned) if last.is_some() => {
                    // Reported by the next call, after the last recording.
                    self.is_abandoned = true;
                    return last;
                }
                Ok(end @ (Followed::Finished(_) | Followed::Completed | Followed::Abandoned | Followed::Lost(_))) => {
                    self.has_ended = true;
                    return Some(end);
                }
                Ok(Followed::Long(run)) => return Some(Followed::Long(run)),
                Ok(grown) => last = Some(grown),
                Err(TryRecvError::Empty) => return last,
                Err(TryRecvError::Disconnected) => {
                    let was_reported = std::mem::replace(&mut self.has_ended, true);
                    let lost = || Followed::Lost("cannot follow the file: internal error; please report it".to_owned());
                    return last.or_else(|| (!was_reported).then(lost));
                }
            }
        }
    }
}

/// Returns the part of the recording at `path` that has been read.
fn recording(path: &Path, follower: &Follower) -> Recording {
    Recording::new(file_name(path), Some(path.to_owned()), follower.trace())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::mpsc::RecvTimeoutError;
    use std::time::Duration;

    use super::*;
    use highwater_analysis::Metric;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::event::Event;
    use highwater_snapshots::format::{EndFacts, SnapWriter, write_trace};
    use highwater_snapshots::{DeviceId, EventId, Trace};

    /// Writes a recording of the text notation event by event.
    struct Slowly {
        trace: Trace,
        writer: SnapWriter<File>,
        written: u32,
    }

    impl Slowly {
        fn start(path: &Path, text: &str) -> Self {
            let trace = trace_from_text(text).unwrap();
            let writer = SnapWriter::create(path, &trace.header).unwrap();
            Self { trace, writer, written: 0 }
        }

        fn write(&mut self, count: u32) {
            for index in self.written..self.written + count {
                let (events, row) = (&self.trace.events, index as usize);
                let what = self.trace.what(EventId(index));
                let event =
                    Event { time_ns: events.time_ns[row], device: events.device[row], stack: events.stack[row], what };
                self.writer.write_events(&[event]).unwrap();
            }
            self.written += count;
        }
    }

    const TEXT: &str = "alloc a 10\nalloc b 20\nfree_requested a\nalloc c 30\nalloc d 40";

    /// The next value.
    fn next(following: &mut Following, woken: &Receiver<()>) -> Followed {
        loop {
            if let Some(news) = following.poll() {
                return news;
            }
            woken.recv_timeout(Duration::from_secs(60)).expect("something happens");
        }
    }

    fn follow(path: &Path, known: usize) -> (Following, Receiver<()>) {
        follow_up_to(path, known, u64::MAX)
    }

    /// Follows a file that is read in parts if it has more than `most_resident` events.
    fn follow_up_to(path: &Path, known: usize, most_resident: u64) -> (Following, Receiver<()>) {
        let (wake, woken) = channel();
        let wake = move || wake.send(()).unwrap_or_default();
        (Following::watch(path.to_owned(), known, (None, most_resident), wake), woken)
    }

    fn peak(recording: &Recording) -> u64 {
        recording.devices[0].summary.peaks[0].bytes
    }

    #[test]
    fn bytes_that_arrive_in_pieces_are_followed_to_the_end() {
        let (wake, woken) = channel();
        let mut following = Following::fed("served.snap".into(), move || wake.send(()).unwrap());
        let bytes = write_trace(Vec::new(), &trace_from_text("alloc a 10\nalloc b 20").unwrap()).unwrap();
        let (start, end) = bytes.split_at(bytes.len() / 2);
        following.feed(start.to_vec());
        following.feed(end.to_vec());
        let recording = loop {
            woken.recv_timeout(Duration::from_secs(60)).expect("something happens");
            match following.poll() {
                Some(Followed::Finished(recording)) => break recording,
                Some(Followed::Lost(why)) => panic!("{why}"),
                _ => {}
            }
        };
        assert_eq!((recording.name.as_str(), recording.trace.events.len()), ("served.snap", 2));
        let (wake, woken) = channel();
        let mut following = Following::fed("killed.snap".into(), move || wake.send(()).unwrap());
        following.feed(start.to_vec());
        following.end();
        while !matches!(following.poll(), Some(Followed::Abandoned)) {
            woken.recv_timeout(Duration::from_secs(60)).expect("something happens");
        }
        let mut following = Following::fed("letter.txt".into(), || {});
        following.feed(b"Dear all, this is long enough to be looked at".to_vec());
        let why = loop {
            if let Some(Followed::Lost(why)) = following.poll() {
                break why;
            }
        };
        assert!(why.contains("letter.txt"), "{why}");
    }

    #[test]
    fn a_file_that_grows_is_brought_as_it_grows_and_its_end_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.snap");
        let mut slowly = Slowly::start(&path, TEXT);
        slowly.write(2);
        let (mut following, woken) = follow(&path, 2);
        slowly.write(2);
        let mut recording = loop {
            let Followed::Grown(recording) = next(&mut following, &woken) else { panic!("it only grows") };
            if recording.trace.events.len() == 4 {
                break recording;
            }
        };
        assert_eq!((peak(&recording), recording.trace.trust.unfinished), (50, true));
        assert_eq!((recording.path.as_deref(), recording.name.as_str()), (Some(path.as_path()), "run.snap"));
        slowly.write(1);
        slowly.writer.finish(&EndFacts::default()).unwrap();
        loop {
            match next(&mut following, &woken) {
                Followed::Grown(_) => {}
                Followed::Finished(whole) => {
                    recording = whole;
                    break;
                }
                Followed::Lost(why) => panic!("{why}"),
                other => panic!("it is finished, but {other:?}"),
            }
        }
        assert_eq!((peak(&recording), recording.trace.trust.unfinished), (90, false));
        assert_eq!(recording.trace.problems, []);
        assert!(following.has_ended() && following.poll().is_none());
    }

    #[test]
    fn a_file_that_becomes_long_is_not_held_in_memory_and_its_summaries_grow() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.snap");
        let mut slowly = Slowly::start(&path, TEXT);
        slowly.write(2);
        let (mut following, woken) = follow_up_to(&path, 2, 3);
        slowly.write(2);
        let run = loop {
            match next(&mut following, &woken) {
                Followed::Long(run) => break run,
                Followed::Grown(recording) => assert!(recording.trace.events.len() <= 3),
                other => panic!("it becomes long, but {other:?}"),
            }
        };
        assert_eq!((run.events(), run.is_unfinished()), (4, true));
        slowly.write(1);
        let Followed::Lengthened = next(&mut following, &woken) else { panic!("it grows") };
        assert_eq!((run.events(), run.peak_event(DeviceId(0), Metric::Requested).unwrap()), (5, 4));
        slowly.writer.finish(&EndFacts::default()).unwrap();
        let Followed::Completed = next(&mut following, &woken) else { panic!("it is finished") };
        assert!(following.has_ended() && following.poll().is_none() && !run.is_unfinished());
    }

    /// Follows a recording of one event, does something to the file, and gives what is told.
    fn reason_after(change: impl FnOnce(&Path)) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.snap");
        Slowly::start(&path, TEXT).write(1);
        let (mut following, woken) = follow(&path, 0);
        let first = next(&mut following, &woken);
        assert!(matches!(first, Followed::Grown(recording) if recording.trace.events.len() == 1));
        change(&path);
        let Followed::Lost(why) = next(&mut following, &woken) else { panic!("not told") };
        assert!(following.has_ended() && why.contains("stopped following ") && why.contains("run.snap: "), "{why}");
        why
    }

    #[test]
    fn a_file_that_is_cut_written_anew_replaced_or_deleted_is_reported_as_such() {
        let cut = reason_after(|path| File::options().write(true).open(path).unwrap().set_len(20).unwrap());
        assert!(cut.contains("the file was truncated to 20 of"), "{cut}");
        let anew = reason_after(|path| {
            let other = trace_from_text(TEXT).unwrap().edited(|other| {
                other.header.program = "another run, whose header is longer than what the first has in all".repeat(40);
            });
            std::fs::write(path, write_trace(Vec::new(), &other).unwrap()).unwrap();
        });
        assert!(anew.contains("overwritten") || anew.contains("truncated to 0"), "{anew}");
        #[cfg(unix)]
        {
            let replaced = reason_after(|path| {
                let other = path.with_extension("other");
                std::fs::copy(path, &other).unwrap();
                std::fs::rename(&other, path).unwrap();
            });
            assert!(replaced.contains("another file has replaced it"), "{replaced}");
            let deleted = reason_after(|path| std::fs::remove_file(path).unwrap());
            assert!(deleted.contains("moved or deleted"), "{deleted}");
        }
    }

    #[test]
    fn what_is_no_recording_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letter.txt");
        std::fs::write(&path, "Dear all, this is long enough to be looked at").unwrap();
        let (mut following, woken) = follow(&path, 0);
        let Followed::Lost(why) = next(&mut following, &woken) else { panic!("followed") };
        assert!(why.contains("not a recording"), "{why}");
    }

    #[test]
    fn the_thread_ends_when_nobody_follows_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.snap");
        Slowly::start(&path, TEXT).write(1);
        let (following, woken) = follow(&path, 1);
        drop(following);
        assert_eq!(woken.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
    }
}
