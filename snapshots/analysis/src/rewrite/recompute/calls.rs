//! The calls of modules: the events of each forward, and the blocks allocated by it.

use highwater_snapshots::event::EventKind;
use highwater_snapshots::{BlockId, DeviceId, EventId, Phase, Trace};

use super::effect::block_events;
use super::members::Members;

/// One call of a module in forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The index of the module in its [`Members`].
    pub module: usize,
    /// The training step of the call.
    pub step: Option<u32>,
    /// The first allocation of the call.
    pub first: EventId,
    /// The last allocation of the call.
    pub last: EventId,
    /// One past the last event of the forward phase that contains the call.
    pub forward_end: EventId,
    /// The blocks allocated by the call, in order.
    pub blocks: Vec<BlockId>,
}

/// Returns the calls of `members` on `device`, in order. A call ends with the first allocation in another module, so
/// two consecutive calls of the same module count as one.
pub fn calls(trace: &Trace, device: DeviceId, members: &Members) -> Vec<Call> {
    let mut found: Vec<Call> = Vec::new();
    for span in trace.spans.rows().iter().filter(|span| span.phase == Phase::Forward) {
        let mut is_open = false;
        let events = block_events(trace, device, span.first..span.end);
        for (event, _, block) in events.filter(|(_, kind, _)| *kind == EventKind::Alloc) {
            let Some(module) = members.module(trace.blocks.scope[block.0 as usize]) else {
                is_open = false;
                continue;
            };
            match found.last_mut().filter(|call| is_open && call.module == module) {
                Some(call) => {
                    call.last = event;
                    call.blocks.push(block);
                }
                None => found.push(Call {
                    module,
                    step: span.step,
                    first: event,
                    last: event,
                    forward_end: span.end,
                    blocks: vec![block],
                }),
            }
            is_open = true;
        }
    }
    found
}
