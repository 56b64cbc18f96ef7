//! Opens recordings of any length for the commands.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use highwater_analysis::{Filter, Metric, Source, Watch};
use highwater_app::files::{self, is_stdin};
use highwater_app::session::run::MAX_RESIDENT_EVENTS;
use highwater_pytorch::open::{FileFormat, FileKind};
use highwater_snapshots::format::{Progress, Windows};
use highwater_snapshots::{DeviceId, Error, Trace};

use crate::args::CategoryChoice;
use crate::input::categories::{read_with, reader};
use crate::input::recording::{Recording, check_metric, reading_bar, show};
use crate::output::Failure;

/// Environment variable that overrides [`MAX_RESIDENT_EVENTS`], for machines with little memory.
const RESIDENT_EVENTS: &str = "HIGHWATER_RESIDENT_EVENTS";

/// The format of an uncompressed `.snap`.
pub(crate) const PLAIN: FileFormat = FileFormat { kind: FileKind::Snap, is_gzipped: false };

/// A recording that a command reads.
#[derive(Clone, Debug)]
pub struct Input {
    /// The recording to query.
    pub source: Source<'static>,
    /// The format of the file.
    pub format: FileFormat,
    file: PathBuf,
}

impl Input {
    /// Opens `file`; a long recording is read in windows.
    ///
    /// # Errors
    /// Fails if the recording or a file of rules cannot be read, or if `HIGHWATER_RESIDENT_EVENTS` is not a number.
    pub fn open(file: &Path, choice: &CategoryChoice) -> Result<Self, Failure> {
        Self::open_long(file, choice)?.map_or_else(|| Self::whole(file, choice), Ok)
    }

    /// Opens `file` if it is a recording that is too long for memory.
    ///
    /// # Errors
    /// Fails if `HIGHWATER_RESIDENT_EVENTS` is not a number.
    pub fn open_long(file: &Path, choice: &CategoryChoice) -> Result<Option<Self>, Failure> {
        let source = open_windows(file, choice)?.and_then(|windows| Source::in_windows(windows).ok());
        Ok(source.map(|source| Self::of(source, PLAIN, file)))
    }

    /// Reads all of `file`.
    ///
    /// # Errors
    /// Fails if the recording or a file of rules cannot be read.
    pub fn whole(file: &Path, choice: &CategoryChoice) -> Result<Self, Failure> {
        let Recording { trace, format } = read_with(file, choice)?;
        Ok(Self::of(Source::in_memory(trace), format, file))
    }

    /// Wraps a recording that was read from `file`.
    pub fn of(source: Source<'static>, format: FileFormat, file: &Path) -> Self {
        Self { source, format, file: file.to_owned() }
    }

    /// Counts only the blocks that pass `filter`.
    #[must_use]
    pub fn counting(self, filter: &Filter) -> Self {
        Self { source: self.source.counting(filter), ..self }
    }

    /// The recording's header, devices, tables, limits and problems.
    pub fn facts(&self) -> &Trace {
        self.source.facts()
    }

    /// Calls `ask` with the recording. If the recording is read in several windows, a bar shows the progress.
    ///
    /// # Errors
    /// Fails if the recording cannot be read.
    pub fn ask<'a, T>(
        &'a self,
        ask: impl FnOnce(&'a Source<'static>, Watch<'_>) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let is_long = self.source.passes().len() > 1;
        let bar = is_long.then(|| reading_bar(&format!("reading {}", self.file.display())));
        let events = self.source.events().end;
        let mut watch = |done: u64| {
            let now = Progress { bytes_read: done, bytes: events, events: done, ..Progress::default() };
            bar.iter().for_each(|bar| show(bar, now));
            ControlFlow::Continue(())
        };
        let answer = ask(&self.source, &mut watch);
        bar.iter().for_each(|bar| bar.finish_and_clear());
        answer.map_err(|why| self.unreadable(why))
    }

    /// Converts an error to the failure that the recording cannot be read.
    pub fn unreadable(&self, source: Error) -> Failure {
        Failure::Read { file: self.file.clone(), source }
    }

    pub(crate) fn check_metric(&self, device: DeviceId, metric: Metric) -> Result<(), Failure> {
        check_metric(&self.source, device, metric)
    }
}

