//! Follows a `.snap` file that is still being written: watches its path, or is given its bytes as they arrive.

mod feed;

use std::fs::{File, Metadata};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use highwater_snapshots::format::Follower;
use web_time::Instant;

use self::feed::Feed;
use crate::background;
use crate::session::Recording;

/// Time between two looks at the file's length.
const LOOK: Duration = Duration::from_millis(250);

/// A new recording takes this share of the time at most: building one is followed by a rest three times as long.
const REST: u32 = 3;

/// A finished recording whose index has not come after so long is taken as it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes that are read at a time.
const PORTION: usize = 1 << 20;

/// First bytes of the file by which it is known again.
const START: usize = 4096;

/// News of a file that is followed.
#[derive(Debug)]
pub enum Followed {
    /// It has grown: the recording so far.
    Grown(Box<Recording>),
    /// Its program has finished it: the whole recording. Nothing comes after.
    Finished(Box<Recording>),
    /// Nothing more is written, although it is not finished. Nothing comes after.
    Abandoned,
    /// It cannot be followed any further: why, and what to do, in a sentence. Nothing comes after.
    Lost(String),
}

/// A file that is being followed. Dropping it ends that.
#[derive(Debug)]
pub struct Following {
    path: PathBuf,
    news: Receiver<Followed>,
    has_ended: bool,
    /// Whether that is still to be reported.
    is_abandoned: bool,
    input: Input,
}

/// Where the bytes of the file come from.
#[derive(Debug)]
enum Input {
    /// From a thread that watches the file, and ends when this is dropped.
    Watched { _stop: Sender<()> },
    /// From [`Following::feed`].
    Fed(Feed),
}

