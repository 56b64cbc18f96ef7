//! Opens recordings that are too long to be held in memory, to be read in parts.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use highwater_analysis::Metric;
use highwater_app::files::{self, is_stdin};
use highwater_app::session::run::MOST_RESIDENT_EVENTS;
use highwater_pytorch::open::{FileFormat, FileKind};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::{Progress, Windows};
use highwater_snapshots::units::format_count;
use highwater_snapshots::{DeviceId, Error};

use crate::args::CategoryChoice;
use crate::cli::input::recording::{Recording, choose_among, no_samples, reading_bar, show};
use crate::cli::output::outcome::Failure;

/// Sets [`MOST_RESIDENT_EVENTS`], for machines with little memory.
const MOST_RESIDENT: &str = "HIGHWATER_RESIDENT_EVENTS";

/// Opens `file` to be read in parts. `None` if it is better read as a whole: it is short, no `.snap`, damaged, its
/// categories are to be guessed, or lines are to be skipped.
///
/// # Errors
///
/// Fails if the setting of the environment is no number.
pub fn open_long(file: &Path, choice: &CategoryChoice) -> Result<Option<Windows>, Failure> {
    let most = most_resident()?;
    if choice.categories.is_some() || !choice.skip.is_empty() || is_stdin(file) {
        return Ok(None);
    }
    let bar = reading_bar(&format!("reading {}", file.display()));
    let mut watch = |now: Progress| {
        show(&bar, now);
        ControlFlow::Continue(())
    };
    // What is wrong with the file is reported when all of it is read.
    let windows = files::long::open_long(file, most, &mut watch).ok().flatten();
    bar.finish_and_clear();
    if let Some(events) = windows.as_ref().map(Windows::events).filter(|events| *events >= u64::from(u32::MAX)) {
        let text =
            "has {} events; this program numbers at most 4,294,967,294. Rotate recordings, to files of a gigabyte";
        let text = text.replace("{}", &format_count(events));
        return Err(Failure::Usage(format!("{} {text}", file.display())));
    }
    Ok(windows)
}

/// Reads a window of a recording that is too long to be held in memory, and the event before it; `None` if it is better
/// read as a whole.
///
/// # Errors
///
/// Fails if the window cannot be read.
pub fn read_part(file: &Path, choice: &CategoryChoice, events: Range<u64>) -> Result<Option<Recording>, Failure> {
    let windows = open_long(file, choice)?.filter(|windows| events.end <= windows.events());
    let read = |windows: Windows| {
        let trace = windows
            .window(events.start.saturating_sub(1)..events.end)
            .map_err(|source| Failure::Read { file: file.to_owned(), source })?;
        Ok(Recording { trace, format: FileFormat { kind: FileKind::Snap, is_gzipped: false } })
    };
    windows.map(read).transpose()
}

/// Recordings of more events are read in parts.
///
/// # Errors
///
/// Fails if the setting of the environment is no number.
pub fn most_resident() -> Result<u64, Failure> {
    match std::env::var(MOST_RESIDENT) {
        Err(_) => Ok(MOST_RESIDENT_EVENTS),
        Ok(text) => {
            text.parse().map_err(|_| Failure::Usage(format!("{MOST_RESIDENT}={text}: expected a number of events")))
        }
    }
}

/// Runs `work`, which reads the recording in parts and reports the events done so far, with a progress bar. `None` if
/// the file is damaged: it is then read as a whole, which reports what is wrong.
///
/// # Errors
///
/// Fails if the file cannot be read.
pub fn in_parts<T>(
    windows: &Windows,
    file: &Path,
    work: impl FnOnce(&mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<T, Error>,
) -> Result<Option<T>, Failure> {
    match with_progress(windows, file, work) {
        Ok(done) => Ok(Some(done)),
        Err(Error::Damaged { .. }) => Ok(None),
        Err(source) => Err(Failure::Read { file: file.to_owned(), source }),
    }
}

/// Runs `work`, which reads the recording in parts and reports the events done so far, with a progress bar.
///
/// # Errors
///
/// Fails as `work` does.
pub fn with_progress<T>(
    windows: &Windows,
    file: &Path,
    work: impl FnOnce(&mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<T, Error>,
) -> Result<T, Error> {
    let bar = reading_bar(&format!("reading {}", file.display()));
    let events = windows.events();
    let mut watch = |done: u64| {
        show(&bar, Progress { bytes_read: done, bytes: events, events: done, ..Progress::default() });
        ControlFlow::Continue(())
    };
    let done = work(&mut watch);
    bar.finish_and_clear();
    done
}

/// Returns the requested device, which must be in the recording, else the default one.
pub fn choose_device(windows: &Windows, wanted: Option<u16>) -> Result<DeviceId, Failure> {
    choose_among(&windows.device_ids(), windows.main_device(), wanted)
}

/// Returns an error if `metric` is not available for `device`.
pub fn check_metric(windows: &Windows, device: DeviceId, metric: Metric) -> Result<(), Failure> {
    let rows = windows.summaries().iter().flat_map(|row| &row.devices).filter(|row| row.device == device);
    let mut samples = rows.map(|row| row.counts[EventKind::DeviceUsed as usize]);
    if metric == Metric::DeviceUsed && samples.all(|count| count == 0) { Err(no_samples()) } else { Ok(()) }
}

/// Returns the events from the first failed request on, so that `count` of them are included where they are close.
pub fn around_ooms(windows: &Windows, count: u64) -> Range<u64> {
    let failed = windows.summaries().iter().filter_map(|row| {
        let ooms = row.devices.iter().map(|device| u64::from(device.counts[EventKind::Oom as usize])).sum::<u64>();
        (ooms > 0).then_some((row.first..row.first + u64::from(row.events), ooms))
    });
    let (mut events, mut found) = (0..0, 0);
    for (row, ooms) in failed {
        let start = if found == 0 { row.start } else { events.start };
        if found >= count || row.end - start > MOST_EVENTS_OF_OOMS {
            break;
        }
        (events, found) = (start..row.end, found + ooms);
    }
    events
}

/// Failed requests further apart are not listed together.
const MOST_EVENTS_OF_OOMS: u64 = 1 << 21;
