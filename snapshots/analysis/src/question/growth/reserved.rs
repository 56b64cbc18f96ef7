//! Measures the growth of reserved memory: segments reserved in a window of steps and not released at its end, minus
//! those released in it; and classifies all reserved memory by the reason it stays reserved.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use crate::grouping::breakdown::Group;
use crate::grouping::dimension::GroupKey;
use crate::grouping::key_encoder::Code;
use crate::index::addresses::extents::{Change, changes, extents_of};
use crate::index::addresses::{AddressIndex, AddressMap, Extent, PoolAndStream};
use crate::index::beside::{SegmentKind, SegmentValues};
use crate::index::live::LiveIndex;
use crate::index::pools::BlockPool;
use crate::index::series::Series;
use crate::index::together::Together;
use crate::metric::Metric;
use crate::question::between::{Balance, Sum};
use crate::question::peak::Moment;
use crate::stacks::frames::user_line;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{DeviceId, SegmentId, StackId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::{count_of, format_bytes, format_count};

use super::leaks::Leak;
use super::window::StepWindow;
use super::{Growth, GrowthQuery, Measured, STACKS, Sums};

/// The reason that memory stays reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptBecause {
    /// Free memory cached for a stream that allocates nothing any more. No other stream can reuse it.
    UnusedStream,
    /// The memory belongs to a private pool of a CUDA graph or `torch.cuda.MemPool`.
    PrivatePool,
    /// The memory is free space between blocks.
    Fragmentation,
    /// The memory is in segments that are completely free but were not released.
    NotReleased,
    /// The memory is used by blocks.
    InUse,
}

impl KeptBecause {
    const ALL: [Self; 5] = [Self::UnusedStream, Self::PrivatePool, Self::Fragmentation, Self::NotReleased, Self::InUse];

    /// The predicate of a sentence about bytes that stay reserved for this reason.
    const fn predicate(self) -> &'static str {
        match self {
            Self::UnusedStream => "are cached for streams on which nothing is allocated any more",
            Self::PrivatePool => "are segments of private pools",
            Self::Fragmentation => "are free between blocks",
            Self::NotReleased => "are free in segments that no block uses and that were not released",
            Self::InUse => "are in use by blocks",
        }
    }
}

/// The change of the memory that stays reserved for one reason. Counts only segments that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The reason the memory stays reserved.
    pub because: KeptBecause,
    /// The bytes and segments reserved for this reason at the end.
    pub sum: Sum,
    /// The bytes and segments reserved for this reason at the start.
    pub before: Sum,
    /// The streams of the memory at the end of the window.
    pub streams: Vec<u64>,
    /// The pools of the memory at the end of the window.
    pub pools: Vec<BlockPool>,
    /// The bytes that the streams or private pools would need if they shared memory, which is the size of the largest.
    /// `None` unless there are at least two, of which no two are in use at the same time.
    pub shared_bytes: Option<u64>,
}

/// Maximum number of streams or pools that are listed.
const MAX_NAMES: usize = 8;

impl Kept {
    /// The change in bytes. The sum over all reasons is the growth.
    pub fn net(&self) -> i128 {
        i128::from(self.sum.bytes) - i128::from(self.before.bytes)
    }

