//! Corrects predictions for workspaces that a library allocates once per thread and never frees, as cuBLASLt does
//! before PyTorch 2.15: autograd's thread, in which recomputation runs, needs its own workspace.

use std::collections::{HashMap, HashSet};

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::FrameId;
use highwater_snapshots::{BlockId, Category, DeviceId, Phase, StackId, Trace};

use super::effect::{Effect, Repeat, block_events};
use super::references::References;

/// Corrects the workspaces in the recomputations of `effects`. Recomputing an operation does not allocate the workspace
/// again that the operation allocated in forward. Instead, the first recomputed operation at the workspace's source
/// line allocates one, which is never freed, unless backward has already allocated a workspace of the same size.
pub(super) fn correct(trace: &Trace, device: DeviceId, references: &References, effects: &mut [Effect]) {
    let stack = |block: BlockId| trace.blocks.stack[block.0 as usize];
    let line = |stack: StackId| stack.index().and_then(|row| trace.tables.stacks.get(row)).map(|stack| stack.frame);
    // Each is inserted right after the operation, so that the last comes first.
    for (workspace, is_in_backward) in forward_workspaces(trace, device, references).into_iter().rev() {
        for effect in &mut *effects {
            effect.repeats.retain(|repeat| !matches!(repeat, Repeat::Alloc(it) | Repeat::Free(it) if *it == workspace));
        }
        let of_workspace: Option<FrameId> = line(stack(workspace));
        let is_of_line = |repeat: &Repeat| matches!(repeat, Repeat::Alloc(it) if line(stack(*it)) == of_workspace);
        let repeated = effects.iter_mut().filter(|effect| effect.at.is_some() && !is_in_backward);
        let first = repeated.filter(|effect| effect.repeats.iter().any(is_of_line)).min_by_key(|effect| effect.at);
        if let Some(effect) = first {
            let operation = effect.repeats.iter().position(is_of_line).unwrap_or_default();
            effect.repeats.insert(operation + 1, Repeat::Alloc(workspace));
        }
    }
}

/// Returns the workspaces allocated in forward, in order, each with whether backward allocates a workspace of the same
/// size. A workspace is a block that is never freed, that nothing refers to, and that an operation allocates once,
/// right after its output.
fn forward_workspaces(trace: &Trace, device: DeviceId, references: &References) -> Vec<(BlockId, bool)> {
    let blocks = &trace.blocks;
    let size = |block: BlockId| blocks.requested[block.0 as usize];
    let category = |block: BlockId| blocks.category[block.0 as usize];
    // A gradient that is kept is as large as its parameter.
    let of_parameters: HashSet<u64> =
        blocks.ids().filter(|block| category(*block) == Category::Parameter).map(size).collect();
    let (mut forward, mut backward) = (Vec::new(), HashSet::new());
    for span in trace.spans.rows().iter().filter(|span| matches!(span.phase, Phase::Forward | Phase::Backward)) {
        let mut before = StackId::NONE;
        let events = block_events(trace, device, span.first..span.end);
        for (_, _, block) in events.filter(|(_, kind, _)| *kind == EventKind::Alloc) {
            let stack = blocks.stack[block.0 as usize];
            let is_of_operation = stack.is_some() && std::mem::replace(&mut before, stack) == stack;
            let is_referred_to = references.end_of(block).is_some() || references.saves_of(block).next().is_some();
            if is_referred_to || blocks.free_requested[block.0 as usize].is_some() {
                continue;
            }
            if span.phase == Phase::Backward {
                backward.extend(Some(size(block)).filter(|size| !of_parameters.contains(size)));
            } else if is_of_operation && matches!(category(block), Category::Unknown | Category::Workspace) {
                forward.push(block);
            }
        }
    }
    let mut of_size: HashMap<u64, usize> = HashMap::new();
    forward.iter().for_each(|block| *of_size.entry(size(*block)).or_default() += 1);
    let once = forward.into_iter().filter(|block| of_size[&size(*block)] == 1);
    once.map(|block| (block, backward.contains(&size(block)))).collect()
}
