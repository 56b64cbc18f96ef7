//! Scratch memory that a library allocates once for each thread and keeps, as cuBLASLt does before PyTorch 2.15: autograd's
//! thread, which recomputes, needs one of its own.

use std::collections::{HashMap, HashSet};

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::FrameId;
use highwater_snapshots::trace::Subject;
use highwater_snapshots::{BlockId, Category, DeviceId, EventId, Phase, StackId, Trace};

use super::effect::{Effect, Repeat};
use super::references::References;

/// Corrects the recomputations of `effects`: what forward allocates as scratch memory is not repeated with its operation.
/// The first recomputation of an operation of that line allocates it, and keeps it, unless backward has one already.
pub(super) fn correct(trace: &Trace, device: DeviceId, references: &References, effects: &mut [Effect]) {
    let stack = |block: BlockId| trace.blocks.stack[block.0 as usize];
    let line = |stack: StackId| stack.index().and_then(|row| trace.tables.stacks.get(row)).map(|stack| stack.frame);
    for (workspace, is_in_backward) in of(trace, device, references) {
        for effect in &mut *effects {
            effect.repeats.retain(|repeat| !matches!(repeat, Repeat::Alloc(it) | Repeat::Free(it) if *it == workspace));
        }
        let own: Option<FrameId> = line(stack(workspace));
        let is_of_line = |repeat: &Repeat| matches!(repeat, Repeat::Alloc(it) if line(stack(*it)) == own);
        let repeated = effects.iter_mut().filter(|effect| effect.at.is_some() && !is_in_backward);
        let first = repeated.filter(|effect| effect.repeats.iter().any(is_of_line)).min_by_key(|effect| effect.at);
        if let Some(effect) = first {
            let operation = effect.repeats.iter().position(is_of_line).unwrap_or_default();
            effect.repeats.insert(operation + 1, Repeat::Alloc(workspace));
        }
    }
}

/// The scratch memory of forward, each with whether backward has one of its size: blocks that are never freed, to which
/// nothing refers, allocated by the operation that has just allocated its output, and only once.
fn of(trace: &Trace, device: DeviceId, references: &References) -> Vec<(BlockId, bool)> {
    let blocks = &trace.blocks;
    let size = |block: BlockId| blocks.requested[block.0 as usize];
    let mut kept: [Vec<BlockId>; 2] = Default::default();
    let mut before = None;
    for span in trace.spans.rows() {
        let side = match span.phase {
            Phase::Forward => 0,
            Phase::Backward => 1,
            _ => continue,
        };
        for row in span.first.0 as usize..span.end.0 as usize {
            if trace.events.kind[row] != EventKind::Alloc || trace.events.device[row] != device {
                continue;
            }
            let Subject::Block(block) = trace.subject(EventId::from_index(row)) else { continue };
            let stack = blocks.stack[block.0 as usize];
            let is_of_operation = before.replace(stack) == Some(stack) || side == 1;
            let is_referred_to = references.end_of(block).is_some() || references.saves_of(block).next().is_some();
            let is_unknown = blocks.category[block.0 as usize] == Category::Unknown || side == 1;
            let is_freed = blocks.free_requested[block.0 as usize].is_some();
            if is_of_operation && is_unknown && !is_freed && !is_referred_to {
                kept[side].push(block);
            }
        }
    }
    let [forward, backward] = kept;
    let mut of_size: HashMap<u64, usize> = HashMap::new();
    forward.iter().for_each(|block| *of_size.entry(size(*block)).or_default() += 1);
    let of_backward: HashSet<u64> = backward.into_iter().map(size).collect();
    let alone = forward.into_iter().filter(|block| of_size[&size(*block)] == 1);
    alone.map(|block| (block, of_backward.contains(&size(block)))).collect()
}