    /// The change as a sentence without a full stop.
    pub fn text(&self) -> String {
        let net = format_bytes(u64::try_from(self.net().unsigned_abs()).unwrap_or(u64::MAX));
        if self.net() < 0 {
            return format!("{net} less {}", self.because.predicate());
        }
        let bytes = format_bytes(self.sum.bytes);
        let segments = count_of(self.sum.blocks, "segment");
        let streams: Vec<String> = self.streams.iter().map(u64::to_string).collect();
        let pools: Vec<String> = self.pools.iter().map(BlockPool::to_string).collect();
        let mut text = match self.because {
            _ if self.before.blocks > 0 => format!(
                "{net} more {}: {bytes} in {segments}, against {} in {} before",
                self.because.predicate(),
                format_bytes(self.before.bytes),
                format_count(self.before.blocks)
            ),
            KeptBecause::UnusedStream => format!(
                "{bytes} are free in {segments} cached for {} on which nothing is allocated any more ({}): no other \
                 stream can use them",
                count_of(streams.len() as u64, "stream"),
                listed(&streams)
            ),
            KeptBecause::PrivatePool => format!(
                "{bytes} are {segments} of {} ({})",
                count_of(pools.len() as u64, "private pool"),
                listed(&pools)
            ),
            KeptBecause::Fragmentation => format!("{bytes} are free between blocks in {segments}: fragmentation"),
            KeptBecause::NotReleased => {
                format!("{bytes} are free in {segments}: no block uses them, and they were not released")
            }
            KeptBecause::InUse => format!("{bytes} are in use by blocks in {segments}"),
        };
        if let Some(shared) = self.shared_bytes {
            let what = if self.because == KeptBecause::UnusedStream { "stream" } else { "pool" };
            text += &format!(
                "; they are never in use at the same time, and one {what} would need {}",
                format_bytes(shared)
            );
            text += " in all";
        }
        text
    }
}

fn listed(names: &[String]) -> String {
    let named = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The call stack that reserved a segment, and its step.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    stack: StackId,
    step: Option<u32>,
}

/// The segments of a device in a recording, or in a part of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentHistory {
    changes: Vec<Change>,
    /// The origins of segments; changes refer to their indices.
    origins: Vec<Origin>,
    /// The streams and the pools that are in use at the same time.
    streams: Together,
    pools: Together,
}

impl SegmentHistory {
    pub(crate) fn of(trace: &Trace, device: DeviceId) -> Self {
        let before = trace.start.events as usize;
        let changes = changes(trace, device);
        let homes: Vec<PoolAndStream> = changes.iter().filter_map(|change| Some(change.obtained?.home)).collect();
        let mut history = Self::default();
        // Each costs all events.
        if homes.iter().any(|home| home.stream != homes[0].stream) {
            history.streams = Together::of_streams(trace, device);
        }
        if homes.iter().any(|home| home.private.is_some()) {
            history.pools = Together::of_pools(trace, device);
        }
        for mut change in changes {
            // Segments at the start of a later window were reserved in an earlier one.
            if change.moment == 0 && before > 0 {
                continue;
            }
            change.moment += if change.moment == 0 { 0 } else { before };
            if let Some(obtained) = &mut change.obtained {
                let event = trace.segments.alloc[obtained.row.0 as usize];
                let origin = match event.index() {
                    Some(row) => {
                        let step = trace.stage_at(event).and_then(|stage| stage.step);
                        Origin { stack: trace.events.stack[row], step }
                    }
                    None => Origin::default(),
                };
                obtained.row = SegmentId::from_index(history.origins.len());
                history.origins.push(origin);
            }
            history.changes.push(change);
        }
        history
    }

    pub(crate) fn append(&mut self, part: Self) {
        let rows = self.origins.len();
        self.origins.extend(part.origins);
        self.changes.extend(part.changes.into_iter().map(|mut change| {
            if let Some(obtained) = &mut change.obtained {
                obtained.row = SegmentId::from_index(rows + obtained.row.0 as usize);
            }
            change
        }));
        self.streams.append(part.streams);
        self.pools.append(part.pools);
    }

