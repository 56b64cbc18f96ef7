//! Order: which of two events came first, whatever threads they are from.
//!
//! One counter for the process. Taking a number is one atomic addition; since all additions to one counter have one
//! order, which agrees with every lock that a program takes, an event that happened before another has the smaller number.

use std::sync::atomic::{AtomicU64, Ordering};

use highwater_snapshots::OpId;

/// The high half counts messages, and wraps; the low half counts operations.
static NEXT: AtomicU64 = AtomicU64::new(0);

const MESSAGE: u64 = 1 << 32;

/// Operations beyond this have no number, so that the low half never runs over.
const MOST_OPS: u32 = u32::MAX - (1 << 20);

/// A place in the order of messages, which wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SequenceNumber(pub(crate) u32);

impl SequenceNumber {
    /// How many places this is behind `other`; negative if it lies before it. Right while fewer than 2^31 lie between.
    pub(crate) fn behind(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// The next place.
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The next place.
#[inline(always)]
pub(crate) fn take() -> SequenceNumber {
    SequenceNumber((NEXT.fetch_add(MESSAGE, Ordering::Relaxed) >> 32) as u32)
}

/// The next place, and the number of the next operation: operations are numbered in the order of their places. None
/// when all numbers are used up.
#[inline]
pub(crate) fn take_with_op() -> Option<(SequenceNumber, OpId)> {
    if NEXT.load(Ordering::Relaxed) as u32 >= MOST_OPS {
        return None;
    }
    let both = NEXT.fetch_add(MESSAGE + 1, Ordering::Relaxed);
    Some((SequenceNumber((both >> 32) as u32), OpId(both as u32)))
}

/// The next place, and the number that the first operation after it will have.
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
