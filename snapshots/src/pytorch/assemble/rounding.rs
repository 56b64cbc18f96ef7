//! Rounding: what PyTorch's caching allocator makes of a request's size, and when it splits a free block.

use crate::Pool;

/// Sizes are multiples of this; no free block is smaller.
const MIN_BLOCK: u64 = 512;

/// Rounded requests of at most so many bytes come from the small pool. In the large pool a rest of at most so many
/// bytes is not split off.
pub(super) const SMALL_REQUEST: u64 = 1 << 20;

/// Segments of the small pool have this size, and its expandable segments these pages.
pub(super) const SMALL_SEGMENT: u64 = 2 << 20;

/// Pages of the large pool's expandable segments, unless the settings say otherwise.
const LARGE_PAGE: u64 = 20 << 20;

/// Sizes by powers of two from 1 MiB on have a setting each; the last is for all above.
const INTERVALS: usize = 16;

/// The allocator's settings that decide sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rounding {
    /// `roundup_power2_divisions`, by interval; 0 and 1 for none.
    divisions: [u64; INTERVALS],
    /// `max_split_size` in bytes; `u64::MAX` for unlimited.
    max_split_size: u64,
    /// `expandable_segments`.
    is_expandable: bool,
    large_page: u64,
}

impl Default for Rounding {
    fn default() -> Self {
        Self { divisions: [0; INTERVALS], max_split_size: u64::MAX, is_expandable: false, large_page: LARGE_PAGE }
    }
}

impl Rounding {
    /// Reads `allocator_settings`, nested keys joined by dots. What is not there by itself is looked for in the
    /// configuration string.
    pub(super) fn from_settings(settings: &[(String, String)]) -> Self {
        let mut rounding = Self::default();
        for (_, text) in settings.iter().filter(|(name, _)| name.ends_with("ALLOC_CONF")) {
            rounding.read_configuration(text);
        }
        for (name, value) in settings {
            match name.as_str() {
                // Unlimited is written as -1.
                "max_split_size" => rounding.max_split_size = value.trim().parse().unwrap_or(u64::MAX),
                "expandable_segments" => rounding.is_expandable = is_true(value),
                _ => {
                    let start = name.strip_prefix("roundup_power2_divisions.").and_then(|key| key.parse::<u64>().ok());
                    if let (Some(start), Ok(divisions)) = (start, value.trim().parse()) {
                        rounding.divisions[interval(start.saturating_mul(1 << 20))] = divisions;
                    }
                }
            }
        }
        rounding
    }

    /// Reads `key:value,key:[a:b,c:d]`; unknown keys say nothing about sizes.
    fn read_configuration(&mut self, text: &str) {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut rest = text.as_str();
        while let Some((key, after)) = rest.split_once(':') {
            let (value, after) = match after.strip_prefix('[') {
                Some(list) => list.split_once(']').unwrap_or((list, "")),
                None => after.split_once(',').unwrap_or((after, "")),
            };
            rest = after.trim_start_matches(',');
            let mebibytes = || value.parse::<u64>().ok().map(|size| size.saturating_mul(1 << 20));
            match key {
                "max_split_size_mb" => self.max_split_size = mebibytes().unwrap_or(u64::MAX),
                "expandable_segments" => self.is_expandable = is_true(value),
                "large_segment_size_mb" => self.large_page = mebibytes().filter(|size| *size > 0).unwrap_or(LARGE_PAGE),
                "roundup_power2_divisions" => self.read_divisions(value),
                _ => {}
            }
        }
    }

    /// Reads `4`, or `64:8,256:4,>:1`: the first entry also holds below its size, `>` for all above the last.
    fn read_divisions(&mut self, text: &str) {
        let mut next = 0;
        for entry in text.split(',') {
            let Some((key, value)) = entry.split_once(':') else {
                if let Ok(divisions) = entry.parse() {
                    self.divisions = [divisions; INTERVALS];
                }
                return;
            };
            let Ok(divisions) = value.parse() else { continue };
            let at = match key.parse::<u64>() {
                Ok(mebibytes) => interval(mebibytes.saturating_mul(1 << 20)),
                Err(_) => {
                    self.divisions[next.min(INTERVALS)..].fill(divisions);
                    return;
                }
            };
            let first = if next == 0 { 0 } else { at };
            self.divisions[first..=at].fill(divisions);
            next = at + 1;
        }
    }

    /// The rounded size of a request of `bytes`.
    #[inline]
    pub(super) fn round(&self, bytes: u64) -> u64 {
        if bytes < MIN_BLOCK {
            return MIN_BLOCK;
        }
        let divisions = self.divisions[interval(bytes)];
        if divisions > 1 && bytes > divisions.saturating_mul(MIN_BLOCK) {
            return next_division(bytes, divisions);
        }
        bytes.checked_next_multiple_of(MIN_BLOCK).unwrap_or(bytes)
    }

    /// The pool that serves a request of `bytes`.
    #[inline]
    pub(super) fn pool(&self, bytes: u64) -> Pool {
        if self.round(bytes) <= SMALL_REQUEST { Pool::Small } else { Pool::Large }
    }

    /// The pool for which a segment of `bytes` was obtained.
    pub(super) fn segment_pool(&self, bytes: u64) -> Pool {
        if bytes <= SMALL_SEGMENT { Pool::Small } else { Pool::Large }
    }

