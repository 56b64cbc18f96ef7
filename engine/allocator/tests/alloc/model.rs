//! Runs random programs and compares the allocator with a simple model that does not know how the allocator works; a
//! full audit follows every step.

use std::collections::BTreeSet;
use std::sync::Arc;

use highwater_allocator::AccountingDriver;
use highwater_allocator::{AllocError, Block, CachingAllocator};
use highwater_recorder::{DeviceId, StreamId};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 192 * MIB;

const SETTINGS: [&str; 7] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:20,max_non_split_rounding_mb:24",
    "roundup_power2_divisions:4,large_segment_size_mb:32",
    "garbage_collection_threshold:0.4,per_process_memory_fraction:0.8",
    "expandable_segments:True,per_process_memory_fraction:0.7,roundup_power2_divisions:[1:2,>:8]",
    "expandable_segments:True,large_segment_size_mb:12,max_split_size_mb:40",
];

#[derive(Clone, Debug)]
enum Step {
    Alloc { bytes: u64, stream: u64 },
    Free { which: usize },
    Record { which: usize, stream: u64 },
    Complete { stream: u64 },
    Process,
    Synchronize,
    EmptyCache,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        4 => 1..=MIB,
        1 => Just(0),
        4 => MIB..10 * MIB,
        3 => 10 * MIB..64 * MIB,
        1 => prop::sample::select(vec![1, 511, 512, 513, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB, CAPACITY]),
    ];
    prop_oneof![
        10 => (bytes, 0..3_u64).prop_map(|(bytes, stream)| Step::Alloc { bytes, stream }),
        8 => any::<usize>().prop_map(|which| Step::Free { which }),
        3 => (any::<usize>(), 0..3_u64).prop_map(|(which, stream)| Step::Record { which, stream }),
        2 => (0..3_u64).prop_map(|stream| Step::Complete { stream }),
        1 => Just(Step::Process),
        1 => Just(Step::Synchronize),
        1 => Just(Step::EmptyCache),
    ]
}

/// What a program knows of a block.
#[derive(Debug)]
struct ModelBlock {
    address: u64,
    allocated: u64,
    requested: u64,
    /// Streams that have to get somewhere before the block may be reused.
    streams: BTreeSet<u64>,
}

struct Model {
    driver: AccountingDriver,
    allocator: Arc<CachingAllocator>,
    live: Vec<(Block, ModelBlock)>,
    waiting: Vec<ModelBlock>,
    next_key: u64,
}

impl Model {
    fn new(settings: &str) -> Self {
        let driver = AccountingDriver::new(CAPACITY);
        driver.hold_events();
        let config = settings.parse().expect("valid settings");
        let allocator = CachingAllocator::new(Box::new(driver.clone()), DeviceId(0), config);
        Self { driver, allocator, live: Vec::new(), waiting: Vec::new(), next_key: 0 }
    }

    fn take(&mut self, step: &Step) {
        let pick = |which: usize, len: usize| (len > 0).then(|| which % len);
        match *step {
            Step::Alloc { bytes, stream } => self.alloc(bytes, stream),
            Step::Free { which } => {
                if let Some(at) = pick(which, self.live.len()) {
                    let (block, known) = self.live.swap_remove(at);
                    self.allocator.free(block);
                    if !known.streams.is_empty() {
                        self.waiting.push(known);
                    }
                }
            }
            Step::Record { which, stream } => {
                if let Some(at) = pick(which, self.live.len()) {
                    let (block, known) = &mut self.live[at];
                    self.allocator.record_stream(block, StreamId(stream));
                    if block.stream() != StreamId(stream) && !block.is_empty() {
                        known.streams.insert(stream);
                    }
                }
            }
            Step::Complete { stream } => {
                self.driver.complete_events(StreamId(stream));
                for known in &mut self.waiting {
                    known.streams.remove(&stream);
                }
            }
            Step::Process => {
                self.allocator.process_events().expect("the accounting device does not fail");
                self.complete_frees();
            }
            Step::Synchronize => {
                self.allocator.synchronize_events().expect("the accounting device does not fail");
                self.waiting.clear();
            }
            Step::EmptyCache => {
                let before = self.driver.used();
                let released = self.allocator.empty_cache().expect("the accounting device does not fail");
                assert_eq!(before - self.driver.used(), released);
                self.waiting.clear();
            }
        }
    }

