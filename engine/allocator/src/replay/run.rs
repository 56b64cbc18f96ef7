//! The state of a running replay, and the comparison of a request's outcome with the recording.

use std::collections::{BTreeSet, HashMap};

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::event::Alloc;
use highwater_recorder::snapshots::{Trace, count_of};

use super::driver::{Call, ReplayDriver};
use super::handles::Handles;
use super::output::{Output, PoolAndStream};
use super::pools::{Pools, RestoredBlocks};
use super::recorded::{At, Freed, Pending, Request, UNKNOWN};
use super::start::Start;
use super::{DeviceModel, Difference, Divergence, FailedReplayRequest, Plan, Share};
use crate::{Block, OomReport};

/// The first stream id that a replay uses for its own streams; it is not the value of any pointer.
const FIRST_QUEUE: u64 = 0xfeed_0000_0000_0001;
/// The maximum number of queues for blocks awaiting free.
const MAX_QUEUES: usize = 64;
/// The maximum number of queues for blocks whose completing event is unknown. Each of these blocks needs its own queue.
const MAX_SINGLE_QUEUES: usize = 1024;

pub(super) struct Run<'a> {
    /// The tables and facts of the recording; events and their blocks are only taken from
    /// [`Recorded`](super::recorded::Recorded).
    pub(super) trace: &'a Trace,
    pub(super) plan: &'a Plan<'a>,
    pub(super) driver: ReplayDriver,
    pub(super) pools: Pools,
    pub(super) handles: Handles,
    pub(super) output: Output<'a>,
    /// The recorded calls since the last request.
    pub(super) pending: Vec<Pending>,
    /// The number of pending calls that release memory.
    pub(super) pending_releases: usize,
    /// The block whose free was requested by the previous event. The next event shows whether another stream still uses
    /// it.
    pub(super) freed: Option<Freed>,
    /// The queues of blocks awaiting free, each with the completion of its last block.
    queues: BTreeSet<(u64, usize)>,
    /// The queues of freed blocks that another stream uses and whose completion is not known yet.
    unknown: HashMap<u64, usize>,
    /// Blocks to free after their last use, each with the event of that use.
    pub(super) endings: Vec<(u64, u64)>,
    pub(super) next_ending: usize,
    log: Vec<Call>,
    pub(super) last_stream: Option<StreamId>,
    /// Whether requests came from more than one stream.
    pub(super) has_streams: bool,
    pub(super) recorded_reserved: u64,
    pub(super) replay: ReplayOutcome,
    pub(super) guesses: Guesses,
}

/// The result of a replay, apart from its events. Recorded events are identified by their indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayOutcome {
    /// The first difference between the replay and the recording; only with [`DeviceModel::AsRecorded`].
    pub divergence: Option<Divergence>,
    /// The largest difference in reserved bytes between recording and replay after any request. It is 0 unless the
    /// device behaves as recorded.
    pub largest_difference: u64,
    /// The number of blocks whose address differs from the recorded one. It is 0 unless the device behaves as recorded.
    pub placed_elsewhere: u64,
    /// The failed request at which the replay ends, if one ended it.
    pub death: Option<FailedReplayRequest>,
    /// The events of the requests that failed in the recording and succeed in the replay.
    pub rescued: Vec<u64>,
    /// The number of times that the allocator released its whole cache for a request, as counted by PyTorch in
    /// `num_alloc_retries`.
    pub retries: u64,
    /// The index of the first release of each run of releases that the program must have requested, since the next
    /// request would otherwise have been served from the cache. Set only with [`DeviceModel::AsRecorded`].
    pub cache_flushes: Vec<u64>,
    /// The assumptions made in place of facts that the recording lacks.
    pub assumptions: Vec<String>,
}

impl ReplayOutcome {
    /// Returns the outcome with its events, other than those of `cache_flushes`, numbered from `first` on: rows of a
    /// trace that is a part of a longer recording become indices in that recording.
    #[must_use]
    pub fn numbered_from(mut self, first: u64) -> Self {
        self.divergence.iter_mut().for_each(|divergence| divergence.event += first);
        self.death.iter_mut().for_each(|death| death.event += first);
        self.rescued.iter_mut().for_each(|event| *event += first);
        self
    }
}