impl Following {
    /// Starts to follow `path`, of which `events` events are known. `wake` is called, on the following thread, when
    /// there is something new.
    pub fn start(path: PathBuf, events: usize, wake: impl Fn() + Send + 'static) -> Self {
        let (outbox, news) = channel();
        let (stop, stopped) = channel();
        let (from, failed) = (path.clone(), outbox.clone());
        let work = move || {
            let watch = std::panic::AssertUnwindSafe(|| {
                Watcher { path: &from, known: events, stopped: &stopped, outbox: &outbox, wake: &wake }.watch()
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
        Self { path, news, has_ended: false, is_abandoned: false, input: Input::Watched { _stop: stop } }
    }

    /// Follows the file called `path`, whose bytes are passed to [`Self::feed`]. `wake` is called when there is something
    /// new.
    pub fn fed(path: PathBuf, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let (outbox, news) = channel();
        let feed = Feed::new(path.clone(), outbox, wake);
        Self { path, news, has_ended: false, is_abandoned: false, input: Input::Fed(feed) }
    }

    /// Reports that no more bytes will be fed.
    pub fn end(&mut self) {
        if let Input::Fed(feed) = &mut self.input {
            feed.end();
        }
    }

    /// Takes the next bytes of a file that is not watched.
    pub fn feed(&mut self, bytes: Vec<u8>) {
        if let Input::Fed(feed) = &mut self.input {
            feed.take(bytes);
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing will come any more.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the news since the last call; only the last recording counts.
    pub fn poll(&mut self) -> Option<Followed> {
        if std::mem::take(&mut self.is_abandoned) {
            self.has_ended = true;
            return Some(Followed::Abandoned);
        }
        let mut last = None;
        loop {
            match self.news.try_recv() {
                Ok(Followed::Abandoned) if last.is_some() => {
                    // Once more, after the last recording.
                    self.is_abandoned = true;
                    return last;
                }
                Ok(end @ (Followed::Finished(_) | Followed::Abandoned | Followed::Lost(_))) => {
                    self.has_ended = true;
                    return Some(end);
                }
                Ok(grown) => last = Some(grown),
                Err(TryRecvError::Empty) => return last,
                Err(TryRecvError::Disconnected) => {
                    let is_told = std::mem::replace(&mut self.has_ended, true);
                    let lost = || Followed::Lost("cannot follow the file: internal error; please report it".to_owned());
                    return last.or_else(|| (!is_told).then(lost));
                }
            }
        }
    }
}

/// Why watching ends.
enum Stop {
    /// Nobody wants to know any more.
    Unwanted,
    /// The file is not what it was.
    Lost(String),
}

struct Watcher<'a> {
    path: &'a Path,
    /// Events of the recording that is shown.
    known: usize,
    stopped: &'a Receiver<()>,
    outbox: &'a Sender<Followed>,
    wake: &'a dyn Fn(),
}

impl Watcher<'_> {
    fn watch(mut self) -> Result<(), Stop> {
        let mut file = File::open(self.path).map_err(|why| self.lost(&format!("cannot open the file: {why}")))?;
        let mut follower = Follower::new();
        let mut start = Vec::new();
        let mut finished_since: Option<Instant> = None;
        loop {
            let length = self.look(&file, follower.bytes_fed())?;
            let begun = Instant::now();
            if length > follower.bytes_fed() {
                self.recognise(&mut file, &start, follower.bytes_fed())?;
                self.feed(&mut file, &mut follower, &mut start, length)?;
                finished_since = None;
            }
            // The end of a recording says more than its events; its index follows it at once.
            let is_finished = follower.is_whole()
                || follower.is_finished() && finished_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE;
            if is_finished {
                return self.tell(Followed::Finished(Box::new(self.recording(&follower))));
            }
            if follower.events() > self.known {
                self.known = follower.events();
                self.tell(Followed::Grown(Box::new(self.recording(&follower))))?;
            }
            self.rest(LOOK.max(begun.elapsed() * REST))?;
        }
    }

    /// The length of the file, which must be the one that was opened, and not shorter than what was read of it.
    fn look(&self, file: &File, read: u64) -> Result<u64, Stop> {
        let facts = file.metadata().map_err(|why| self.lost(&format!("cannot read the file's size: {why}")))?;
        let now = std::fs::metadata(self.path).map_err(|_| self.lost("it is missing: it was moved or deleted"))?;
        if !is_same_file(&facts, &now) {
            return Err(self.lost("another file has replaced it; press F5 to read that one"));
        }
        if facts.len() < read {
            let what =
                format!("the file was truncated to {} of {read} bytes; press F5 to read what is left", facts.len());
            return Err(self.lost(&what));
        }
        Ok(facts.len())
    }

    /// Makes sure that the file still begins as it did: its program may have started anew.
    fn recognise(&self, file: &mut File, start: &[u8], read: u64) -> Result<(), Stop> {
        if read == 0 {
            return Ok(());
        }
        let mut now = vec![0; start.len()];
        let same = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_exact(&mut now));
        match same {
            Ok(()) if now == start => Ok(()),
            Ok(()) => Err(self.lost("the file was overwritten; press F5 to read the new recording")),
            Err(why) => Err(self.lost(&format!("cannot read the file: {why}"))),
        }
    }

    /// Feeds the bytes from those that were fed up to `length`.
    fn feed(&self, file: &mut File, follower: &mut Follower, start: &mut Vec<u8>, length: u64) -> Result<(), Stop> {
        let mut portion = vec![0; PORTION];
        let sought = file.seek(SeekFrom::Start(follower.bytes_fed()));
        sought.map_err(|why| self.lost(&format!("cannot read the file: {why}")))?;
        while follower.bytes_fed() < length {
            let most = usize::try_from(length - follower.bytes_fed()).unwrap_or(PORTION).min(PORTION);
            let taken = file.read(&mut portion[..most]);
            let taken = taken.map_err(|why| self.lost(&format!("cannot read the file: {why}")))?;
            if taken == 0 {
                break;
            }
            let bytes = &portion[..taken];
            start.extend_from_slice(&bytes[..taken.min(START.saturating_sub(start.len()))]);
            follower.feed(bytes).map_err(|why| self.lost(&why.to_string()))?;
            self.check()?;
        }
        Ok(())
    }

    fn recording(&self, follower: &Follower) -> Recording {
        recording(self.path, follower)
    }

    fn tell(&self, news: Followed) -> Result<(), Stop> {
        self.outbox.send(news).map_err(|_| Stop::Unwanted)?;
        (self.wake)();
        Ok(())
    }

    fn check(&self) -> Result<(), Stop> {
        if self.stopped.try_recv() == Err(TryRecvError::Disconnected) { Err(Stop::Unwanted) } else { Ok(()) }
    }

    /// Waits, unless the receiver is gone.
    fn rest(&self, time: Duration) -> Result<(), Stop> {
        match self.stopped.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(Stop::Unwanted),
        }
    }

    fn lost(&self, why: &str) -> Stop {
        Stop::Lost(format!("stopped following {}: {why}", self.path.display()))
    }
}

/// The recording at `path` so far.
fn recording(path: &Path, follower: &Follower) -> Recording {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Recording::new(name, Some(path.to_owned()), follower.trace())
}

/// Whether both describe the same file, as reported by the system.
#[cfg(unix)]
fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether both describe the same file, as reported by the system.
#[cfg(not(unix))]
fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    one.created().ok() == other.created().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::event::Event;
    use highwater_snapshots::format::{EndFacts, SnapWriter, write_trace};
    use highwater_snapshots::text::trace_from_text;
    use highwater_snapshots::{EventId, Trace};

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
        let (wake, woken) = channel();
        (Following::start(path.to_owned(), known, move || wake.send(()).unwrap_or_default()), woken)
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
    fn a_file_that_grows_is_brought_as_it_grows_and_its_end_is_told() {
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
                Followed::Abandoned => panic!("it is finished"),
            }
        }
        assert_eq!((peak(&recording), recording.trace.trust.unfinished), (90, false));
        assert_eq!(recording.trace.problems, []);
        assert!(following.has_ended() && following.poll().is_none());
    }

    /// Follows a recording of one event, does something to the file, and gives what is told.
    fn told_after(change: impl FnOnce(&Path)) -> String {
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
    fn a_file_that_is_cut_written_anew_replaced_or_deleted_is_told_as_such() {
        let cut = told_after(|path| File::options().write(true).open(path).unwrap().set_len(20).unwrap());
        assert!(cut.contains("the file was truncated to 20 of"), "{cut}");
        let anew = told_after(|path| {
            let mut other = trace_from_text(TEXT).unwrap();
            other.header.program = "another run, whose header is longer than what the first has in all".repeat(40);
            std::fs::write(path, write_trace(Vec::new(), &other).unwrap()).unwrap();
        });
        assert!(anew.contains("overwritten") || anew.contains("truncated to 0"), "{anew}");
        #[cfg(unix)]
        {
            let replaced = told_after(|path| {
                let other = path.with_extension("other");
                std::fs::copy(path, &other).unwrap();
                std::fs::rename(&other, path).unwrap();
            });
            assert!(replaced.contains("another file has replaced it"), "{replaced}");
            let deleted = told_after(|path| std::fs::remove_file(path).unwrap());
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