    fn complete_frees(&mut self) {
        self.waiting.retain(|known| !known.streams.is_empty());
    }

    fn alloc(&mut self, bytes: u64, stream: u64) {
        let waited = self.allocator.stats().num_sync_all_streams;
        let result = self.allocator.malloc(bytes, StreamId(stream));
        if bytes > 0 {
            self.complete_frees();
        }
        if self.allocator.stats().num_sync_all_streams > waited {
            self.waiting.clear();
        }
        match result {
            Ok(block) if bytes == 0 => {
                assert!(block.is_empty() && block.address() == 0 && block.allocated() == 0);
                let known = ModelBlock { address: 0, allocated: 0, requested: 0, streams: BTreeSet::new() };
                self.live.push((block, known));
            }
            Ok(block) => {
                assert_eq!(block.key(), self.next_key, "keys count up");
                self.next_key += 1;
                assert_eq!(block.requested(), bytes);
                assert!(block.allocated() >= bytes && block.allocated().is_multiple_of(512));
                assert!(block.address().is_multiple_of(512));
                let (address, allocated) = (block.address(), block.allocated());
                let busy = self.live.iter().map(|(_, known)| known).chain(&self.waiting);
                for known in busy.filter(|known| known.allocated > 0) {
                    let apart = address + allocated <= known.address || known.address + known.allocated <= address;
                    assert!(apart, "{block:?} overlaps {known:?}");
                }
                self.live.push((block, ModelBlock { address, allocated, requested: bytes, streams: BTreeSet::new() }));
            }
            Err(AllocError::OutOfMemory(report)) => {
                let unusable = report.unusable;
                let sum = unusable.fragmented + unusable.other_stream + unusable.other_pool + unusable.waiting;
                assert_eq!(sum, report.reserved - report.allocated, "{report}");
                if self.allocator.config().max_split_bytes().is_none() {
                    assert!(report.largest_free < report.rounded, "{report}");
                }
                let limit = report.limit.unwrap_or(CAPACITY);
                assert!(report.reserved + report.segment > limit.min(report.reserved + report.device_free), "{report}");
                assert_eq!(unusable.waiting, 0, "all streams were waited for");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&self) {
        assert_eq!(self.allocator.audit(), [""; 0]);
        let stats = self.allocator.stats();
        let live = || self.live.iter().map(|(_, known)| known);
        let sum = |known: &mut dyn Iterator<Item = &ModelBlock>| known.map(|known| known.allocated).sum::<u64>();
        assert_eq!(stats.allocated_bytes.all.current, sum(&mut live()));
        assert_eq!(stats.active_bytes.all.current, sum(&mut live().chain(&self.waiting)));
        let requested: u64 = live().chain(&self.waiting).map(|known| known.requested).sum();
        assert_eq!(stats.requested_bytes.all.current, requested);
        assert_eq!(stats.reserved_bytes.all.current, self.driver.used());
        let state = self.allocator.state();
        assert_eq!(state.iter().map(|segment| segment.bytes).sum::<u64>(), self.driver.used());
        assert_eq!(state.iter().map(|segment| segment.allocated()).sum::<u64>(), stats.allocated_bytes.all.current);
        assert_eq!(state.iter().map(|segment| segment.active()).sum::<u64>(), stats.active_bytes.all.current);
        assert_eq!(state.iter().map(|segment| segment.requested()).sum::<u64>(), requested);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_keep_the_books_straight_and_leave_nothing_behind(
        settings in prop::sample::select(SETTINGS.to_vec()),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut model = Model::new(settings);
        for step in &steps {
            model.take(step);
            model.check();
        }
        while let Some((block, _)) = model.live.pop() {
            model.allocator.free(block);
        }
        model.take(&Step::EmptyCache);
        model.check();
        prop_assert_eq!(model.driver.used(), 0);
        // A request that ran out of memory may leave addresses behind which nothing was ever mapped, as in PyTorch.
        if model.allocator.stats().num_ooms == 0 {
            prop_assert_eq!(model.driver.reserved_addresses(), 0);
        }
    }
}
