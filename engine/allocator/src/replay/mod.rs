//! Replays the requests of a recording through the caching allocator, on a device without memory.
//!
//! A recording contains which blocks were requested and when they were freed. An allocator's decisions depend on
//! nothing else, so the same requests lead to the same segments, and other settings lead to the segments that a run
//! with those settings would have had. A replay returns a [`Trace`], which supports every query that a recording does.
//!
//! ```text
//! recorded trace ── requests and frees ──▶ CachingAllocator ──▶ replayed trace
//!                                                │ ▲
//!             what the real device answered ──▶ Device
//! ```
//!
//! With [`DeviceModel::AsRecorded`], the device answers as the real one did, and the replay must arrive at the recorded
//! segments and addresses; otherwise it reports the first [`Divergence`] and how far the two differ. With
//! [`DeviceModel::Modelled`], the device has a capacity, memory is released when the allocator decides so, and the
//! replay ends when a request fails ([`FailedReplayRequest`]).
//!
//! A recording that is not in memory is replayed as a [`Stream`] of its events.
//!
//! Facts that a recording lacks are assumed, and listed in [`Replay::assumptions`]: the age of segments from before the
//! recording, and which releases the program requested. Each of PyTorch's private pools gets its own allocator over the
//! same device.
//!
//! Modules are declared in layer order: each uses only modules declared above it.

mod settings;
mod driver;
mod change;
mod target;
mod divergence;
mod handles;
mod start;
mod recorded;
mod pools;
mod output;
mod run;
mod serve;
mod walk;
mod stream;

use highwater_recorder::snapshots::alloc_rules::AddressOrder;
use highwater_recorder::snapshots::{BlockId, DeviceId, EventId, Trace};

pub use crate::tie_break::TieBreak;
pub use change::{BlockOverride, Share};
pub use divergence::{Difference, Divergence};
pub use run::Streamed;
pub use settings::recorded_config;
pub use stream::{Stream, StreamStart};
pub use target::{Before, Target};
pub use walk::addresses_end;

use crate::AllocConfig;

/// The way in which the simulated driver answers the allocator's calls in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceModel {
    /// The device answers each call as it did in the recording.
    AsRecorded,
    /// The device answers like one with this many bytes free for this allocator; `None`: unlimited.
    Modelled(Option<u64>),
}

/// The device, settings and changes with which a recording is replayed.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The device whose requests are replayed.
    pub device: DeviceId,
    /// The allocator's settings.
    pub config: AllocConfig,
    /// The settings used in the recording.
    pub recorded: AllocConfig,
    /// The source of the device's answers.
    pub answers: DeviceModel,
    /// Bytes of the whole device, including those used by other processes; `None` if unknown. The memory fraction
    /// refers to these.
    pub device_total: Option<u64>,
    /// Tie-break between free ranges that fit equally well.
    pub tie_break: TieBreak,
    /// Changes to each block of a trace, by row, or to those that are live when a stream starts; `None`: no changes.
    pub overrides: Option<&'a [BlockOverride]>,
    /// The numbers of releases that the program must have requested: [`Replay::cache_flushes`] of the unchanged replay.
    pub cache_flushes: &'a [u64],
    /// Bytes that were available to the allocator during the recording, if known: releases before a request that
    /// exceeded them were the allocator's own.
    pub recorded_capacity: Option<u64>,
    /// Whether blocks live at the start are allocated again instead of restored at their recorded addresses: for
    /// settings under which their addresses would differ.
    pub reallocates_start: bool,
    /// The order in which the device returns addresses, with [`DeviceModel::Modelled`] and a recording that begins
    /// before its first segment; `None`: each above all former ones.
    pub addresses: Option<AddressOrder>,
    /// The failed request that the replay is about and ends with; `None`: the replay runs to the end of the recording.
    pub target: Option<Target>,
}

impl Plan<'_> {
    /// Returns a plan for the recording as it is: no changes, and a device that answers as recorded.
    pub fn unchanged(device: DeviceId, config: AllocConfig, tie_break: TieBreak) -> Self {
        Self {
            device,
            recorded: config.clone(),
            config,
            answers: DeviceModel::AsRecorded,
            device_total: None,
            tie_break,
            overrides: None,
            cache_flushes: &[],
            recorded_capacity: None,
            reallocates_start: false,
            addresses: None,
            target: None,
        }
    }

    fn block_override(&self, block: BlockId) -> BlockOverride {
        self.overrides.and_then(|overrides| overrides.get(block.0 as usize)).copied().unwrap_or_default()
    }
}

/// A request that failed: the program would have ended there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedReplayRequest<E = EventId> {
    /// The recorded event of the request.
    pub event: E,
    /// Requested bytes.
    pub requested: u64,
    /// Bytes reserved from the device at that point.
    pub reserved: u64,
    /// Bytes of allocated blocks at that point, after rounding.
    pub allocated: u64,
    /// The allocator's error message, with its advice.
    pub report: String,
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The replayed trace of the one device, with the steps, phases and marks of the recording.
    pub trace: Trace,
    /// The recorded event that each event of `trace` comes from; non-decreasing.
    pub source: Vec<EventId>,
    /// The first difference between the replay and the recording; only with [`DeviceModel::AsRecorded`].
    pub divergence: Option<Divergence>,
    /// The largest difference in reserved bytes between recording and replay after any request; 0 with other answers.
    pub largest_difference: u64,
    /// Blocks whose address differs from the recorded one; 0 with other answers.
    pub placed_elsewhere: u64,
    /// The failed request at which the replay ends.
    pub death: Option<FailedReplayRequest>,
    /// Requests that failed in the recording and succeed in the replay.
    pub rescued: Vec<EventId>,
    /// Times that the allocator released its whole cache for a request, as PyTorch counts `num_alloc_retries`.
    pub retries: u64,
    /// The number of the first release of each run of releases that the program must have requested, since without them
    /// the next request would have been served from the cache; only with [`DeviceModel::AsRecorded`].
    pub cache_flushes: Vec<u64>,
    /// The assumptions made in place of facts that the recording lacks.
    pub assumptions: Vec<String>,
}

/// Replays the requests of `plan.device`, in about the time that an allocator takes for them. Uses about as much memory
/// as the replayed trace.
pub fn replay(trace: &Trace, plan: &Plan<'_>) -> Replay {
    walk::walk(trace, plan)
}
