//! Notices: what the collector is told beside messages, in the same order: states of devices, wishes, the end.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_snapshots::StartingState;
use highwater_snapshots::trace::DeviceFacts;

use crate::held::Held;
use crate::order::{self, SequenceNumber};
use crate::reentrancy;
use crate::sender;

/// What is told once in a while.
#[derive(Debug)]
pub(crate) enum Control {
    /// A device's events count from here on, and this is what it held before.
    Device(DeviceFacts, StartingState),
    /// To answer when everything before is in the file, or will never be.
    Flush(Sender<()>),
    /// To answer with a copy of what is held in memory, if anything is.
    Copy(Sender<Option<Held>>),
    /// The recording ends here; to answer when all before is read.
    End(Sender<()>),
}

static CONTROLS: Mutex<VecDeque<(SequenceNumber, Control)>> = Mutex::new(VecDeque::new());

fn lock() -> MutexGuard<'static, VecDeque<(SequenceNumber, Control)>> {
    CONTROLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the collector. For a device's state: while its allocator is locked, so that state and events fit.
pub(crate) fn put(notice: Control) {
    let _own = reentrancy::own_memory();
    let mut notices = lock();
    notices.push_back((order::take(), notice));
    drop(notices);
    sender::wake();
}

/// Takes all notices, unanswered, up to the end of the recording; that one, if it is there. For a collector that can do
/// no more.
pub(crate) fn skip_to_end() -> Option<Control> {
    let mut notices = lock();
    std::iter::from_fn(|| notices.pop_front())
        .map(|(_, notice)| notice)
        .find(|notice| matches!(notice, Control::End(_)))
}

/// The notice at `place`, if there is one; older ones, which nobody took, are forgotten.
pub(crate) fn take_at(place: SequenceNumber) -> Option<Control> {
    let mut notices = lock();
    while notices.front().is_some_and(|(at, _)| at.behind(place) < 0) {
        notices.pop_front();
    }
    notices.pop_front_if(|(at, _)| *at == place).map(|(_, notice)| notice)
}

/// How far behind `place` the next notice is, if there is one.
pub(crate) fn next_behind(place: SequenceNumber) -> Option<i32> {
    lock().front().map(|(at, _)| at.behind(place))
}
