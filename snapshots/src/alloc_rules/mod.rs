//! The rules of PyTorch's caching allocator: rounding, pools, segments and splitting under its settings.

mod splitting;
mod addresses;

use crate::category::Pool;
use crate::trace::DeviceFacts;

pub use addresses::{AddressOrder, Addresses};
pub use splitting::SegmentKind;

/// The granularity of blocks in bytes; no free block is smaller.
pub const MIN_BLOCK: u64 = 512;
/// Rounded requests of at most this many bytes use the small pool. In the large pool, a remainder of at most this many
/// bytes is not split off.
pub const SMALL_REQUEST: u64 = 1 << 20;
/// Size in bytes of a segment of the small pool, and of a page of its expandable segments.
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// The default size in bytes of a large-pool segment shared by several requests, and of a page of expandable segments.
const LARGE_SEGMENT: u64 = 20 << 20;
/// Rounded requests of at least this many bytes get a separate segment.
const OWN_SEGMENT_REQUEST: u64 = 10 << 20;
/// The size of a segment for a single request is a multiple of this many bytes.
const SEGMENT_UNIT: u64 = 2 << 20;
/// Number of size intervals with a separate rounding setting: one per power of two from 1 MiB; the last is unbounded.
const INTERVALS: usize = 16;

/// The rules of PyTorch's caching allocator, which the engine's allocator also follows, under the settings of one
/// device. If no settings were recorded, the defaults apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocRules {
    /// Blocks of at least this many bytes are not split and serve no smaller requests; `None` if unlimited.
    pub max_split: Option<u64>,
    /// The number of bytes of a block above `max_split` that may remain unused when it serves a smaller request.
    pub max_non_split_rounding: u64,
    /// The size in bytes of a large-pool segment shared by several requests.
    pub large_segment: u64,
    /// Whether segments are expandable, so that new memory is mapped page by page into existing segments.
    pub is_expandable: bool,
    divisions: [u64; INTERVALS],
}

impl Default for AllocRules {
    fn default() -> Self {
        Self {
            max_split: None,
            max_non_split_rounding: LARGE_SEGMENT,
            large_segment: LARGE_SEGMENT,
            is_expandable: false,
            divisions: [0; INTERVALS],
        }
    }
}

impl AllocRules {
    /// Parses the settings of a device, with nested keys joined by dots. The configuration string is parsed first;
    /// settings that are recorded separately take precedence.
    pub fn from_settings(settings: &[(String, String)]) -> Self {
        let mut rules = Self::default();
        for (_, text) in settings.iter().filter(|(name, _)| name.to_ascii_lowercase().ends_with("alloc_conf")) {
            rules.read(text);
        }
        for (name, value) in settings {
            let value = value.trim();
            match name.as_str() {
                // Unlimited is written as -1.
                "max_split_size" => rules.max_split = value.parse().ok(),
                "expandable_segments" => rules.is_expandable = is_true(value),
                _ => {
                    let start = name.strip_prefix("roundup_power2_divisions.").and_then(|key| key.parse::<u64>().ok());
                    if let (Some(start), Ok(divisions)) = (start, value.parse()) {
                        rules.divisions[interval(start.saturating_mul(1 << 20))] = divisions;
                    }
                }
            }
        }
        rules
    }

    /// Parses `key:value,key:[a:b,c:d]`. Keys that do not affect sizes are ignored.
    fn read(&mut self, text: &str) {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut rest = text.as_str();
        let (mut large, mut rounding) = (None, None);
        while let Some((key, after)) = rest.split_once(':') {
            let (value, after) = match after.strip_prefix('[') {
                Some(list) => list.split_once(']').unwrap_or((list, "")),
                None => after.split_once(',').unwrap_or((after, "")),
            };
            rest = after.trim_start_matches(',');
            let mebibytes =
                || value.parse::<u64>().ok().filter(|size| *size > 0).map(|size| size.saturating_mul(1 << 20));
            match key {
                "max_split_size_mb" => self.max_split = mebibytes(),
                "expandable_segments" => self.is_expandable = is_true(value),
                "large_segment_size_mb" => large = mebibytes(),
                "max_non_split_rounding_mb" => rounding = mebibytes(),
                "roundup_power2_divisions" => self.read_divisions(value),
                _ => {}
            }
        }
        self.large_segment = large.unwrap_or(self.large_segment);
        self.max_non_split_rounding = rounding.unwrap_or(self.large_segment);
    }

