//! Compares two points in one or two recordings. The differences of the groups add up to the difference of the totals.

mod function;
mod paths;
mod pairs;
mod key_aligner;
mod settings;
mod steps;
mod blocks;
mod comparison;
mod tree;

use std::cmp::Ordering;
use std::collections::HashMap;

use highwater_snapshots::Result;
use highwater_snapshots::ids::{DeviceId, StackId};
use highwater_snapshots::trace::Trace;

use super::between::bytes_of;
use super::growth::StepWindow;
use super::peak::{Found, Moment, Query};
use super::source::Source;
use crate::grouping::filter::Filter;
use crate::grouping::siblings::{Merged, Siblings, merge, module_at};
use crate::index::live::LiveIndex;
use crate::index::series::Series;
use crate::metric::Metric;

pub use blocks::{LoneBlock, UnmatchedBlocks};
pub use comparison::Comparison;
pub use settings::{Setting, settings};
use steps::phase_pairs;
pub use steps::{PhasePair, PhasePeak};
pub use tree::{DiffNode, DiffTree, StackText};

use key_aligner::KeyAligner;

/// A recording with the indexes for queries about one of its devices.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The recording, or a window of it.
    pub trace: &'a Trace,
    /// The totals of the device.
    pub series: &'a Series,
    /// The live blocks of the device.
    pub live: &'a LiveIndex,
}

highwater_snapshots::vocabulary!(
    /// The kind of match between the two sides of a group.
    #[derive(Default, serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    MatchKind {
        /// All key values are equal, or only one side has the group.
        #[default]
        Equal = "equal",
        /// The same functions are called, but from other lines or files.
        Moved = "lines moved",
        /// Functions were inserted, removed or renamed.
        Alike = "calls changed",
    }
);

highwater_snapshots::vocabulary!(
    /// The change of a group from A to B, ordered from less to more.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    Change {
        /// Only recording A has the group.
        OnlyInA = "only in A",
        /// B has fewer bytes.
        Shrunk = "shrunk",
        /// Both sides have the same bytes.
        Same = "same",
        /// B has more bytes.
        Grown = "grown",
        /// Only recording B has the group.
        OnlyInB = "only in B",
    }
);

impl Change {
    /// Returns the change of a group with these bytes and blocks in A and B.
    pub fn of(bytes: [u64; 2], blocks: [u64; 2]) -> Self {
        let [is_in_a, is_in_b] = [0, 1].map(|side| bytes[side] > 0 || blocks[side] > 0);
        match (is_in_a, is_in_b, bytes[1].cmp(&bytes[0])) {
            (true, false, _) => Self::OnlyInA,
            (false, true, _) => Self::OnlyInB,
            (_, _, Ordering::Less) => Self::Shrunk,
            (_, _, Ordering::Greater) => Self::Grown,
            (_, _, Ordering::Equal) => Self::Same,
        }
    }
}

/// Blocks, or bytes outside of blocks, of both sides that share the values of all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffGroup {
    /// The key values in B, or in A if B has none.
    pub key: Vec<String>,
    /// The key values in A if they differ, because lines moved or functions were renamed.
    pub former_key: Option<Vec<String>>,
    /// The call stacks in A and B (any one of them if the keys do not distinguish stacks); [`StackId::NONE`] for a side
    /// without blocks.
    pub stacks: [StackId; 2],
    /// Bytes in A and B.
    pub bytes: [u64; 2],
    /// Number of blocks in A and B.
    pub blocks: [u64; 2],
    /// The kind of match between the two sides.
    pub match_kind: MatchKind,
    /// The key values of each of the identical modules combined into this group; empty if none were combined.
    pub members: Vec<Vec<String>>,
}

impl DiffGroup {
    /// B's bytes minus A's.
    pub fn delta(&self) -> i128 {
        i128::from(self.bytes[1]) - i128::from(self.bytes[0])
    }

    /// The change from A to B.
    pub fn change(&self) -> Change {
        Change::of(self.bytes, self.blocks)
    }
}

/// The difference between two points. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    /// The point in A.
    pub a: Moment,
    /// The point in B.
    pub b: Moment,
    /// The bytes of A and B in blocks that pass the filter; all bytes without a filter.
    pub bytes: [u64; 2],
    /// The groups with the largest difference, in either direction.
    pub groups: Vec<DiffGroup>,
    /// Bytes of A and B in groups that are not listed.
    pub rest_bytes: [u64; 2],
    /// Number of groups that are not listed.
    pub rest_groups: u64,
}

impl Diff {
    /// Returns B's bytes minus A's in blocks that pass the filter, which is the sum of all differences.
    pub fn delta(&self) -> i128 {
        i128::from(self.bytes[1]) - i128::from(self.bytes[0])
    }

