//! The state of a running replay, and how it reports the outcome of a request.

use std::collections::BTreeSet;

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::{EventId, Trace};

use super::driver::{Call, ReplayDriver};
use super::handles::Handles;
use super::output::{Home, Output};
use super::pools::Pools;
use super::start::{Private, Start};
use super::{Answers, Death, Difference, Divergence, Plan, Share};
use crate::{Block, OomReport};

/// The first stream number that a replay uses for its own streams: not the value of any pointer.
const FIRST_QUEUE: u64 = 0xfeed_0000_0000_0001;
/// The maximum number of queues for waiting blocks.
const MOST_QUEUES: usize = 64;

/// A recorded call that is not yet assigned to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) event: EventId,
    pub(super) private: Private,
}

impl Pending {
    pub(super) fn obtains(&self) -> bool {
        self.call.obtains()
    }
}

/// The request that is being served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) event: EventId,
    pub(super) bytes: u64,
    pub(super) stream: StreamId,
    /// The number of its pool's allocator.
    pub(super) pool: usize,
}

/// The state of a running replay.
pub(super) struct Run<'a> {
    pub(super) trace: &'a Trace,
    pub(super) plan: &'a Plan<'a>,
    pub(super) driver: ReplayDriver,
    pub(super) pools: Pools,
    pub(super) handles: Handles,
    pub(super) output: Output<'a>,
    /// The recorded calls since the last request.
    pub(super) pending: Vec<Pending>,
    /// How many of these release memory.
    pub(super) pending_releases: usize,
    /// The block whose free was requested by the previous event: the next event shows whether it waits.
    pub(super) freed: Option<(u32, EventId)>,
    /// The queues of waiting blocks, each with the completion of its last block.
    queues: BTreeSet<(EventId, usize)>,
    /// Blocks to be freed after their last use, by event.
    pub(super) endings: Vec<(EventId, u32)>,
    pub(super) next_ending: usize,
    log: Vec<Call>,
    pub(super) last_stream: Option<StreamId>,
    /// Whether requests came from more than one stream.
    pub(super) has_streams: bool,
    pub(super) recorded_reserved: u64,
    pub(super) replay: Outcome,
}

/// The results of a replay other than its trace.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) divergence: Option<Divergence>,
    pub(super) largest_difference: u64,
    pub(super) placed_elsewhere: u64,
    pub(super) death: Option<Death>,
    pub(super) rescued: Vec<EventId>,
    pub(super) assumptions: Vec<String>,
    pub(super) emptied: Vec<EventId>,
    /// Runs of releases assumed to be the allocator's own.
    pub(super) own_releases: u64,
    /// Runs of releases assumed to be the program's, without proof.
    pub(super) unknown_releases: u64,
    /// Garbage collections by a limit that is not recorded.
    pub(super) collections: u64,
    /// Whether a request failed whose stream is not recorded.
    pub(super) stream_is_guessed: bool,
    /// Requests larger than any device memory.
    pub(super) impossible: u64,
}

impl<'a> Run<'a> {
    /// Creates a replay in the state of `start`, and returns it with the restored blocks, each with its row and its
    /// pool's number.
    pub(super) fn new(trace: &'a Trace, plan: &'a Plan<'a>, start: &Start) -> (Self, Vec<(u32, Block, usize)>) {
        let addresses_from = addresses_from(trace);
        let driver = match plan.answers {
            Answers::AsRecorded => {
                ReplayDriver::following(plan.device_total, addresses_from, plan.config.large_segment_bytes())
            }
            Answers::Modelled(bound) => {
                let driver = ReplayDriver::of_size(bound, plan.device_total, addresses_from);
                match plan.addresses {
                    None => driver,
                    Some(order) => driver.in_order(order),
                }
            }
        };
        let settings = (plan.config.clone(), plan.tie_break);
        let (pools, planted) = Pools::new(driver.clone(), settings, start);
        let run = Self {
            trace,
            plan,
            driver,
            pools,
            handles: Handles::new(trace.blocks.len()),
            output: Output::new(trace, plan),
            pending: Vec::new(),
            pending_releases: 0,
            freed: None,
            queues: BTreeSet::new(),
            endings: Vec::new(),
            next_ending: 0,
            log: Vec::new(),
            last_stream: None,
            has_streams: false,
            recorded_reserved: 0,
            replay: Outcome::default(),
        };
        (run, planted)
    }

    pub(super) fn assume(&mut self, start: &Start) {
        let mut assumptions = Vec::new();
        let anew = start.homeless.len();
        let blocks = if anew == 1 { "1 block".to_owned() } else { format!("{anew} blocks") };
        if self.plan.starts_anew && anew > 0 {
            assumptions.push(format!(
                "{blocks} from before the recording are allocated again at its beginning, in the order of their addresses, \
                 since their order is not recorded"
            ));
        } else if anew > 0 {
            assumptions.push(format!(
                "{blocks} from before the recording are in no recorded segment, and are allocated again at its start"
            ));
        }
        if self.plan.config.garbage_collection_threshold().is_some() && !self.knows_limit() && !self.follows() {
            assumptions.push(
                "no segment is garbage collected, since the memory limit that this depends on is not recorded"
                    .to_owned(),
            );
        }
        if start.segments.len() > 1 {
            assumptions.push(format!(
                "the {} segments from before the recording were created in the order of their addresses; this matters only \
                 where two free ranges have the same size",
                start.segments.len()
            ));
        }
        self.replay.assumptions = assumptions;
    }

    /// Returns whether the limit of reserved memory that triggers garbage collection is known.
    pub(super) fn knows_limit(&self) -> bool {
        self.plan.config.memory_fraction() < 1.0 && self.plan.device_total.is_some()
    }

