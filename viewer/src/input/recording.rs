//! Reads recordings and folders of them, shows the progress, and selects devices and events, for all commands.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use highwater_analysis::{Metric, Source};
use highwater_app::files::computed_cache::begins_as_snap;
use highwater_app::files::fleet::{Fleet, Inputs, why_unreadable};
use highwater_app::files::is_stdin;
use highwater_pytorch::open::{open_file, open_stream};
use highwater_snapshots::format::{Progress, Windows};
use highwater_snapshots::shown::printable;
use highwater_snapshots::{DeviceId, EventKind, Trace, count_of, format_bytes, format_count};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Failure;

/// A recording, and the file from which it was read.
pub(crate) use highwater_pytorch::open::Opened as Recording;

/// Files of fewer bytes are read without a progress bar.
const QUICK_BYTES: u64 = 16 << 20;

/// Reads the recording `file`, or standard input for `-`.
///
/// # Errors
/// Fails if the file cannot be read, or if no event of it can be read because of damage or truncation.
pub(crate) fn read(file: &Path) -> Result<Recording, Failure> {
    let recording = read_any(file)?;
    if recording.trace.is_unreadable() {
        return Err(Failure::Unreadable { file: file.to_owned(), why: why_unreadable(&recording.trace) });
    }
    Ok(recording)
}

/// Like [`read`], but succeeds even if no event can be read. On a terminal, a bar shows the progress for large files.
pub(crate) fn read_any(file: &Path) -> Result<Recording, Failure> {
    if file.is_dir() && Windows::find_rotated(file).is_none() {
        let text =
            "is a folder; name one of the recordings in it (`info`, `diff` and `convert --to parquet` take folders)";
        return Err(Failure::Usage(format!("{} {text}", file.display())));
    }
    refuse_if_too_long(file)?;
    let is_quick = std::fs::metadata(file).is_ok_and(|facts| facts.is_file() && facts.len() < QUICK_BYTES);
    let doing =
        if is_stdin(file) { "reading standard input".to_owned() } else { format!("reading {}", file.display()) };
    let bar = if is_quick { ProgressBar::hidden() } else { reading_bar(&doing) };
    if is_named_pipe(file) {
        // Without a program that writes to it, nothing ever comes.
        let text = format!("{} is a pipe: reading it until the program that writes to it closes it", file.display());
        // A failure to print cannot be reported.
        let _ = writeln!(std::io::stderr(), "{}", printable(&text));
    }
    let mut watch = |now: Progress| {
        show(&bar, now);
        ControlFlow::Continue(())
    };
    let opened =
        if is_stdin(file) { open_stream(std::io::stdin().lock(), &mut watch) } else { open_file(file, &mut watch) };
    bar.finish_and_clear();
    opened.map_err(|source| Failure::Read { file: file.to_owned(), source })
}

/// Returns whether `file` is a named pipe in a folder, rather than a pipe passed by a shell.
#[cfg(unix)]
fn is_named_pipe(file: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let is_passed = ["/dev", "/proc"].iter().any(|folder| file.starts_with(folder));
    !is_passed && std::fs::metadata(file).is_ok_and(|facts| facts.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_named_pipe(_file: &Path) -> bool {
    false
}

/// Memory that an event of a recording in memory needs, in bytes.
const BYTES_AN_EVENT: u64 = 42;

/// Returns an error if `file` has more events than fit into the available memory, because loading it would crash this
/// program or another one.
fn refuse_if_too_long(file: &Path) -> Result<(), Failure> {
    let Some(available) = available_bytes() else { return Ok(()) };
    let count = |path: &Path| {
        let source = begins_as_snap(path).then(|| File::open(path).ok()).flatten();
        source.and_then(|source| Windows::count_events(Arc::new(source))).unwrap_or(0)
    };
    let events = match Windows::find_rotated(file) {
        Some(rotated) => rotated.files.iter().map(|(_, path)| count(path)).fold(0, u64::saturating_add),
        None => count(file),
    };
    let needed = events.saturating_mul(BYTES_AN_EVENT);
    if needed <= available {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{} has {} events, which take about {} of memory, but only {} are available. `highwater convert {0} \
         part.snap --events FROM..TO` cuts out a part. `highwater info`, `peak`, `phases`, `explain`, `growth`, `diff`, \
         `check`, `oom`, `events`, `verify`, `render` and `whatif` read it in parts, and `highwater {0}` \
         shows it in parts",
        file.display(),
        format_count(events),
        format_bytes(needed),
        format_bytes(available),
    )))
}

/// Returns the memory available to new programs in bytes; `None` if the system does not report it.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Returns a progress bar on standard error for reading a file; hidden unless standard error is a terminal.
pub(crate) fn reading_bar(doing: &str) -> ProgressBar {
    let bar = spinner(doing);
    let template = "{spinner} {msg} {bytes}{prefix} ({elapsed})";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is malformed"));
    bar
}

/// Shows the progress of reading, as a bar if the total is known.
pub(crate) fn show(bar: &ProgressBar, now: Progress) {
    if now.bytes != u64::MAX && bar.length() != Some(now.bytes) {
        let template = "{spinner} {msg} [{bar:24}] {bytes} of {total_bytes}{prefix} ({elapsed})";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is malformed"));
        bar.set_length(now.bytes);
    }
    bar.set_position(now.bytes_read);
    if now.events > 0 {
        bar.set_prefix(format!(", {} events", format_count(now.events)));
    }
}

