//! Control messages to the collector (device states, requests and the end of a recording), in one sequence with events.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_snapshots::StartingState;
use highwater_snapshots::trace::DeviceFacts;

use crate::history_copy::HistoryCopy;
use crate::order::{self, SequenceNumber};
use crate::reentrancy;
use crate::sender;

#[derive(Debug)]
pub(crate) enum Control {
    /// The starting state of a device, whose events are recorded from here on.
    Device(DeviceFacts, StartingState),
    /// The states of all allocators that were registered when the recording began have been sent.
    Opened,
    /// A request for a copy of the events kept in memory. The reply is `None` if none are kept.
    Copy(Sender<Option<HistoryCopy>>),
    /// The end of the recording. The reply is sent when everything before it has been read.
    End(Sender<()>),
}

static CONTROLS: Mutex<VecDeque<(SequenceNumber, Control)>> = Mutex::new(VecDeque::new());

fn lock() -> MutexGuard<'static, VecDeque<(SequenceNumber, Control)>> {
    CONTROLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device's state must be sent while its allocator is locked, to match later events.
pub(crate) fn put(notice: Control) {
    let _own = reentrancy::own_memory();
    let mut notices = lock();
    notices.push_back((order::take(), notice));
    drop(notices);
    sender::wake();
}

/// Discards control messages up to [`Control::End`], and returns that one if it has arrived. Used by a collector that
/// has failed.
pub(crate) fn skip_to_end() -> Option<Control> {
    let mut notices = lock();
    std::iter::from_fn(|| notices.pop_front())
        .map(|(_, notice)| notice)
        .find(|notice| matches!(notice, Control::End(_)))
}

/// Discards older messages, which the merge has skipped.
pub(crate) fn take_at(place: SequenceNumber) -> Option<Control> {
    let mut notices = lock();
    while notices.front().is_some_and(|(at, _)| at.behind(place) < 0) {
        notices.pop_front();
    }
    notices.pop_front_if(|(at, _)| *at == place).map(|(_, notice)| notice)
}

/// Returns the distance from `place` to the next control message, if there is one.
pub(crate) fn next_behind(place: SequenceNumber) -> Option<i32> {
    lock().front().map(|(at, _)| at.behind(place))
}
