//! Replay: the requests of a recording, made again of the caching allocator, on a device without memory.
//!
//! A recording says which blocks were asked for and when they were given back. That is all that an allocator decides
//! by, so the same requests lead to the same segments, and other settings to those that a run with these settings would
//! have had. A replay gives a [`Trace`] of its own, of which everything can be asked that is asked of a recording.
//!
//! ```text
//! recorded trace ── requests and frees ──▶ CachingAllocator ──▶ replayed trace
//!                                                │ ▲
//!             what the real device answered ──▶ Device
//! ```
//!
//! With [`Answers::AsRecorded`] the device answers as the real one did, and the replay must come to the recorded
//! segments and addresses; where it does not, it tells the first [`Divergence`] and how far the two drift apart. With
//! [`Answers::Modelled`] the device has a capacity, memory is given back when the allocator decides so, and the replay
//! ends where a request fails ([`Death`]).
//!
//! What a recording does not say is assumed, and told in [`Replay::assumptions`]: the age of segments from before the
//! recording, and which releases the program asked for. PyTorch's private pools have an allocator each over the same
//! device.
//!
//! Modules stand in layer order: each uses only what is declared above it.

mod settings;
mod driver;
mod change;
mod target;
mod divergence;
mod handles;
mod start;
mod pools;
mod output;
mod run;
mod serve;
mod walk;

use highwater_recorder::snapshots::{DeviceId, EventId, Trace};

pub use crate::tie_break::TieBreak;
pub use change::{BlockOverride, Share};
pub use divergence::{Difference, Divergence};
pub use settings::recorded_config;
pub use target::{Before, Target};

use crate::AllocConfig;

/// How the device answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// As the recording has it.
    AsRecorded,
    /// As a device would of which so many bytes are free for this allocator; none: without a bound.
    Modelled(Option<u64>),
}

/// What is replayed, and with what.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The device whose blocks are asked for.
    pub device: DeviceId,
    /// The allocator's settings.
    pub config: AllocConfig,
    /// The settings that it was recorded with.
    pub recorded: AllocConfig,
    /// How the device answers.
    pub answers: Answers,
    /// Bytes of the whole device, others' share included; none if unknown. A memory fraction is of these.
    pub device_total: Option<u64>,
    /// Which free range is taken of several that are equally good.
    pub tie_break: TieBreak,
    /// What becomes of each block, by its row; `None`: nothing changes.
    pub overrides: Option<&'a [BlockOverride]>,
    /// Releases that the program must have asked for: [`Replay::emptied`] of the unchanged replay.
    pub emptied: &'a [EventId],
    /// Bytes that the allocator could have when it was recorded, if that is known: releases before a request that went
    /// beyond them were the allocator's own.
    pub recorded_capacity: Option<u64>,
    /// Whether blocks alive at the start are asked for anew, instead of lying where the recording has them: for settings
    /// under which they would lie elsewhere.
    pub starts_anew: bool,
    /// The failed request that the replay is about and ends with; none: it goes on to the end of the recording.
    pub target: Option<Target>,
}

impl Plan<'_> {
    /// The recording as it is: with nothing changed, and the device answering as it did.
    pub fn unchanged(device: DeviceId, config: AllocConfig, tie_break: TieBreak) -> Self {
        Self {
            device,
            recorded: config.clone(),
            config,
            answers: Answers::AsRecorded,
            device_total: None,
            tie_break,
            overrides: None,
            emptied: &[],
            recorded_capacity: None,
            starts_anew: false,
            target: None,
        }
    }

    fn block_override(&self, block: u32) -> BlockOverride {
        self.overrides.and_then(|overrides| overrides.get(block as usize)).copied().unwrap_or_default()
    }
}

/// A request that could not be met: the program would have ended there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The recorded event of the request.
    pub event: EventId,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes held from the device then.
    pub reserved: u64,
    /// Bytes in blocks then, after rounding.
    pub allocated: u64,
    /// The allocator's own words.
    pub report: String,
}

/// What came of a replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The replayed recording: of the one device, with the steps, phases and marks of the recorded one.
    pub trace: Trace,
    /// The recorded event that each event of `trace` comes from; never falls.
    pub source: Vec<EventId>,
    /// Where the replay first differs from the recording; only with [`Answers::AsRecorded`].
    pub divergence: Option<Divergence>,
    /// The largest difference of reserved bytes between the two after any request; 0 with other answers.
    pub largest_difference: u64,
    /// Blocks that lie elsewhere than recorded; 0 with other answers.
    pub placed_elsewhere: u64,
    /// The request that failed, at which the replay ends.
    pub death: Option<Death>,
    /// Requests that failed in the recording, and are met here.
    pub rescued: Vec<EventId>,
    /// The first releases of runs that the program must have asked for, since without them the request that follows would
    /// have been served from the cache; only with [`Answers::AsRecorded`].
    pub emptied: Vec<EventId>,
    /// What the recording does not say, and how it was taken.
    pub assumptions: Vec<String>,
}

/// Makes the requests of `plan.device` again, in about the time that an allocator takes for them. The memory is that of
/// the replayed trace.
pub fn replay(trace: &Trace, plan: &Plan<'_>) -> Replay {
    walk::walk(trace, plan)
}
