//! Measures growth of reserved memory: the segments obtained in a window of steps and still reserved at its end, against
//! those released in it, with the reasons why they are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use serde::Serialize;

use crate::addresses::extents::{Change, changes, extents_of};
use crate::addresses::{AddressIndex, AddressMap, Extent, Home};
use crate::between::{Balance, Sum};
use crate::breakdown::Group;
use crate::coder::{Code, SegmentValues};
use crate::frames::user_line;
use crate::group_key::GroupKey;
use crate::live::LiveIndex;
use crate::metric::Metric;
use crate::pools::BlockPool;
use crate::series::Series;
use crate::together::Together;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{DeviceId, SegmentId, StackId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::{format_bytes, format_count};

use super::leaks::Leak;
use super::window::StepWindow;
use super::{Found, Growth, GrowthQuery, Measured, STACKS, Sums};

/// Why reserved memory is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptBecause {
    /// It is free, and cached for a stream on which nothing is allocated any more: only that stream could use it.
    UnusedStream,
    /// It belongs to a private pool of a captured graph, or of the program.
    PrivatePool,
    /// It is free between blocks.
    Fragmentation,
    /// It is free in segments that are free as a whole, and were not released.
    NotReleased,
    /// Blocks are in use in it.
    InUse,
}

/// Segments that are kept for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The reason.
    pub because: KeptBecause,
    /// Their bytes that are kept for it, and the number of segments.
    pub sum: Sum,
    /// Their streams.
    pub streams: Vec<u64>,
    /// Their pools.
    pub pools: Vec<BlockPool>,
    /// What the streams or private pools would reserve together if they shared memory: as much as the largest of them.
    /// `None` unless there are several that are never in use at the same time.
    pub shared_bytes: Option<u64>,
}

/// Maximum number of streams or pools that are named.
const MOST_NAMES: usize = 8;