    /// The pool for which pages of `bytes` were mapped or unmapped.
    pub(super) fn page_pool(&self, bytes: u64) -> Pool {
        if bytes.is_multiple_of(self.large_page) { Pool::Large } else { Pool::Small }
    }

    /// Whether a request of `rounded` bytes leaves `rest` bytes behind as a free block, rather than taking them too.
    #[inline]
    pub(super) fn splits(&self, rounded: u64, rest: u64, place: Place) -> bool {
        // Where the setting is on, segments that are older than it are split alike; private pools with an allocator of
        // their own never have expandable segments.
        let is_fine = match place {
            Place::Expandable => true,
            Place::Default => self.is_expandable,
            Place::Private => false,
        };
        if rounded <= SMALL_REQUEST || is_fine {
            rest >= MIN_BLOCK
        } else {
            rounded < self.max_split_size && rest > SMALL_REQUEST
        }
    }

    /// Whether a gap of `gap` bytes behind a block of `rounded` bytes in a large segment must belong to that block:
    /// free blocks of the large pool are larger than the rest that is not split off.
    pub(super) fn is_slack(&self, rounded: u64, gap: u64) -> bool {
        rounded > SMALL_REQUEST && !self.is_expandable && (gap <= SMALL_REQUEST || rounded >= self.max_split_size)
    }
}

/// Where a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// An expandable segment.
    Expandable,
    /// A segment of the default pool.
    Default,
    /// A segment of a private pool.
    Private,
}

fn is_true(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("true") || value.trim() == "1"
}

/// The interval of `bytes`: 0 below 2 MiB, then one for each power of two.
#[inline]
fn interval(bytes: u64) -> usize {
    (bytes.max(1).ilog2().saturating_sub(20) as usize).min(INTERVALS - 1)
}

/// `bytes` rounded up to the next of the steps that divide the way between two powers of two.
fn next_division(bytes: u64, divisions: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1 << bytes.ilog2();
    match floor >> divisions.ilog2() {
        0 => bytes.checked_next_power_of_two().unwrap_or(bytes),
        step => bytes.checked_next_multiple_of(step).unwrap_or(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn settings(pairs: &[(&str, &str)]) -> Rounding {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Rounding::from_settings(&pairs)
    }

    #[test]
    fn without_settings_sizes_are_multiples_of_512() {
        let rounding = Rounding::default();
        let sizes = [0, 1, 511, 512, 513, MIB, MIB + 1, u64::MAX];
        let rounded: Vec<u64> = sizes.iter().map(|&size| rounding.round(size)).collect();
        assert_eq!(rounded, [512, 512, 512, 512, 1024, MIB, 1_049_088, u64::MAX]);
        assert_eq!((rounding.pool(MIB), rounding.pool(MIB + 1)), (Pool::Small, Pool::Large));
    }

    #[test]
    fn four_divisions_round_as_pytorch_does() {
        let rounding = settings(&[("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:4")]);
        let rounded: Vec<u64> = [1200, 2048, 2049, 4096, 3_000_000].iter().map(|&size| rounding.round(size)).collect();
        assert_eq!(rounded, [1536, 2048, 2560, 4096, 3_145_728]);
    }

    #[test]
    fn divisions_are_read_from_the_string_and_from_the_table_which_wins() {
        let conf = "garbage_collection_threshold:0.8, roundup_power2_divisions:[64:8,256:4,>:1],max_split_size_mb:128";
        let text = settings(&[("PYTORCH_CUDA_ALLOC_CONF", conf)]);
        assert_eq!(text.divisions, [8, 8, 8, 8, 8, 8, 8, 0, 4, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(text.max_split_size, 128 * MIB);
        let table = settings(&[
            ("max_split_size", "-1"),
            ("roundup_power2_divisions.1", "2"),
            ("roundup_power2_divisions.32768", "16"),
            ("roundup_power2_divisions.64", "0"),
            ("PYTORCH_CUDA_ALLOC_CONF", conf),
        ]);
        assert_eq!(table.divisions, [2, 8, 8, 8, 8, 8, 0, 0, 4, 1, 1, 1, 1, 1, 1, 16]);
        assert_eq!(table.max_split_size, u64::MAX);
    }

    #[test]
    fn strange_settings_change_nothing() {
        for conf in ["", ":", "a:b", "roundup_power2_divisions:[", "roundup_power2_divisions:[x:y]", "[:],,:"] {
            assert_eq!(settings(&[("PYTORCH_CUDA_ALLOC_CONF", conf)]), Rounding::default(), "{conf}");
        }
        let huge = settings(&[("roundup_power2_divisions.1", "18446744073709551615")]);
        assert_eq!(huge.round(1 << 20), 1 << 20);
    }

    #[test]
    fn a_rest_is_split_off_by_pool_and_kind_of_segment() {
        let plain = Rounding::default();
        assert!(plain.splits(1024, 512, Place::Default));
        assert!(!plain.splits(2 * MIB, MIB, Place::Default), "a rest of exactly 1 MiB stays");
        assert!(plain.splits(2 * MIB, MIB + 512, Place::Default));
        assert!(plain.splits(2 * MIB, 512, Place::Expandable));
        let limited = settings(&[("max_split_size", "33554432")]);
        assert!(!limited.splits(32 * MIB, 16 * MIB, Place::Default));
        let expandable = settings(&[("expandable_segments", "True")]);
        assert!(expandable.splits(2 * MIB, 512, Place::Default));
        assert!(!expandable.splits(2 * MIB, 512, Place::Private));
    }
}
