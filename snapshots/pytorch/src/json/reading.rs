//! State shared by all parts of the JSON reader: the intake, the position and the progress listener.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;

use super::super::intake::Intake;
use highwater_snapshots::error::Error;
use highwater_snapshots::format::Progress;

/// State of the reader.
pub(super) struct Reading<'w> {
    pub(super) intake: Intake,
    /// Rows of frames, or string ids, of the list being read.
    pub(super) row: Vec<u32>,
    watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>,
    now: Progress,
    /// Progress last reported to `watch`.
    told: Progress,
    place: Place,
    is_stopped: bool,
}

/// Source of the current position.
#[derive(Debug)]
enum Place {
    /// The address of a text in memory; strings borrowed from the text have higher addresses.
    Memory(usize),
    /// Number of bytes read from a stream.
    Stream(Rc<Cell<u64>>),
}

/// Maximum number of characters of an unknown name that are shown in a message.
pub(super) const SHOWN: usize = 60;

/// Maximum number of characters of a parser error that are shown, since it may quote a string of the file.
const SHOWN_OF_WHY: usize = 240;

/// Number of bytes between two progress reports.
const BYTES_A_LOOK: u64 = 1 << 20;

/// Number of events between two progress reports.
const EVENTS_A_LOOK: u64 = 1 << 14;

impl<'w> Reading<'w> {
    /// Creates a reader of JSON text in memory.
    pub(super) fn of_bytes(bytes: &[u8], watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        Self::new(Place::Memory(bytes.as_ptr().addr()), bytes.len() as u64, watch)
    }

    /// Creates a reader of a stream whose current offset is `offset`.
    pub(super) fn of_stream(offset: Rc<Cell<u64>>, watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        Self::new(Place::Stream(offset), u64::MAX, watch)
    }

    fn new(place: Place, bytes: u64, watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        let now = Progress { bytes, ..Progress::default() };
        Self { intake: Intake::default(), row: Vec::new(), watch, now, told: now, place, is_stopped: false }
    }

    /// Updates the position after a key was read, reporting progress if due. `key` is the key's text if it was borrowed
    /// from memory. Fails if the listener stopped the reading.
    pub(super) fn is_at<E: serde::de::Error>(&mut self, key: Option<&str>) -> Result<(), E> {
        match &self.place {
            Place::Memory(start) => {
                if let Some(key) = key {
                    self.now.bytes_read = key.as_ptr().addr().saturating_sub(*start) as u64;
                }
            }
            Place::Stream(offset) => self.now.bytes_read = offset.get(),
        }
        let is_due = self.now.bytes_read.abs_diff(self.told.bytes_read) >= BYTES_A_LOOK
            || self.now.events.abs_diff(self.told.events) >= EVENTS_A_LOOK;
        if is_due {
            self.told = self.now;
            let levels = Some(self.intake.take_levels());
            self.is_stopped = (self.watch)(Progress { levels, ..self.now }).is_break();
        }
        if self.is_stopped { Err(E::custom("stopped")) } else { Ok(()) }
    }

    /// Counts an event.
    pub(super) fn count_event(&mut self) {
        self.now.events += 1;
    }

    /// Converts a parser error at `offset`.
    pub(super) fn why(&self, error: serde_json::Error, offset: u64) -> Error {
        if self.is_stopped {
            return Error::Cancelled;
        }
        if error.is_io() {
            return Error::from_input(error.into());
        }
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        let what = shown(what, SHOWN_OF_WHY);
        if error.is_eof() {
            let what = format!("the JSON text ends early ({what}): the copy or the recording is incomplete");
            return Error::Damaged { offset, what };
        }
        Error::Damaged { offset, what: format!("in the JSON text: {what}") }
    }
}

/// Returns the first `most` characters of `text`, followed by "…" if it is longer.
pub(super) fn shown(text: &str, most: usize) -> String {
    let start: String = text.chars().take(most).collect();
    if start.len() < text.len() { start + "…" } else { start }
}
