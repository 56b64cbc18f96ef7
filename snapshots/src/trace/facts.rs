//! The origin of a recording, its devices, and the limits of its accuracy.

use serde::{Deserialize, Serialize};

use crate::ids::DeviceId;
use crate::transition::Contradictions;
use crate::units::{count_of, format_count};

/// The origin of a recording: the recorder, the program, the machine and the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name and version of the program that made the recording, such as `highwater 0.1.0`.
    pub recorder: String,
    /// The command line of the recorded program, as far as it is known.
    pub program: String,
    /// The name of the machine on which the program ran.
    pub host: String,
    /// The id of the recorded process.
    pub pid: u32,
    /// The rank of this process in its process group; `None` if unknown.
    pub rank: Option<u32>,
    /// The world size, which is the number of processes that train together; `None` if unknown.
    pub world_size: Option<u32>,
    /// The origin of all times: Unix time in microseconds at which recording began.
    pub started_unix_us: u64,
    /// The clock from which times were read.
    pub clock: String,
    /// The level of detail, which is `state`, `events` or `stacks`.
    pub level: String,
    /// The maximum number of events kept; `None` if unbounded.
    pub ring_capacity: Option<u64>,
    /// Other facts from the recorder, as name and value.
    pub facts: Vec<(String, String)>,
}

/// The name of facts that are the recorder's notes about the recording, one sentence each.
pub const NOTE: &str = "note";

/// The name of the fact that describes a simulation as JSON, including values that could not be determined exactly.
pub const SIMULATION: &str = "simulation";

/// The name of the fact that lists the program's references to memory at the end, as JSON.
pub const HOLDERS: &str = "holders";

/// The name of the fact that counts missing events, whose device had no registered allocator.
pub const UNREGISTERED: &str = "unregistered_events";

/// The name of the fact that counts blocks that were omitted because they are small.
pub const LEFT_OUT: &str = "blocks_left_out";

/// The name of the fact that marks a recording as an excerpt of another one, and states its range of events and the
/// total number of events.
pub const EXCERPT: &str = "excerpt";

impl Header {
    /// Returns the range of events of another recording in this excerpt, such as `events 5 to 9 of 20`, if it is one.
    pub fn excerpt(&self) -> Option<&str> {
        self.facts.iter().rfind(|(name, _)| name == EXCERPT).map(|(_, events)| events.as_str())
    }

    /// Returns the number of events that are missing because no allocator was registered for their device. The recorded
    /// events are correct, but totals lack the memory of these events.
    pub fn unregistered_events(&self) -> u64 {
        let counts = self.facts.iter().filter(|(name, _)| name == UNREGISTERED);
        counts.filter_map(|(_, count)| count.parse::<u64>().ok()).fold(0, u64::saturating_add)
    }

    /// Returns the recorder's notes about the recording, one sentence each. Notes are not problems.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.facts.iter().filter(|(name, _)| name == NOTE).map(|(_, text)| text.as_str())
    }
}

/// The driver name of host memory: pinned memory, which devices access directly, and a program's heap. It has an
/// allocator but does not compute.
pub const PINNED_DRIVER: &str = "host";

/// The device ordinal of pinned memory in recordings of PyTorch and of the engine, which is above all GPU ordinals.
pub const PINNED_DEVICE: DeviceId = DeviceId(255);

/// The device ordinal of a program's heap in recordings, which is above all GPU ordinals and below [`PINNED_DEVICE`].
pub const HEAP_DEVICE: DeviceId = DeviceId(127);

/// The facts about a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The ordinal of the device in the recording.
    pub device: DeviceId,
    /// The name, as reported by the driver.
    pub name: String,
    /// The memory in bytes; 0 if unknown.
    pub capacity_bytes: u64,
    /// The driver behind the allocator, such as `cuda 13.0`, `cpu`, `accounting` or [`PINNED_DRIVER`].
    pub driver: String,
    /// The allocator's settings, as name and value.
    pub settings: Vec<(String, String)>,
}

