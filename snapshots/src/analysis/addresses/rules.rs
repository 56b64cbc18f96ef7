//! Rules: what the caching allocator does with a request of some size, as its settings say.

use crate::category::Pool;
use crate::trace::DeviceFacts;

/// The unit of every block, in bytes.
const MIN_BLOCK: u64 = 512;
/// Rounded requests of at most so many bytes come from the small pool.
pub const SMALL_REQUEST: u64 = 1 << 20;
/// A segment of the small pool, and a page of its expandable segments, in bytes.
const SMALL_SEGMENT: u64 = 2 << 20;
/// Rounded requests from so many bytes on have a segment of their own.
const OWN_SEGMENT_REQUEST: u64 = 10 << 20;
/// Segments of their own are multiples of so many bytes.
const SEGMENT_UNIT: u64 = 2 << 20;
/// A segment that requests of the large pool share, and a page of its expandable segments, unless set otherwise.
const LARGE_SEGMENT: u64 = 20 << 20;
/// Sizes by powers of two from 1 MiB on have a setting each; the last is for all above.
const INTERVALS: usize = 16;

/// The rules of PyTorch's caching allocator, and of ours, under the settings of one device. Recorders that say nothing
/// of settings get the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocRules {
    /// Blocks of at least so many bytes are not split, and serve no smaller request; none if unlimited.
    pub max_split: Option<u64>,
    /// What a request of that size may waste of such a block, in bytes.
    pub max_non_split_rounding: u64,
    /// A segment that requests of the large pool share, in bytes.
    pub large_segment: u64,
    /// New memory is mapped page by page into segments that grow.
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
    /// Reads the settings of a device: the configuration string, and over it the settings that have names of their own.
    pub fn of(facts: Option<&DeviceFacts>) -> Self {
        let mut rules = Self::default();
        let settings = facts.map_or(&[][..], |facts| &facts.settings);
        for (_, text) in settings.iter().filter(|(name, _)| name.to_ascii_lowercase().ends_with("alloc_conf")) {
            rules.read(text);
        }
        for (name, value) in settings {
            let value = value.trim();
            match name.as_str() {
                // Unlimited is written as -1.
                "max_split_size" => rules.max_split = value.parse().ok(),
                "expandable_segments" => rules.is_expandable = value.eq_ignore_ascii_case("true"),
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

    /// Reads `key:value,key:[a:b,c:d]`; keys that say nothing about sizes are passed over.
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
                "expandable_segments" => self.is_expandable = value.eq_ignore_ascii_case("true"),
                "large_segment_size_mb" => large = mebibytes(),
                "max_non_split_rounding_mb" => rounding = mebibytes(),
                "roundup_power2_divisions" => self.read_divisions(value),
                _ => {}
            }
        }
        self.large_segment = large.unwrap_or(self.large_segment);
        self.max_non_split_rounding = rounding.unwrap_or(self.large_segment);
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
            let Ok(mebibytes) = key.parse::<u64>() else {
                self.divisions[next..].fill(divisions);
                return;
            };
            let at = interval(mebibytes.saturating_mul(1 << 20));
            self.divisions[if next == 0 { 0 } else { at }..=at].fill(divisions);
            next = at + 1;
        }
    }

    /// The bytes of the block that a request of `bytes` gets.
    pub fn round(&self, bytes: u64) -> u64 {
        if bytes < MIN_BLOCK {
            return MIN_BLOCK;
        }
        let divisions = self.divisions[interval(bytes)];
        let step = match divisions > 1 && bytes > divisions.saturating_mul(MIN_BLOCK) {
            true => (1_u64 << bytes.ilog2()) / divisions,
            false => MIN_BLOCK,
        };
        bytes.checked_next_multiple_of(step.max(1)).unwrap_or(bytes)
    }

    /// The pool that serves a block of `rounded` bytes.
    pub fn pool(&self, rounded: u64) -> Pool {
        if rounded <= SMALL_REQUEST { Pool::Small } else { Pool::Large }
    }

    /// The bytes that the driver is asked for where no free range holds a block of `rounded` bytes.
    pub fn from_driver(&self, rounded: u64) -> u64 {
        let unit = match self.pool(rounded) {
            pool if self.is_expandable => self.page(pool),
            Pool::Small => return SMALL_SEGMENT,
            Pool::Large if rounded < OWN_SEGMENT_REQUEST => return self.large_segment,
            Pool::Large => SEGMENT_UNIT,
        };
        rounded.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
    }

    /// A page of the expandable segments of `pool`, in bytes.
    pub fn page(&self, pool: Pool) -> u64 {
        if pool == Pool::Small { SMALL_SEGMENT } else { self.large_segment.max(1) }
    }

    /// The largest block of `pool` that a free range of `bytes` can give; 0 where it can give none.
    pub fn largest_in(&self, pool: Pool, bytes: u64) -> u64 {
        match pool {
            Pool::Small => bytes.min(SMALL_REQUEST),
            Pool::Large if bytes > SMALL_REQUEST => bytes,
            Pool::Large => 0,
        }
    }

    /// The largest block of `pool` that can be had where the driver gives `bytes` more as one new segment.
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

    /// Whether a free range of `hole` bytes may serve a block of `rounded` bytes, which it is large enough for: the
    /// limits on splitting may forbid it.
    pub fn may_take(&self, hole: u64, rounded: u64) -> bool {
        match self.max_split {
            Some(most) if rounded < most => hole < most,
            Some(_) => hole < rounded.saturating_add(self.max_non_split_rounding),
            None => true,
        }
    }
}

