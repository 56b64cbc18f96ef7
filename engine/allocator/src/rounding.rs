//! Rounds requested bytes to a block size, and selects the pool and segment size.

use highwater_recorder::Pool;

use super::config::{AllocConfig, MAX_REQUEST};

/// Granularity of all blocks, in bytes.
pub(super) const MIN_BLOCK: u64 = 512;
/// Rounded requests up to this size belong to the small pool.
pub(super) const SMALL_REQUEST: u64 = 1 << 20;
/// Size of a segment of the small pool, and of a page of its expandable segments, in bytes.
pub(super) const SMALL_SEGMENT: u64 = 2 << 20;
/// Rounded requests of at least this size get their own segment.
pub(super) const OWN_SEGMENT_REQUEST: u64 = 10 << 20;
/// Granularity of segments that serve one large request, in bytes.
pub(super) const SEGMENT_UNIT: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounded {
    /// Bytes of the block.
    pub(super) block: u64,
    /// Bytes of the segment that would be reserved for the block.
    pub(super) segment: u64,
    pub(super) pool: Pool,
}

impl Rounded {
    /// Rounds a request of `bytes`, from 1 to [`MAX_REQUEST`](super::config::MAX_REQUEST).
    #[inline]
    pub(super) fn new(bytes: u64, config: &AllocConfig) -> Self {
        let block = block_bytes(bytes, config);
        let (segment, pool) = if block <= SMALL_REQUEST {
            (SMALL_SEGMENT, Pool::Small)
        } else if block < OWN_SEGMENT_REQUEST {
            (config.large_segment_bytes, Pool::Large)
        } else {
            (block.next_multiple_of(SEGMENT_UNIT), Pool::Large)
        };
        Self { block, segment, pool }
    }
}

impl AllocConfig {
    /// Returns the size of the block for a request of `bytes`. A larger block may be allocated if no other is
    /// available.
    pub fn rounded(&self, bytes: u64) -> u64 {
        block_bytes(bytes.min(MAX_REQUEST), self)
    }

    /// Returns the pool that serves a request of `bytes`.
    pub fn pool(&self, bytes: u64) -> Pool {
        if self.rounded(bytes) <= SMALL_REQUEST { Pool::Small } else { Pool::Large }
    }
}

/// Rounds up to a multiple of 512, or to the next division between powers of two if divisions are configured.
#[inline]
fn block_bytes(bytes: u64, config: &AllocConfig) -> u64 {
    if bytes < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let divisions = config.divisions().of(bytes);
    if divisions > 1 && bytes > divisions.saturating_mul(MIN_BLOCK) {
        // The condition keeps the step at 512 or more, since `divisions` is a power of two.
        let step = (1 << bytes.ilog2()) / divisions;
        return bytes.next_multiple_of(step);
    }
    bytes.next_multiple_of(MIN_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(bytes: u64, settings: &str) -> (u64, u64) {
        let rounded = Rounded::new(bytes, &settings.parse().expect("valid settings"));
        (rounded.block, rounded.segment)
    }

    #[test]
    fn requests_round_to_512_and_segments_to_2_20_or_whole_2_mib() {
        const MIB: u64 = 1 << 20;
        assert_eq!(sizes(1, ""), (512, 2 * MIB));
        assert_eq!(sizes(512, ""), (512, 2 * MIB));
        assert_eq!(sizes(513, ""), (1024, 2 * MIB));
        assert_eq!(sizes(MIB, ""), (MIB, 2 * MIB));
        assert_eq!(sizes(MIB + 1, ""), (1_049_088, 20 * MIB));
        assert_eq!(sizes(10 * MIB - 513, ""), (10 * MIB - 512, 20 * MIB));
        assert_eq!(sizes(10 * MIB - 1, ""), (10 * MIB, 10 * MIB));
        assert_eq!(sizes(11 * MIB + 5, ""), (11_534_848, 12 * MIB));
        assert_eq!(sizes(5 * MIB, "large_segment_size_mb:64"), (5 * MIB, 64 * MIB));
    }

    #[test]
    fn divisions_cut_each_doubling_into_equal_parts_above_512_times_their_number() {
        let four = "roundup_power2_divisions:4";
        assert_eq!(sizes(1200, four).0, 1536);
        assert_eq!(sizes(2048, four).0, 2048);
        assert_eq!(sizes(2049, four).0, 2560);
        assert_eq!(sizes(3_000_000, four).0, 3_145_728);
        assert_eq!(sizes(1 << 22, four).0, 1 << 22);
        assert_eq!(sizes(300 << 20, "roundup_power2_divisions:[256:2,>:1]").0, 384 << 20);
        assert_eq!(sizes(700 << 20, "roundup_power2_divisions:[256:2,>:1]").0, 700 << 20);
    }
}
