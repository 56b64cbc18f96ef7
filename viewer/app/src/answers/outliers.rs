//! Finds outliers among comparable peaks.

use std::collections::BTreeMap;

use highwater_snapshots::format_bytes;
use serde::Serialize;

/// The rule for outliers, as a sentence.
pub const RULE: &str = "A rank stands out if its peak differs from the median of the ranks with the same device capacity, \
                        at least 3, by more than 64 MiB, 5% and 5 times the median absolute deviation";

/// How a peak compares with similar peaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not an outlier, or too few peaks to compare.
    Usual,
    /// An outlier among `of` peaks.
    Out {
        /// Difference from the median in bytes; negative if below it.
        by: i64,
        /// Number of compared peaks.
        of: usize,
    },
}

/// The median and the deviation of a set of peaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Middle {
    /// The median, in bytes.
    pub median_bytes: u64,
    /// The median absolute deviation, in bytes.
    pub deviation_bytes: u64,
    /// Number of peaks that are compared.
    pub of: usize,
}

impl Standing {
    /// Returns a phrase for an outlier, such as `812 MiB above the median of 8 ranks`; `None` for other peaks. `what`
    /// is the plural name of the compared items.
    pub fn words(self, what: &str) -> Option<String> {
        let Self::Out { by, of } = self else { return None };
        let side = if by > 0 { "above" } else { "below" };
        Some(format!("{} {side} the median of {of} {what}", format_bytes(by.unsigned_abs())))
    }
}

/// The distance of an outlier from the median exceeds this number of median absolute deviations.
const MIN_DEVIATIONS: u64 = 5;
/// The distance of an outlier from the median exceeds the median divided by this.
const MIN_SHARE: u64 = 20;
/// The distance of an outlier from the median exceeds this number of bytes.
const MIN_BYTES: u64 = 64 << 20;
const MIN_PEAKS: usize = 3;

/// Compares each peak with the peaks of the same kind. `peaks` has the kind and the bytes of each peak.
pub fn standings(peaks: &[(u64, u64)]) -> Vec<Standing> {
    let middles = middles(peaks);
    let standing = |(&(_, bytes), middle): (&(u64, u64), &Middle)| {
        let by = i128::from(bytes) - i128::from(middle.median_bytes);
        let deviations = middle.deviation_bytes.saturating_mul(MIN_DEVIATIONS);
        let least = MIN_BYTES.max(middle.median_bytes / MIN_SHARE).max(deviations);
        match i64::try_from(by) {
            Ok(by) if by.unsigned_abs() > least && middle.of >= MIN_PEAKS => Standing::Out { by, of: middle.of },
            _ => Standing::Usual,
        }
    };
    peaks.iter().zip(&middles).map(standing).collect()
}

pub(crate) fn middles(peaks: &[(u64, u64)]) -> Vec<Middle> {
    let mut of_kind: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (kind, bytes) in peaks {
        of_kind.entry(*kind).or_default().push(*bytes);
    }
    let middles: BTreeMap<u64, Middle> = of_kind.into_iter().map(|(kind, bytes)| (kind, Middle::of(bytes))).collect();
    peaks.iter().map(|(kind, _)| middles[kind]).collect()
}

impl Middle {
    fn of(mut bytes: Vec<u64>) -> Self {
        let median_bytes = median(&mut bytes);
        let of = bytes.len();
        bytes.iter_mut().for_each(|bytes| *bytes = bytes.abs_diff(median_bytes));
        Self { median_bytes, deviation_bytes: median(&mut bytes), of }
    }
}

/// For an even number of values, the midpoint of the middle two; 0 if there are none.
fn median(bytes: &mut [u64]) -> u64 {
    bytes.sort_unstable();
    let middle = bytes.len() / 2;
    let at = |row: usize| bytes.get(row).copied().unwrap_or(0);
    if bytes.len().is_multiple_of(2) { at(middle.wrapping_sub(1)).midpoint(at(middle)) } else { at(middle) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(mebibytes: &[u64]) -> Vec<Standing> {
        standings(&mebibytes.iter().map(|m| (80, m * MIB)).collect::<Vec<_>>())
    }

    #[test]
    fn a_peak_far_from_the_median_stands_out_and_is_reported_in_words() {
        let found = of(&[2000, 2000, 2812, 2000, 1500, 2010, 1990, 2000]);
        assert_eq!(found[2].words("ranks").as_deref(), Some("812 MiB above the median of 8 ranks"));
        assert_eq!(found[4].words("ranks").as_deref(), Some("500 MiB below the median of 8 ranks"));
        assert_eq!(found.iter().filter(|standing| **standing != Standing::Usual).count(), 2);
    }

    #[test]
    fn neither_a_small_share_nor_few_bytes_stand_out() {
        assert!(of(&[10_000, 10_000, 10_500]).iter().all(|standing| *standing == Standing::Usual), "5 % exactly");
        assert_ne!(of(&[10_000, 10_000, 10_501])[2], Standing::Usual);
        assert!(of(&[100, 100, 164]).iter().all(|standing| *standing == Standing::Usual), "64 MiB exactly");
        assert_ne!(of(&[100, 100, 165])[2], Standing::Usual);
    }

    #[test]
    fn where_peaks_are_spread_widely_none_of_them_stands_out() {
        let stages: Vec<u64> = (0..8).flat_map(|stage| [4000 + stage * 500; 4]).collect();
        assert!(of(&stages).iter().all(|standing| *standing == Standing::Usual), "stages of a pipeline");
        let mut one_more = stages.clone();
        one_more[3] = 30_000;
        let found = of(&one_more);
        assert!(matches!(found[3], Standing::Out { by: 1.., of: 32 }));
        assert_eq!(found.iter().filter(|standing| **standing != Standing::Usual).count(), 1);
    }

    #[test]
    fn only_peaks_of_the_same_kind_are_compared_and_only_where_there_are_three() {
        assert!(of(&[100, 9000]).iter().all(|standing| *standing == Standing::Usual));
        let mixed = [(24, 100 * MIB), (24, 100 * MIB), (80, 9000 * MIB), (80, 9000 * MIB)];
        assert!(standings(&mixed).iter().all(|standing| *standing == Standing::Usual));
        assert_eq!(standings(&[]), []);
    }

    #[test]
    fn the_median_of_an_even_number_lies_halfway_and_nothing_overflows() {
        assert_eq!(median(&mut [5, 1, 100, 3]), 4);
        let found = standings(&[(0, 0), (0, 0), (0, u64::MAX)]);
        assert_eq!(found[..2], [Standing::Usual; 2]);
        let far = standings(&[(0, u64::MAX), (0, u64::MAX), (0, u64::MAX - 1)]);
        assert_eq!(far, [Standing::Usual; 3]);
    }
}