    /// Parses the numbers of divisions: a single number such as `4`, or a list by size such as `64:8,256:4,>:1`. The
    /// first entry of a list also applies to smaller sizes, and `>` to all sizes above the last.
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
            let Ok(mebibytes) = key.parse::<u64>() else {
                self.divisions[next..].fill(divisions);
                return;
            };
            let at = interval(mebibytes.saturating_mul(1 << 20));
            self.divisions[if next == 0 { 0 } else { at }..=at].fill(divisions);
            next = at + 1;
        }
    }

    /// The size in bytes of the block for a request of `bytes`.
    #[inline]
    pub fn round(&self, bytes: u64) -> u64 {
        if bytes < MIN_BLOCK {
            return MIN_BLOCK;
        }
        let divisions = self.divisions[interval(bytes)];
        if divisions > 1 && bytes > divisions.saturating_mul(MIN_BLOCK) {
            return next_division(bytes, divisions);
        }
        bytes.checked_next_multiple_of(MIN_BLOCK).unwrap_or(bytes)
    }

    /// The pool that serves a block of `rounded` bytes.
    #[inline]
    pub fn pool(&self, rounded: u64) -> Pool {
        if rounded <= SMALL_REQUEST { Pool::Small } else { Pool::Large }
    }

    /// Returns the page size of expandable segments of `pool`, in bytes.
    pub fn page(&self, pool: Pool) -> u64 {
        if pool == Pool::Small { SMALL_SEGMENT } else { self.large_segment.max(1) }
    }

    /// The rules under the recorded settings of a device.
    pub fn of(facts: Option<&DeviceFacts>) -> Self {
        Self::from_settings(facts.map_or(&[][..], |facts| &facts.settings))
    }

    /// The bytes requested from the driver if no free block fits a request of `rounded` bytes.
    pub fn from_driver(&self, rounded: u64) -> u64 {
        let unit = match self.pool(rounded) {
            pool if self.is_expandable => self.page(pool),
            Pool::Small => return SMALL_SEGMENT,
            Pool::Large if rounded < OWN_SEGMENT_REQUEST => return self.large_segment,
            Pool::Large => SEGMENT_UNIT,
        };
        rounded.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
    }

    /// Returns the size of the largest block of `pool` that fits into a free range of `bytes`; 0 if no block fits.
    pub fn largest_in(&self, pool: Pool, bytes: u64) -> u64 {
        match pool {
            Pool::Small => bytes.min(SMALL_REQUEST),
            Pool::Large if bytes > SMALL_REQUEST => bytes,
            Pool::Large => 0,
        }
    }

    /// The size of the largest block of `pool` that can be allocated if the driver provides `bytes` as one new segment.
    pub fn largest_new(&self, pool: Pool, bytes: u64) -> u64 {
        let page = self.page(pool);
        match pool {
            Pool::Small if bytes < SMALL_SEGMENT => 0,
            Pool::Small => SMALL_REQUEST,
            Pool::Large if self.is_expandable => bytes / page * page,
            Pool::Large if bytes >= OWN_SEGMENT_REQUEST => bytes / SEGMENT_UNIT * SEGMENT_UNIT,
            Pool::Large => 0,
        }
    }

    /// Returns whether the limits on splitting allow a free block of `hole` bytes to serve a request of `rounded`
    /// bytes.
    pub fn may_take(&self, hole: u64, rounded: u64) -> bool {
        match self.max_split {
            Some(most) if rounded < most => hole < most,
            Some(_) => hole < rounded.saturating_add(self.max_non_split_rounding),
            None => true,
        }
    }
}

fn is_true(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("true") || value.trim() == "1"
}

/// The rounding interval of `bytes`: 0 below 2 MiB, then one for each power of two.
#[inline]
fn interval(bytes: u64) -> usize {
    (bytes.max(1).ilog2().saturating_sub(20) as usize).min(INTERVALS - 1)
}

