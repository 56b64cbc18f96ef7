//! Walk: goes through the recorded events in order and has done again what they say.

use highwater_recorder::snapshots::event::EventKind;
use highwater_recorder::snapshots::trace::{Owner, Subject};
use highwater_recorder::snapshots::{BlockId, EventId};

use super::driver::{Call, Misfit};
use super::output::Home;
use super::run::{Outcome, Pending, Request, Run};
use super::{Answers, Replay};
use crate::alloc::AllocError;

impl Run<'_> {
    /// All events, or those up to the request that fails.
    pub(super) fn to_end(mut self) -> Replay {
        for row in 0..self.trace.events.len() {
            let event = EventId::from_index(row);
            if self.trace.events.device[row] == self.plan.device || self.trace.is_everywhere(event) {
                self.step(event);
            }
            self.end_used(event);
            if self.replay.death.is_some() {
                break;
            }
        }
        if self.replay.death.is_none()
            && let Some(last) = self.trace.events.len().checked_sub(1).map(EventId::from_index)
        {
            self.settle_free(last);
            self.settle_releases(last);
            if self.follows()
                && let Some(left) = self.pending.first()
            {
                self.diverge(left.event, Misfit::LeftOut(left.call).into());
            }
        }
        self.conclude();
        let (trace, source) = self.output.finish();
        let Outcome { divergence, largest_difference, placed_elsewhere, death, rescued, assumptions, emptied, .. } =
            self.replay;
        Replay { trace, source, divergence, largest_difference, placed_elsewhere, death, rescued, assumptions, emptied }
    }

    fn conclude(&mut self) {
        let Outcome { own_releases, unknown_releases, collections, impossible, .. } = self.replay;
        if own_releases > 0 {
            self.replay.assumptions.push(format!(
                "{own_releases} times the recording gives segments back just before it obtains memory: taken for the \
                 allocator's own doing, and left to it"
            ));
        }
        if unknown_releases > 0 {
            self.replay.assumptions.push(format!(
                "{unknown_releases} times the recording gives segments back just before it obtains memory, and nothing \
                 says that the device was full: taken for the program's doing, and done again"
            ));
        }
        if collections > 0 {
            self.replay.assumptions.push(format!(
                "{collections} times segments were collected as garbage: by a share of the memory that the recording \
                 does not have, so which ones is taken from it"
            ));
        }
        if impossible > 0 {
            self.replay.assumptions.push(format!("{impossible} requests of more than 1 EiB are left out"));
        }
    }

    fn step(&mut self, event: EventId) {
        let kind = self.trace.events.kind[event.0 as usize];
        let subject = self.trace.subject(event);
        match (kind, subject) {
            (EventKind::Step | EventKind::Phase | EventKind::Mark, _) => self.output.copy(event),
            (EventKind::Tag, Subject::Tag(block, _)) if !self.plan.fate(block.0).is_removed => self.output.copy(event),
            (EventKind::Used, Subject::Block(block)) if self.handles.has(block.0) => self.output.copy(event),
            (_, Subject::Segment(row)) => {
                self.settle_free(event);
                let range = self.trace.segments.get(row).range;
                let (address, bytes) = (range.address, range.bytes);
                let call = match kind {
                    EventKind::SegmentAlloc => Call::Reserve { address, bytes },
                    EventKind::SegmentMap => Call::Map { address, bytes },
                    EventKind::SegmentFree => Call::Release { address, bytes },
                    _ => Call::Unmap { address, bytes },
                };
                let obtained = self.trace.segments.alloc[row.0 as usize];
                let owner = if obtained.is_some() { Owner::Event(obtained) } else { Owner::Segment(row) };
                self.pending.push(Pending { call, event, private: self.trace.private_pool(owner) });
                self.count_recorded(call);
            }
            (EventKind::Alloc, Subject::Block(block)) => {
                self.settle_free(event);
                self.alloc(event, block);
            }
            (EventKind::FreeRequested, Subject::Block(block)) => {
                self.settle_free(event);
                self.settle_releases(event);
                self.freed = Some((block.0, event));
            }
            (EventKind::FreeCompleted, Subject::Block(block)) => self.free_completed(event, block.0),
            (EventKind::Oom, Subject::Oom(row)) => {
                self.settle_free(event);
                self.fail(event, row);
            }
            _ => {}
        }
    }

    fn count_recorded(&mut self, call: Call) {
        match call {
            Call::Reserve { bytes, .. } | Call::Map { bytes, .. } => self.recorded_reserved += bytes,
            Call::Release { bytes, .. } | Call::Unmap { bytes, .. } => {
                self.recorded_reserved = self.recorded_reserved.saturating_sub(bytes);
            }
            Call::Completed { .. } => {}
        }
    }

    fn alloc(&mut self, event: EventId, block: BlockId) {
        while let Some((at, gone)) = self.trace.replaced.get(self.next_replaced).copied()
            && at <= event
        {
            self.next_replaced += 1;
            self.free_now(event, gone.0, true);
        }
        let row = block.0 as usize;
        let fate = self.plan.fate(block.0);
        let stream = self.trace.blocks.stream[row];
        let pool = self.pools.number(self.trace.private_pool(Owner::Event(event)));
        let request = Request { event, bytes: self.bytes_of(row, fate.share), stream, pool };
        self.last_stream = stream;
        self.settle_calls(&request);
        if !fate.is_removed {
            self.ask(block.0, &request);
        }
        self.pending.clear();
    }

    /// A request that failed when it was recorded.
    fn fail(&mut self, event: EventId, row: usize) {
        let Some(bytes) = self.trace.ooms.get(row).map(|oom| oom.requested.max(1)) else {
            return;
        };
        let request = Request { event, bytes, stream: self.last_stream, pool: 0 };
        let served = self.serve_failed(&request);
        match served {
            Ok(block) => {
                self.tell(&request, &block);
                self.output.passing(event, &block);
                self.pools.get(request.pool).free(block);
                self.replay.rescued.push(event);
            }
            Err(AllocError::OutOfMemory(report)) => {
                self.tell_failed(&request);
                self.output.copy(event);
                if self.plan.answers != Answers::AsRecorded {
                    self.die_of(&request, *report);
                }
            }
            Err(_) => self.replay.impossible += 1,
        }
        self.pending.clear();
    }

    /// A block whose free was requested waits for another stream, since something else came next.
    fn settle_free(&mut self, _before: EventId) {
        let Some((row, event)) = self.freed.take() else { return };
        if let Some((block, pool)) = self.handles.take(row) {
            self.output.free_requested(event, row);
            self.wait(row, block, pool);
        }
    }

    fn free_completed(&mut self, event: EventId, row: u32) {
        if let Some((freed, requested)) = self.freed
            && freed == row
        {
            self.freed = None;
            if let Some((block, pool)) = self.handles.take(row) {
                self.output.free_requested(requested, row);
                self.pools.get(pool).free(block);
                self.output.free_completed(event, row);
            }
            return;
        }
        self.settle_free(event);
        // Completions within a retry stand between its releases: those are its request's.
        if self.plan.config.max_split_bytes().is_none() && self.pending.iter().all(|pending| !pending.obtains()) {
            self.settle_releases(event);
        }
        if !self.driver.complete(row) {
            self.free_now(event, row, false);
            return;
        }
        for pool in self.pools.all() {
            // Only the passing of an event is asked of the device, which does not fail.
            drop(pool.process_events());
        }
        let home = Home { stream: self.last_stream, pool: self.plan.config.pool(1), private: None };
        self.tell_calls(event, home);
    }

    /// Gives a block back that the recording has as gone, if it is still there.
    fn free_now(&mut self, event: EventId, row: u32, is_requested: bool) {
        let Some((block, pool)) = self.handles.take(row) else { return };
        if is_requested {
            self.output.free_requested(event, row);
        }
        self.pools.get(pool).free(block);
        self.output.free_completed(event, row);
    }

    /// Gives back the blocks whose last use was `event`, where the plan says so.
    fn end_used(&mut self, event: EventId) {
        while let Some((at, row)) = self.endings.get(self.next_ending).copied()
            && at <= event
        {
            self.next_ending += 1;
            self.free_now(event, row, true);
        }
    }
}