/// Reads the recordings in `folder` with `open`, and returns their summaries. On a terminal, a bar shows the progress.
///
/// # Errors
/// Fails if the folder cannot be listed, or if none of its files is a readable recording.
pub(crate) fn read_fleet(
    folder: &Path,
    open: impl Fn(&Path, bool) -> Result<Source<'static>, highwater_snapshots::Error> + Sync,
) -> Result<Fleet, Failure> {
    let inputs = list(&[folder.to_owned()])?;
    let fleet = read_inputs(&inputs, open);
    if fleet.ranks.is_empty() {
        return Err(Failure::Usage(nothing_to_read(&fleet)));
    }
    Ok(fleet)
}

/// Expands `paths` to recordings: the files, and the files in the folders.
pub(crate) fn list(paths: &[PathBuf]) -> Result<Inputs, Failure> {
    Inputs::of(paths).map_err(|source| {
        let path = paths.first().cloned().unwrap_or_default();
        Failure::Read { file: path.clone(), source: highwater_snapshots::Error::Io { doing: "list", source, path } }
    })
}

/// Reads `inputs` with `open`, and returns their summaries. On a terminal, a bar shows the progress.
pub(crate) fn read_inputs(
    inputs: &Inputs,
    open: impl Fn(&Path, bool) -> Result<Source<'static>, highwater_snapshots::Error> + Sync,
) -> Fleet {
    let bar = counting_bar(&format!("reading {}", inputs.name()), inputs.len());
    let watch = |done: usize| {
        bar.set_position(done as u64);
        ControlFlow::Continue(())
    };
    let fleet = Fleet::read(inputs, open, watch);
    bar.finish_and_clear();
    fleet.unwrap_or_default()
}

pub(crate) fn nothing_to_read(fleet: &Fleet) -> String {
    let reason = |(path, why): &(PathBuf, String)| {
        let path = path.display().to_string();
        if why.contains(&path) { why.clone() } else { format!("{path}: {why}") }
    };
    match (fleet.unread.as_slice(), fleet.skipped) {
        ([], 0) => format!("{}: the folder is empty; name one with recordings in it", fleet.name),
        ([], skipped) => format!("{}: contains {}, but no recording", fleet.name, count_of(skipped as u64, "file")),
        ([one], _) => reason(one),
        ([first, ..], _) => {
            let count = count_of(fleet.unread.len() as u64, "file");
            format!("{}: none of {count} can be read; the first: {}", fleet.name, reason(first))
        }
    }
}

/// Returns a progress bar on standard error for work on many files; hidden unless standard error is a terminal.
pub(crate) fn counting_bar(doing: &str, count: usize) -> ProgressBar {
    let bar = spinner(doing);
    let template = "{spinner} {msg} [{bar:24}] {human_pos} of {human_len} ({elapsed})";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is malformed"));
    bar.set_length(count as u64);
    bar
}

pub(crate) fn with_spinner<T>(doing: &str, work: impl FnOnce() -> T) -> T {
    let spinner = spinner(doing);
    let done = work();
    spinner.finish_and_clear();
    done
}

/// Returns a spinner on standard error for long work; hidden unless standard error is a terminal.
pub(crate) fn spinner(doing: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("the template is malformed");
    let spinner = ProgressBar::new_spinner().with_style(style).with_message(printable(doing).into_owned());
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// Returns the requested device, which must be in the recording, or otherwise the default device.
pub(crate) fn choose_device(trace: &Trace, wanted: Option<u16>) -> Result<DeviceId, Failure> {
    let Some(wanted) = wanted.map(DeviceId) else {
        return Ok(trace.main_device());
    };
    let known = trace.device_ids();
    if known.contains(&wanted) {
        return Ok(wanted);
    }
    let known: Vec<String> = known.iter().map(|device| device.0.to_string()).collect();
    let have = match known.as_slice() {
        [] => "the recording has no devices".to_owned(),
        [one] => format!("its only device is {one}"),
        all => format!("its devices are {}", all.join(", ")),
    };
    Err(Failure::Usage(format!("--device {}: the recording has no such device; {have}", wanted.0)))
}

/// Returns an error if `source` has no samples of `metric` on `device`.
pub(crate) fn check_metric(source: &Source<'_>, device: DeviceId, metric: Metric) -> Result<(), Failure> {
    if metric != Metric::DeviceUsed || source.count(device, EventKind::DeviceUsed) > 0 {
        return Ok(());
    }
    let text = "--metric device_used: the recording has no samples of the memory in use according to the driver; \
                use --metric reserved, or record with `highwater run`, which samples it";
    Err(Failure::Usage(text.to_owned()))
}

/// Returns the events from `from` to `to` (by default the last one), both included, of a recording with `count` events;
/// `None` if the recording has no events.
pub(crate) fn event_range(from: u64, to: Option<u64>, count: u64) -> Result<Option<Range<u64>>, Failure> {
    let Some(last) = count.checked_sub(1) else {
        return Ok(None);
    };
    let to = to.unwrap_or(last).min(last);
    if from > last {
        let text = format!("invalid value '{from}' for --from: expected an event from 0 to {last}");
        return Err(Failure::Usage(text));
    }
    if from > to {
        return Err(Failure::Usage(format!("--from {from} --to {to}: the first event comes after the last")));
    }
    Ok(Some(from..to + 1))
}

/// Returns the keys for the operations and modules that allocated blocks, and a phrase for them; `None` if the
/// recording has neither. PyTorch's recordings have no operations.
pub(crate) fn origin_keys(trace: &Trace) -> Option<(&'static str, &'static str)> {
    let has_ops = trace.tables.ops.iter().any(|op| op.name.is_some());
    match (trace.tables.scopes.is_empty(), has_ops) {
        (false, true) => Some(("scope,op", "modules and operations")),
        (false, false) => Some(("scope", "modules")),
        (true, true) => Some(("op", "operations")),
        (true, false) => None,
    }
}