/// The limits of a trace's accuracy. If all fields are zero and false, the recording is complete and exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Number of events lost because the ring buffer was full, the disk too slow, or the file damaged.
    pub events_lost: u64,
    /// Number of frees and tags of blocks whose allocation was not recorded.
    pub unmatched_frees: u64,
    /// Number of allocations of a block that was already live.
    pub repeated_allocs: u64,
    /// Number of uses of unknown blocks, or of blocks whose free was already requested. Not stored in files, but
    /// counted when a trace is built.
    #[serde(skip)]
    pub unmatched_uses: u64,
    /// Number of releases of segments that were not recorded as reserved.
    pub unmatched_releases: u64,
    /// Whether the starting state was reconstructed from the final state instead of recorded.
    pub baseline_inferred: bool,
    /// Number of blocks whose rounded size was computed by the allocator's rules.
    pub sizes_inferred: u64,
    /// Whether categories were guessed from stacks and lifetimes.
    pub categories_guessed: bool,
    /// Whether the recording ends before the program finished it.
    pub unfinished: bool,
}

impl Trust {
    /// Raises the counts to at least those in `counted`. A file may state larger counts, since a trace that was written
    /// again no longer contains all contradictory events.
    pub(crate) fn count_at_least(&mut self, counted: impl IntoIterator<Item = Contradictions>) {
        let mut sums = [0; 4];
        for one in counted {
            let counts = [one.unmatched_frees, one.repeated_allocs, one.unmatched_uses, one.unmatched_releases];
            sums.iter_mut().zip(counts).for_each(|(sum, count): (&mut u64, u32)| *sum += u64::from(count));
        }
        let stated = [
            &mut self.unmatched_frees,
            &mut self.repeated_allocs,
            &mut self.unmatched_uses,
            &mut self.unmatched_releases,
        ];
        stated.into_iter().zip(sums).for_each(|(stated, sum)| *stated = sum.max(*stated));
    }

    /// Whether nothing was lost, inferred or guessed.
    pub fn is_complete(&self) -> bool {
        *self == Self::default()
    }

    /// Returns each limit of the accuracy as a sentence: first those of [`Self::limits`], then those of
    /// [`Self::routine`].
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = self.limits();
        sentences.extend(self.routine());
        sentences
    }

    /// Whether no event was lost and every release is of a recorded segment, so that blocks must fit into the segments.
    pub fn has_all_segments(&self) -> bool {
        self.events_lost == 0 && self.unmatched_releases == 0
    }

    /// Describes the limits that make figures wrong or incomplete, one sentence each.
    pub fn limits(&self) -> Vec<String> {
        let are = if self.events_lost == 1 { "is" } else { "are" };
        let lost = format!(
            "{are} missing: totals include events dropped from a full ring, but not events lost to a slow disk or \
             damage"
        );
        let counted = [
            (self.events_lost, "event", &*lost),
            (self.unmatched_frees, "free", "of blocks whose allocation was not recorded: totals before are too low"),
            (self.repeated_allocs, "allocation", "of blocks that were live already: the frees in between are missing"),
            (self.unmatched_uses, "use", "of blocks that were not live: when a block was last used may be wrong"),
            (self.unmatched_releases, "release", "of segments that were not recorded: totals before are too low"),
        ];
        let counted = counted.into_iter().filter(|(count, ..)| *count > 0);
        let counted = counted.map(|(count, noun, what)| format!("{} {what}", count_of(count, noun)));
        let cut = self.unfinished.then(|| "the recording was cut off, or is still being written".to_owned());
        counted.chain(cut).collect()
    }

    /// Describes figures that are computed rather than recorded, as in every PyTorch snapshot, one sentence each.
    pub fn routine(&self) -> Vec<String> {
        let (sizes, blocks) = if self.sizes_inferred == 1 { ("size", "block is") } else { ("sizes", "blocks are") };
        let sizes = (self.sizes_inferred > 0).then(|| {
            format!(
                "the rounded {sizes} of {} {blocks} not recorded, but computed from the allocator's rounding rules",
                format_count(self.sizes_inferred)
            )
        });
        let baseline = "the blocks live at the start are reconstructed from the final state".to_owned();
        let categories = "categories are guessed from stacks and lifetimes".to_owned();
        [sizes, self.baseline_inferred.then_some(baseline), self.categories_guessed.then_some(categories)]
            .into_iter()
            .flatten()
            .collect()
    }
}
