//! Analyzes one device's trace and segments before its events are written.

use super::super::raw::{Action, BlockState, Extras, RawBlock, RawEvent, RawSegment};
use super::block_matching::{MatchedBlocks, Skipped, SnapshotBlock};
use super::layout_replay::{Layout, Request};
use super::start::Start;
use highwater_snapshots::Pool;
use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::error::Problem;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::PINNED_DEVICE;
use highwater_snapshots::units::{count_of, format_bytes, format_count};
use highwater_snapshots::yielding::tick;

pub(super) const HOST: DeviceId = PINNED_DEVICE;

#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) blocks: &'a [RawBlock],
    pub(super) extras: &'a [Extras],
    pub(super) rules: &'a AllocRules,
    /// Whether the file has segments of any device. If it has, a device without segments has none.
    pub(super) has_segments: bool,
}

impl Source<'_> {
    pub(super) fn extras(&self, event: &RawEvent) -> Extras {
        self.extras.get(event.extras as usize).copied().unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) trace: Vec<RawEvent>,
    pub(super) lives: MatchedBlocks,
    pub(super) start: Start,
    /// Rounded sizes by block index; `None` if sizes are used as recorded.
    sizes: Option<Vec<u64>>,
    /// Number of blocks whose rounded size is not in the file.
    pub(super) sizes_inferred: u64,
    pub(super) problems: Vec<Problem>,
    /// A note about rounded sizes that do not follow the allocator's rules; `None` if all do.
    pub(super) note: Option<String>,
}

impl Device {
    /// Analyzes a trace and the segments at its end, except for the rounded sizes.
    pub(super) fn study(id: DeviceId, trace: Vec<RawEvent>, segments: &[&RawSegment], source: &Source<'_>) -> Self {
        let finals = finals(segments, source.blocks);
        let pool_id = |event: &RawEvent| source.extras(event).pool_id;
        let lives = MatchedBlocks::of(&trace, &finals);
        let start = Start::of(&trace, segments, source.rules, pool_id);
        let mut device =
            Self { id, trace, lives, start, sizes: None, sizes_inferred: 0, problems: Vec::new(), note: None };
        device.report_differences(source.has_segments);
        device.report_sums(segments, source.blocks);
        device
    }

