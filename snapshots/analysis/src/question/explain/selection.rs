//! Selections of blocks that are the same in every window of a recording, and the peaks without these blocks.

use std::collections::HashSet;

use hashbrown::HashMap;

use super::cause::causes;
use crate::grouping::dimension::GroupKey;
use crate::grouping::filter::Filter;
use crate::grouping::key_encoder::{Code, Groups};
use crate::grouping::lifetime::Lifetime;
use crate::grouping::matches::Matches;
use crate::index::counterfactual::{Grouped, NO_GROUP};
use crate::question::peak::Moment;
use highwater_snapshots::Category;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;

/// Combined groups: the codes of each group, and the codes of the group that represents it.
pub(crate) type Joined = HashMap<Vec<Code>, Vec<Code>>;

/// A selection of a device's blocks without which the peak is computed, in groups, or as one group with an empty key.
#[derive(Clone, Debug)]
pub(crate) enum Selection<'a> {
    /// The blocks that pass the filter, grouped by keys, with some groups combined.
    Groups {
        keys: &'a [GroupKey],
        filter: &'a Filter,
        joined: &'a Joined,
    },
    /// All blocks, grouped by cause.
    Causes,
    Matching(&'a Filter),
    Category(Category),
    /// Gradients that outlive their phase.
    KeptGradients,
    /// Activations, grouped by line of code.
    ActivationLines,
    /// The blocks allocated by these events of the recording.
    Allocated(HashSet<u64>),
}

impl Selection<'_> {
    /// The group of each block of `trace`, and the key of each group.
    pub(crate) fn group(&self, trace: &Trace, device: DeviceId) -> (Grouped, Vec<Vec<Code>>) {
        let blocks = &trace.blocks;
        let one = |is_member: &dyn Fn(BlockId) -> bool| {
            let is_ours = |id: BlockId| blocks.device[id.0 as usize] == device && is_member(id);
            (Grouped::one(trace, is_ours), vec![Vec::new()])
        };
        match self {
            Self::Groups { keys, filter, joined } if filter.is_empty() => {
                join(Groups::of(trace, device, keys, |_| true), joined)
            }
            Self::Groups { keys, filter, joined } => {
                let matches = Matches::of(trace, filter);
                join(Groups::of(trace, device, keys, |id| matches.contains(id)), joined)
            }
            Self::Causes => {
                let group_of = causes(trace, device);
                let groups = group_of.iter().filter(|group| **group != NO_GROUP).max().map_or(0, |most| *most + 1);
                let codes = (0..groups).map(|group| vec![Code::from(group)]).collect();
                (Grouped { group_of, groups: groups as usize }, codes)
            }
            Self::Matching(filter) => {
                let matches = Matches::of(trace, filter);
                one(&|id| matches.contains(id))
            }
            Self::Category(category) => one(&|id| blocks.category[id.0 as usize] == *category),
            Self::KeptGradients => one(&|id| is_kept_gradient(trace, id)),
            Self::ActivationLines => {
                let is_activation = |id: BlockId| blocks.category[id.0 as usize] == Category::Activation;
                let Groups { grouped, codes } = Groups::of(trace, device, &[GroupKey::Frame], is_activation);
                (grouped, codes)
            }
            Self::Allocated(events) => one(&|id| trace.alloc_number(id).is_some_and(|event| events.contains(&event))),
        }
    }
}

fn join(groups: Groups, joined: &Joined) -> (Grouped, Vec<Vec<Code>>) {
    let Groups { mut grouped, codes } = groups;
    if joined.is_empty() {
        return (grouped, codes);
    }
    let mut kept: Vec<Vec<Code>> = Vec::new();
    let mut number_of: HashMap<Vec<Code>, u32> = HashMap::new();
    let number = |codes: Vec<Code>| {
        let codes = joined.get(&codes).cloned().unwrap_or(codes);
        *number_of.entry(codes.clone()).or_insert_with(|| {
            kept.push(codes);
            kept.len() as u32 - 1
        })
    };
    let numbers: Vec<u32> = codes.into_iter().map(number).collect();
    for group in grouped.group_of.iter_mut().filter(|group| **group != NO_GROUP) {
        *group = numbers[*group as usize];
    }
    grouped.groups = kept.len();
    (grouped, kept)
}

/// Returns whether a block is a gradient that outlives its phase.
pub(super) fn is_kept_gradient(trace: &Trace, id: BlockId) -> bool {
    trace.blocks.category[id.0 as usize] == Category::Gradient
        && matches!(Lifetime::of(trace, &trace.blocks.get(id)), Lifetime::Step | Lifetime::Steps | Lifetime::Kept)
}

#[derive(Clone, Debug)]
pub(crate) struct PeaksWithout {
    by_group: HashMap<Vec<Code>, Moment>,
    /// The peak with all blocks, which is also the peak without a group that has no blocks.
    whole_peak: Moment,
}

impl PeaksWithout {
    pub(crate) fn new(by_group: HashMap<Vec<Code>, Moment>, whole_peak: Moment) -> Self {
        Self { by_group, whole_peak }
    }

    pub(crate) fn without(&self, key: &[Code]) -> &Moment {
        self.by_group.get(key).unwrap_or(&self.whole_peak)
    }

    /// The peak without the only group.
    pub(crate) fn without_all(&self) -> &Moment {
        self.without(&[])
    }
}
