//! Reads a recording, or a folder of recordings, on a background thread. Reports progress and a preview, and can be
//! cancelled.

use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

#[cfg(not(target_family = "wasm"))]
use highwater_analysis::Metric;
use highwater_analysis::guess::{Rules, guess};
use highwater_pytorch::open::{FileKind, Opened, open_file, open_sized, open_stream};
use highwater_snapshots::format::Progress;
#[cfg(not(target_family = "wasm"))]
use highwater_snapshots::format::Windows;
use highwater_snapshots::yielding::yield_if_due;
use highwater_snapshots::{Error, Trace};
use web_time::Instant;

#[cfg(not(target_family = "wasm"))]
use crate::files::computed_cache::open_long;
use crate::files::fleet::{Fleet, FollowedFleet};
use crate::files::preview::Preview;
use crate::files::{is_stdin, recording_name};
#[cfg(not(target_family = "wasm"))]
use crate::session::run::MAX_RESIDENT_EVENTS;
#[cfg(not(target_family = "wasm"))]
use crate::session::run::Run;
use crate::{Pending, Recording};

/// The source of a recording.
pub enum Source {
    /// A file, a folder of ranks, or standard input for `-`.
    Path(PathBuf),
    /// A file that was provided without a path, as in browsers.
    Content {
        /// The name of the file.
        name: PathBuf,
        /// The length of the file in bytes.
        length: u64,
        /// The content of the file.
        content: Box<dyn Read + Send>,
    },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Source").field(&self.path()).finish()
    }
}

impl Source {
    /// Returns the path, or the name of a file without a path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Path(path) | Self::Content { name: path, .. } => path,
        }
    }
}

/// A recording that is being read. Dropping it cancels the reading.
#[derive(Debug)]
pub struct Loading {
    path: PathBuf,
    state: Arc<State>,
    outcome: Pending<Loaded>,
}

#[derive(Debug)]
struct State {
    is_cancelled: AtomicBool,
    events: AtomicU64,
    /// Progress of the current stage, in thousandths.
    permille: AtomicU64,
    stage: RwLock<&'static str>,
    preview: Mutex<Preview>,
}

