//! Checkpoints: the live state after some number of events, from which a reader can start.

use serde::{Deserialize, Serialize};

use super::summary::{EndedBlock, Summarizer};
use crate::builder::StartingState;
use crate::live_state::{LiveBlock, LiveState};
use crate::metric::Totals;
use crate::stage::{Outside, Stage};

/// Maximum number of blocks, segments and mappings in one part.
const PART_ROWS: usize = 65_536;

/// The live state after some number of events, or one part of this state. The parts of a checkpoint are consecutive
/// sections of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Number of events before the checkpoint.
    pub events: u64,
    /// The largest time among the events of the latest [`Summary`](super::Summary), in nanoseconds since the
    /// recording's origin.
    pub time_ns: u64,
    /// The step and phase after these events.
    pub stage: Stage,
    /// The largest step number so far; `None` before the first step.
    pub largest_step: Option<u32>,
    /// Number of further parts of the same checkpoint.
    pub more: u32,
    /// The live state of a device, or a part of it.
    pub state: StartingState,
    /// The allocation of each block of the state; `None` for blocks from before the recording.
    pub births: Vec<Option<Outside>>,
    /// The totals of the device.
    pub totals: Totals,
    /// The blocks of the previous checkpoint that are no longer live.
    pub deaths: Vec<EndedBlock>,
}

impl Checkpoint {
    /// Returns the current states in `summarizer` as the parts of a checkpoint. `deaths` are the blocks of the previous
    /// checkpoint that are no longer live.
    pub fn of(summarizer: &Summarizer, deaths: &[EndedBlock]) -> Vec<Self> {
        let empty = || Self {
            events: summarizer.events(),
            time_ns: summarizer.row.times_ns.1,
            stage: summarizer.stage(),
            largest_step: summarizer.row.largest_step,
            ..Self::default()
        };
        let mut parts: Vec<Self> = Vec::new();
        for (device, live) in summarizer.states() {
            let empty = || Self {
                state: StartingState { device, ..StartingState::default() },
                totals: *live.totals(),
                ..empty()
            };
            let mut of_device = vec![empty()];
            of_device.extend(live.segments().chunks(PART_ROWS).map(|segments| {
                let mut part = empty();
                part.state.segments = segments.to_vec();
                part
            }));
            of_device.extend(live.mappings().chunks(PART_ROWS).map(|mappings| {
                let mut part = empty();
                part.state.mappings = mappings.to_vec();
                part
            }));
            of_device.extend(live.blocks().chunks(PART_ROWS).map(|blocks| {
                let mut part = empty();
                part.state.blocks = blocks.iter().map(|live| live.block).collect();
                part.births = blocks.iter().map(|live| live.birth).collect();
                part
            }));
            // Usually, this leaves one part per device.
            of_device.dedup_by(|next, last| last.join(next));
            parts.append(&mut of_device);
        }
        parts.extend(deaths.chunks(PART_ROWS).map(|deaths| Self { deaths: deaths.to_vec(), ..empty() }));
        if parts.is_empty() {
            parts.push(empty());
        }
        let count = parts.len() as u32;
        parts.iter_mut().zip(1..).for_each(|(part, number)| part.more = count - number);
        parts
    }

    /// Adds the rows of `next` if they fit. Returns whether they fit.
    fn join(&mut self, next: &mut Self) -> bool {
        let rows = |part: &Self| part.state.segments.len() + part.state.mappings.len() + part.state.blocks.len();
        let fits = rows(self) + rows(next) <= PART_ROWS;
        if fits {
            self.state.segments.append(&mut next.state.segments);
            self.state.mappings.append(&mut next.state.mappings);
            self.state.blocks.append(&mut next.state.blocks);
            self.births.append(&mut next.births);
        }
        fits
    }

    /// Adds the content of this part to `live`, the state of its device; fails if the part is inconsistent.
    pub(super) fn restore(&self, live: &mut LiveState) -> Result<(), String> {
        if self.births.len() != self.state.blocks.len() {
            return Err("its blocks and their allocations differ in number".to_owned());
        }
        let ranges = StartingState { blocks: Vec::new(), ..self.state.clone() };
        live.begin(&ranges);
        for (&block, &birth) in self.state.blocks.iter().zip(&self.births) {
            live.add(&LiveBlock { block, birth });
        }
        Ok(())
    }
}