/// The row of the divisions' table for sizes like `bytes`.
fn interval(bytes: u64) -> usize {
    (bytes.max(1).ilog2() as usize).saturating_sub(20).min(INTERVALS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(settings: &[(&str, &str)]) -> AllocRules {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        AllocRules::of(Some(&DeviceFacts { settings, ..DeviceFacts::default() }))
    }

    #[test]
    fn sizes_are_rounded_and_segments_chosen_as_the_allocator_does() {
        const MIB: u64 = 1 << 20;
        let plain = AllocRules::of(None);
        assert_eq!([1, 512, 513, MIB, MIB + 1].map(|size| plain.round(size)), [512, 512, 1024, MIB, MIB + 512]);
        let asked = [512, MIB + 512, 10 * MIB, 11 * MIB + 512].map(|size| plain.from_driver(size));
        assert_eq!(asked, [2 * MIB, 20 * MIB, 10 * MIB, 12 * MIB]);
        assert_eq!((plain.largest_in(Pool::Large, MIB), plain.largest_in(Pool::Small, 2 * MIB)), (0, MIB));
        assert_eq!((plain.largest_new(Pool::Large, 9 * MIB), plain.largest_new(Pool::Large, 13 * MIB)), (0, 12 * MIB));
        let expandable = rules(&[("alloc_conf", "expandable_segments:True")]);
        assert_eq!(expandable.from_driver(11 * MIB), 20 * MIB);
        assert_eq!(expandable.largest_new(Pool::Large, 50 * MIB), 40 * MIB);
        assert_eq!(plain.round(u64::MAX), u64::MAX, "what cannot be rounded stays as it is");
    }

    #[test]
    fn settings_are_read_from_the_string_and_by_name() {
        let text = "max_split_size_mb: 128, roundup_power2_divisions:[256:2,512:4,>:8],large_segment_size_mb:64";
        let read = rules(&[("PYTORCH_CUDA_ALLOC_CONF", text)]);
        assert_eq!(
            (read.max_split, read.large_segment, read.max_non_split_rounding),
            (Some(128 << 20), 64 << 20, 64 << 20)
        );
        assert_eq!([300 << 20, 600 << 20, 1100 << 20].map(|size| read.round(size)), [384 << 20, 640 << 20, 1152 << 20]);
        assert!(read.may_take(100 << 20, 50 << 20) && !read.may_take(200 << 20, 50 << 20));
        assert!(read.may_take(200 << 20, 150 << 20) && !read.may_take(214 << 20, 150 << 20));
        let named =
            rules(&[("max_split_size", "-1"), ("expandable_segments", "True"), ("roundup_power2_divisions.1", "4")]);
        assert!(named.max_split.is_none() && named.is_expandable);
        assert_eq!(named.round(1_200_000), 1_310_720);
    }
}