    /// Prepares the computation of rounded sizes. Returns `None` if they are used as recorded, since the host's
    /// allocator rounds sizes before it records them.
    pub(super) fn layout<'a>(&self, source: &Source<'a>) -> Option<Layout<'a>> {
        (self.id != HOST).then(|| Layout::new(source.rules, &self.start, self.lives.baseline_by_place()))
    }

    pub(super) fn carve(&mut self, source: &Source<'_>) {
        if let Some(mut layout) = self.layout(source) {
            self.replay(source, &mut layout, |_| {});
            self.set_sizes(&layout);
            self.note = self.layout_note(&layout);
        }
    }

    pub(super) fn set_sizes(&mut self, layout: &Layout<'_>) {
        self.sizes_inferred = layout.inferred;
        self.sizes = Some(layout.bytes.clone());
    }

    /// Replays the events in `layout`, and calls `each` with the rounded size of each allocation.
    pub(super) fn replay(&self, source: &Source<'_>, layout: &mut Layout<'_>, mut each: impl FnMut(u64)) {
        let mut known = self.lives.known.iter().peekable();
        let mut allocs = 0;
        for (position, event) in self.trace.iter().enumerate() {
            tick();
            let place = self.lives.block_index(position);
            let end = event.address.saturating_add(event.size);
            match event.action {
                Action::Alloc => {
                    if let Some(former) = self.lives.replaced(position) {
                        layout.free_block(former, event.address);
                    }
                    let is_known = known.next_if(|(alloc, _)| *alloc == allocs);
                    let exact = is_known.and_then(|(_, row)| source.blocks.get(*row as usize)).map(|block| block.size);
                    let bytes = layout.alloc(&Request {
                        address: event.address,
                        requested: event.size,
                        is_private: source.extras(event).pool_id != (0, 0),
                        // A block smaller than its request is a different block, or a damaged row.
                        exact: exact.filter(|bytes| *bytes >= event.size),
                    });
                    each(bytes);
                    allocs += 1;
                }
                Action::FreeRequested | Action::FreeCompleted | Action::Free => {
                    let is_end = event.action != Action::FreeRequested || self.lives.skipped == Skipped::Completions;
                    if let Some(place) = place.filter(|_| is_end) {
                        layout.free_block(place, event.address);
                    }
                }
                Action::SegmentAlloc => layout.reserve(event.address, end),
                Action::SegmentFree => layout.release(event.address, end),
                Action::SegmentMap => layout.map(event.address, end),
                Action::SegmentUnmap => layout.unmap(event.address, end),
                _ => {}
            }
        }
    }

    /// Returns a note if rounded sizes do not follow the rules of PyTorch's CUDA allocator, as on other devices.
    pub(super) fn layout_note(&self, layout: &Layout<'_>) -> Option<String> {
        let blocks = |count, [one, more]: [&str; 2]| match count {
            0 => None,
            1 => Some(format!("1 block {one}")),
            _ => Some(format!("{} blocks {more}", format_count(count))),
        };
        let misplaced = blocks(layout.misplaced, ["begins where no memory is free", "begin where no memory is free"]);
        let differing = blocks(layout.differing, ["has another size at the end", "have another size at the end"]);
        let blocks: Vec<String> = misplaced.into_iter().chain(differing).collect();
        (!blocks.is_empty()).then(|| {
            format!(
                "{}: the allocator does not follow the rounding rules of PyTorch's CUDA allocator ({}), so the \
                 allocated sizes of freed blocks may be wrong",
                self.name(),
                blocks.join(", ")
            )
        })
    }

    /// Returns the rounded size of the block with index `place` on the device.
    #[inline]
    pub(super) fn allocated(&self, place: u64, requested: u64) -> u64 {
        let size = self.sizes.as_ref().and_then(|sizes| sizes.get(place as usize));
        size.map_or(requested, |bytes| requested.max(*bytes))
    }

    #[inline]
    pub(super) fn pool(&self, rules: &AllocRules, requested: u64) -> Pool {
        if self.id == HOST { Pool::Small } else { rules.pool(rules.round(requested)) }
    }

    fn name(&self) -> String {
        if self.id == HOST { "pinned host memory".to_owned() } else { format!("device {}", self.id.0) }
    }

    fn problem(&mut self, what: &str) {
        self.problems.push(Problem::new(format!("{}: {what}", self.name())));
    }

    /// Reports totals of the file that differ from the sums of its blocks, and blocks that contradict their segments.
    fn report_sums(&mut self, segments: &[&RawSegment], blocks: &[RawBlock]) {
        let size_if = |block: &RawBlock, counts: bool| if counts { block.size } else { 0 };
        let names = ["total_size", "allocated_size", "active_size", "requested_size"];
        let mut sums = names.map(|name| (name, StatedSum::default()));
        let [mut outside, mut too_small, mut overlapping] = [0_u64; 3];
        for segment in segments {
            let rows = blocks.get(segment.blocks.clone()).unwrap_or(&[]);
            let [(_, total), (_, allocated), (_, active), (_, requested)] = &mut sums;
            // Blocks that are not active may be left out.
            let size: u128 = rows.iter().map(|block| u128::from(block.size)).sum();
            let is_exceeded = size > u128::from(segment.total_size);
            total.take(is_exceeded.then_some(segment.total_size), rows, |block| block.size);
            allocated.take(segment.allocated_size, rows, |block| size_if(block, block.state == BlockState::Allocated));
            let is_active = |block: &RawBlock| block.state != BlockState::Inactive;
            active.take(segment.active_size, rows, |block| size_if(block, is_active(block)));
            requested.take(
                segment.requested_size,
                rows,
                |block| if is_active(block) { block.requested_size } else { 0 },
            );
            let end = |block: &RawBlock| block.address.saturating_add(block.size);
            let is_inside = |block: &RawBlock| {
                block.address >= segment.address && end(block) <= segment.address.saturating_add(segment.total_size)
            };
            // Where blocks exceed the segment as a whole, its size is the contradiction.
            outside += if is_exceeded { 0 } else { rows.iter().filter(|block| !is_inside(block)).count() as u64 };
            too_small +=
                rows.iter().filter(|block| is_active(block) && block.requested_size > block.size).count() as u64;
            overlapping +=
                rows.windows(2).filter(|pair| (pair[0].address..end(&pair[0])).contains(&pair[1].address)).count()
                    as u64;
        }
        let blocks = [
            (outside, "lie outside the addresses of their segment"),
            (too_small, "are smaller than requested"),
            (overlapping, "begin before the previous block ends"),
        ];
        for (count, what) in blocks.into_iter().filter(|(count, _)| *count > 0) {
            let count = format_count(count);
            self.problems.push(Problem::of_sums(format!("{}: blocks that {what}: {count}", self.name())));
        }
        for (name, StatedSum { segments, stated, sum }) in sums.into_iter().filter(|(_, sum)| sum.segments > 0) {
            let [stated, sum] = [stated, sum].map(|bytes| format_bytes(u64::try_from(bytes).unwrap_or(u64::MAX)));
            let what = format!("{name} is not the sum of the blocks: {stated} in the file, {sum} in the blocks");
            let what = format!("{}: in {}, {what}", self.name(), count_of(segments, "segment"));
            self.problems.push(Problem::of_sums(what));
        }
    }

    fn report_differences(&mut self, has_segments: bool) {
        match self.lives.skipped {
            Skipped::Neither => {}
            Skipped::Completions => {
                self.problem("the trace lacks free_completed: a block counts as free once its free is requested");
            }
            Skipped::Requests => {
                self.problem("the trace lacks free_requested: a block counts as live until its free is completed");
            }
        }
        let differences = self.lives.differences;
        let excess = self.start.excess_bytes;
        if !has_segments {
            // A device without any memory has no segments to show.
            if differences.only_trace > 0 || excess != 0 {
                self.problem(
                    "the file has no segments: blocks from before the trace are known only if the trace frees them",
                );
            }
            return;
        }
        if differences.only_trace + differences.only_final + differences.waiting > 0 {
            self.problem(&format!(
                "the trace does not match the blocks of the snapshot: {} are active only in the trace, {} only in the \
                 snapshot, and {} differ in whether they wait for another stream",
                differences.only_trace, differences.only_final, differences.waiting
            ));
        }
        if excess != 0 {
            self.problem(&format!(
                "the trace does not match the segments of the snapshot: it reserves {} bytes {} at its end",
                excess.unsigned_abs(),
                if excess > 0 { "more" } else { "less" }
            ));
        }
    }
}

