//! Reports the progress of reading a file in memory, and stops reading if the listener requests it.

use std::ops::ControlFlow;

use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::format::Progress;

/// Number of bytes between two calls of the listener.
const BYTES_BETWEEN: u64 = 1 << 20;

pub(super) struct Reports<'w> {
    watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>,
    bytes: u64,
    /// Number of events read so far, or 0 if not counted.
    pub(super) events: u64,
    /// Bytes read when the listener was last called.
    reported: Option<u64>,
}

impl<'w> Reports<'w> {
    pub(super) fn of(file: &[u8], watch: &'w mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        Self { watch, bytes: file.len() as u64, events: 0, reported: None }
    }

    /// Calls the listener the first time, and then for every mebibyte. `bytes_read` may exceed the file's size if parts
    /// are read again.
    pub(super) fn read(&mut self, bytes_read: u64) -> Result<()> {
        if self.reported.is_some_and(|reported| bytes_read.saturating_sub(reported) < BYTES_BETWEEN) {
            return Ok(());
        }
        self.reported = Some(bytes_read);
        let (bytes, events) = (self.bytes, self.events);
        let now = Progress { bytes_read: bytes_read.min(bytes), bytes, events, ..Progress::default() };
        if (self.watch)(now).is_break() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_hears_of_every_mebibyte_and_never_of_more_than_the_file_has() {
        let mut heard = Vec::new();
        let mut listener = |now: Progress| {
            heard.push((now.bytes_read, now.bytes));
            ControlFlow::Continue(())
        };
        let file = vec![0_u8; 3 << 20];
        let mut reports = Reports::of(&file, &mut listener);
        for bytes in [0, 1, 1 << 20, (1 << 20) + 1, 5 << 19, 4 << 20] {
            reports.read(bytes).unwrap();
        }
        assert_eq!(heard, [0, 1 << 20, 5 << 19, 3 << 20].map(|bytes| (bytes, 3 << 20)));
    }
}