    /// Compares point `a` of one recording with point `b` of another, or the same one. Both must have the same metric.
    pub fn of(sides: [Asked<'_>; 2], [a, b]: [Moment; 2], query: &Query<'_>) -> Self {
        let [first, second] = sides;
        let (of_a, of_b) = rayon::join(|| found_at(first, &a, query.filter), || found_at(second, &b, query.filter));
        let mut combine = KeyAligner::of([first.trace, second.trace], [&of_a.blocks, &of_b.blocks], query.keys);
        let mut sums: HashMap<Vec<u64>, Sums> = HashMap::new();
        let mut code = Vec::with_capacity(query.keys.len());
        for (side, (asked, found)) in [(first, &of_a), (second, &of_b)].into_iter().enumerate() {
            for &id in &found.blocks {
                combine.code(side, id, &mut code);
                let block = (bytes_of(asked.trace, a.metric, id), asked.trace.blocks.stack[id.0 as usize]);
                match sums.get_mut(&code) {
                    Some(sum) => sum.add(side, block),
                    None => sums.entry(code.clone()).or_default().add(side, block),
                }
            }
        }
        for (side, found) in [&of_a, &of_b].into_iter().enumerate() {
            for &(beside, bytes) in &found.beside {
                combine.code_beside(side, beside, &mut code);
                sums.entry(code.clone()).or_default().bytes[side] += bytes;
            }
        }
        let group = |(code, sum): (Vec<u64>, Sums)| {
            let (key, former_key, match_kind) = combine.names(&code, sum.blocks);
            DiffGroup {
                key,
                former_key,
                stacks: sum.stacks.map(Option::unwrap_or_default),
                bytes: sum.bytes,
                blocks: sum.blocks,
                match_kind,
                members: Vec::new(),
            }
        };
        let mut groups: Vec<DiffGroup> = sums.into_iter().map(group).collect();
        let by_difference = |x: &DiffGroup, y: &DiffGroup| {
            let rank = |group: &DiffGroup| (group.delta().unsigned_abs(), group.bytes.into_iter().max());
            rank(y).cmp(&rank(x)).then_with(|| x.key.cmp(&y.key))
        };
        groups.sort_by(by_difference);
        if let Some(at) = module_at(query.keys).filter(|_| query.siblings == Siblings::Merged) {
            groups = merged(&groups, at);
            groups.sort_by(by_difference);
        }
        let mut diff = Self { a, b, bytes: bytes_of_all(&groups), groups, rest_bytes: [0, 0], rest_groups: 0 };
        diff.list(query.top);
        diff
    }

    /// Lists only the first `top` groups that changed, and adds the others to the rest.
    pub fn list_changed(&mut self, top: usize) {
        // Those that changed come first.
        let changed = self.groups.partition_point(|group| group.delta() != 0);
        self.list(top.min(changed));
    }

    /// Lists only the first `top` groups, and adds the others to the rest.
    pub fn list(&mut self, top: usize) {
        let rest = self.groups.split_off(top.min(self.groups.len()));
        self.rest_bytes.iter_mut().zip(bytes_of_all(&rest)).for_each(|(sum, bytes)| *sum += bytes);
        self.rest_groups += rest.len() as u64;
    }
}

fn bytes_of_all(groups: &[DiffGroup]) -> [u64; 2] {
    [0, 1].map(|side| groups.iter().map(|group| group.bytes[side]).sum())
}

/// Merges `groups` that differ only in a number in their module path; the path is the key with index `at`.
fn merged(groups: &[DiffGroup], at: usize) -> Vec<DiffGroup> {
    let rows = groups.iter().map(|group| {
        let mut others = group.key.clone();
        let path = others.swap_remove(at);
        (path, (others, group.former_key.clone(), group.bytes, group.blocks, group.match_kind))
    });
    let group = |Merged { path, rows }: Merged| {
        let count = rows.len() as u64;
        let mut group = groups[rows[0]].clone();
        if count > 1 {
            group.key[at] = path;
            group.members = rows.iter().map(|row| groups[*row].key.clone()).collect();
        }
        group.bytes.iter_mut().chain(&mut group.blocks).for_each(|sum| *sum *= count);
        group
    };
    merge(rows).into_iter().map(group).collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bytes: [u64; 2],
    blocks: [u64; 2],
    /// The stack of the first block on each side.
    stacks: [Option<StackId>; 2],
}

impl Sums {
    fn add(&mut self, side: usize, (bytes, stack): (u64, StackId)) {
        self.stacks[side].get_or_insert(stack);
        self.bytes[side] += bytes;
        self.blocks[side] += 1;
    }
}

fn found_at(asked: Asked<'_>, moment: &Moment, filter: &Filter) -> Found {
    Found::at(asked.trace, asked.live, asked.series, moment, filter)
}

/// A point in a recording, as named in options and menus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiffAt {
    /// The peak of the recording.
    #[default]
    Peak,
    /// The end of the recording.
    End,
    /// The peak within a step.
    Step(u32),
    /// The end of a step.
    StepEnd(u32),
}

impl DiffAt {
    /// Returns the ends of a device's last two complete steps; `None` if there are fewer than two. A comparison of the
    /// two ends shows the blocks that outlive a step.
    ///
    /// # Errors
    /// Fails if a window of the recording cannot be read.
    pub fn last_steps(source: &Source<'_>, device: DeviceId) -> Result<Option<[Self; 2]>> {
        Ok(StepWindow::last_two(source, device)?.map(|steps| steps.map(Self::StepEnd)))
    }

    /// Finds the point in a recording; `None` if the recording does not have the step.
    ///
    /// # Errors
    /// Fails if a window of the recording cannot be read.
    pub fn find(self, source: &Source<'_>, device: DeviceId, metric: Metric) -> Result<Option<Moment>> {
        let at = |event: Option<u64>| source.moment(device, metric, event).map(Some);
        match self {
            Self::Peak => source.peak(device, metric).map(Some),
            Self::End => at(source.events().next_back()),
            Self::Step(step) | Self::StepEnd(step) => {
                let Some(events) = source.step_range(step)? else { return Ok(None) };
                if matches!(self, Self::StepEnd(_)) {
                    return at(events.end.checked_sub(1));
                }
                // A step that only frees has its maximum before its first event.
                let start = source.moment(device, metric, events.start.checked_sub(1))?;
                let largest = source.largest(device, metric, events)?.filter(|(bytes, _)| *bytes >= start.bytes);
                largest.map_or(Ok(Some(start)), |(_, event)| at(Some(event)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