/// Opens `file` and calls `answer` with it, with all blocks.
///
/// # Errors
/// Fails if the recording cannot be read, or if `answer` fails.
pub(crate) fn answer_from<T>(
    file: &Path,
    choice: &CategoryChoice,
    answer: impl FnMut(&Input) -> Result<T, Failure>,
) -> Result<T, Failure> {
    answer_counting(file, choice, &Filter::default(), answer)
}

/// Opens `file` and calls `answer` with it, counting only the blocks that pass `filter`.
///
/// # Errors
/// Fails if the recording cannot be read, or if `answer` fails.
pub(crate) fn answer_counting<T>(
    file: &Path,
    choice: &CategoryChoice,
    filter: &Filter,
    answer: impl FnMut(&Input) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let open = |is_whole: bool| {
        let open = if is_whole || filter.asks_for_lifetimes() { Input::whole } else { Input::open };
        Ok(open(file, choice)?.counting(filter))
    };
    answer_or_whole(open, answer)
}

/// Calls `answer` with the inputs that `open` returns. If reading an input fails because it is damaged, opens all of
/// them again as a whole, which reports the damage, and calls `answer` again.
///
/// # Errors
/// Fails if the recording cannot be read, or if `answer` fails.
pub(crate) fn answer_or_whole<I, T>(
    open: impl Fn(bool) -> Result<I, Failure>,
    mut answer: impl FnMut(&I) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match open(false).and_then(|input| answer(&input)) {
        Err(Failure::Read { source: Error::Damaged { .. }, .. } | Failure::Damaged(_)) => answer(&open(true)?),
        outcome => outcome,
    }
}

/// Opens `file` in windows. Returns `None` if it must be read as a whole: it is short, damaged or not a `.snap` file,
/// or categories must be guessed or lines skipped.
///
/// # Errors
/// Fails if `HIGHWATER_RESIDENT_EVENTS` is not a number.
pub(crate) fn open_windows(file: &Path, choice: &CategoryChoice) -> Result<Option<Windows>, Failure> {
    let most = resident_events()?;
    if needs_whole(choice) || is_stdin(file) {
        return Ok(None);
    }
    let bar = reading_bar(&format!("reading {}", file.display()));
    let mut watch = |now: Progress| {
        show(&bar, now);
        ControlFlow::Continue(())
    };
    // Errors in the file are reported when all of it is read.
    let windows = files::computed_cache::open_long(file, most, &mut watch).ok().flatten();
    bar.finish_and_clear();
    Ok(windows)
}

/// Returns whether categories have to be guessed or lines skipped, which requires the whole recording in memory.
fn needs_whole(choice: &CategoryChoice) -> bool {
    choice.categories.is_some() || !choice.skip.is_empty()
}

/// Returns a function that opens one of many recordings without a progress bar. If its second argument is true, the
/// recording is loaded into memory as a whole.
///
/// # Errors
/// Fails if `HIGHWATER_RESIDENT_EVENTS` is not a number, or if the rules for categories cannot be read.
pub(crate) fn opener(
    choice: &CategoryChoice,
) -> Result<impl Fn(&Path, bool) -> Result<Source<'static>, Error> + Sync, Failure> {
    opener_up_to(resident_events()?, choice)
}

/// Like [`opener`], but recordings of more than `most` events are read in windows.
///
/// # Errors
/// Fails if the rules for categories cannot be read.
pub(crate) fn opener_up_to(
    most: u64,
    choice: &CategoryChoice,
) -> Result<impl Fn(&Path, bool) -> Result<Source<'static>, Error> + Sync, Failure> {
    let read = reader(choice)?;
    let needs_whole = needs_whole(choice);
    Ok(move |file: &Path, is_whole: bool| {
        if !is_whole
            && !needs_whole
            && let Ok(Some(windows)) = files::computed_cache::open_long(file, most, &mut |_| ControlFlow::Continue(()))
        {
            return Source::in_windows(windows);
        }
        read(file).map(|recording| Source::in_memory(recording.trace))
    })
}

/// Returns the number of events above which recordings are read in windows.
///
/// # Errors
/// Fails if `HIGHWATER_RESIDENT_EVENTS` is not a number.
pub(crate) fn resident_events() -> Result<u64, Failure> {
    match std::env::var(RESIDENT_EVENTS) {
        Err(_) => Ok(MAX_RESIDENT_EVENTS),
        Ok(text) => {
            text.parse().map_err(|_| Failure::Usage(format!("{RESIDENT_EVENTS}={text}: expected a number of events")))
        }
    }
}