/// Facts that the list of assumptions depends on and that are known only after the replay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guesses {
    /// Number of sequences of releases that are assumed to be the allocator's own.
    pub(super) own_releases: u64,
    /// Runs of releases assumed to be requested by the program, without proof.
    pub(super) unknown_releases: u64,
    /// Garbage collections by a limit that is not recorded.
    pub(super) collections: u64,
    /// Whether a request failed and its stream is not recorded.
    pub(super) stream_is_guessed: bool,
    /// Requests larger than any device memory.
    pub(super) impossible: u64,
}

impl<'a> Run<'a> {
    /// Creates a replay in the state of `start`. Returns it with the restored blocks, each with its row and the index
    /// of its pool's allocator. `addresses_end` is the end of the addresses in the recording.
    pub(super) fn new(
        trace: &'a Trace,
        plan: &'a Plan<'a>,
        start: &Start,
        (addresses_end, output): (u64, Output<'a>),
    ) -> (Self, RestoredBlocks) {
        let addresses_from = addresses_end.clamp(0x10_0000_0000, 1 << 62);
        let driver = match plan.answers {
            DeviceModel::AsRecorded => {
                ReplayDriver::following(plan.device_total, addresses_from, plan.config.large_segment_bytes())
            }
            DeviceModel::Modelled(bound) => {
                let driver = ReplayDriver::of_size(bound, plan.device_total, addresses_from);
                match plan.addresses {
                    None => driver,
                    Some(order) => driver.in_order(order),
                }
            }
        };
        let settings = (plan.config.clone(), plan.tie_break);
        let (pools, restored) = Pools::new(driver.clone(), settings, start);
        let run = Self {
            trace,
            plan,
            driver,
            pools,
            handles: Handles::new(trace.blocks.len()),
            output,
            pending: Vec::new(),
            pending_releases: 0,
            freed: None,
            queues: BTreeSet::new(),
            unknown: HashMap::new(),
            endings: Vec::new(),
            next_ending: 0,
            log: Vec::new(),
            last_stream: None,
            has_streams: false,
            recorded_reserved: 0,
            replay: ReplayOutcome::default(),
            guesses: Guesses::default(),
        };
        (run, restored)
    }

    pub(super) fn assume(&mut self, start: &Start) {
        let mut assumptions = Vec::new();
        let anew = start.unplaced.len();
        let blocks = count_of(anew as u64, "block");
        let are = if anew == 1 { "is" } else { "are" };
        if self.plan.reallocates_start && anew > 0 {
            assumptions.push(format!(
                "{blocks} from before the recording {are} allocated at the start of the replay in address order, \
                 because their real order was not recorded"
            ));
        } else if anew > 0 {
            assumptions.push(format!(
                "{blocks} from before the recording {are} in no recorded segment and {are} allocated at the start of the \
                 replay"
            ));
        }
        if self.plan.config.garbage_collection_threshold().is_some() && !self.is_limit_known() && !self.follows() {
            assumptions.push(
                "garbage collection is not replayed, because the memory limit that triggers it was not recorded"
                    .to_owned(),
            );
        }
        if start.segments.len() > 1 {
            assumptions.push(format!(
                "the {} segments from before the recording were created in address order; this matters only between \
                 free ranges of equal size",
                start.segments.len()
            ));
        }
        self.replay.assumptions = assumptions;
    }

    /// Returns whether the limit of reserved memory that triggers garbage collection is known.
    pub(super) fn is_limit_known(&self) -> bool {
        self.plan.config.memory_fraction() < 1.0 && self.plan.device_total.is_some()
    }

    pub(super) fn bytes_of(alloc: &Alloc, share: Share) -> u64 {
        match alloc.requested {
            // For some blocks, only the rounded size is known.
            0 => share.of(alloc.allocated),
            bytes => share.of(bytes),
        }
    }

    pub(super) fn die_of(&mut self, request: &Request, mut report: OomReport) {
        report.device = self.plan.device;
        // Remedies are found by replaying with them, not by estimates from these figures.
        report.advice.clear();
        let (free, total) = (report.device_free, request.bytes);
        self.output.oom(request, [total, free]);
        self.die(request, &report.to_string());
    }

    pub(super) fn die(&mut self, request: &Request, report: &str) {
        let allocated = self.pools.all().map(|pool| pool.stats().allocated_bytes.all.current).sum();
        self.replay.death = Some(FailedReplayRequest {
            event: request.event.number,
            requested: request.bytes,
            reserved: self.output.reserved,
            allocated,
            report: report.to_owned(),
        });
    }

    pub(super) fn report(&mut self, request: &Request, block: &Block) {
        let home =
            PoolAndStream { stream: block.stream(), pool: block.pool(), private: self.pools.private(request.pool) };
        self.report_calls(request.event, home);
    }

    pub(super) fn report_failed(&mut self, request: &Request) {
        let pool = self.plan.config.pool(request.bytes);
        let home = PoolAndStream { stream: request.stream, pool, private: self.pools.private(request.pool) };
        self.report_calls(request.event, home);
    }

    /// Adds the logged driver calls to the output. Calls that are also in the recording are placed at their recorded
    /// events.
    pub(super) fn report_calls(&mut self, event: At, home: PoolAndStream) {
        self.driver.take_log(&mut self.log);
        let follows = self.follows();
        let mut recorded = self.pending.iter().filter(|_| follows);
        let mut last = self.output.last_source;
        for call in &self.log {
            let own = match call {
                Call::Completed { .. } => None,
                _ => recorded.next().map(|pending| pending.event),
            };
            last = own.unwrap_or(event).min(event).max(last);
            self.output.call(last, *call, home);
        }
    }

    pub(super) fn compare(&mut self, event: At, alloc: &Alloc, block: &Block) {
        if !self.follows() {
            return;
        }
        let difference = self.output.reserved.abs_diff(self.recorded_reserved);
        self.replay.largest_difference = self.replay.largest_difference.max(difference);
        let (recorded, replayed) = (alloc.address, block.address());
        if recorded != replayed {
            self.replay.placed_elsewhere += 1;
            self.diverge(event, Difference::Placed { recorded, replayed });
        }
        let (recorded, replayed) = (alloc.allocated, block.allocated());
        if recorded != replayed {
            self.diverge(event, Difference::Rounded { recorded, replayed });
        }
    }

    pub(super) fn diverge(&mut self, event: At, difference: Difference) {
        if self.replay.divergence.is_none() {
            self.replay.divergence = Some(Divergence { event: event.number, difference });
        }
    }

    /// Keeps a block that another stream uses until its recorded completion, and then frees it.
    pub(super) fn wait(&mut self, key: u64, completion: u64, block: Block, pool: usize) {
        // A queue completes in order, so a block joins one whose last completion is before its own.
        let most = if completion == UNKNOWN { MAX_SINGLE_QUEUES } else { MAX_QUEUES };
        let joined = self.queues.range(..(completion.saturating_add(1), 0)).next_back().copied();
        let queue = match joined {
            Some((end, queue)) => {
                self.queues.remove(&(end, queue));
                queue
            }
            // No program has this many streams: such blocks stay allocated until their recorded completion.
            None if self.queues.len() >= most => return self.handles.put(key, block, pool),
            None => self.queues.len(),
        };
        self.queues.insert((completion, queue));
        if completion == UNKNOWN {
            self.unknown.insert(key, queue);
        }
        let name = FIRST_QUEUE + queue as u64;
        let stream = StreamId(if block.stream().0 == name { !name } else { name });
        let allocator = self.pools.get(pool);
        allocator.record_stream(&block, stream);
        self.driver.freeing(key);
        allocator.free(block);
    }

    /// Records that the recording completes a block. Its queue becomes empty if the completion was unknown.
    pub(super) fn complete_queue(&mut self, event: At, key: u64) {
        if let Some(queue) = self.unknown.remove(&key) {
            self.queues.remove(&(UNKNOWN, queue));
            self.queues.insert((event.number, queue));
        }
    }

    pub(super) fn push_pending(&mut self, pending: Pending) {
        self.pending_releases += usize::from(!pending.call.obtains());
        self.pending.push(pending);
    }

    pub(super) fn clear_pending(&mut self) {
        self.pending.clear();
        self.pending_releases = 0;
    }

    pub(super) fn follows(&self) -> bool {
        self.plan.answers == DeviceModel::AsRecorded
    }
}

/// Returns the blocks that are freed earlier than recorded, each with the event that precedes its free.
pub(super) fn endings(trace: &Trace, plan: &Plan<'_>) -> Vec<(u64, u64)> {
    if plan.overrides.is_none() {
        return Vec::new();
    }
    let ends = trace.blocks.ids().map(|id| (plan.block_override(id).ends_after, u64::from(id.0)));
    let ends = ends.filter(|(event, _)| event.is_some());
    let mut endings: Vec<(u64, u64)> = ends.map(|(event, row)| (u64::from(event.0), row)).collect();
    endings.sort_unstable();
    endings
}
