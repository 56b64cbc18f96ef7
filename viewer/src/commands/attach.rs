//! `highwater attach`: records a PyTorch program that is running.

mod inject;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use highwater_app::files::computed_cache::cache_folder;

use self::inject::inject;
use crate::commands::run::{Signals, make_way, report_file_of};
use crate::output::outcome::{Failure, Status};
use crate::output::page::Page;
use crate::python_package;

/// Training steps that are recorded by default.
const STEPS: u32 = 3;

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];
    let of_unit = |(unit, seconds): (&str, f64)| Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * seconds);
    let seconds = units.into_iter().find_map(of_unit);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| "expected a time, such as 30s or 5min".to_owned())
}

/// Arguments of `highwater attach`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example: highwater attach $(pgrep -f train.py) --steps 3")]
pub struct AttachArguments {
    /// Process id of a Python program that uses CUDA through PyTorch
    pub pid: u32,
    /// Whole training steps to record, from the next one on
    #[arg(long, value_name = "N", default_value_t = STEPS, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "duration")]
    pub steps: u32,
    /// Record for this time instead, such as 30s or 5min: for programs without training steps
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// File to write [default: pid123.snap, in the current folder]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Record no stacks
    #[arg(long)]
    pub no_stacks: bool,
    /// Keep only the last N events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ring: Option<u64>,
}

/// Interval at which the program's notes are read.
const PAUSE: Duration = Duration::from_millis(50);
/// The time after which a line tells the user what the command waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The program's notes: `recording`, `written PATH`, `ended`, or `error TEXT`.
#[derive(Debug, Default)]
struct Notes {
    is_recording: bool,
    has_ended: bool,
    written: Vec<PathBuf>,
    error: Option<String>,
}

impl Notes {
    fn read(file: &Path) -> Self {
        let mut notes = Self::default();
        for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("recording", _) => notes.is_recording = true,
                ("ended", _) => notes.has_ended = true,
                ("written", path) => notes.written.push(PathBuf::from(path)),
                ("error", text) => notes.error = Some(text.to_owned()),
                _ => {}
            }
        }
        notes
    }
}

/// Records the program until the wanted steps or time are over, or an interrupt, and prints the peak.
///
/// # Errors
///
/// Fails if the process cannot be recorded, or ends before the recording is written.
pub fn run(arguments: &AttachArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let pid = arguments.pid;
    if !is_running(pid) {
        return Err(Failure::Usage(format!("there is no process {pid} on this machine")));
    }
    let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("pid{pid}.snap")));
    let out = std::path::absolute(&out).map_err(|why| Failure::Write(format!("{}: {why}", out.display())))?;
    make_way(&out)?;
    let cannot = |why: std::io::Error| Failure::Record(format!("cannot make a folder for the recording: {why}"));
    // The program goes on to use the package until the end of the recording, whether or not this process still runs.
    let package = match cache_folder() {
        Some(cache) => cache.join(format!("python-{}", env!("CARGO_PKG_VERSION"))),
        None => tempfile::Builder::new().prefix("highwater-python-").tempdir().map_err(cannot)?.keep(),
    };
    python_package::write(&package, "").map_err(cannot)?;
    let folder = tempfile::Builder::new().prefix("highwater-attach-").tempdir().map_err(cannot)?;
    let notes = folder.path().join("notes");
    let signals = Signals::catch().map_err(|why| Failure::Record(format!("cannot handle signals: {why}")))?;
    inject(
        pid,
        &lines(&package, &notes, &format!("attach({}, {}, dict({}))", text(&out), text(&notes), options(arguments))),
    )?;
    let mut until = arguments.duration.map(|duration| Instant::now() + duration);
    let (begun, mut is_stated, mut is_stopping) = (Instant::now(), false, false);
    let found = loop {
        let found = Notes::read(&notes);
        if found.has_ended || found.error.is_some() {
            break found;
        }
        if !is_running(pid) {
            return Err(Failure::Record(format!("process {pid} has ended before its recording was written")));
        }
        if !is_stated && begun.elapsed() > PATIENCE {
            is_stated = true;
            let mut errors = std::io::stderr().lock();
            Page::for_stderr(&mut errors).line(&format!("highwater: {}", waiting(&found, arguments)))?;
        }
        let is_over = until.is_some_and(|until| Instant::now() >= until) || signals.is_interrupted();
        if is_over && !is_stopping {
            (until, is_stopping) = (None, true);
            inject(pid, &lines(&package, &notes, "detach()"))?;
        }
        std::thread::sleep(PAUSE);
    };
    if let Some(why) = found.error {
        return Err(Failure::Record(format!("process {pid} cannot be recorded: {why}")));
    }
    match found.written.last() {
        Some(file) => report_file_of(file, page)?,
        None => {
            return Err(Failure::Record("nothing was recorded: no training step has begun; see --duration".to_owned()));
        }
    }
    Ok(Status::Fine)
}

fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn waiting(notes: &Notes, arguments: &AttachArguments) -> String {
    match (notes.is_recording, arguments.duration) {
        (false, _) => "waiting for the program's main thread to run Python".to_owned(),
        (true, None) => {
            "waiting for the end of the training steps; an interrupt (Ctrl+C) ends the recording".to_owned()
        }
        (true, Some(_)) => "recording; an interrupt (Ctrl+C) ends it".to_owned(),
    }
}

/// The options of `record_memory_history`, as Python.
fn options(arguments: &AttachArguments) -> String {
    let mut options = Vec::new();
    if arguments.duration.is_none() {
        // The step that is running is not whole.
        options.push(format!("steps=range(1, {})", u64::from(arguments.steps) + 1));
    }
    if arguments.no_stacks {
        options.push("context=None".to_owned());
    }
    options.extend(arguments.ring.map(|events| format!("max_entries={events}")));
    options.join(", ")
}

/// Lines of Python that call a function of the package, and note what fails.
fn lines(package: &Path, notes: &Path, call: &str) -> String {
    let binary = std::env::current_exe().unwrap_or_default();
    let (package, notes, binary) = (text(package), text(notes), text(&binary));
    format!(
        "import sys\nsys.path.insert(0, {package})\ntry:\n    from highwater import _attached, _binary\n    \
         _binary.given = {binary}\n    _attached.{call}\nexcept BaseException as error:\n    with open({notes}, 'a') as file:\n        \
         print('error', ' '.join(str(error).split()), file=file)\nfinally:\n    sys.path.remove({package})\n"
    )
}

/// A path as text of Python.
fn text(path: &Path) -> String {
    let escaped = path.to_string_lossy().replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
    format!("'{escaped}'")
}
