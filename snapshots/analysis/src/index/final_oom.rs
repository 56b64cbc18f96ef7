//! Detects whether a recording ends with an out-of-memory error, so that later allocations are missing.

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::{PINNED_DRIVER, Trace};

/// A program counts as recovered once it has allocated this many blocks after a failed request.
const MAX_BLOCKS: usize = 100;

/// Returns the failed request with which `trace` ends; `None` if the program recovered from its last failed request. A
/// program counts as recovered if it then allocated at least as many bytes as requested, or 100 blocks, or anything in
/// a later step. A program that retries with a smaller batch does so, but not one that exits with an error. Requests
/// for host memory do not count.
pub fn final_oom(trace: &Trace) -> Option<EventId> {
    let last = last_oom(trace)?;
    let mut recovery = Recovery::after(trace, last)?;
    recovery.take(trace, last.0 as usize + 1);
    (!recovery.is_complete()).then_some(last)
}

/// Returns the last failed request, not counting those for host memory; `None` if there is none.
pub(crate) fn last_oom(trace: &Trace) -> Option<EventId> {
    trace.failed_requests().rev().find(|(_, device)| !is_host(trace, *device)).map(|(event, _)| event)
}

fn is_host(trace: &Trace, device: DeviceId) -> bool {
    trace.device_facts(device).is_some_and(|facts| facts.driver == PINNED_DRIVER)
}

fn step_at(trace: &Trace, event: EventId) -> Option<u32> {
    trace.spans.at(event)?.step
}

/// The allocations of a program after a failed request.
pub(crate) struct Recovery {
    requested: u64,
    step: Option<u32>,
    blocks: usize,
    bytes: u64,
    has_later_step: bool,
}

impl Recovery {
    /// Starts counting allocations after event `oom`; `None` if the event is not a failed request.
    pub(crate) fn after(trace: &Trace, oom: EventId) -> Option<Self> {
        let requested = trace.ooms.get(trace.events.subject[oom.0 as usize] as usize)?.requested.max(1);
        Some(Self { requested, step: step_at(trace, oom), blocks: 0, bytes: 0, has_later_step: false })
    }

    /// Counts the allocations from event index `first` on.
    pub(crate) fn take(&mut self, trace: &Trace, first: usize) {
        let events = &trace.events;
        for row in (first..events.len())
            .filter(|&row| events.kind[row] == EventKind::Alloc && !is_host(trace, events.device[row]))
        {
            if self.is_complete() {
                break;
            }
            let block = BlockId(events.subject[row]).index().and_then(|block| trace.blocks.allocated.get(block));
            self.has_later_step = step_at(trace, EventId::from_index(row)) > self.step;
            (self.blocks, self.bytes) = (self.blocks + 1, self.bytes.saturating_add(block.copied().unwrap_or(0)));
        }
    }

    /// Whether the program has recovered from the failure.
    pub(crate) fn is_complete(&self) -> bool {
        self.blocks >= MAX_BLOCKS || self.bytes >= self.requested || self.has_later_step
    }
}

/// Returns the failed request at the end of `trace`, if it failed on `device`.
pub fn final_oom_on(trace: &Trace, device: DeviceId) -> Option<EventId> {
    final_oom(trace).filter(|event| trace.events.device[event.0 as usize] == device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    fn of(text: &str) -> Option<u32> {
        final_oom(&trace_from_text(text).unwrap()).map(|event| event.0)
    }

    #[test]
    fn a_recording_ends_in_an_oom_unless_the_program_allocates_as_much_again() {
        assert_eq!(of("alloc a 1024\nfree a"), None, "no request failed");
        let failed = "alloc a 1024\nalloc b 1024\noom 2048 free=0\n";
        assert_eq!(of(failed), Some(2));
        assert_eq!(of(&format!("{failed}free a\nfree b")), Some(2), "frees of unwinding");
        assert_eq!(of(&format!("{failed}free a\nfree b\nalloc c 512")), Some(2), "a scalar for a log");
        assert_eq!(of(&format!("{failed}free a\nalloc c 1024\nalloc d 1024")), None, "a smaller batch");
        let many: String = (0..100).map(|row| format!("alloc x{row} 1\nfree x{row}\n")).collect();
        let failed = "oom 1073741824 free=0\n";
        assert_eq!(of(&format!("{failed}{many}")), None, "a hundred small blocks");
        let in_step = "step 0\nalloc a 1024\noom 2048 free=0\n";
        assert_eq!(of(&format!("{in_step}free a\nalloc b 1\n")), Some(2), "in the same step");
        assert_eq!(of(&format!("{in_step}free a\nstep 1\nalloc b 1\n")), None, "the next step runs");
        let on_one = trace_from_text("alloc a 5\nalloc b 5 device=1\noom 5 free=0 device=1\n").unwrap();
        assert_eq!([0, 1].map(|device| final_oom_on(&on_one, DeviceId(device))), [None, Some(EventId(2))]);
        assert_eq!(of(&format!("{failed}{many}oom 5 free=0")), Some(301), "the last one counts");
    }
}
