//! Loader: reads a recording on a thread of its own, tells how far it is, and can be called off.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, PoisonError, RwLock};

use highwater_snapshots::format::{Progress, read_bytes_with};
use highwater_snapshots::{Error, Trace};

use crate::args::is_stdin;
use crate::session::Recording;

/// Bytes read from disk between two looks at whether we have been called off.
const PORTION: u64 = 8 << 20;

/// A recording on its way in. Dropping it calls the reading off.
#[derive(Debug)]
pub struct Loading {
    path: PathBuf,
    state: Arc<State>,
    outcome: Receiver<Result<Recording, String>>,
}

/// What the reading thread shares with the window.
#[derive(Debug)]
struct State {
    is_cancelled: AtomicBool,
    events: AtomicU64,
    /// Thousandths of the way.
    permille: AtomicU64,
    stage: RwLock<&'static str>,
}

impl State {
    fn new() -> Self {
        Self {
            is_cancelled: AtomicBool::new(false),
            events: AtomicU64::new(0),
            permille: AtomicU64::new(0),
            stage: RwLock::new("Opening"),
        }
    }

    fn enter(&self, stage: &'static str) {
        *self.stage.write().unwrap_or_else(PoisonError::into_inner) = stage;
        self.permille.store(0, Ordering::Relaxed);
    }

    fn is_at(&self, done: u64, whole: u64) {
        let permille = (u128::from(done) * 1000 / u128::from(whole.max(1))).min(1000) as u64;
        self.permille.store(permille, Ordering::Relaxed);
    }
}

/// How a reading stands.
#[derive(Debug)]
pub enum Outcome {
    /// Not finished.
    Pending,
    /// Read and indexed.
    Ready(Box<Recording>),
    /// It could not be read: why, in a sentence.
    Failed(String),
    /// It was called off.
    Cancelled,
}

