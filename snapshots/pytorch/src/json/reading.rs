//! The state of the JSON reader: the store, the values of open lists and dicts, the position and the progress listener.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;

use crate::objects::{Store, Value};
use highwater_snapshots::error::Error;
use highwater_snapshots::format::Progress;

/// State of the reader.
pub(super) struct Reading<'w> {
    pub(super) store: Store,
    /// The values of the lists and dicts that are not complete yet.
    pub(super) stack: Vec<Value>,
    watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>,
    now: Progress,
    /// Progress last reported to `watch`.
    told: Progress,
    /// Number of bytes read, which a stream counts by itself.
    offset: Rc<Cell<u64>>,
    /// The address of a text in memory; strings borrowed from the text have higher addresses.
    start: usize,
    is_stopped: bool,
}

/// Maximum number of characters of a parser error that are shown, since it may quote a string of the file.
const SHOWN_OF_WHY: usize = 240;

/// Number of bytes between two progress reports.
const BYTES_A_LOOK: u64 = 1 << 20;

/// Number of events between two progress reports.
const EVENTS_A_LOOK: u64 = 1 << 14;

impl<'w> Reading<'w> {
    /// Creates a reader of JSON text in memory.
    pub(super) fn of_bytes(bytes: &[u8], watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        Self::new(Rc::default(), bytes.as_ptr().addr(), bytes.len() as u64, watch)
    }

    /// Creates a reader of a stream whose current offset is `offset`.
    pub(super) fn of_stream(offset: Rc<Cell<u64>>, watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        Self::new(offset, 0, u64::MAX, watch)
    }

    fn new(
        offset: Rc<Cell<u64>>,
        start: usize,
        bytes: u64,
        watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Self {
        let now = Progress { bytes, ..Progress::default() };
        Self { store: Store::new(), stack: Vec::new(), watch, now, told: now, offset, start, is_stopped: false }
    }

    /// Updates the position after a key was read, reporting progress if due. `key` is the key's text if it was borrowed
    /// from memory. Fails if the listener stopped the reading.
    pub(super) fn is_at<E: serde::de::Error>(&mut self, key: Option<&str>) -> Result<(), E> {
        if let Some(key) = key {
            self.offset.set(key.as_ptr().addr().saturating_sub(self.start) as u64);
        }
        self.now.bytes_read = self.offset.get();
        self.now.events = self.store.events.len() as u64;
        let is_due = self.now.bytes_read.abs_diff(self.told.bytes_read) >= BYTES_A_LOOK
            || self.now.events.abs_diff(self.told.events) >= EVENTS_A_LOOK;
        if is_due {
            self.told = self.now;
            let levels = Some(self.store.intake.take_levels());
            self.is_stopped = (self.watch)(Progress { levels, ..self.now }).is_break();
        }
        if self.is_stopped { Err(E::custom("stopped")) } else { Ok(()) }
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
        let what = format!("{what:.SHOWN_OF_WHY$}");
        if error.is_eof() {
            let what = format!("the JSON text ends early ({what}): the copy or the recording is incomplete");
            return Error::Damaged { offset, what };
        }
        Error::Damaged { offset, what: format!("in the JSON text: {what}") }
    }
}