/// A total stated by a segment, and the sum of its blocks.
#[derive(Clone, Copy, Debug, Default)]
struct StatedSum {
    segments: u64,
    stated: u128,
    sum: u128,
}

impl StatedSum {
    fn take(&mut self, stated: Option<u64>, blocks: &[RawBlock], counted: impl Fn(&RawBlock) -> u64) {
        let sum: u128 = blocks.iter().map(|block| u128::from(counted(block))).sum();
        if let Some(stated) = stated.map(u128::from).filter(|stated| *stated != sum) {
            (self.segments, self.stated, self.sum) = (self.segments + 1, self.stated + stated, self.sum + sum);
        }
    }
}

/// Returns the active blocks of `segments`, by address.
fn finals(segments: &[&RawSegment], blocks: &[RawBlock]) -> Vec<SnapshotBlock> {
    let mut finals = Vec::new();
    for segment in segments {
        let rows = blocks.get(segment.blocks.clone()).unwrap_or(&[]);
        for (block, row) in rows.iter().zip(segment.blocks.clone()) {
            let Ok(row) = u32::try_from(row) else { continue };
            if block.state != BlockState::Inactive {
                finals.push(SnapshotBlock {
                    row,
                    address: block.address,
                    requested: block.requested_size,
                    allocated: block.size.max(block.requested_size),
                    stream: segment.stream,
                    is_waiting: block.state == BlockState::PendingFree,
                });
            }
        }
    }
    finals.sort_by_key(|block| block.address);
    finals
}
