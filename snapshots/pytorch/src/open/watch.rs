//! Reports the progress of reading a file to a listener, and lets the listener stop it.

use std::cell::RefCell;
use std::io::Read;
use std::ops::ControlFlow;
use std::rc::Rc;

use highwater_snapshots::error::Error;
use highwater_snapshots::format::Progress;

/// A listener, shared between the source, which counts bytes, and the reader, which counts events.
#[derive(Clone)]
pub(super) struct Watch<'a> {
    state: Rc<RefCell<State<'a>>>,
}

struct State<'a> {
    listener: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    now: Progress,
    /// Bytes read when the listener was last called.
    reported: u64,
    is_stopped: bool,
}

/// Number of bytes of the file between two calls of the listener.
const BYTES_BETWEEN: u64 = 1 << 20;

impl State<'_> {
    fn notify(&mut self) -> ControlFlow<()> {
        if !self.is_stopped {
            self.reported = self.now.bytes_read;
            self.is_stopped = (self.listener)(self.now).is_break();
            // Levels cover only the events since the last call.
            self.now.levels = None;
        }
        if self.is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl<'a> Watch<'a> {
    /// Creates a watch over a file of `bytes` bytes, `u64::MAX` if the size is unknown.
    pub(super) fn new(bytes: u64, listener: &'a mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        let now = Progress { bytes, ..Progress::default() };
        Self { state: Rc::new(RefCell::new(State { listener, now, reported: 0, is_stopped: false })) }
    }

    /// Passes on a reader's event count and levels. Its byte counts are ignored: they may refer to decompressed data.
    pub(super) fn pass_events(&self, progress: Progress) -> ControlFlow<()> {
        let mut state = self.state.borrow_mut();
        (state.now.events, state.now.levels) = (progress.events, progress.levels);
        state.notify()
    }

    pub(super) fn pass(&self, progress: Progress) -> ControlFlow<()> {
        let mut state = self.state.borrow_mut();
        state.now = progress;
        state.notify()
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.state.borrow().now.bytes_read
    }

    /// Wraps `input` so that bytes read from it count as bytes of the file.
    pub(super) fn counting<R: Read>(&self, input: R) -> Counting<'a, R> {
        Counting { input, watch: self.clone() }
    }

    fn count(&self, bytes: u64) -> std::io::Result<()> {
        let mut state = self.state.borrow_mut();
        state.now.bytes_read = state.now.bytes_read.saturating_add(bytes);
        let is_due = state.is_stopped || state.now.bytes_read - state.reported >= BYTES_BETWEEN;
        if is_due && state.notify().is_break() { Err(std::io::Error::other(Error::Cancelled)) } else { Ok(()) }
    }
}

/// An input whose bytes are counted as bytes of the file. If the listener stops reading, reads fail with an error that
/// wraps [`Error::Cancelled`].
pub(super) struct Counting<'a, R> {
    input: R,
    watch: Watch<'a>,
}

/// Maximum number of bytes per read, so that the listener is called often enough.
const PORTION: usize = BYTES_BETWEEN as usize;

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let most = out.len().min(PORTION);
        let taken = self.input.read(out.get_mut(..most).unwrap_or_default())?;
        self.watch.count(taken as u64)?;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_hears_of_every_mebibyte_and_of_the_readers_events() {
        let mut heard = Vec::new();
        let mut listener = |now: Progress| {
            heard.push((now.bytes_read >> 10, now.events));
            ControlFlow::Continue(())
        };
        let watch = Watch::new(u64::MAX, &mut listener);
        let mut input = watch.counting(std::io::repeat(0));
        let mut out = vec![0; 700 << 10];
        for _ in 0..4 {
            input.read_exact(&mut out).unwrap();
        }
        let _ = watch.pass_events(Progress { bytes_read: 5, bytes: 6, events: 7, ..Progress::default() });
        drop((input, watch));
        assert_eq!(heard, [(1400, 0), (2800, 0), (2800, 7)]);
    }

    #[test]
    fn a_stopped_reading_stays_stopped_and_is_asked_no_more() {
        let mut calls = 0;
        let mut listener = |_: Progress| {
            calls += 1;
            ControlFlow::Break(())
        };
        let watch = Watch::new(u64::MAX, &mut listener);
        let mut input = watch.counting(std::io::repeat(0));
        let mut out = vec![0; 3 << 20];
        let stopped = input.read_exact(&mut out).unwrap_err();
        assert!(matches!(Error::from_input(stopped), Error::Cancelled));
        assert!(input.read_exact(&mut out[..1]).is_err());
        let now = Progress::default();
        assert!(watch.pass(now).is_break() && watch.pass_events(now).is_break());
        drop((input, watch));
        assert_eq!(calls, 1);
    }
}
