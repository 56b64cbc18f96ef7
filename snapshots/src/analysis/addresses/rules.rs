//! Rules: what can be served from free ranges, and what the driver is asked for, as the allocator's rules say.

use crate::alloc_rules::{AllocRules, SMALL_REQUEST, SMALL_SEGMENT};
use crate::category::Pool;
use crate::trace::DeviceFacts;

/// Rounded requests from so many bytes on have a segment of their own.
const OWN_SEGMENT_REQUEST: u64 = 10 << 20;
/// Segments of their own are multiples of so many bytes.
const SEGMENT_UNIT: u64 = 2 << 20;
impl AllocRules {
    /// The rules under the settings of a device.
    pub fn of(facts: Option<&DeviceFacts>) -> Self {
        Self::from_settings(facts.map_or(&[][..], |facts| &facts.settings))
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
    fn free_ranges_above_the_limit_of_splitting_serve_only_what_wastes_little_of_them() {
        let limited = rules(&[("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,large_segment_size_mb:64")]);
        assert!(limited.may_take(100 << 20, 50 << 20) && !limited.may_take(200 << 20, 50 << 20));
        assert!(limited.may_take(200 << 20, 150 << 20) && !limited.may_take(214 << 20, 150 << 20));
    }
}
