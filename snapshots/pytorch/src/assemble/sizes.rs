//! Passes the rounded sizes of a device's blocks from the thread that computes them to the thread that writes events.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Number of sizes that are sent at once.
const PORTION: usize = 1 << 14;

/// Number of portions that may wait to be received.
const WAITING: usize = 16;

#[derive(Debug)]
pub(super) struct SizeSender {
    sender: SyncSender<Vec<u64>>,
    portion: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct SizeReceiver {
    receiver: Receiver<Vec<u64>>,
    portion: std::vec::IntoIter<u64>,
}

pub(super) fn sizes() -> (SizeSender, SizeReceiver) {
    let (sender, receiver) = sync_channel(WAITING);
    (SizeSender { sender, portion: Vec::new() }, SizeReceiver { receiver, portion: Vec::new().into_iter() })
}

impl SizeSender {
    #[inline]
    pub(super) fn send(&mut self, bytes: u64) {
        self.portion.push(bytes);
        if self.portion.len() == PORTION {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let portion = std::mem::replace(&mut self.portion, Vec::with_capacity(PORTION));
        // A receiver that is gone needs no sizes.
        let _ = self.sender.send(portion);
    }
}

impl Drop for SizeSender {
    fn drop(&mut self) {
        self.flush();
    }
}

impl SizeReceiver {
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        loop {
            if let Some(bytes) = self.portion.next() {
                return Some(bytes);
            }
            self.portion = self.receiver.recv().ok()?.into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_arrive_in_order_and_end() {
        let (mut sender, mut receiver) = sizes();
        let count = 3 * PORTION as u64 + 5;
        std::thread::scope(|scope| {
            scope.spawn(move || (0..count).for_each(|bytes| sender.send(bytes)));
            assert!((0..count).all(|bytes| receiver.next() == Some(bytes)));
            assert_eq!(receiver.next(), None);
        });
    }

    #[test]
    fn nobody_waits_for_a_receiver_that_is_gone() {
        let (mut sender, receiver) = sizes();
        drop(receiver);
        (0..PORTION as u64 * (WAITING as u64 + 2)).for_each(|bytes| sender.send(bytes));
    }
}
