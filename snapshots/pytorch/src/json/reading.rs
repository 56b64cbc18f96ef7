//! The state of the JSON reader, with the store, the values of open lists and dicts, the position, and the progress
//! listener.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;

use crate::objects::{Store, Value};
use highwater_snapshots::error::Error;
use highwater_snapshots::format::Progress;
use highwater_snapshots::ids::StringId;

/// A reader of the JSON values of a snapshot, with the values read so far.
pub(super) struct Reading<'w> {
    pub(super) store: Store,
    /// The values of the lists and dicts that are not complete yet.
    pub(super) stack: Vec<Value>,
    /// A cache of recent strings by hash. Most strings are keys and names that occur repeatedly.
    recent: [StringId; RECENT],
    watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>,
    reported: Progress,
    /// Number of bytes read, which a stream counts by itself.
    offset: Rc<Cell<u64>>,
    /// The address of the text if it is in memory, and 0 for a stream. Strings borrowed from the text have higher
    /// addresses.
    start: usize,
    is_stopped: bool,
}

/// Maximum number of characters of a parser error that are shown, since it may quote a string of the file.
const SHOWN_OF_WHY: usize = 240;

const RECENT: usize = 256;

/// Number of bytes between two progress reports.
const BYTES_A_LOOK: u64 = 1 << 20;

/// Number of events between two progress reports.
const EVENTS_A_LOOK: u64 = 1 << 14;

impl<'w> Reading<'w> {
    /// Creates a reader of `text` in memory, or of a stream whose current offset is `offset`.
    pub(super) fn new(
        text: Option<&[u8]>,
        offset: Rc<Cell<u64>>,
        watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Self {
        let (start, bytes) = text.map_or((0, u64::MAX), |text| (text.as_ptr().addr(), text.len() as u64));
        let reported = Progress { bytes, ..Progress::default() };
        let (store, stack, recent) = (Store::new(), Vec::new(), [StringId(0); RECENT]);
        Self { store, stack, recent, watch, reported, offset, start, is_stopped: false }
    }

    /// Updates the position from `text`, which was borrowed from memory.
    #[inline]
    pub(super) fn is_at(&self, text: &str) {
        self.offset.set(text.as_ptr().addr().saturating_sub(self.start) as u64);
    }

    /// Reports progress if due. Fails if the listener stops the reading.
    #[inline]
    pub(super) fn look<E: serde::de::Error>(&mut self) -> Result<(), E> {
        let (bytes_read, events) = (self.offset.get(), self.store.events.len() as u64);
        let is_due = bytes_read.abs_diff(self.reported.bytes_read) >= BYTES_A_LOOK
            || events.abs_diff(self.reported.events) >= EVENTS_A_LOOK;
        if is_due && self.report(bytes_read, events).is_break() { Err(E::custom("stopped")) } else { Ok(()) }
    }

    #[cold]
    fn report(&mut self, bytes_read: u64, events: u64) -> ControlFlow<()> {
        self.reported = Progress { bytes_read, events, ..self.reported };
        let levels = Some(self.store.intake.take_levels());
        let flow = (self.watch)(Progress { levels, ..self.reported });
        self.is_stopped = flow.is_break();
        flow
    }

    #[inline]
    pub(super) fn text(&mut self, text: &str) -> StringId {
        let bytes = text.as_bytes();
        let byte = |at: usize| usize::from(bytes.get(at).copied().unwrap_or_default());
        let look = bytes.len() + 7 * byte(0) + 31 * byte(bytes.len() / 2) + 97 * byte(bytes.len().saturating_sub(1));
        let recent = &mut self.recent[look % RECENT];
        if self.store.intake.string(*recent) != text {
            *recent = self.store.intake.text(text);
        }
        *recent
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
