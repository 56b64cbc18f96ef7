//! Outliers: which of several peaks stand out from those that they can be compared with.

use highwater_snapshots::units::format_bytes;

/// How a peak stands among comparable ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As the others, or there are too few to tell.
    Usual,
    /// Far from the median of `of` peaks.
    Out {
        /// Bytes from the median, below it if negative.
        by: i64,
        /// How many are compared.
        of: usize,
    },
}

impl Standing {
    /// Where it stands, in words, if it stands out: `812 MiB above the median of 8 ranks`.
    pub fn words(self) -> Option<String> {
        let Self::Out { by, of } = self else { return None };
        let side = if by > 0 { "above" } else { "below" };
        Some(format!("{} {side} the median of {of} ranks", format_bytes(by.unsigned_abs())))
    }
}

/// A peak stands out if it is further from the median than a twentieth of it …
const LEAST_SHARE: u64 = 20;
/// … and than so many bytes.
const LEAST_BYTES: u64 = 64 << 20;
/// Of fewer peaks nobody can tell which one stands out.
const LEAST_PEAKS: usize = 3;

/// How each stands among those of the same kind: kind (such as the device's capacity) and bytes of each.
pub fn standings(peaks: &[(u64, u64)]) -> Vec<Standing> {
    let mut sorted: Vec<(u64, u64)> = peaks.to_vec();
    sorted.sort_unstable();
    let standing = |&(kind, bytes): &(u64, u64)| {
        let first = sorted.partition_point(|(other, _)| *other < kind);
        let same = &sorted[first..sorted.partition_point(|(other, _)| *other <= kind)];
        let median = median(same);
        let by = i128::from(bytes) - i128::from(median);
        let is_out = by.unsigned_abs() > u128::from(LEAST_BYTES.max(median / LEAST_SHARE));
        match i64::try_from(by) {
            Ok(by) if is_out && same.len() >= LEAST_PEAKS => Standing::Out { by, of: same.len() },
            _ => Standing::Usual,
        }
    };
    peaks.iter().map(standing).collect()
}

/// The middle of sorted peaks; of an even number, halfway between the middle two.
fn median(sorted: &[(u64, u64)]) -> u64 {
    let middle = sorted.len() / 2;
    let at = |row: usize| sorted.get(row).map_or(0, |(_, bytes)| *bytes);
    if sorted.len().is_multiple_of(2) { at(middle.wrapping_sub(1)).midpoint(at(middle)) } else { at(middle) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(mebibytes: &[u64]) -> Vec<Standing> {
        standings(&mebibytes.iter().map(|m| (80, m * MIB)).collect::<Vec<_>>())
    }

    #[test]
    fn a_peak_far_from_the_median_stands_out_and_is_told_in_words() {
        let found = of(&[2000, 2000, 2812, 2000, 1500, 2010, 1990, 2000]);
        assert_eq!(found[2].words().as_deref(), Some("812 MiB above the median of 8 ranks"));
        assert_eq!(found[4].words().as_deref(), Some("500 MiB below the median of 8 ranks"));
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
    fn only_peaks_of_the_same_kind_are_compared_and_only_where_there_are_three() {
        assert!(of(&[100, 9000]).iter().all(|standing| *standing == Standing::Usual));
        let mixed = [(24, 100 * MIB), (24, 100 * MIB), (80, 9000 * MIB), (80, 9000 * MIB)];
        assert!(standings(&mixed).iter().all(|standing| *standing == Standing::Usual));
        assert_eq!(standings(&[]), []);
    }

    #[test]
    fn the_median_of_an_even_number_lies_halfway_and_nothing_overflows() {
        assert_eq!(median(&[(0, 1), (0, 3), (0, 5), (0, 100)]), 4);
        let found = standings(&[(0, 0), (0, 0), (0, u64::MAX)]);
        assert_eq!(found[..2], [Standing::Usual; 2]);
        let far = standings(&[(0, u64::MAX), (0, u64::MAX), (0, u64::MAX - 1)]);
        assert_eq!(far, [Standing::Usual; 3]);
    }
}