/// Rounds `bytes` up to a multiple of the interval between two powers of two divided by `divisions`.
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

    fn settings(pairs: &[(&str, &str)]) -> AllocRules {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        AllocRules::from_settings(&pairs)
    }

    #[test]
    fn without_settings_sizes_are_multiples_of_512() {
        let rules = AllocRules::default();
        let sizes = [0, 1, 511, 512, 513, MIB, MIB + 1, u64::MAX];
        let rounded: Vec<u64> = sizes.iter().map(|&size| rules.round(size)).collect();
        assert_eq!(rounded, [512, 512, 512, 512, 1024, MIB, 1_049_088, u64::MAX]);
        assert_eq!((rules.pool(MIB), rules.pool(MIB + 512)), (Pool::Small, Pool::Large));
    }

    #[test]
    fn four_divisions_round_as_pytorch_does() {
        let rules = settings(&[("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:4")]);
        let rounded: Vec<u64> = [1200, 2048, 2049, 4096, 3_000_000].iter().map(|&size| rules.round(size)).collect();
        assert_eq!(rounded, [1536, 2048, 2560, 4096, 3_145_728]);
    }

    #[test]
    fn divisions_are_read_from_the_string_and_from_the_table_which_wins() {
        let conf = "garbage_collection_threshold:0.8, roundup_power2_divisions:[64:8,256:4,>:1],max_split_size_mb:128";
        let text = settings(&[("PYTORCH_CUDA_ALLOC_CONF", conf)]);
        assert_eq!(text.divisions, [8, 8, 8, 8, 8, 8, 8, 0, 4, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(text.max_split, Some(128 * MIB));
        let table = settings(&[
            ("max_split_size", "-1"),
            ("roundup_power2_divisions.1", "2"),
            ("roundup_power2_divisions.32768", "16"),
            ("roundup_power2_divisions.64", "0"),
            ("PYTORCH_CUDA_ALLOC_CONF", conf),
        ]);
        assert_eq!(table.divisions, [2, 8, 8, 8, 8, 8, 0, 0, 4, 1, 1, 1, 1, 1, 1, 16]);
        assert_eq!(table.max_split, None);
    }

    #[test]
    fn unknown_settings_change_nothing() {
        for conf in ["", ":", "a:b", "roundup_power2_divisions:[", "roundup_power2_divisions:[x:y]", "[:],,:"] {
            assert_eq!(settings(&[("PYTORCH_CUDA_ALLOC_CONF", conf)]), AllocRules::default(), "{conf}");
        }
        let huge = settings(&[("roundup_power2_divisions.1", "18446744073709551615")]);
        assert_eq!(huge.round(1 << 20), 1 << 20);
    }

    #[test]
    fn settings_are_read_from_the_string_and_by_name() {
        let text = "max_split_size_mb: 128, roundup_power2_divisions:[256:2,512:4,>:8],large_segment_size_mb:64";
        let read = settings(&[("PYTORCH_CUDA_ALLOC_CONF", text)]);
        assert_eq!(
            (read.max_split, read.large_segment, read.max_non_split_rounding),
            (Some(128 << 20), 64 << 20, 64 << 20)
        );
        assert_eq!([300 << 20, 600 << 20, 1100 << 20].map(|size| read.round(size)), [384 << 20, 640 << 20, 1152 << 20]);
        let named =
            settings(&[("max_split_size", "-1"), ("expandable_segments", "True"), ("roundup_power2_divisions.1", "4")]);
        assert!(named.max_split.is_none() && named.is_expandable);
        assert_eq!(named.round(1_200_000), 1_310_720);
    }

    #[test]
    fn sizes_are_rounded_and_segments_chosen_as_the_allocator_does() {
        let plain = AllocRules::of(None);
        assert_eq!([1, 512, 513, MIB, MIB + 1].map(|size| plain.round(size)), [512, 512, 1024, MIB, MIB + 512]);
        let asked = [512, MIB + 512, 10 * MIB, 11 * MIB + 512].map(|size| plain.from_driver(size));
        assert_eq!(asked, [2 * MIB, 20 * MIB, 10 * MIB, 12 * MIB]);
        assert_eq!((plain.largest_in(Pool::Large, MIB), plain.largest_in(Pool::Small, 2 * MIB)), (0, MIB));
        assert_eq!((plain.largest_new(Pool::Large, 9 * MIB), plain.largest_new(Pool::Large, 13 * MIB)), (0, 12 * MIB));
        let expandable = settings(&[("alloc_conf", "expandable_segments:True")]);
        assert_eq!(expandable.from_driver(11 * MIB), 20 * MIB);
        assert_eq!(expandable.largest_new(Pool::Large, 50 * MIB), 40 * MIB);
        assert_eq!(plain.round(u64::MAX), u64::MAX, "what cannot be rounded stays as it is");
    }

    #[test]
    fn free_ranges_above_the_limit_of_splitting_serve_only_what_wastes_little_of_them() {
        let limited = settings(&[("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,large_segment_size_mb:64")]);
        assert!(limited.may_take(100 << 20, 50 << 20) && !limited.may_take(200 << 20, 50 << 20));
        assert!(limited.may_take(200 << 20, 150 << 20) && !limited.may_take(214 << 20, 150 << 20));
    }
}
