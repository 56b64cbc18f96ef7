//! Changes that a replay applies to a block.

use highwater_recorder::snapshots::EventId;

/// A fraction, such as one half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    numerator: u32,
    denominator: u32,
}

impl Share {
    /// The fraction 1.
    pub const WHOLE: Self = Self { numerator: 1, denominator: 1 };

    /// Returns `numerator / denominator`, reduced, or `None` if the denominator is 0.
    pub fn new(numerator: u32, denominator: u32) -> Option<Self> {
        let (mut a, mut b) = (numerator, denominator);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (denominator > 0).then(|| Self { numerator: numerator / a, denominator: denominator / a })
    }

    /// Returns this fraction of `bytes`, rounded up, at least 1.
    pub fn of(self, bytes: u64) -> u64 {
        let product = u128::from(bytes) * u128::from(self.numerator);
        let part = product.div_ceil(u128::from(self.denominator));
        u64::try_from(part).unwrap_or(u64::MAX).max(1)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// The changes to a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockOverride {
    /// Whether the block is never allocated.
    pub is_removed: bool,
    /// The event after which the block is freed, if earlier than in the recording.
    pub ends_after: EventId,
    /// The fraction of the block's bytes that is requested.
    pub share: Share,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_rounded_up_and_never_nothing() {
        let third = Share::new(1, 3).unwrap();
        assert_eq!([0, 1, 3, 4, 1000].map(|bytes| third.of(bytes)), [1, 1, 1, 2, 334]);
        assert_eq!(Share::new(3, 2).unwrap().of(u64::MAX), u64::MAX);
        assert_eq!((Share::new(1, 0), Share::WHOLE.of(7)), (None, 7));
    }
}
