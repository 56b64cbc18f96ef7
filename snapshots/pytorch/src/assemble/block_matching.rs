//! Determines which block each event of a device refers to. A trace identifies blocks by address, and addresses are
//! reused. The order of the events distinguishes the successive blocks at an address.

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use super::super::raw::{Action, RawEvent};

/// Identifies the block of an event. The index of its allocation among the device's allocations, or if [`BASELINE`] is
/// set, its row among the blocks allocated before the trace begins.
type BlockRef = u32;

const BASELINE: BlockRef = 1 << 31;

/// The event does not refer to a block, or frees a block that cannot exist.
const NO_LIFE: BlockRef = BlockRef::MAX;

/// Means "not a block of the final state".
pub(super) const NOT_FINAL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Baseline {
    pub(super) address: u64,
    pub(super) requested: u64,
    /// Rounded size; `None` if the file does not contain it.
    pub(super) allocated: Option<u64>,
    pub(super) stream: u64,
    /// Whether the free of the block was requested before the trace begins.
    pub(super) is_waiting: bool,
    /// The row among the snapshot's blocks, or [`NOT_FINAL`].
    pub(super) of_final: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotBlock {
    pub(super) row: u32,
    pub(super) address: u64,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) stream: u64,
    pub(super) is_waiting: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Skipped {
    /// Requested and completed frees are recorded.
    #[default]
    Neither,
    /// `free_completed` is missing, so a request frees the block.
    Completions,
    /// `free_requested` is missing, so a completion frees the block.
    Requests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    Waiting,
    Free,
}

#[derive(Clone, Copy, Debug)]
struct LatestAtAddress {
    life: BlockRef,
    state: State,
    is_in_final: bool,
}

#[derive(Clone, Copy, Debug)]
struct Repeated {
    former: BlockRef,
    /// The first of all blocks with the same key.
    name: BlockRef,
}

/// Differences between the trace's final state and the snapshot, in numbers of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// Active only according to the trace.
    pub(super) only_trace: u64,
    /// Active only according to the snapshot.
    pub(super) only_final: u64,
    /// Live according to one of them, and freed but still used by another stream according to the other.
    pub(super) waiting: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct MatchedBlocks {
    of_event: Vec<BlockRef>,
    /// The blocks allocated before the trace begins. Those freed in the trace come first, in order of their frees,
    /// followed by those never freed, by descending address.
    pub(super) baseline: Vec<Baseline>,
    /// Allocations whose block exists at the end, by index, with the block's row in the snapshot.
    pub(super) known: Vec<(u32, u32)>,
    pub(super) skipped: Skipped,
    pub(super) differences: Differences,
    tenants: HashMap<u64, LatestAtAddress>,
    repeated: HashMap<BlockRef, Repeated>,
    allocs: u32,
    active: u64,
    has_requests: bool,
    /// Number of completed frees without a request, of blocks allocated in the trace.
    unrequested: u64,
}

impl MatchedBlocks {
    /// Matches the events of `trace` to blocks. `finals` are the active blocks of the snapshot, by address.
    pub(super) fn of(trace: &[RawEvent], finals: &[SnapshotBlock]) -> Self {
        let mut lives = Self { of_event: Vec::with_capacity(trace.len()), ..Self::default() };
        let completes = |event: &RawEvent| matches!(event.action, Action::FreeCompleted | Action::Free);
        if !trace.iter().any(completes) {
            let waiting: HashSet<u64> =
                finals.iter().filter(|block| block.is_waiting).map(|block| block.address).collect();
            // A request without a completion is expected if the block still waits.
            let is_ended =
                |event: &RawEvent| event.action == Action::FreeRequested && !waiting.contains(&event.address);
            if trace.iter().any(is_ended) {
                lives.skipped = Skipped::Completions;
            }
        }
        for event in trace {
            let life = lives.observe(event);
            lives.of_event.push(life);
        }
        lives.resolve(finals);
        lives
    }

    fn observe(&mut self, event: &RawEvent) -> BlockRef {
        match event.action {
            Action::Alloc => self.begin(event.address),
            Action::FreeRequested if self.skipped == Skipped::Completions => self.end(event, true),
            Action::FreeRequested => {
                self.has_requests = true;
                self.request(event)
            }
            Action::FreeCompleted => self.end(event, false),
            Action::Free => {
                self.has_requests = true;
                self.end(event, true)
            }
            _ => NO_LIFE,
        }
    }

    fn begin(&mut self, address: u64) -> BlockRef {
        let life = self.allocs;
        self.allocs += 1;
        let former = self.tenants.insert(address, LatestAtAddress { life, state: State::Live, is_in_final: false });
        match former.filter(|former| former.state != State::Free) {
            Some(former) => {
                // The previous block was freed without an event, which both blocks record by sharing a key.
                let name = self.repeated.get(&former.life).map_or(former.life, |repeated| repeated.name);
                self.repeated.insert(life, Repeated { former: former.life, name });
            }
            None => self.active += 1,
        }
        life
    }

    fn request(&mut self, event: &RawEvent) -> BlockRef {
        match self.tenants.entry(event.address) {
            Entry::Occupied(mut entry) => {
                let tenant = entry.get_mut();
                if tenant.state != State::Live {
                    return NO_LIFE;
                }
                tenant.state = State::Waiting;
                tenant.life
            }
            Entry::Vacant(_) => {
                self.active += 1;
                self.add_found(event, State::Waiting, false)
            }
        }
    }

    fn end(&mut self, event: &RawEvent, is_request: bool) -> BlockRef {
        match self.tenants.entry(event.address) {
            Entry::Occupied(mut entry) => {
                let tenant = entry.get_mut();
                if tenant.state == State::Free {
                    return NO_LIFE;
                }
                self.unrequested += u64::from(!is_request && tenant.state == State::Live);
                tenant.state = State::Free;
                self.active -= 1;
                tenant.life
            }
            Entry::Vacant(_) => self.add_found(event, State::Free, !is_request),
        }
    }

    /// Adds a baseline block for a free at an address without earlier events.
    fn add_found(&mut self, event: &RawEvent, state: State, is_waiting: bool) -> BlockRef {
        let life = BASELINE | self.baseline.len() as u32;
        self.baseline.push(Baseline {
            address: event.address,
            requested: event.size,
            allocated: None,
            stream: event.stream,
            is_waiting,
            of_final: NOT_FINAL,
        });
        self.tenants.insert(event.address, LatestAtAddress { life, state, is_in_final: false });
        life
    }

    /// Compares the blocks with the snapshot's active blocks, and takes their sizes from there. Adds active blocks that
    /// the trace lacks.
    fn resolve(&mut self, finals: &[SnapshotBlock]) {
        if self.unrequested > 0 && !self.has_requests {
            self.skipped = Skipped::Requests;
            for block in &mut self.baseline {
                block.is_waiting = false;
            }
        }
        let mut in_both = 0;
        for block in finals.iter().rev() {
            match self.tenants.entry(block.address) {
                Entry::Vacant(entry) => {
                    let life = BASELINE | self.baseline.len() as u32;
                    self.baseline.push(Baseline {
                        address: block.address,
                        requested: block.requested,
                        allocated: Some(block.allocated),
                        stream: block.stream,
                        is_waiting: block.is_waiting,
                        of_final: block.row,
                    });
                    entry.insert(LatestAtAddress { life, state: State::Live, is_in_final: true });
                }
                Entry::Occupied(mut entry) => {
                    let tenant = entry.get_mut();
                    if tenant.state == State::Free || tenant.is_in_final {
                        self.differences.only_final += 1;
                        continue;
                    }
                    tenant.is_in_final = true;
                    in_both += 1;
                    let is_waiting = tenant.state == State::Waiting;
                    self.differences.waiting += u64::from(is_waiting != block.is_waiting);
                    if tenant.life & BASELINE == 0 {
                        self.known.push((tenant.life, block.row));
                    } else if let Some(known) = self.baseline.get_mut((tenant.life & !BASELINE) as usize) {
                        known.of_final = block.row;
                        known.allocated = Some(block.allocated);
                    }
                }
            }
        }
        self.differences.only_trace = self.active.saturating_sub(in_both);
        self.known.sort_unstable();
        self.tenants = HashMap::new();
    }

    /// Returns the index of an event's block among all blocks of the device; `None` for an event without a block. The
    /// baseline comes first (longest-lived blocks first), then the allocations in order.
    #[inline]
    pub(super) fn block_index(&self, position: usize) -> Option<u64> {
        self.of_event.get(position).filter(|life| **life != NO_LIFE).map(|life| self.index_of(*life))
    }

    fn index_of(&self, life: BlockRef) -> u64 {
        let baseline = self.baseline.len() as u64;
        if life & BASELINE == 0 { baseline + u64::from(life) } else { baseline - 1 - u64::from(life & !BASELINE) }
    }

    /// Returns the key of an event's block, which is its index, unless an earlier block at its address was never freed.
    /// In that case, the two share the earlier block's key. `None` for an event without a block.
    #[inline]
    pub(super) fn key(&self, position: usize) -> Option<u64> {
        if self.repeated.is_empty() {
            return self.block_index(position);
        }
        let life = *self.of_event.get(position)?;
        let name = self.repeated.get(&life).map_or(life, |repeated| repeated.name);
        (life != NO_LIFE).then(|| self.index_of(name))
    }

    /// Returns the index of the block that must have been freed before the allocation at `position`, because it has the
    /// same address; `None` if there is no such block.
    pub(super) fn replaced(&self, position: usize) -> Option<u64> {
        let repeated = self.repeated.get(self.of_event.get(position)?)?;
        Some(self.index_of(repeated.former))
    }

    /// Iterates over the baseline by index.
    pub(super) fn baseline_by_place(&self) -> impl ExactSizeIterator<Item = &Baseline> {
        self.baseline.iter().rev()
    }
}
#[cfg(test)]
mod tests {
    use super::super::tests::sample::{Sample, rows};
    use crate::raw::BlockState::{Allocated, Inactive, PendingFree};
    use highwater_snapshots::Trace;

    /// Returns requested and active bytes before the first event and after each.
    fn requested_and_active(trace: &Trace) -> Vec<(u64, u64)> {
        rows(trace, 0).iter().map(|row| (row[0], row[2])).collect()
    }

    #[test]
    fn a_free_without_alloc_is_part_of_the_baseline() {
        let mut sample = Sample::of(&[
            ("free_completed", 0x1000, 300),
            ("free_requested", 0x2000, 500),
            ("free_completed", 0x2000, 500),
            ("alloc", 0x2000, 10),
        ]);
        sample.segment(0x1000, &[(0x1000, 0, Inactive), (512, 10, Allocated), (1024, 1000, Allocated)]);
        let trace = sample.assemble();
        assert_eq!(
            requested_and_active(&trace),
            [(1500, 2048), (1500, 1536), (1000, 1536), (1000, 1024), (1010, 1536)]
        );
        assert_eq!(trace.trust.unmatched_frees, 0);
        assert_eq!(trace.problems, []);
        assert_eq!(trace.blocks.requested[0], 1000, "what is never freed comes first");
    }

    #[test]
    fn a_block_freed_twice_is_counted_and_reported() {
        let mut sample = Sample::of(&[
            ("alloc", 0x1000, 100),
            ("free_requested", 0x1000, 100),
            ("free_requested", 0x1000, 100),
            ("free_completed", 0x1000, 100),
            ("free_completed", 0x1000, 100),
        ]);
        sample.segment(0x1000, &[(2 << 20, 0, Inactive)]);
        let trace = sample.assemble();
        assert_eq!(requested_and_active(&trace), [(0, 0), (100, 512), (0, 512), (0, 512), (0, 0), (0, 0)]);
        assert_eq!(trace.trust.unmatched_frees, 2);
        assert_eq!(trace.attributes.len(), 4, "size and address of both");
    }

    #[test]
    fn an_alloc_where_a_block_lives_ends_that_block() {
        let mut sample = Sample::of(&[("alloc", 0x1000, 100), ("alloc", 0x1000, 700)]);
        sample.segment(0x1000, &[(1024, 700, Allocated), (512, 0, Inactive)]);
        let trace = sample.assemble();
        assert_eq!(requested_and_active(&trace), [(0, 0), (100, 512), (700, 1024)]);
        assert_eq!(trace.trust.repeated_allocs, 1);
        assert_eq!(trace.problems, []);
    }

    #[test]
    fn blocks_that_wait_at_the_end_wait_from_when_the_trace_says_so() {
        let mut sample = Sample::of(&[("free_requested", 0x1000, 100)]);
        sample.segment(0x1000, &[(512, 100, PendingFree), (512, 200, PendingFree)]);
        let trace = sample.assemble();
        assert_eq!(requested_and_active(&trace), [(100, 1024), (0, 1024)]);
        assert_eq!(trace.problems, []);
    }

    #[test]
    fn where_completions_are_left_out_requests_end_their_blocks() {
        let mut sample = Sample::of(&[
            ("alloc", 0x1000, 100),
            ("free_requested", 0x1000, 100),
            ("alloc", 0x1000, 200),
            ("free_requested", 0x8000, 50),
        ]);
        sample.segment(0x1000, &[(512, 200, Allocated), (512, 0, Inactive)]);
        let trace = sample.assemble();
        assert_eq!(requested_and_active(&trace), [(50, 512), (150, 1024), (50, 512), (250, 1024), (200, 512)]);
        assert!(trace.problems[0].what.contains("lacks free_completed"), "{:?}", trace.problems);
        assert_eq!((trace.problems.len(), trace.trust.repeated_allocs), (1, 0));
    }

    #[test]
    fn where_requests_are_left_out_completions_end_their_blocks() {
        let mut sample =
            Sample::of(&[("free_completed", 0x2000, 50), ("alloc", 0x1000, 100), ("free_completed", 0x1000, 100)]);
        sample.segment(0x1000, &[(0x4000, 0, Inactive)]);
        let trace = sample.assemble();
        assert_eq!(requested_and_active(&trace), [(50, 512), (0, 0), (100, 512), (0, 0)]);
        assert!(trace.problems[0].what.contains("lacks free_requested"), "{:?}", trace.problems);
    }

    #[test]
    fn a_trace_that_leads_elsewhere_than_the_snapshot_is_reported() {
        let mut sample = Sample::of(&[
            ("alloc", 0x1000, 100),
            ("alloc", 0x1200, 100),
            ("free_requested", 0x1200, 100),
            ("free_completed", 0x1200, 100),
            ("alloc", 0x1400, 100),
        ]);
        sample.segment(0x1000, &[(512, 0, Inactive), (512, 100, Allocated), (512, 100, PendingFree)]);
        let trace = sample.assemble();
        let expected = "1 are active only in the trace, 1 only in the snapshot, and 1 differ";
        assert!(trace.problems[0].what.contains(expected), "{:?}", trace.problems);
    }

    #[test]
    fn without_segments_the_baseline_is_what_frees_reveal() {
        let trace =
            Sample::of(&[("alloc", 0x1000, 100), ("free_requested", 0x2000, 900), ("free_completed", 0x2000, 900)])
                .assemble();
        assert_eq!(requested_and_active(&trace), [(900, 1024), (1000, 1536), (100, 1536), (100, 512)]);
        assert!(trace.problems[0].what.contains("has no segments"), "{:?}", trace.problems);
    }
}
