//! Disjoint address ranges, each with a tag; adjacent ranges with the same tag are merged.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges by start address, each with an end and a tag. Operations take logarithmic time per created or removed range.
#[derive(Clone, Debug)]
pub struct Ranges<T> {
    rows: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self { rows: BTreeMap::new() }
    }
}

impl<T: Copy + Eq> Ranges<T> {
    /// Inserts `start..end`, replacing the parts of other ranges that it overlaps.
    #[inline]
    pub fn insert(&mut self, start: u64, mut end: u64, tag: T) {
        if start >= end {
            return;
        }
        if let Some(&(after, _)) = self.rows.get(&end).filter(|row| row.1 == tag) {
            self.rows.remove(&end);
            end = after;
        }
        match self.rows.range_mut(..end).next_back() {
            Some((_, row)) if row.0 > start => {
                self.remove(start, end);
                self.insert(start, end, tag);
            }
            Some((_, row)) if row.0 == start && row.1 == tag => row.0 = end,
            _ => {
                self.rows.insert(start, (end, tag));
            }
        }
    }

    /// Removes `start..end` from all ranges.
    pub fn remove(&mut self, start: u64, end: u64) {
        self.take(start, end, |_, _, _| {});
    }

    /// Removes `start..end` from all ranges. Passes the start, end and tag of each removed part to `each`, in
    /// descending order.
    pub fn take(&mut self, start: u64, end: u64, mut each: impl FnMut(u64, u64, T)) {
        while let Some((&first, &(last, tag))) = self.rows.range(..end).next_back() {
            if last <= start || start >= end {
                break;
            }
            self.rows.remove(&first);
            if last > end {
                self.rows.insert(end, (last, tag));
            }
            if first < start {
                self.rows.insert(first, (start, tag));
            }
            each(first.max(start), last.min(end), tag);
        }
    }

    /// Returns the end and tag of the range that begins at `start`; `None` if none does.
    #[inline]
    pub fn starting_at(&self, start: u64) -> Option<(u64, T)> {
        self.rows.get(&start).copied()
    }

    /// Removes `start..end` from the range that starts at `start` and ends at `end` or later.
    #[inline]
    pub fn take_front(&mut self, start: u64, end: u64) {
        match self.rows.remove(&start) {
            Some((last, tag)) if last > end => {
                self.rows.insert(end, (last, tag));
            }
            _ => {}
        }
    }

    /// Returns the start, end and tag of the range that contains the byte at `at`; `None` if none does.
    pub fn holding(&self, at: u64) -> Option<(u64, u64, T)> {
        let (&start, &(end, tag)) = self.rows.range(..=at).next_back()?;
        (at < end).then_some((start, end, tag))
    }

    /// Returns the parts of `span` that are outside of all ranges.
    pub fn gaps(&self, span: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        if span.is_empty() {
            return gaps;
        }
        let mut from = span.start;
        let before = self.rows.range(..=span.start).next_back();
        for (&start, &(end, _)) in before.into_iter().chain(self.rows.range(span.start + 1..span.end)) {
            if from < start {
                gaps.push(from..start);
            }
            from = from.max(end);
        }
        if from < span.end {
            gaps.push(from..span.end);
        }
        gaps
    }

    /// Iterates over the start, end and tag of all ranges, by address.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, T)> {
        self.rows.iter().map(|(&start, &(end, tag))| (start, end, tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_join_only_where_their_tags_agree() {
        let mut ranges = Ranges::default();
        for (start, end, tag) in [(0, 10, 'a'), (20, 30, 'a'), (10, 20, 'a'), (30, 40, 'b')] {
            ranges.insert(start, end, tag);
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 30, 'a'), (30, 40, 'b')]);
        assert_eq!(ranges.holding(29), Some((0, 30, 'a')));
        assert_eq!(ranges.holding(40), None);
    }

    proptest! {
        #[test]
        fn ranges_agree_with_an_array_of_bytes(steps in prop::collection::vec((0_u64..60, 0_u64..60, 0_u8..4), 0..60)) {
            let mut ranges = Ranges::default();
            let mut bytes = [None; 60];
            for (start, end, tag) in steps {
                let span = start as usize..(end.max(start)) as usize;
                if tag == 3 {
                    ranges.remove(start, end);
                    bytes[span].fill(None);
                } else {
                    ranges.insert(start, end, tag);
                    bytes[span].fill(Some(tag));
                }
                for (at, expected) in bytes.iter().enumerate() {
                    prop_assert_eq!(ranges.holding(at as u64).map(|row| row.2), *expected);
                }
                let gaps: Vec<u64> = ranges.gaps(7..51).into_iter().flatten().collect();
                prop_assert_eq!(gaps, (7..51).filter(|at| bytes[*at as usize].is_none()).collect::<Vec<u64>>());
                let rows: Vec<_> = ranges.iter().collect();
                prop_assert!(rows.windows(2).all(|pair| pair[0].1 < pair[1].0 || pair[0].2 != pair[1].2));
            }
        }
    }
}