    pub(super) fn bytes_of(&self, row: usize, share: Share) -> u64 {
        match self.trace.blocks.requested[row] {
            // For some blocks, only the rounded size is known.
            0 => share.of(self.trace.blocks.allocated[row]),
            bytes => share.of(bytes),
        }
    }

    pub(super) fn die_of(&mut self, request: &Request, mut report: OomReport) {
        report.device = self.plan.device;
        // Remedies are found by replaying with them, not by estimates from these figures.
        report.advice.clear();
        let (free, total) = (report.device_free, request.bytes);
        self.output.oom(request.event, request.stream, [total, free]);
        self.die(request, &report.to_string());
    }

    pub(super) fn die(&mut self, request: &Request, report: &str) {
        let allocated = self.pools.all().map(|pool| pool.stats().allocated_bytes.all.current).sum();
        self.replay.death = Some(Death {
            event: request.event,
            requested: request.bytes,
            reserved: self.output.reserved,
            allocated,
            report: report.to_owned(),
        });
    }

    /// Adds the driver calls of a request to the output.
    pub(super) fn tell(&mut self, request: &Request, block: &Block) {
        let home = Home { stream: block.stream(), pool: block.pool(), private: self.pools.private(request.pool) };
        self.tell_calls(request.event, home);
    }

    pub(super) fn tell_failed(&mut self, request: &Request) {
        let pool = self.plan.config.pool(request.bytes);
        let home = Home { stream: request.stream, pool, private: self.pools.private(request.pool) };
        self.tell_calls(request.event, home);
    }

    /// Adds the logged driver calls to the output. Calls that are also in the recording are placed at their recorded
    /// events.
    pub(super) fn tell_calls(&mut self, event: EventId, home: Home) {
        self.driver.take_log(&mut self.log);
        let follows = self.follows();
        let mut recorded = self.pending.iter().filter(|_| follows);
        let mut last = self.output.last_source();
        for call in &self.log {
            let own = match call {
                Call::Completed { .. } => None,
                _ => recorded.next().map(|pending| pending.event),
            };
            last = own.unwrap_or(event).min(event).max(last);
            self.output.call(last, *call, home);
        }
    }

    /// Compares the address and size of a block with the recording.
    pub(super) fn compare(&mut self, event: EventId, row: usize, block: &Block) {
        if !self.follows() {
            return;
        }
        let difference = self.output.reserved.abs_diff(self.recorded_reserved);
        self.replay.largest_difference = self.replay.largest_difference.max(difference);
        let (recorded, replayed) = (self.trace.blocks.address[row], block.address());
        if recorded != replayed {
            self.replay.placed_elsewhere += 1;
            self.diverge(event, Difference::Placed { recorded, replayed });
        }
        let (recorded, replayed) = (self.trace.blocks.allocated[row], block.allocated());
        if recorded != replayed {
            self.diverge(event, Difference::Rounded { recorded, replayed });
        }
    }

    pub(super) fn diverge(&mut self, event: EventId, difference: Difference) {
        if self.replay.divergence.is_none() {
            self.replay.divergence = Some(Divergence { event, difference });
        }
    }

    /// Frees a block that waits for another stream until its recorded completion.
    pub(super) fn wait(&mut self, row: u32, block: Block, pool: usize) {
        let completion = self.trace.blocks.free_completed[row as usize];
        // A queue completes in order, so a block joins one whose last completion is before its own.
        let queue = match self.queues.range(..=(completion, usize::MAX)).next_back().copied() {
            Some((end, queue)) => {
                self.queues.remove(&(end, queue));
                queue
            }
            // No program has this many streams: such blocks stay allocated until their recorded completion.
            None if self.queues.len() >= MOST_QUEUES => return self.handles.put(row, block, pool),
            None => self.queues.len(),
        };
        self.queues.insert((completion, queue));
        let name = FIRST_QUEUE + queue as u64;
        let stream = StreamId(if block.stream().0 == name { !name } else { name });
        let allocator = self.pools.get(pool);
        allocator.record_stream(&block, stream);
        self.driver.freeing(row);
        allocator.free(block);
    }

    pub(super) fn push_pending(&mut self, pending: Pending) {
        self.pending_releases += usize::from(!pending.obtains());
        self.pending.push(pending);
    }

    pub(super) fn clear_pending(&mut self) {
        self.pending.clear();
        self.pending_releases = 0;
    }

    pub(super) fn follows(&self) -> bool {
        self.plan.answers == Answers::AsRecorded
    }
}

/// Returns the blocks that are freed earlier than recorded, each with the event after which it is freed.
pub(super) fn endings(trace: &Trace, plan: &Plan<'_>) -> Vec<(EventId, u32)> {
    if plan.overrides.is_none() {
        return Vec::new();
    }
    let ends = (0..trace.blocks.len() as u32).map(|row| (plan.block_override(row).ends_after, row));
    let mut endings: Vec<(EventId, u32)> = ends.filter(|(event, _)| event.is_some()).collect();
    endings.sort_unstable();
    endings
}

/// Returns the start of addresses that are not in the recording.
fn addresses_from(trace: &Trace) -> u64 {
    let ends = trace.segments.range.iter().map(|range| range.address.saturating_add(range.bytes));
    let blocks = trace.blocks.address.iter().zip(&trace.blocks.allocated).map(|(at, bytes)| at.saturating_add(*bytes));
    let end = ends.chain(blocks).max().unwrap_or(0);
    end.clamp(0x10_0000_0000, 1 << 62)
}
