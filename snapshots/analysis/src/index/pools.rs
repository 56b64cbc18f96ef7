//! The allocator's pool of each block, including private pools, which CUDA graphs and `torch.cuda.MemPool` use.

use std::collections::BTreeMap;

use highwater_snapshots::category::Pool;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::{Block, Owner, Trace};

use super::addresses::PoolAndStream;

/// A pool of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockPool {
    /// One of the two shared pools.
    Shared(Pool),
    /// A private pool, by PyTorch's id, such as `(0,1)`.
    Private(u32, u32),
}

/// The bit that marks the code of a private pool.
const PRIVATE: u64 = 1 << 63;

impl BlockPool {
    /// The pool of a segment.
    pub fn of_home(home: &PoolAndStream) -> Self {
        home.private.and_then(private).unwrap_or(Self::Shared(home.pool))
    }

    /// Returns whether it is a private pool, as CUDA graphs and `torch.cuda.MemPool` use.
    pub fn is_private(self) -> bool {
        matches!(self, Self::Private(..))
    }

    /// Encodes the pool as an integer.
    pub fn code(self) -> u64 {
        match self {
            Self::Shared(pool) => pool as u64,
            Self::Private(first, second) => PRIVATE | u64::from(first) << 32 | u64::from(second),
        }
    }

    /// Decodes a pool from its integer code.
    pub fn from_code(code: u64) -> Self {
        if code & PRIVATE == 0 {
            return Self::Shared(Pool::from_code(code as u8).unwrap_or(Pool::Large));
        }
        Self::Private(((code & !PRIVATE) >> 32) as u32, code as u32)
    }

    /// Parses the format of [`Display`](std::fmt::Display); `None` for other text.
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(pool) = Pool::from_name(name) {
            return Some(Self::Shared(pool));
        }
        let (first, second) = name.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
        Some(Self::Private(first.trim().parse().ok().filter(|first| *first < 1 << 31)?, second.trim().parse().ok()?))
    }
}

impl std::fmt::Display for BlockPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shared(pool) => f.write_str(pool.name()),
            Self::Private(first, second) => write!(f, "({first},{second})"),
        }
    }
}

/// The private pools of a recording.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    /// By device and start address: the end and the pool of the last segment at that address.
    private: BTreeMap<(DeviceId, u64), (u64, BlockPool)>,
    has_facts: bool,
}

impl Pools {
    /// Collects the segments of private pools in time linear in the number of segments.
    pub fn of(trace: &Trace) -> Self {
        let mut pools = Self { has_facts: !trace.attributes.is_empty(), ..Self::default() };
        if !pools.has_facts {
            return pools;
        }
        for id in trace.segments.ids() {
            let segment = trace.segments.get(id);
            let owner = if segment.alloc.is_some() { Owner::Event(segment.alloc) } else { Owner::Segment(id) };
            if let Some(pool) = trace.private_pool(owner).and_then(private) {
                let end = segment.range.address.saturating_add(segment.range.bytes);
                pools.private.insert((segment.device, segment.range.address), (end, pool));
            }
        }
        pools
    }

    /// Returns the pool of `block`: as recorded with its allocation, or otherwise that of its segment.
    pub fn pool(&self, trace: &Trace, block: &Block) -> BlockPool {
        let shared = BlockPool::Shared(block.pool);
        if !self.has_facts {
            return shared;
        }
        let recorded = || block.alloc.is_some().then(|| trace.private_pool(Owner::Event(block.alloc))).flatten();
        recorded().and_then(private).or_else(|| self.of_segment(block)).unwrap_or(shared)
    }

    fn of_segment(&self, block: &Block) -> Option<BlockPool> {
        let before = self.private.range(..=(block.device, block.address)).next_back();
        let (_, &(_, pool)) =
            before.filter(|((device, _), (end, _))| *device == block.device && block.address < *end)?;
        Some(pool)
    }
}

fn private((first, second): (u64, u64)) -> Option<BlockPool> {
    let first = u32::try_from(first).ok().filter(|first| *first < 1 << 31)?;
    Some(BlockPool::Private(first, u32::try_from(second).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::BlockId;

    #[test]
    fn private_pools_are_known_from_the_allocation_or_from_the_segment() {
        let text = "
            baseline_segment 0x1000 4096
            attribute segment_pool_id \"(0, 2)\"
            alloc a 512
            attribute pool_id \"(0, 1)\"
            alloc b 512
            attribute pool_id \"(0, 0)\"
            alloc c 512 small
        ";
        let trace = trace_from_text(text).unwrap().edited(|trace| trace.blocks.address = vec![0x9000, 0x1200, 0x2000]);
        let pools = Pools::of(&trace);
        let names: Vec<String> =
            (0..3).map(|row| pools.pool(&trace, &trace.blocks.get(BlockId(row))).to_string()).collect();
        assert_eq!(names, ["(0,1)", "(0,2)", "small"]);
        for name in names.iter().map(String::as_str).chain(["large"]) {
            let pool = BlockPool::from_name(name).unwrap();
            assert_eq!((BlockPool::from_code(pool.code()), pool.to_string().as_str()), (pool, name));
        }
        assert_eq!(["", "(0)", "(,1)", "tiny"].map(BlockPool::from_name), [None; 4]);
    }

    #[test]
    fn blocks_are_grouped_and_found_by_private_pool() {
        let text =
            "alloc a 512\nattribute pool_id \"(0, 1)\"\nalloc b 600\nattribute pool_id \"(0, 2)\"\nalloc c 7 large";
        let trace = trace_from_text(text).unwrap();
        for (filter, expected) in
            [("pool=\"(0,1)\"", 512), ("pool=\"(0,2)\"", 600), ("pool=large", 7), ("pool~(0", 1112)]
        {
            let filter: crate::Filter = filter.parse().unwrap();
            let mut filter = filter.on(&trace);
            let found: u64 =
                trace.blocks.ids().filter(|id| filter.matches(*id)).map(|id| trace.blocks.get(id).requested).sum();
            assert_eq!(found, expected, "{filter:?}");
        }
        let ids: Vec<BlockId> = trace.blocks.ids().collect();
        let grouping = crate::grouping::breakdown::Grouping {
            keys: &[crate::GroupKey::Pool],
            beside: &[],
            top: 9,
            siblings: crate::Siblings::Each,
        };
        let groups = crate::Breakdown::of(&trace, crate::Metric::Requested, &ids, &grouping).groups;
        let named: Vec<(String, u64)> = groups.iter().map(|group| (group.key.join(","), group.bytes)).collect();
        assert_eq!(named, [("(0,2)".to_owned(), 600), ("(0,1)".to_owned(), 512), ("large".to_owned(), 7)]);
        assert!("pool=medium".parse::<crate::Filter>().unwrap_err().contains("small, large"));
    }
}
