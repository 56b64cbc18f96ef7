//! Collects the segments and blocks that existed before the recording, from which a replay starts.

use std::collections::BTreeMap;

use highwater_recorder::snapshots::event::Range;
use highwater_recorder::snapshots::trace::{Owner, SegmentRole};
use highwater_recorder::snapshots::{BlockId, DeviceId, Pool, SegmentId, StreamId, Trace};

use super::driver::{BOUNDLESS, has_room};
use super::{Plan, Share};
use crate::{AllocConfig, RestoredBlock, RestoredSegment, RestoredState};

/// The id of a private pool; `None` for the default pools.
pub(super) type Private = Option<(u64, u64)>;

/// The size assumed for reserved addresses if the size of the device is unknown.
const REACH: u64 = 1 << 40;

#[derive(Debug, Default)]
pub(super) struct Start {
    /// The state from which each pool's allocator is restored.
    pub(super) restored: BTreeMap<Private, RestoredState>,
    /// The restored segments and runs of mapped pages.
    pub(super) segments: Vec<(Range, SegmentRole, Private)>,
    /// Blocks that have to be allocated instead of restored, each with its pool.
    pub(super) unplaced: Vec<(BlockId, Private)>,
    pub(super) blocks: Vec<RestoredBlock>,
}

impl Start {
    /// Collects the state of `plan.device` in `trace` before its first event.
    pub(super) fn of(trace: &Trace, plan: &Plan<'_>) -> Self {
        let mut start = Self::default();
        let mut blocks = baseline_blocks(trace, plan);
        blocks.sort_by_key(|block| trace.blocks.address[block.0 as usize]);
        let segments = baseline_segments(trace, plan.device, plan.config.large_segment_bytes());
        if plan.reallocates_start {
            let home = |block: &BlockId| pool_at(&segments, trace.blocks.address[block.0 as usize]);
            start.unplaced = blocks.into_iter().map(|block| (block, home(&block))).collect();
            return start;
        }
        let mut blocks = blocks.into_iter().peekable();
        let mut runs: BTreeMap<(Private, StreamId, Pool), Vec<RestoredSegment>> = BTreeMap::new();
        for (range, role, private) in segments {
            let end = range.address.saturating_add(range.bytes);
            let mut segment = RestoredSegment { range, blocks: Vec::new() };
            let mut free_from = range.address;
            while let Some(block) = blocks.next_if(|block| trace.blocks.address[block.0 as usize] < end) {
                let fits = |restored: &RestoredBlock| {
                    restored.address >= free_from && restored.allocated <= end.saturating_sub(restored.address)
                };
                match planted_block(trace, plan, block).filter(fits) {
                    Some(restored) if trace.blocks.stream[block.0 as usize] == range.stream => {
                        free_from = restored.address + restored.allocated;
                        segment.blocks.push(restored);
                        start.blocks.push(restored);
                    }
                    _ => start.unplaced.push((block, private)),
                }
            }
            start.segments.push((range, role, private));
            if role == SegmentRole::Mapping {
                runs.entry((private, range.stream, range.pool)).or_default().push(segment);
            } else {
                start.restored.entry(private).or_default().segments.push(segment);
            }
        }
        start.unplaced.extend(blocks.map(|block| (block, None)));
        let reach = plan.device_total.unwrap_or(REACH).min(BOUNDLESS);
        for ((private, _, pool), runs) in runs {
            let page = page_bytes(&plan.config, pool);
            let reservations = reservations(runs, (reach + reach / 8).next_multiple_of(page.min(BOUNDLESS)));
            start.restored.entry(private).or_default().reservations.extend(reservations);
        }
        start
    }
}

/// Returns the private pool whose segment contains an address.
fn pool_at(segments: &[(Range, SegmentRole, Private)], address: u64) -> Private {
    let after = segments.partition_point(|(range, ..)| range.address <= address);
    let (range, _, private) = segments.get(after.checked_sub(1)?)?;
    private.filter(|_| address - range.address < range.bytes)
}

fn page_bytes(config: &AllocConfig, pool: Pool) -> u64 {
    if pool == Pool::Small { 2 << 20 } else { config.large_segment_bytes() }
}

/// Returns the blocks from before the recording, by row, without removed blocks.
fn baseline_blocks(trace: &Trace, plan: &Plan<'_>) -> Vec<BlockId> {
    let count = trace.blocks.alloc.partition_point(|alloc| !alloc.is_some());
    let of_device = (0..count as u32).filter(|row| trace.blocks.device[*row as usize] == plan.device);
    of_device.filter(|row| !plan.block_override(BlockId(*row)).is_removed).map(BlockId).collect()
}

/// Returns the segments and mapped ranges that existed before the recording, by address. Omits those too close to the
/// end of the address space for pages of `page` bytes. The age of these segments is not recorded.
fn baseline_segments(trace: &Trace, device: DeviceId, page: u64) -> Vec<(Range, SegmentRole, Private)> {
    let segments = &trace.segments;
    let count = segments.alloc.partition_point(|alloc| !alloc.is_some());
    let mut found: Vec<(Range, SegmentRole, Private)> = (0..count)
        .filter(|row| {
            let Range { address, bytes, .. } = segments.range[*row];
            segments.device[*row] == device && bytes > 0 && has_room(address, bytes, page)
        })
        .map(|row| {
            let private = trace.private_pool(Owner::Segment(SegmentId(row as u32)));
            (segments.range[row], segments.role[row], private)
        })
        .collect();
    found.sort_by_key(|(range, ..)| range.address);
    // Overlaps mean that the recording is damaged: keep the first segment.
    let mut end = 0;
    found.retain(|(range, ..)| {
        let stays = range.address >= end;
        if stays {
            end = range.address.saturating_add(range.bytes);
        }
        stays
    });
    found
}

/// Returns the block at its recorded address, or `None` if the request does not fit there.
fn planted_block(trace: &Trace, plan: &Plan<'_>, block: BlockId) -> Option<RestoredBlock> {
    let row = block.0 as usize;
    let (requested, allocated) = (trace.blocks.requested[row], trace.blocks.allocated[row].max(1));
    // For some blocks, only the rounded size is known.
    let requested = if requested == 0 { allocated } else { requested };
    let share = plan.block_override(block).share;
    let mut restored = RestoredBlock { name: block.0, address: trace.blocks.address[row], requested, allocated };
    if share != Share::WHOLE {
        restored.requested = share.of(requested);
        restored.allocated = plan.config.rounded(restored.requested);
    }
    (restored.allocated <= allocated).then_some(restored)
}

/// Combines mapped runs, sorted by address, into reservations of `reach` bytes each, and merges adjacent runs.
fn reservations(runs: Vec<RestoredSegment>, reach: u64) -> Vec<(Range, Vec<RestoredSegment>)> {
    let mut found: Vec<(Range, Vec<RestoredSegment>)> = Vec::new();
    for run in runs {
        let end = run.range.address.saturating_add(run.range.bytes);
        match found.last_mut() {
            Some((addresses, runs)) if run.range.address < addresses.address.saturating_add(reach) => {
                addresses.bytes = addresses.bytes.max(end - addresses.address);
                match runs.last_mut() {
                    Some(last) if last.range.address + last.range.bytes == run.range.address => {
                        last.range.bytes += run.range.bytes;
                        last.blocks.extend(run.blocks);
                    }
                    _ => runs.push(run),
                }
            }
            _ => found.push((Range { bytes: reach.max(run.range.bytes), ..run.range }, vec![run])),
        }
    }
    found
}