impl Kept {
    /// The reason as a sentence without its full stop.
    pub fn text(&self) -> String {
        let bytes = format_bytes(self.sum.bytes);
        let segments = counted(self.sum.blocks, "segment");
        let streams: Vec<String> = self.streams.iter().map(u64::to_string).collect();
        let pools: Vec<String> = self.pools.iter().map(BlockPool::to_string).collect();
        let mut text = match self.because {
            KeptBecause::UnusedStream => format!(
                "{bytes} are free in {segments} cached for {} on which nothing is allocated any more ({}): only these \
                 streams can use them",
                counted(streams.len() as u64, "stream"),
                listed(&streams)
            ),
            KeptBecause::PrivatePool => format!(
                "{bytes} are {segments} of {} ({})",
                counted(pools.len() as u64, "private pool"),
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
    let named = names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", format_count(count), if count == 1 { "" } else { "s" })
}

/// Where a segment comes from.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    stack: StackId,
    step: Option<u32>,
}

/// The segments of a device in a recording, or in a part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentHistory {
    changes: Vec<Change>,
    /// By the rows that the changes name.
    origins: Vec<Origin>,
    /// The streams, and the pools, that are in use at the same time.
    streams: Together,
    pools: Together,
}

impl SegmentHistory {
    /// The segments of `device` in a recording, or in a window of one.
    pub(crate) fn of(trace: &Trace, device: DeviceId) -> Self {
        let before = trace.start.events as usize;
        let changes = changes(trace, device);
        let homes: Vec<Home> = changes.iter().filter_map(|change| Some(change.obtained?.home)).collect();
        let mut history = Self::default();
        // Each costs all events.
        if homes.iter().any(|home| home.stream != homes[0].stream) {
            history.streams = Together::of_streams(trace, device);
        }
        if homes.iter().any(|home| home.private.is_some()) {
            history.pools = Together::of_pools(trace, device);
        }
        for mut change in changes {
            // What is reserved at the start of a later window was obtained in an earlier one.
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

    /// Adds the part that follows.
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

    /// Measures the growth over `window`; `end` is the state after it.
    pub(crate) fn growth(
        &self,
        window: &StepWindow,
        measured: Measured,
        end: &WindowEnd<'_>,
        query: &GrowthQuery<'_>,
    ) -> Growth {
        let [start, last] = [window.events().start, window.events().end].map(|event| event as usize);
        let extents = extents_of(self.changes.clone());
        let is_obtained = |extent: &&Extent| extent.moments.start > start && extent.moments.start <= last;
        let survivors: Vec<&Extent> =
            extents.iter().filter(is_obtained).filter(|extent| extent.is_held(last)).collect();
        let is_released = |extent: &&Extent| extent.is_held(start) && !extent.is_held(last);
        let released: Vec<&Extent> = extents.iter().filter(is_released).collect();
        let balance = Balance {
            kept: sum(extents.iter().filter(|extent| extent.is_held(start) && extent.is_held(last))),
            born: sum(survivors.iter().copied()),
            freed: sum(released.iter().copied()),
            short_lived: sum(extents.iter().filter(is_obtained).filter(|extent| !extent.is_held(last))),
        };
        let mut sums = Sums::new([end.trace, end.trace], query.keys, window.clone());
        let mut by_stack: HashMap<Vec<Code>, (Sum, StackId)> = HashMap::new();
        for extent in &survivors {
            let values = self.values(extent);
            let code = sums.code_of_segment(&values);
            sums.add_survivor(code, values.step, bytes(extent));
            let stack = sums.coder.code_of_segment(&values, GroupKey::Stack);
            by_stack.entry(vec![stack]).or_insert((Sum::default(), values.stack)).0.add(bytes(extent));
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
        let found = Found {
            sums,
            measured,
            end_bytes: ends(&extents, window),
            balance,
            leaks: self.lines(&survivors, window, end.trace),
            causes: self.causes(&survivors, end),
            stacks: stacks.into_iter().map(stack).take(STACKS).collect(),
        };
        Growth::of_found(found, query.top)
    }

    fn values(&self, extent: &Extent) -> SegmentValues {
        let Origin { stack, step } = self.origin(extent);
        let pool = BlockPool::of_home(&extent.home);
        SegmentValues { pool, stream: extent.home.stream, bytes: bytes(extent), stack, step }
    }

    fn origin(&self, extent: &Extent) -> Origin {
        self.origins.get(extent.row.0 as usize).copied().unwrap_or_default()
    }

    /// Divides the bytes of `survivors` by the reasons why they are kept.
    fn causes(&self, survivors: &[&Extent], end: &WindowEnd<'_>) -> Vec<Kept> {
        let mut sums: BTreeMap<KeptBecause, (Sum, BTreeSet<u64>, BTreeSet<BlockPool>)> = BTreeMap::new();
        let mut add = |because: KeptBecause, extent: &Extent, bytes: u64| {
            if bytes > 0 {
                let (sum, streams, pools) = sums.entry(because).or_default();
                sum.add(bytes);
                streams.insert(extent.home.stream.0);
                pools.insert(BlockPool::of_home(&extent.home));
            }
        };
        for extent in survivors {
            let (all, used) = (bytes(extent), end.used(extent));
            match () {
                () if extent.home.private.is_some() => add(KeptBecause::PrivatePool, extent, all),
                () if used > 0 => {
                    add(KeptBecause::InUse, extent, used);
                    add(KeptBecause::Fragmentation, extent, all - used);
                }
                () if end.streams.contains(&extent.home.stream.0) => add(KeptBecause::NotReleased, extent, all),
                () => add(KeptBecause::UnusedStream, extent, all),
            }
        }
        let kept = |(because, (sum, streams, pools)): (KeptBecause, (Sum, BTreeSet<u64>, BTreeSet<BlockPool>))| {
            let streams: Vec<u64> = streams.into_iter().collect();
            let pools: Vec<BlockPool> = pools.into_iter().collect();
            let codes: Vec<u64> = pools.iter().map(|pool| pool.code()).collect();
            let shared = |together: &Together, numbers: &[u64], number_of: &dyn Fn(&Extent) -> u64| {
                let sets = together.apart(numbers.iter().copied());
                let are_all = sets.len() == 1 && sets[0].numbers.len() == numbers.len();
                let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
                survivors.iter().for_each(|extent| *sums.entry(number_of(extent)).or_default() += bytes(extent));
                are_all.then(|| numbers.iter().filter_map(|number| sums.get(number)).copied().max()).flatten()
            };
            let shared_bytes = match because {
                KeptBecause::UnusedStream => shared(&self.streams, &streams, &|extent| extent.home.stream.0),
                KeptBecause::PrivatePool => {
                    shared(&self.pools, &codes, &|extent| BlockPool::of_home(&extent.home).code())
                }
                _ => None,
            };
            Kept { because, sum, streams, pools, shared_bytes }
        };
        let mut causes: Vec<Kept> = sums.into_iter().map(kept).collect();
        causes.sort_by_key(|kept| std::cmp::Reverse(kept.sum.bytes));
        causes
    }

    /// The lines that obtain segments in every step that are kept.
    fn lines(&self, survivors: &[&Extent], window: &StepWindow, trace: &Trace) -> Vec<Leak> {
        let numbers: HashSet<u32> = window.steps.iter().map(|(step, _)| *step).collect();
        let mut lines: BTreeMap<String, (Sum, HashSet<u32>, StackId)> = BTreeMap::new();
        for extent in survivors {
            let Origin { stack, step } = self.origin(extent);
            let line = user_line(&trace.tables, stack)
                .map_or_else(|| "(no stack recorded)".to_owned(), |line| trace.tables.line_text(&line));
            let (sum, steps, _) = lines.entry(line).or_insert((Sum::default(), HashSet::new(), stack));
            sum.add(bytes(extent));
            steps.extend(step.filter(|step| numbers.contains(step)));
        }
        let is_of_all = |steps: &HashSet<u32>| numbers.len() > 1 && steps.len() == numbers.len();
        let leak = |(line, (kept, _, stack)): (String, (Sum, HashSet<u32>, StackId))| {
            let bytes_per_step = kept.bytes.div_ceil(numbers.len().max(1) as u64);
            Leak { line, stack, kept, bytes_per_step }
        };
        let mut leaks: Vec<Leak> = lines.into_iter().filter(|(_, (_, steps, _))| is_of_all(steps)).map(leak).collect();
        leaks.sort_by_key(|leak| std::cmp::Reverse(leak.kept.bytes));
        leaks
    }
}

/// The reserved bytes after each step of the window.
fn ends(extents: &[Extent], window: &StepWindow) -> Vec<u64> {
    let mut bounds: Vec<(usize, bool, u64)> = Vec::with_capacity(2 * extents.len());
    for extent in extents {
        // What begins and ends at one moment is added before it is taken away.
        bounds.push((extent.moments.start, false, bytes(extent)));
        bounds.push((extent.moments.end, true, bytes(extent)));
    }
    bounds.sort_unstable();
    let mut next = bounds.into_iter().peekable();
    let (mut held, mut until) = (0, 0);
    let step_end = |(_, events): &(u32, Range<u64>)| {
        until = until.max(events.end as usize);
        while let Some((_, is_end, bytes)) = next.next_if(|(moment, ..)| *moment <= until) {
            held = if is_end { held - bytes } else { held + bytes };
        }
        held
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

/// The state at the end of a window of steps.
pub(crate) struct WindowEnd<'a> {
    /// A trace that has the state, and the tables of the recording.
    trace: &'a Trace,
    map: AddressMap,
    /// The streams with blocks in use, or on which the last step allocates.
    streams: BTreeSet<u64>,
}

impl<'a> WindowEnd<'a> {
    /// The state of a trace once `position` events have happened; the last step allocates on `streams`.
    pub(crate) fn at(
        trace: &'a Trace,
        (series, live): (&Series, &LiveIndex),
        position: usize,
        mut streams: BTreeSet<u64>,
    ) -> Self {
        let index = AddressIndex::build(trace, series.device());
        let in_use = live.before_position(trace, Metric::Active, position);
        streams.extend(in_use.into_iter().map(|id| trace.blocks.stream[id.0 as usize].0));
        Self { trace, map: AddressMap::at(trace, &index, live, series, position), streams }
    }

    /// The bytes of blocks within `extent`.
    fn used(&self, extent: &Extent) -> u64 {
        let Range { start, end } = extent.addresses;
        let pieces = &self.map.pieces;
        let first = pieces.partition_point(|piece| piece.addresses.end <= start);
        let within = pieces[first..].iter().take_while(|piece| piece.addresses.start < end);
        let of_blocks = within.filter(|piece| piece.content.block().is_some());
        of_blocks.map(|piece| piece.addresses.end.min(end) - piece.addresses.start.max(start)).sum()
    }
}

/// The streams on which `device` allocates in `events`.
pub(crate) fn streams_in(trace: &Trace, device: DeviceId, events: Range<usize>) -> BTreeSet<u64> {
    let columns = &trace.events;
    let is_alloc = |index: &usize| columns.kind[*index] == EventKind::Alloc && columns.device[*index] == device;
    events.filter(is_alloc).map(|index| trace.blocks.stream[columns.subject[index] as usize].0).collect()
}
