//! Writes a trace in memory to a file, without loss.

use std::io::Write;

use super::section::CHUNK_EVENTS;
use super::tables_codec::{EndFacts, Symbols};
use super::writer::SnapWriter;
use crate::builder::{StartingBlock, StartingState};
use crate::error::{Problem, Result};
use crate::event::{BlockKey, Event, What};
use crate::ids::{BlockId, EventId, FrameId};
use crate::tables::Tables;
use crate::trace::{SegmentRole, Trace};

/// Writes `trace` as a finished recording; reading it returns the same trace. File offsets of its problems become part
/// of their text. The index is rebuilt, so that a missing index is no longer a problem.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn write_trace<W: Write>(out: W, trace: &Trace) -> Result<W> {
    let mut writer = SnapWriter::new(out, &trace.header)?;
    for facts in &trace.devices {
        writer.write_device(facts)?;
    }
    write_tables(&mut writer, &trace.tables)?;
    let keys = block_keys(trace);
    for state in starting_states(trace, &keys) {
        writer.write_starting_state(&state)?;
    }
    let mut chunk = Vec::with_capacity(trace.events.len().min(CHUNK_EVENTS));
    for id in trace.events.ids() {
        chunk.push(recorded_event(trace, id, &keys));
        if chunk.len() == CHUNK_EVENTS {
            writer.write_events(&chunk)?;
            chunk.clear();
        }
    }
    writer.write_events(&chunk)?;
    // Events and baseline are written in order, so that their ids equal their numbers in the file.
    writer.append_annotations(&trace.annotations)?;
    writer.append_attributes(&trace.attributes)?;
    writer.append_sources(&trace.sources)?;
    let problems = trace.problems.iter().filter(|problem| !problem.is_index_only);
    let problems = problems.map(|problem| Problem::new(problem.to_string())).collect();
    writer.finish(&EndFacts { trust: trace.trust.clone(), problems })
}

pub(super) fn write_tables<W: Write>(writer: &mut SnapWriter<W>, tables: &Tables) -> Result<()> {
    writer.append_strings(&tables.strings)?;
    writer.append_modules(&tables.modules)?;
    writer.append_frames(&tables.frames)?;
    writer.append_symbols(&symbols(tables))?;
    writer.append_stacks(&tables.stacks)?;
    writer.append_scopes(&tables.scopes)?;
    writer.append_ops(&tables.ops)
}

/// Returns the source lines of every symbolized frame, in table order. Reading them in this order gives the same table.
fn symbols(tables: &Tables) -> Vec<Symbols> {
    let resolved = |frame: &FrameId| !tables.frame_lines(*frame).is_empty();
    let mut frames: Vec<FrameId> = (0..tables.frames.len() as u32).map(FrameId).filter(resolved).collect();
    frames.sort_by_key(|frame| tables.frames[frame.0 as usize].first_line);
    frames.into_iter().map(|frame| Symbols { frame, lines: tables.frame_lines(frame).to_vec() }).collect()
}

/// Returns the key under which each block is written. This is usually the block's id. If the allocation of a block
/// showed that the free of another block is missing, it is the other block's key, so that a reader finds the same
/// contradiction.
pub fn block_keys(trace: &Trace) -> Vec<BlockKey> {
    let mut keys: Vec<BlockKey> = (0..trace.blocks.len() as u64).collect();
    for &(event, former) in &trace.replaced {
        let block = BlockId(trace.events.subject[event.0 as usize]);
        if let (Some(block), Some(former)) = (block.index(), former.index()) {
            keys[block] = keys[former];
        }
    }
    keys
}

/// The event as returned by [`Trace::what`], with the block's key taken from `keys`.
pub fn recorded_event(trace: &Trace, id: EventId, keys: &[BlockKey]) -> Event {
    let key = |block: BlockKey| usize::try_from(block).ok().and_then(|row| keys.get(row)).copied().unwrap_or(block);
    let what = match trace.what(id) {
        What::Alloc(mut alloc) => {
            alloc.block = key(alloc.block);
            What::Alloc(alloc)
        }
        What::FreeRequested(block) => What::FreeRequested(key(block)),
        What::FreeCompleted(block) => What::FreeCompleted(key(block)),
        What::Used(block) => What::Used(key(block)),
        What::Tag(block, category) => What::Tag(key(block), category),
        what => what,
    };
    let row = id.0 as usize;
    let events = &trace.events;
    Event { time_ns: events.time_ns[row], device: events.device[row], stack: events.stack[row], what }
}

/// The baseline in row order, as one state per run of blocks or segments of the same device.
pub fn starting_states(trace: &Trace, keys: &[BlockKey]) -> Vec<StartingState> {
    let mut states = Vec::new();
    let mut state = StartingState::default();
    let of = |device| StartingState { device, ..StartingState::default() };
    let segments = trace.segments.ids().map(|id| trace.segments.get(id));
    for segment in segments.take_while(|segment| !segment.alloc.is_some()) {
        let is_segment = segment.role == SegmentRole::Segment;
        if state.device != segment.device || (is_segment && !state.mappings.is_empty()) {
            states.push(std::mem::replace(&mut state, of(segment.device)));
        }
        if is_segment {
            state.segments.push(segment.range);
        } else {
            state.mappings.push(segment.range);
        }
    }
    for id in trace.blocks.ids() {
        let block = trace.blocks.get(id);
        if !block.is_baseline() {
            break;
        }
        if state.device != block.device {
            states.push(std::mem::replace(&mut state, of(block.device)));
        }
        let mut alloc = block.as_alloc(id);
        alloc.block = keys[id.0 as usize];
        state.blocks.push(StartingBlock { alloc, stack: block.stack, free_requested: trace.was_waiting_at_start(id) });
    }
    states.push(state);
    states
}
