//! Facts: where a recording comes from, which devices it saw, and how far it can be trusted.

use serde::{Deserialize, Serialize};

use crate::ids::DeviceId;

/// Where a recording comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The program that recorded, with its version: `highwater 0.1.0`.
    pub recorder: String,
    /// The recorded program.
    pub program: String,
    /// The machine's name.
    pub host: String,
    /// The recorded process.
    pub pid: u32,
    /// This process's place among those that train together.
    pub rank: Option<u32>,
    /// How many train together.
    pub world_size: Option<u32>,
    /// The origin of all times: Unix time in microseconds at which recording began.
    pub started_unix_us: u64,
    /// The clock that times were read from.
    pub clock: String,
    /// How much was recorded: `state`, `events` or `stacks`.
    pub level: String,
    /// Events kept at most; none if unbounded.
    pub ring_capacity: Option<u64>,
    /// Anything else that the recorder knew, as name and value.
    pub facts: Vec<(String, String)>,
}

/// The driver of host memory: what devices copy from by themselves, and a program's heap. Allocators as any, but no devices
/// that compute.
pub const PINNED_DRIVER: &str = "host";

/// The number of such memory in recordings of PyTorch and of the engine: above all GPUs that a machine has.
pub const PINNED_DEVICE: DeviceId = DeviceId(255);

/// The number of a program's own heap in recordings: above all GPUs, and below their host memory.
pub const HEAP_DEVICE: DeviceId = DeviceId(127);

/// What is known of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Its ordinal.
    pub device: DeviceId,
    /// Its name, as the driver gives it.
    pub name: String,
    /// Its memory in bytes; 0 if unknown.
    pub capacity_bytes: u64,
    /// The driver behind the allocator: `cpu`, `accounting`, `cuda 13.0`, [`PINNED_DRIVER`] …
    pub driver: String,
    /// The allocator's settings, as name and value.
    pub settings: Vec<(String, String)>,
}

/// What the numbers of a trace rest on. All zero and false is a complete, exact recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Events that a full ring or a slow disk lost.
    pub events_lost: u64,
    /// Frees (and tags) of blocks that the recording does not know.
    pub unmatched_frees: u64,
    /// Allocs of a block that was live already.
    pub repeated_allocs: u64,
    /// Uses of blocks that the recording does not know, or whose free was requested already. A file does not say it:
    /// whoever builds a trace counts it.
    #[serde(skip)]
    pub unmatched_uses: u64,
    /// Segments released that the recording does not know.
    pub unmatched_releases: u64,
    /// The starting state was worked out from the final one, not recorded.
    pub baseline_inferred: bool,
    /// Blocks whose rounded size was worked out by the allocator's rules.
    pub sizes_inferred: u64,
    /// Categories were guessed from stacks and lifetimes.
    pub categories_guessed: bool,
    /// The recording stops before its program said that it was finished.
    pub unfinished: bool,
}

impl Trust {
    /// Whether nothing was lost, inferred or guessed.
    pub fn is_complete(&self) -> bool {
        *self == Self::default()
    }

    /// Each fact that limits trust, in plain words.
    pub fn sentences(&self) -> Vec<String> {
        let counted = [
            (
                self.events_lost,
                "events are missing: the totals count what a full ring dropped, not what a slow disk or damage lost",
            ),
            (
                self.unmatched_frees,
                "frees name blocks that the recording does not know: totals before them are too low",
            ),
            (self.repeated_allocs, "allocations name a block that was live already: its free is missing"),
            (self.unmatched_uses, "uses name blocks that were not alive: when a block was last used may be wrong"),
            (
                self.unmatched_releases,
                "releases name segments that the recording does not know: reserved before them is too low",
            ),
            (self.sizes_inferred, "blocks have their rounded size worked out by the allocator's rules"),
        ];
        let stated = [
            (self.baseline_inferred, "the blocks alive at the start were worked out from the final state"),
            (self.categories_guessed, "categories were guessed from stacks and lifetimes"),
            (self.unfinished, "the recording was cut off: the program ended, or still runs"),
        ];
        let counted = counted.iter().filter(|(count, _)| *count > 0).map(|(count, text)| format!("{count} {text}"));
        counted.chain(stated.iter().filter(|(is_so, _)| *is_so).map(|(_, text)| (*text).to_owned())).collect()
    }
}