    /// Measures the growth over `window`, between the states before and after it. At its end, streams count as unused
    /// unless they are among `recent` or have blocks in use.
    pub(crate) fn growth(
        &self,
        window: &StepWindow,
        [start_moment, end_moment, last_peak]: [Moment; 3],
        (states, recent): ([&Layout<'_>; 2], BTreeSet<u64>),
        query: &GrowthQuery<'_>,
    ) -> Growth {
        let end = states[1];
        let moments = [window.events().start, window.events().end].map(|event| event as usize);
        let [start, last] = moments;
        let extents = extents_of(self.changes.clone());
        let is_obtained = |extent: &&Extent| extent.moments.start > start && extent.moments.start <= last;
        let survivors: Vec<&Extent> =
            extents.iter().filter(is_obtained).filter(|extent| extent.is_reserved(last)).collect();
        let is_released = |extent: &&Extent| extent.is_reserved(start) && !extent.is_reserved(last);
        let released: Vec<&Extent> = extents.iter().filter(is_released).collect();
        let balance = Balance {
            kept: sum(extents.iter().filter(|extent| extent.is_reserved(start) && extent.is_reserved(last))),
            born: sum(survivors.iter().copied()),
            freed: sum(released.iter().copied()),
            short_lived: sum(extents.iter().filter(is_obtained).filter(|extent| !extent.is_reserved(last))),
        };
        let mut sums = Sums::new([end.trace, end.trace], query.keys, window.clone());
        let mut by_stack: HashMap<Vec<Code>, (Sum, StackId)> = HashMap::new();
        for extent in &survivors {
            let values = self.values(extent);
            let code = sums.code_of_segment(&values);
            sums.add_survivor(code, self.step_of(extent, window), bytes(extent));
            let stack = sums.coder.code_of_segment(&values, GroupKey::Stack);
            by_stack
                .entry(vec![stack])
                .or_insert((Sum::default(), values.stack.unwrap_or(StackId::NONE)))
                .0
                .add(bytes(extent));
        }
        for extent in &released {
            let code = sums.code_of_segment(&self.values(extent));
            sums.add_freed(code, bytes(extent));
        }
        let mut stacks: Vec<(Vec<Code>, (Sum, StackId))> = by_stack.into_iter().collect();
        stacks.sort_by(|a, b| b.1.0.bytes.cmp(&a.1.0.bytes).then_with(|| a.0.cmp(&b.0)));
        let stack = |(_, (Sum { bytes, blocks }, stack))| Group {
            key: Vec::new(),
            bytes,
            blocks,
            free_bytes: 0,
            stack,
            members: Vec::new(),
        };
        let (start, end_bytes) = (start_moment, ends(&extents, window));
        let measured = Measured { start, end: end_moment, last_peak, balance, end_bytes };
        let stacks = stacks.into_iter().map(stack).take(STACKS).collect();
        let growth = sums.growth(measured, query.top).with(self.lines(&survivors, window, end.trace), stacks);
        Growth { causes: self.causes(&extents, moments, states, &(&recent | &end.streams)), ..growth }
    }

    fn values(&self, extent: &Extent) -> SegmentValues {
        let Origin { stack, step } = self.origin(extent);
        let pool = BlockPool::of_home(&extent.home);
        SegmentValues {
            kind: SegmentKind { pool, stream: extent.home.stream, bytes: bytes(extent) },
            stack: Some(stack),
            step,
        }
    }

    fn step_of(&self, extent: &Extent, window: &StepWindow) -> Option<u32> {
        window.step_at(self.origin(extent).step, extent.moments.start.checked_sub(1).map(|event| event as u64))
    }

    fn origin(&self, extent: &Extent) -> Origin {
        self.origins.get(extent.row.0 as usize).copied().unwrap_or_default()
    }

    /// Classifies the reserved memory at two points by the reason it stays reserved, and returns the changes. Segments
    /// that are released and reserved again do not count as growth.
    fn causes(
        &self,
        extents: &[Extent],
        moments: [usize; 2],
        states: [&Layout<'_>; 2],
        streams: &BTreeSet<u64>,
    ) -> Vec<Kept> {
        let mut kept = KeptBecause::ALL.map(|because| (because, [Sum::default(); 2], Vec::new()));
        for extent in extents.iter().filter(|extent| moments.iter().any(|moment| extent.is_reserved(*moment))) {
            let [before, after] = [0, 1].map(|at| match extent.is_reserved(moments[at]) {
                true => divided(extent, states[at].used(extent), streams),
                false => [0; KeptBecause::ALL.len()],
            });
            for ((_, sums, changed), (before, after)) in kept.iter_mut().zip(before.into_iter().zip(after)) {
                if before != after {
                    [before, after]
                        .into_iter()
                        .zip(sums)
                        .filter(|(bytes, _)| *bytes > 0)
                        .for_each(|(bytes, sum)| sum.add(bytes));
                    changed.extend((after > 0).then_some(extent));
                }
            }
        }
        let change = |(because, [before, sum], changed): (KeptBecause, [Sum; 2], Vec<&Extent>)| {
            let streams: BTreeSet<u64> = changed.iter().map(|extent| extent.home.stream.0).collect();
            let pools: BTreeSet<BlockPool> = changed.iter().map(|extent| BlockPool::of_home(&extent.home)).collect();
            let shared = |together: &Together, numbers: Vec<u64>, number_of: &dyn Fn(&Extent) -> u64| {
                let sets = together.apart(numbers.iter().copied());
                let are_all = sets.len() == 1 && sets[0].numbers.len() == numbers.len();
                let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
                changed.iter().for_each(|extent| *sums.entry(number_of(extent)).or_default() += bytes(extent));
                are_all.then(|| sums.into_values().max()).flatten()
            };
            let shared_bytes = match because {
                KeptBecause::UnusedStream => {
                    shared(&self.streams, streams.iter().copied().collect(), &|extent| extent.home.stream.0)
                }
                KeptBecause::PrivatePool => {
                    let codes = pools.iter().map(|pool| pool.code()).collect();
                    shared(&self.pools, codes, &|extent| BlockPool::of_home(&extent.home).code())
                }
                _ => None,
            };
            let (streams, pools) = (streams.into_iter().collect(), pools.into_iter().collect());
            Kept { because, sum, before, streams, pools, shared_bytes }
        };
        let mut causes: Vec<Kept> = kept.into_iter().map(change).filter(|kept| kept.net() != 0).collect();
        if causes.iter().map(Kept::net).sum::<i128>() == 0 {
            // Nothing grows: memory is merely kept for other reasons.
            return Vec::new();
        }
        causes.sort_by_key(|kept| std::cmp::Reverse(kept.net()));
        causes
    }

    /// Returns the source lines that reserved surviving segments in every step.
    fn lines(&self, survivors: &[&Extent], window: &StepWindow, trace: &Trace) -> Vec<Leak> {
        let numbers: HashSet<u32> = window.steps.iter().map(|(step, _)| *step).collect();
        let mut lines: BTreeMap<String, (Sum, HashSet<u32>, StackId)> = BTreeMap::new();
        for extent in survivors {
            let Origin { stack, .. } = self.origin(extent);
            let line = user_line(&trace.tables, stack)
                .map_or_else(|| "(no stack recorded)".to_owned(), |line| trace.tables.line_text(&line));
            let (sum, steps, _) = lines.entry(line).or_insert((Sum::default(), HashSet::new(), stack));
            sum.add(bytes(extent));
            steps.extend(self.step_of(extent, window).filter(|step| numbers.contains(step)));
        }
        let leak = |(line, (kept, steps, stack)): (String, (Sum, HashSet<u32>, StackId))| {
            let bytes_per_step = kept.bytes.div_ceil(steps.len().max(1) as u64);
            Leak { line, stack, kept, steps: steps.len(), bytes_per_step }
        };
        let is_of_every = |(_, (_, steps, _)): &(String, (Sum, HashSet<u32>, StackId))| window.is_every(steps);
        let mut leaks: Vec<Leak> = lines.into_iter().filter(is_of_every).map(leak).collect();
        leaks.sort_by_key(|leak| std::cmp::Reverse(leak.kept.bytes));
        leaks
    }
}

/// The reserved bytes after each step of the window.
fn ends(extents: &[Extent], window: &StepWindow) -> Vec<u64> {
    let mut bounds: Vec<(usize, bool, u64)> = Vec::with_capacity(2 * extents.len());
    for extent in extents {
        // An extent that begins and ends at the same moment is added before it is subtracted.
        bounds.push((extent.moments.start, false, bytes(extent)));
        bounds.push((extent.moments.end, true, bytes(extent)));
    }
    bounds.sort_unstable();
    let mut next = bounds.into_iter().peekable();
    let (mut live, mut until) = (0, 0);
    let step_end = |(_, events): &(u32, Range<u64>)| {
        until = until.max(events.end as usize);
        while let Some((_, is_end, bytes)) = next.next_if(|(moment, ..)| *moment <= until) {
            live = if is_end { live - bytes } else { live + bytes };
        }
        live
    };
    window.steps.iter().map(step_end).collect()
}

fn bytes(extent: &Extent) -> u64 {
    extent.addresses.end - extent.addresses.start
}

fn sum<'a>(extents: impl Iterator<Item = &'a Extent>) -> Sum {
    let mut sum = Sum::default();
    extents.for_each(|extent| sum.add(bytes(extent)));
    sum
}

/// Divides the bytes of an extent by the reason that they stay reserved. Blocks use `used` of these bytes; `streams`
/// are the streams in use.
fn divided(extent: &Extent, used: u64, streams: &BTreeSet<u64>) -> [u64; KeptBecause::ALL.len()] {
    let all = bytes(extent);
    let is_private = extent.home.private.is_some();
    KeptBecause::ALL.map(|because| match because {
        KeptBecause::PrivatePool if is_private => all,
        _ if is_private => 0,
        KeptBecause::InUse => used,
        KeptBecause::Fragmentation if used > 0 => all - used,
        KeptBecause::NotReleased if used == 0 && streams.contains(&extent.home.stream.0) => all,
        KeptBecause::UnusedStream if used == 0 && !streams.contains(&extent.home.stream.0) => all,
        _ => 0,
    })
}

/// The blocks in the segments of a device at some point.
pub(crate) struct Layout<'a> {
    /// A trace that contains the state, with the tables of the recording.
    trace: &'a Trace,
    map: AddressMap,
    /// The streams with blocks in use.
    streams: BTreeSet<u64>,
}

impl<'a> Layout<'a> {
    /// The state of a trace after `position` events.
    pub(crate) fn at(trace: &'a Trace, (series, live): (&Series, &LiveIndex), position: usize) -> Self {
        let index = AddressIndex::build(trace, series.device());
        let in_use = live.before_position(trace, Metric::Active, position);
        let streams = in_use.into_iter().map(|id| trace.blocks.stream[id.0 as usize].0).collect();
        Self { trace, map: AddressMap::at(trace, &index, live, series, position), streams }
    }

    /// The bytes used by blocks within `extent`.
    fn used(&self, extent: &Extent) -> u64 {
        let Range { start, end } = extent.addresses;
        let pieces = &self.map.pieces;
        let first = pieces.partition_point(|piece| piece.addresses.end <= start);
        let within = pieces[first..].iter().take_while(|piece| piece.addresses.start < end);
        let of_blocks = within.filter(|piece| piece.content.block().is_some());
        of_blocks.map(|piece| piece.addresses.end.min(end) - piece.addresses.start.max(start)).sum()
    }
}

/// The streams for which `device` allocates in `events`.
pub(crate) fn streams_in(trace: &Trace, device: DeviceId, events: Range<usize>) -> BTreeSet<u64> {
    let columns = &trace.events;
    let is_alloc = |index: &usize| columns.kind[*index] == EventKind::Alloc && columns.device[*index] == device;
    events.filter(is_alloc).map(|index| trace.blocks.stream[columns.subject[index] as usize].0).collect()
}