impl Loading {
    /// Starts to read `path`, or standard input for `-`. `wake` is called, on the reading thread, when something is new.
    pub fn start(path: PathBuf, wake: impl Fn() + Send + 'static) -> Self {
        let state = Arc::new(State::new());
        let (sender, outcome) = channel();
        let (shared, from, failed) = (Arc::clone(&state), path.clone(), sender.clone());
        let work = move || {
            let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| load(&from, &shared, &wake)));
            let broken = "the reader failed on this file; please report it, with the file if you can";
            // The window may be gone by now: then nobody wants to know.
            let _ = sender.send(read.unwrap_or_else(|_| Err(broken.to_owned())));
            wake();
        };
        if let Err(why) = std::thread::Builder::new().name("highwater-load".to_owned()).spawn(work) {
            let _ = failed.send(Err(format!("cannot start a thread to read it: {why}")));
        }
        Self { path, state, outcome }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is being done, and how much of that is done, from 0 to 1.
    pub fn progress(&self) -> (String, f32) {
        let stage = *self.state.stage.read().unwrap_or_else(PoisonError::into_inner);
        let events = self.state.events.load(Ordering::Relaxed);
        let counted = if events > 0 {
            format!(", {} events", highwater_snapshots::units::format_count(events))
        } else {
            String::new()
        };
        (format!("{stage}{counted}"), self.state.permille.load(Ordering::Relaxed) as f32 / 1000.0)
    }

    /// Calls the reading off; it ends soon after.
    pub fn cancel(&self) {
        self.state.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// How it stands. What is ready, or has failed, is told once.
    pub fn poll(&self) -> Outcome {
        let is_cancelled = self.state.is_cancelled.load(Ordering::Relaxed);
        match self.outcome.try_recv() {
            Ok(_) | Err(TryRecvError::Disconnected) if is_cancelled => Outcome::Cancelled,
            Ok(Ok(recording)) => Outcome::Ready(Box::new(recording)),
            Ok(Err(why)) => Outcome::Failed(why),
            Err(TryRecvError::Empty) => Outcome::Pending,
            Err(TryRecvError::Disconnected) => Outcome::Failed("the thread that reads it is gone".to_owned()),
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// What bytes are read from.
struct Input {
    bytes: Box<dyn Read>,
    /// How many there are; the largest number where that is not known.
    length: u64,
}

impl Input {
    fn open(path: &Path) -> Result<Self, Error> {
        if is_stdin(path) {
            return Ok(Self { bytes: Box::new(std::io::stdin()), length: u64::MAX });
        }
        let io = |source| Error::Io { doing: "open", source, path: path.to_owned() };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        Ok(Self { bytes: Box::new(file), length })
    }
}

/// Reads and indexes `path`; the error is a sentence for the user.
fn load(path: &Path, state: &State, wake: &dyn Fn()) -> Result<Recording, String> {
    let input = Input::open(path).map_err(|why| why.to_string())?;
    load_from(input, path, state, wake)
}

fn load_from(input: Input, path: &Path, state: &State, wake: &dyn Fn()) -> Result<Recording, String> {
    let trace = read(input, path, state, wake).map_err(|why| why.to_string())?;
    state.enter("Indexing");
    wake();
    if is_stdin(path) {
        // It can be read once only: there is nothing to read again, and nothing to remember.
        return Ok(Recording::new("standard input", None, trace));
    }
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    Ok(Recording::new(name, Some(path.to_owned()), trace))
}

fn read(mut input: Input, path: &Path, state: &State, wake: &dyn Fn()) -> Result<Trace, Error> {
    state.enter("Reading");
    let mut bytes = Vec::new();
    loop {
        if state.is_cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let taken = (&mut input.bytes).take(PORTION).read_to_end(&mut bytes);
        let taken = taken.map_err(|source| Error::Io { doing: "read", source, path: path.to_owned() })?;
        state.is_at(bytes.len() as u64, input.length);
        wake();
        if taken == 0 {
            break;
        }
    }
    state.enter("Decoding");
    read_bytes_with(&bytes, &mut |progress: Progress| {
        state.events.store(progress.events, Ordering::Relaxed);
        state.is_at(progress.bytes_read, progress.bytes);
        wake();
        if state.is_cancelled.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::format::write_trace;
    use highwater_snapshots::text::trace_from_text;

    fn wait(path: PathBuf) -> Outcome {
        let (sender, woken) = channel();
        let loading = Loading::start(path, move || sender.send(()).unwrap_or_default());
        loop {
            match loading.poll() {
                Outcome::Pending => woken.recv().unwrap(),
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn a_recording_comes_in_with_its_indices() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step.snap");
        let trace = trace_from_text("alloc a 10\nalloc b 20\nfree a").unwrap();
        write_trace(File::create(&path).unwrap(), &trace).unwrap();
        let Outcome::Ready(recording) = wait(path) else { panic!("not read") };
        assert_eq!(recording.name, "step.snap");
        assert_eq!(recording.devices[0].summary.peaks[0].bytes, 30);
    }

    #[test]
    fn standard_input_is_a_recording_without_a_file_to_return_to() {
        let bytes = write_trace(Vec::new(), &trace_from_text("alloc a 10").unwrap()).unwrap();
        let input = Input { bytes: Box::new(std::io::Cursor::new(bytes)), length: u64::MAX };
        let recording = load_from(input, Path::new("-"), &State::new(), &|| {}).unwrap();
        assert_eq!((recording.name.as_str(), recording.path), ("standard input", None));
        assert_eq!(recording.devices[0].summary.peaks[0].bytes, 10);
    }

    #[test]
    fn what_cannot_be_read_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let Outcome::Failed(why) = wait(folder.path().join("gone.snap")) else { panic!("read") };
        assert!(why.contains("gone.snap"), "{why}");
        let path = folder.path().join("letter.txt");
        std::fs::write(&path, "Dear all").unwrap();
        let Outcome::Failed(why) = wait(path) else { panic!("read") };
        assert!(why.contains("no recording"), "{why}");
    }

    #[test]
    fn a_reading_that_is_called_off_gives_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, woken) = channel();
        let loading = Loading::start(folder.path().join("gone.snap"), move || {
            sender.send(()).unwrap_or_default();
        });
        loading.cancel();
        woken.recv().unwrap();
        let outcome = std::iter::repeat_with(|| loading.poll()).find(|outcome| !matches!(outcome, Outcome::Pending));
        assert!(matches!(outcome, Some(Outcome::Cancelled)));
    }
}
