//! The sentence above a comparison: the difference of the totals, and the groups that differ most.

use highwater_analysis::{Diff, DiffGroup};
use highwater_snapshots::line_text::shorten_line;
use highwater_snapshots::{format_bytes, format_share, format_signed_bytes};

const MAX_GROUPS: usize = 3;
/// Groups below this share of the largest difference are not named, in percent.
const MIN_PERCENT: u128 = 5;
/// Maximum length of a value in a group's name, in characters.
const MAX_NAME: usize = 40;

/// Formats the difference between two totals, such as `after.snap peaks 2.07 GiB lower than before.snap (−37%)`.
pub(super) fn difference_text([name_a, name_b]: [&str; 2], [a, b]: [u64; 2], is_peak: bool) -> String {
    let [verb, less, more] = if is_peak { ["peaks", "lower", "higher"] } else { ["takes", "less", "more"] };
    if a == b {
        return format!("Both {} {}", if is_peak { "peak at" } else { "take" }, format_bytes(a));
    }
    let (size, (sign, how)) = (a.abs_diff(b), if a > b { ('−', less) } else { ('+', more) });
    let share = if a > 0 { format!(" ({sign}{})", format_share(size, a)) } else { String::new() };
    format!("{name_b} {verb} {} {how} than {name_a}{share}", format_bytes(size))
}

/// Lists the groups that differ most, such as `temporary −1.13 GiB, gradient −1.12 GiB`; empty if none differs.
pub(super) fn parts_text(diff: &Diff) -> String {
    let size = |delta: i128| delta.unsigned_abs();
    let largest = diff.groups.iter().map(|group| size(group.delta())).max().unwrap_or(0);
    let groups = diff.groups.iter().filter(|group| size(group.delta()) * 100 >= (largest * MIN_PERCENT).max(1));
    let part = |group: &DiffGroup| {
        let name = group.key.iter().map(|value| shorten_line(value, MAX_NAME)).collect::<Vec<_>>().join(" ");
        format!("{name} {}", format_signed_bytes(group.delta()))
    };
    groups.take(MAX_GROUPS).map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_side_that_takes_more_and_by_how_much() {
        let text = |bytes, is_peak| difference_text(["a.snap", "b.snap"], bytes, is_peak);
        assert_eq!(text([4096, 3072], true), "b.snap peaks 1 KiB lower than a.snap (−25%)");
        assert_eq!(text([3072, 4096], false), "b.snap takes 1 KiB more than a.snap (+33%)");
        assert_eq!(text([0, 4096], true), "b.snap peaks 4 KiB higher than a.snap");
        assert_eq!(text([5, 5], true), "Both peak at 5 B");
    }
}
