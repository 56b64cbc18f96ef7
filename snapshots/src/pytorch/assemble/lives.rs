//! Lives: which block each event of a device is about. A trace names blocks by address, which is reused; the order of
//! the events tells one tenant of an address from the next.

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use super::super::raw::{Action, RawEvent};

/// The block of an event: the number of its alloc among the device's allocs, or, with [`BASELINE`] set, its row among
/// the blocks that were there before.
type Life = u32;

/// Marks blocks of the baseline.
const BASELINE: Life = 1 << 31;

/// The event is about no block, or frees one that cannot be.
const NO_LIFE: Life = Life::MAX;

/// Stands for no block of the final state.
pub(super) const NOT_FINAL: u32 = u32::MAX;

/// A block that was there before the trace begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Baseline {
    pub(super) address: u64,
    pub(super) requested: u64,
    /// Rounded; none where the file does not give it.
    pub(super) allocated: Option<u64>,
    pub(super) stream: u64,
    /// Its free was requested before the trace begins.
    pub(super) is_waiting: bool,
    /// Its row among the snapshot's blocks, if it is one of them.
    pub(super) of_final: u32,
}

/// An active block of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Final {
    /// Its row among the snapshot's blocks.
    pub(super) row: u32,
    pub(super) address: u64,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) stream: u64,
    /// Freed, and still waiting for another stream.
    pub(super) is_waiting: bool,
}

/// Which of the two frees a trace leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Skipped {
    /// None.
    #[default]
    Neither,
    /// `free_completed`: a request ends its block.
    Completions,
    /// `free_requested`: a completion ends its block.
    Requests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    Waiting,
    Free,
}

/// The last tenant of an address.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    life: Life,
    /// The number of its alloc, or that of a later one where frees are missing between the two; [`NO_LIFE`] if the
    /// trace has none.
    alloc: u32,
    state: State,
    is_in_final: bool,
}

/// How the trace's last state differs from the snapshot's, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// Active by the trace alone.
    pub(super) only_trace: u64,
    /// Active by the snapshot alone.
    pub(super) only_final: u64,
    /// Waiting by one of them, live by the other.
    pub(super) waiting: u64,
}

/// The blocks of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Lives {
    /// By event.
    of_event: Vec<Life>,
    /// The blocks that were there before. Those freed first come first; those never freed last, from the highest
    /// address down.
    pub(super) baseline: Vec<Baseline>,
    /// Allocs whose block is there at the end, by number, with the block's row in the snapshot.
    pub(super) known: Vec<(u32, u32)>,
    pub(super) skipped: Skipped,
    pub(super) differences: Differences,
    tenants: HashMap<u64, Tenant>,
    allocs: u32,
    active: u64,
    has_requests: bool,
    /// Completions of blocks that nobody asked to free, though their alloc is in the trace.
    unrequested: u64,
}

impl Lives {
    /// Makes ready for `trace`; `finals` are the active blocks of the snapshot, by address.
    pub(super) fn of(trace: &[RawEvent], finals: &[Final]) -> Self {
        let mut lives = Self { of_event: Vec::with_capacity(trace.len()), ..Self::default() };
        let completes = |event: &RawEvent| matches!(event.action, Action::FreeCompleted | Action::Free);
        if !trace.iter().any(completes) {
            let waiting: HashSet<u64> =
                finals.iter().filter(|block| block.is_waiting).map(|block| block.address).collect();
            // A request without its completion is no wonder where the block still waits.
            let is_ended =
                |event: &RawEvent| event.action == Action::FreeRequested && !waiting.contains(&event.address);
            if trace.iter().any(is_ended) {
                lives.skipped = Skipped::Completions;
            }
        }
        for event in trace {
            let life = lives.see(event);
            lives.of_event.push(life);
        }
        lives.settle(finals);
        lives
    }

    /// The block of the next event.
    fn see(&mut self, event: &RawEvent) -> Life {
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

    fn begin(&mut self, address: u64) -> Life {
        let alloc = self.allocs;
        self.allocs += 1;
        let new = Tenant { life: alloc, alloc, state: State::Live, is_in_final: false };
        match self.tenants.entry(address) {
            Entry::Occupied(mut entry) => {
                let former = *entry.get();
                // A block that is still there was freed unseen: the same name for both says so.
                let is_missing_free = former.state != State::Free;
                let life = if is_missing_free { former.life } else { alloc };
                entry.insert(Tenant { life, ..new });
                self.active += u64::from(!is_missing_free);
                life
            }
            Entry::Vacant(entry) => {
                entry.insert(new);
                self.active += 1;
                alloc
            }
        }
    }

    fn request(&mut self, event: &RawEvent) -> Life {
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
                self.discover(event, State::Waiting, false)
            }
        }
    }

    fn end(&mut self, event: &RawEvent, is_request: bool) -> Life {
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
            Entry::Vacant(_) => self.discover(event, State::Free, !is_request),
        }
    }

    /// A free of an address at which nothing happened so far: its block was there before.
    fn discover(&mut self, event: &RawEvent, state: State, is_waiting: bool) -> Life {
        let life = BASELINE | self.baseline.len() as u32;
        self.baseline.push(Baseline {
            address: event.address,
            requested: event.size,
            allocated: None,
            stream: event.stream,
            is_waiting,
            of_final: NOT_FINAL,
        });
        self.tenants.insert(event.address, Tenant { life, alloc: NO_LIFE, state, is_in_final: false });
        life
    }

    /// Compares with the snapshot's active blocks, takes their sizes, and finds those that the trace never names.
    fn settle(&mut self, finals: &[Final]) {
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
                    entry.insert(Tenant { life, alloc: NO_LIFE, state: State::Live, is_in_final: true });
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
                    if tenant.alloc != NO_LIFE {
                        self.known.push((tenant.alloc, block.row));
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

    /// The place of an event's block among all of the device, if the event has one: the baseline first, in it the
    /// blocks that live longest, then the allocs in order.
    #[inline]
    pub(super) fn key(&self, position: usize) -> Option<u64> {
        let baseline = self.baseline.len() as u64;
        match *self.of_event.get(position)? {
            NO_LIFE => None,
            life if life & BASELINE == 0 => Some(baseline + u64::from(life)),
            life => Some(baseline - 1 - u64::from(life & !BASELINE)),
        }
    }

    /// The baseline by key.
    pub(super) fn baseline_by_key(&self) -> impl ExactSizeIterator<Item = &Baseline> {
        self.baseline.iter().rev()
    }
}
