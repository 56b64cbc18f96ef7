//! Replays the requests of a recording through the caching allocator, on a device without memory.
//!
//! A recording contains the requested blocks and the times at which they were freed. An allocator's decisions depend on
//! nothing else, so the same requests lead to the same segments, and other settings lead to the segments that a run
//! with those settings would have had. A replay returns a [`Trace`], which supports every query that a recording does.
//!
//! ```text
//! recorded trace ── requests and frees ──▶ CachingAllocator ──▶ replayed trace
//!                                                │ ▲
//!             what the real device answered ──▶ Device
//! ```
//!
//! With [`DeviceModel::AsRecorded`], the device behaves as in the recording, and the replay should give the recorded
//! segments and addresses; otherwise it reports the first [`Divergence`] and the size of the difference. With
//! [`DeviceModel::Modelled`], the device has a capacity, memory is released when the allocator decides to do so, and
//! the replay ends when a request fails ([`FailedReplayRequest`]).
//!
//! A recording that is not in memory is replayed as a [`Stream`] of its events.
//!
//! Missing facts are replaced by assumptions, which are listed in [`ReplayOutcome::assumptions`]. They concern the age
//! of segments from before the recording, and the releases that the program requested. Each of PyTorch's private pools
//! gets its own allocator over the same device.
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
pub use run::ReplayOutcome;
pub use settings::recorded_config;
pub use stream::{Stream, StreamStart};
pub use target::{Before, Target};
pub use walk::addresses_end;

use crate::AllocConfig;

/// The behavior of the simulated driver in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceModel {
    /// The device responds to each call as it did in the recording.
    AsRecorded,
    /// The device behaves like one with this many bytes free for this allocator. `None` means unlimited.
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
    /// The behavior of the device.
    pub answers: DeviceModel,
    /// The size of the whole device in bytes, including memory used by other processes; `None` if unknown. The memory
    /// fraction refers to this size.
    pub device_total: Option<u64>,
    /// Tie-break between free ranges that fit equally well.
    pub tie_break: TieBreak,
    /// Changes to each block of a trace, by row, or to the blocks that are live when a stream starts, if any.
    pub overrides: Option<&'a [BlockOverride]>,
    /// The releases that the program must have requested: [`ReplayOutcome::cache_flushes`] of the unchanged replay.
    pub cache_flushes: &'a [u64],
    /// Bytes that were available to the allocator during the recording; `None` if unknown. Releases before a request
    /// that exceeds this amount must have been made by the allocator itself.
    pub recorded_capacity: Option<u64>,
    /// Whether blocks live at the start are allocated again instead of restored at their recorded addresses, as needed
    /// for settings under which their addresses would differ.
    pub reallocates_start: bool,
    /// The order in which the device returns addresses, with [`DeviceModel::Modelled`] and a recording that starts
    /// before its first segment. If `None`, each address is above all previous ones.
    pub addresses: Option<AddressOrder>,
    /// The failed request at which the replay ends; `None` to replay to the end of the recording.
    pub target: Option<Target>,
}

impl Plan<'_> {
    /// Returns a plan for an unchanged replay, on a device that behaves as recorded.
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

/// A request that failed in the replay, which would have ended the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedReplayRequest {
    /// The index of the recorded event of the request.
    pub event: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Bytes reserved from the device at that point.
    pub reserved: u64,
    /// Bytes of allocated blocks at that point, after rounding.
    pub allocated: u64,
    /// The allocator's error message, without advice.
    pub report: String,
}

/// The replay of a trace. Events are identified by their rows in it.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The replayed trace of the device, with the steps, phases and marks of the recording.
    pub trace: Trace,
    /// For each event of `trace`, the recorded event that caused it, in non-decreasing order.
    pub source: Vec<EventId>,
    /// The outcome of the replay, apart from its events.
    pub outcome: ReplayOutcome,
}

/// Replays the requests of `plan.device`, in about the time that an allocator needs for these requests. Uses about as
/// much memory as the replayed trace.
pub fn replay(trace: &Trace, plan: &Plan<'_>) -> Replay {
    walk::walk(trace, plan)
}
