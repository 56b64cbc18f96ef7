//! The rules by which PyTorch's caching allocator splits a free block and assigns a segment to a pool.

use super::{AllocRules, MIN_BLOCK, SMALL_REQUEST, SMALL_SEGMENT};
use crate::category::Pool;

impl AllocRules {
    /// The pool for which a segment of `bytes` was reserved.
    pub fn segment_pool(&self, bytes: u64) -> Pool {
        if bytes <= SMALL_SEGMENT { Pool::Small } else { Pool::Large }
    }

    /// The pool for which pages of `bytes` were mapped or unmapped.
    pub fn page_pool(&self, bytes: u64) -> Pool {
        if bytes.is_multiple_of(self.page(Pool::Large)) { Pool::Large } else { Pool::Small }
    }

    /// Whether the remaining `rest` bytes are split off as a free block when a request of `rounded` bytes is served.
    #[inline]
    pub fn splits(&self, rounded: u64, rest: u64, kind: SegmentKind) -> bool {
        // If the setting is enabled, older segments are split by the same rules; private pools with a custom allocator
        // never have expandable segments.
        let is_fine = match kind {
            SegmentKind::Expandable => true,
            SegmentKind::Default => self.is_expandable,
            SegmentKind::Private => false,
        };
        if rounded <= SMALL_REQUEST || is_fine {
            rest >= MIN_BLOCK
        } else {
            !self.is_unsplit(rounded) && rest > SMALL_REQUEST
        }
    }

    /// Returns whether a gap of `gap` bytes after a block of `rounded` bytes in a large segment must belong to that
    /// block. This follows from its size: the allocator splits off larger remainders as free blocks.
    pub fn is_slack(&self, rounded: u64, gap: u64) -> bool {
        rounded > SMALL_REQUEST && !self.is_expandable && (gap <= SMALL_REQUEST || self.is_unsplit(rounded))
    }

    fn is_unsplit(&self, rounded: u64) -> bool {
        self.max_split.is_some_and(|most| rounded >= most)
    }
}

/// The kind of segment that serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// An expandable segment.
    Expandable,
    /// A segment of the default pool.
    Default,
    /// A segment of a private pool.
    Private,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn settings(pairs: &[(&str, &str)]) -> AllocRules {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        AllocRules::from_settings(&pairs)
    }

    #[test]
    fn a_rest_is_split_off_by_pool_and_kind_of_segment() {
        let plain = AllocRules::default();
        assert!(plain.splits(1024, 512, SegmentKind::Default));
        assert!(!plain.splits(2 * MIB, MIB, SegmentKind::Default), "a rest of exactly 1 MiB stays");
        assert!(plain.splits(2 * MIB, MIB + 512, SegmentKind::Default));
        assert!(plain.splits(2 * MIB, 512, SegmentKind::Expandable));
        let limited = settings(&[("max_split_size", "33554432")]);
        assert!(!limited.splits(32 * MIB, 16 * MIB, SegmentKind::Default));
        let expandable = settings(&[("expandable_segments", "True")]);
        assert!(expandable.splits(2 * MIB, 512, SegmentKind::Default));
        assert!(!expandable.splits(2 * MIB, 512, SegmentKind::Private));
    }
}