impl State {
    fn new() -> Self {
        Self {
            is_cancelled: AtomicBool::new(false),
            events: AtomicU64::new(0),
            permille: AtomicU64::new(0),
            stage: RwLock::new("Opening"),
            preview: Mutex::default(),
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

/// The result of the reading thread.
#[derive(Debug)]
pub enum Loaded {
    /// A recording with its indexes.
    Recording(Box<Recording>),
    /// A summary of the recordings in a folder, and the data needed to follow it from then on.
    Folder(Box<(Fleet, FollowedFleet)>),
}

impl Loading {
    /// Starts reading `source`. Reads only a part of a recording with more than `most_resident` events. `wake` is
    /// called on the reading thread when there is an update.
    pub fn start(source: Source, most_resident: u64, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let (state, path, wake) = (Arc::new(State::new()), source.path().to_owned(), Arc::new(wake));
        let (shared, woken) = (Arc::clone(&state), Arc::clone(&wake));
        let work = move || load(source, most_resident, &shared, &*wake);
        let outcome = Pending::start("highwater-load", "cannot read this file", work, move || woken());
        Self { path, state, outcome }
    }

    /// The path of the file that is being read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current activity and its progress, from 0 to 1.
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

    /// Returns the preview of the data read up to now; `None` before its first point.
    pub fn preview(&self) -> Option<Preview> {
        let preview = self.state.preview.lock().unwrap_or_else(PoisonError::into_inner);
        (!preview.points.is_empty()).then(|| preview.clone())
    }

    /// Takes the result once it is available: what was read, or the reason reading failed, as a sentence; `None` before
    /// that.
    pub fn poll(&self) -> Option<Result<Loaded, String>> {
        self.outcome.poll()
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.state.is_cancelled.store(true, Ordering::Relaxed);
    }
}

/// Minimum time between two wake-ups of the window.
const BETWEEN_WAKES: Duration = Duration::from_millis(100);

/// Returns a sentence with the error, and a remedy if there is one.
fn sentence(error: &Error) -> String {
    use std::io::ErrorKind;
    let advice = match error {
        Error::Io { source, .. } => match source.kind() {
            ErrorKind::NotFound => "it may have been moved, renamed or deleted; open it from its new location",
            ErrorKind::PermissionDenied => "you do not have permission to read it; ask its owner for access",
            _ => "the disk or the network may be unavailable; copy the file to this machine, and try again",
        },
        Error::Damaged { .. } => "the copy or the recording may be incomplete; copy it again, or make a new snapshot",
        // All other messages contain a remedy if there is one.
        _ => return error.to_string(),
    };
    format!("{error}; {advice}.")
}

type Listener<'l> = &'l mut dyn FnMut(Progress) -> ControlFlow<()>;

/// The error is a message for the user.
fn load(source: Source, most: u64, state: &State, wake: &(dyn Fn() + Sync)) -> Result<Loaded, String> {
    let recording = match source {
        Source::Path(path) if path.is_dir() && !is_rotated(&path) => {
            return load_folder(&path, state, wake).map(|read| Loaded::Folder(Box::new(read)));
        }
        Source::Path(path) if let Some(recording) = load_part(&path, most, state, wake)? => Ok(recording),
        Source::Path(path) => load_with(&path, state, wake, |listener| {
            if is_stdin(&path) { open_stream(std::io::stdin().lock(), listener) } else { open_file(&path, listener) }
        }),
        Source::Content { name, length, content } => {
            load_with(&name, state, wake, |listener| open_sized(content, length, listener))
        }
    };
    recording.map(|recording| Loaded::Recording(Box::new(recording)))
}

/// Reads the part around the peak of a `.snap` file that is too long for memory. Returns `None` if the file is shorter
/// or cannot be read in parts: the caller then reads it as a whole, which reports the problems.
#[cfg(not(target_family = "wasm"))]
fn load_part(path: &Path, most: u64, state: &State, wake: &(dyn Fn() + Sync)) -> Result<Option<Recording>, String> {
    state.enter("Reading");
    let mut watch = |progress: Progress| {
        state.events.store(progress.events, Ordering::Relaxed);
        state.is_at(progress.bytes_read, progress.bytes);
        wake();
        if state.is_cancelled.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let windows = match open_long(path, most, &mut watch) {
        Ok(Some(windows)) => windows,
        Err(Error::Cancelled) => return Err(Error::Cancelled.to_string()),
        Ok(None) | Err(_) => return Ok(None),
    };
    let device = windows.main_device();
    let Ok(run) = Run::new(windows, path).map(Arc::new) else { return Ok(None) };
    let peak = run.peak_event(device, Metric::Requested);
    Ok(peak.ok().and_then(|peak| Recording::part(&run, run.around(peak)).ok()))
}

/// Returns `None` if the recording is not too long for memory, or if it cannot be read in parts.
#[cfg(not(target_family = "wasm"))]
fn long_source(
    path: &Path,
    watch: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
) -> Option<highwater_analysis::Source<'static>> {
    let windows = open_long(path, MAX_RESIDENT_EVENTS, watch).ok().flatten()?;
    highwater_analysis::Source::in_windows(windows).ok()
}

/// Returns `None`, because browsers read recordings as a whole.
#[cfg(target_family = "wasm")]
fn long_source(
    _path: &Path,
    _watch: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
) -> Option<highwater_analysis::Source<'static>> {
    None
}

/// Whether a folder contains the files of a single rotated recording.
fn is_rotated(folder: &Path) -> bool {
    #[cfg(not(target_family = "wasm"))]
    return Windows::find_rotated(folder).is_some();
    #[cfg(target_family = "wasm")]
    return folder.as_os_str().is_empty();
}

/// Returns `None`, because browsers read files as a whole.
#[cfg(target_family = "wasm")]
fn load_part(_: &Path, _: u64, _: &State, _: &(dyn Fn() + Sync)) -> Result<Option<Recording>, String> {
    Ok(None)
}

/// Opens a recording in a folder, to summarize it; `is_whole` is passed as in [`Fleet::read`].
///
/// # Errors
/// Fails if the recording cannot be read, or if `flow` breaks.
pub(crate) fn open_rank(
    file: &Path,
    is_whole: bool,
    flow: impl Fn() -> ControlFlow<()> + Sync,
) -> Result<highwater_analysis::Source<'static>, Error> {
    // A file with errors is read as a whole, which reports them.
    if !is_whole && let Some(source) = long_source(file, &mut |_| flow()) {
        return Ok(source);
    }
    let opened = open_file(file, &mut |_| flow())?;
    Ok(highwater_analysis::Source::in_memory(guess_where_left_open(opened)))
}

fn load_folder(folder: &Path, state: &State, wake: &(dyn Fn() + Sync)) -> Result<(Fleet, FollowedFleet), String> {
    state.enter("Reading ranks");
    wake();
    let is_cancelled = || state.is_cancelled.load(Ordering::Relaxed);
    let flow = || if is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let watch = |done: usize, all: usize| {
        state.is_at(done as u64, all as u64);
        wake();
        flow()
    };
    let mut followed = FollowedFleet::new(vec![folder.to_owned()]);
    let read = followed.read(|file, is_whole| open_rank(file, is_whole, flow), watch);
    let read =
        read.map_err(|why| format!("{why}; check that the folder exists and that you have permission to read it"))?;
    let fleet = read.filter(|_| !is_cancelled()).ok_or_else(|| Error::Cancelled.to_string())?;
    if !fleet.ranks.is_empty() {
        return Ok((fleet, followed));
    }
    Err(match fleet.unread.first() {
        Some((path, why)) => format!("none of its recordings can be read; first: {}: {why}", path.display()),
        None => "the folder contains no recording; open a folder that does, or a recording".to_owned(),
    })
}

/// Guesses missing categories and phases, unless the file is a `.snap`, which already contains guesses.
fn guess_where_left_open(Opened { trace, format }: Opened) -> Trace {
    if format.kind == FileKind::Snap { trace } else { guess(trace, &Rules::default()) }
}

/// Reads a recording with `open`, guesses missing categories and phases, and indexes it.
fn load_with(
    path: &Path,
    state: &State,
    wake: &dyn Fn(),
    open: impl FnOnce(Listener<'_>) -> Result<Opened, Error>,
) -> Result<Recording, String> {
    state.enter("Reading");
    wake();
    let mut woken = Instant::now();
    let opened = open(&mut |progress: Progress| {
        state.events.store(progress.events, Ordering::Relaxed);
        state.is_at(progress.bytes_read, progress.bytes);
        state.preview.lock().unwrap_or_else(PoisonError::into_inner).take(progress);
        if woken.elapsed() >= BETWEEN_WAKES {
            woken = Instant::now();
            wake();
        }
        yield_if_due();
        if state.is_cancelled.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let opened = opened.map_err(|why| sentence(&why))?;
    state.enter("Indexing");
    wake();
    let trace = guess_where_left_open(opened);
    // Standard input cannot be read again.
    let path_to_reread = Some(path.to_owned()).filter(|path| !is_stdin(path));
    Ok(Recording::new(recording_name(path), path_to_reread, trace))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::write_trace;
    use highwater_snapshots::rotation::PART;

    fn wait(path: PathBuf) -> Result<Loaded, String> {
        wait_for(Source::Path(path))
    }

    fn wait_for(source: Source) -> Result<Loaded, String> {
        let (sender, woken) = std::sync::mpsc::channel();
        let loading = Loading::start(source, u64::MAX, move || sender.send(()).unwrap_or_default());
        loop {
            match loading.poll() {
                None => woken.recv().unwrap(),
                Some(outcome) => return outcome,
            }
        }
    }

    #[test]
    fn a_recording_comes_in_with_its_indices() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step.snap");
        let trace = trace_from_text("alloc a 10\nalloc b 20\nfree a").unwrap();
        write_trace(File::create(&path).unwrap(), &trace).unwrap();
        let Ok(Loaded::Recording(recording)) = wait(path) else { panic!("not read") };
        assert_eq!(recording.name, "step.snap");
        assert_eq!(recording.devices[0].summary.peaks[0].bytes, 30);
    }

    #[test]
    fn a_folder_comes_in_as_the_sum_of_its_recordings() {
        let folder = tempfile::tempdir().unwrap();
        for rank in [1, 0] {
            let trace = trace_from_text("alloc a 10").unwrap().edited(|trace| trace.header.rank = Some(rank));
            write_trace(File::create(folder.path().join(format!("{rank}.snap"))).unwrap(), &trace).unwrap();
        }
        let Ok(Loaded::Folder(read)) = wait(folder.path().to_owned()) else { panic!("not read") };
        assert_eq!(read.0.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn the_files_of_a_rotation_come_in_as_one_recording() {
        let folder = tempfile::tempdir().unwrap();
        for (number, text) in [(2, "alloc a 10\nalloc b 20"), (3, "baseline a 10\nbaseline b 20\nfree a\nalloc c 5")] {
            let path = folder.path().join(format!("run.{number:04}.snap"));
            let trace = trace_from_text(text)
                .unwrap()
                .edited(|trace| trace.header.facts.push((PART.to_owned(), number.to_string())));
            write_trace(File::create(path).unwrap(), &trace).unwrap();
        }
        for path in [folder.path().to_owned(), folder.path().join("run.snap")] {
            let Ok(Loaded::Recording(recording)) = wait(path) else { panic!("not read") };
            let summary = &recording.devices[0].summary;
            assert_eq!((summary.peaks[0].bytes, summary.end.requested, summary.allocs), (30, 25, 3));
            assert!(recording.trace.problems[0].what.starts_with("file 1 of the recording is missing"));
        }
    }

    #[test]
    fn content_without_a_path_comes_in_under_its_name() {
        let bytes = write_trace(Vec::new(), &trace_from_text("alloc a 10").unwrap()).unwrap();
        let (name, length) = (PathBuf::from("dropped.snap"), bytes.len() as u64);
        let source = Source::Content { name: name.clone(), length, content: Box::new(std::io::Cursor::new(bytes)) };
        let Ok(Loaded::Recording(recording)) = wait_for(source) else { panic!("not read") };
        assert_eq!((recording.name.as_str(), recording.path.as_ref()), ("dropped.snap", Some(&name)));
        assert_eq!(recording.devices[0].summary.peaks[0].bytes, 10);
    }

    #[test]
    fn standard_input_is_a_recording_without_a_file_to_return_to() {
        let bytes = write_trace(Vec::new(), &trace_from_text("alloc a 10").unwrap()).unwrap();
        let open = |listener: Listener<'_>| open_stream(&bytes[..], listener);
        let recording = load_with(Path::new("-"), &State::new(), &|| {}, open).unwrap();
        assert_eq!((recording.name.as_str(), recording.path), ("standard input", None));
        assert_eq!(recording.devices[0].summary.peaks[0].bytes, 10);
    }

    #[test]
    fn what_cannot_be_read_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let Err(why) = wait(folder.path().join("gone.snap")) else { panic!("read") };
        assert!(why.contains("gone.snap") && why.contains("moved, renamed or deleted"), "{why}");
        let Err(why) = wait(folder.path().to_owned()) else { panic!("read") };
        assert!(why.contains("the folder contains no recording"), "{why}");
        let path = folder.path().join("letter.txt");
        std::fs::write(&path, "Dear all").unwrap();
        let Err(why) = wait(path) else { panic!("read") };
        assert!(why.contains("not a recording"), "{why}");
    }

    #[test]
    fn a_snapshot_of_pytorch_comes_in_and_is_stopped_on_its_way() {
        let events = vec![r#"{"action": "alloc", "addr": 512, "size": 10}"#; 50_000].join(",");
        let text = format!(r#"{{"segments": [], "device_traces": [[{events}]]}}"#);
        let state = State::new();
        let open = |listener: Listener<'_>| open_stream(text.as_bytes(), listener);
        assert!(!load_with(Path::new("a.json"), &state, &|| {}, open).unwrap().trace.events.is_empty());
        assert!(state.events.load(Ordering::Relaxed) > 10_000);
        let preview = state.preview.lock().unwrap().clone();
        assert!(preview.points.len() >= 2 && preview.peak() > 100_000, "{preview:?}");
        state.is_cancelled.store(true, Ordering::Relaxed);
        let stopped = load_with(Path::new("a.json"), &state, &|| {}, open).unwrap_err();
        assert_eq!(stopped, Error::Cancelled.to_string());
    }
}
