//! Sequence numbers, which order events across threads.
//!
//! The process has one counter, and taking a number is one atomic addition. All additions to one counter have a single
//! order, which agrees with every lock of the program: an earlier event has the smaller number.

use std::sync::atomic::{AtomicU64, Ordering};

use highwater_snapshots::OpId;

/// The high half counts messages and wraps; the low half counts operations.
static NEXT: AtomicU64 = AtomicU64::new(0);

const MESSAGE: u64 = 1 << 32;

/// Maximum number of operations that get an id, so that the low half never overflows.
const MAX_OPS: u32 = u32::MAX - (1 << 20);

/// A position in the order of messages; wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SequenceNumber(pub(crate) u32);

impl SequenceNumber {
    /// Returns the number of positions by which this is after `other`; negative if it is before `other`. Valid for
    /// distances below 2^31.
    pub(crate) fn behind(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

#[inline(always)]
pub(crate) fn take() -> SequenceNumber {
    SequenceNumber((NEXT.fetch_add(MESSAGE, Ordering::Relaxed) >> 32) as u32)
}

/// Returns the next sequence number without taking it.
pub(crate) fn next() -> SequenceNumber {
    SequenceNumber((NEXT.load(Ordering::Relaxed) >> 32) as u32)
}

/// Takes the next sequence number and the next operation id, so that operations are numbered in the order of their
/// messages. Returns `None` when all ids are used up.
#[inline]
pub(crate) fn take_with_op() -> Option<(SequenceNumber, OpId)> {
    if NEXT.load(Ordering::Relaxed) as u32 >= MAX_OPS {
        return None;
    }
    let both = NEXT.fetch_add(MESSAGE + 1, Ordering::Relaxed);
    Some((SequenceNumber((both >> 32) as u32), OpId(both as u32)))
}

/// Takes the next sequence number. Also returns the id of the first operation after it.
pub(crate) fn take_before_op() -> (SequenceNumber, u32) {
    let both = NEXT.fetch_add(MESSAGE, Ordering::Relaxed);
    (SequenceNumber((both >> 32) as u32), both as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_also_where_they_wrap() {
        assert_eq!(SequenceNumber(u32::MAX).next(), SequenceNumber(0));
        assert_eq!(SequenceNumber(3).behind(SequenceNumber(u32::MAX)), 4);
        assert_eq!(SequenceNumber(u32::MAX).behind(SequenceNumber(3)), -4);
    }

    #[test]
    fn operations_are_numbered_in_the_order_of_their_places() {
        let taken: Vec<(SequenceNumber, OpId)> = (0..3).filter_map(|_| take_with_op()).collect();
        assert!(taken.windows(2).all(|pair| pair[1].0.behind(pair[0].0) > 0 && pair[0].1 < pair[1].1));
    }
}
