//! Replays the recorded events in order.

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::event::EventKind;
use highwater_recorder::snapshots::trace::{Owner, Subject};
use highwater_recorder::snapshots::transition::Transition;
use highwater_recorder::snapshots::{BlockId, EventId, Trace};

use super::driver::{Call, Misfit};
use super::output::Home;
use super::run::{Outcome, Pending, Request, Run, endings};
use super::start::Start;
use super::{Before, Plan, Replay};
use crate::{AllocError, Block};

/// Replays all events, or those up to the request that fails.
pub(super) fn walk(trace: &Trace, plan: &Plan<'_>) -> Replay {
    let start = Start::of(trace, plan);
    let (mut run, planted) = Run::new(trace, plan, &start);
    run.begin(&start, planted);
    run.finish()
}

impl Run<'_> {
    fn begin(&mut self, start: &Start, planted: Vec<(u32, Block, usize)>) {
        self.output.start(start);
        self.recorded_reserved = self.output.reserved;
        for (range, ..) in &start.segments {
            self.driver.hold(range.address, range.bytes);
        }
        for (row, block, pool) in planted {
            self.handles.put(row, block, pool);
        }
        self.assume(start);
        self.endings = endings(self.trace, self.plan);
        let first = EventId(0);
        for (block, private) in &start.homeless {
            let row = block.0 as usize;
            let share = self.plan.block_override(block.0).share;
            let bytes = self.bytes_of(row, share);
            let pool = self.pools.number(*private);
            let request = Request { event: first, bytes, stream: self.trace.blocks.stream[row], pool };
            self.ask(block.0, &request);
            if self.replay.death.is_some() {
                return;
            }
            if self.trace.was_waiting_at_start(*block) && self.handles.has(block.0) {
                self.output.free_requested(first, block.0);
            }
        }
        for block in &self.trace.waiting_at_start {
            if let Some((handle, pool)) = self.handles.take(block.0) {
                self.wait(block.0, handle, pool);
            }
        }
    }

    fn finish(mut self) -> Replay {
        for row in 0..self.trace.events.len() {
            if self.replay.death.is_some() {
                break;
            }
            let event = EventId::from_index(row);
            if self.trace.events.device[row] == self.plan.device || self.trace.is_everywhere(event) {
                self.step(event);
            }
            self.end_used(event);
            if self.plan.target.is_some_and(|target| target.event == event) {
                break;
            }
        }
        if self.replay.death.is_none()
            && let Some(last) = self.trace.events.len().checked_sub(1).map(EventId::from_index)
        {
            self.settle_free();
            self.settle_releases(last);
            if self.follows()
                && let Some(left) = self.pending.first()
            {
                self.diverge(left.event, Misfit::LeftOut(left.call).into());
            }
        }
        self.conclude();
        let retries = self.pools.all().map(|pool| pool.stats().num_alloc_retries).sum();
        let (trace, source) = self.output.finish();
        let Outcome { divergence, largest_difference, placed_elsewhere, death, rescued, assumptions, emptied, .. } =
            self.replay;
        Replay {
            trace,
            source,
            divergence,
            largest_difference,
            placed_elsewhere,
            death,
            rescued,
            retries,
            assumptions,
            emptied,
        }
    }

    fn conclude(&mut self) {
        let Outcome { own_releases, unknown_releases, collections, impossible, stream_is_guessed, .. } = self.replay;
        let mut assume = |text: String| self.replay.assumptions.push(text);
        let last_stream = self.last_stream.unwrap_or_default().0;
        if stream_is_guessed {
            assume(format!(
                "the failed request was made on stream {last_stream}, the stream of the last allocation before it, since its \
                 own is not recorded"
            ));
        }
        if own_releases > 0 {
            assume(format!(
                "cached segments that were released right before new memory was requested from the driver ({}) were \
                 released by the allocator itself; the replay decides this anew",
                times(own_releases)
            ));
        }
        if unknown_releases > 0 {
            assume(format!(
                "cached segments that were released right before new memory was requested from the driver ({}) were \
                 released by the program, since nothing shows that the device was full",
                times(unknown_releases)
            ));
        }
        if collections > 0 {
            assume(format!(
                "garbage collection ({}) released the recorded segments, since the memory limit that it depends on is not \
                 recorded",
                times(collections)
            ));
        }
        if impossible > 0 {
            let requests = if impossible == 1 { "1 request" } else { &format!("{impossible} requests") };
            assume(format!("{requests} of more than 1 EiB left out"));
        }
    }

    fn step(&mut self, event: EventId) {
        let subject = self.trace.subject(event);
        match (self.trace.transition(event), subject) {
            (Transition::Nothing, Subject::Oom(row)) => {
                self.settle_free();
                self.fail(event, row);
            }
            (Transition::Nothing, _) => {
                self.settle_free();
                self.settle_lone_releases(event);
                self.output.copy(event);
            }
            (Transition::Tagged { .. }, Subject::Tag(block, _)) | (Transition::Used, Subject::Block(block)) => {
                self.settle_free();
                if self.handles.has(block.0) {
                    self.output.copy(event);
                }
            }
            (done @ (Transition::Reserved | Transition::Released { .. }), Subject::Segment(row)) => {
                self.settle_free();
                let range = self.trace.segments.get(row).range;
                let (address, bytes) = (range.address, range.bytes);
                let kind = self.trace.events.kind[event.0 as usize];
                let is_expandable = matches!(kind, EventKind::SegmentMap | EventKind::SegmentUnmap);
                let call = match (done == Transition::Reserved, is_expandable) {
                    (true, false) => Call::Reserve { address, bytes },
                    (true, true) => Call::Map { address, bytes },
                    (false, false) => Call::Release { address, bytes },
                    (false, true) => Call::Unmap { address, bytes },
                };
                let obtained = self.trace.segments.alloc[row.0 as usize];
                let owner = if obtained.is_some() { Owner::Event(obtained) } else { Owner::Segment(row) };
                self.push_pending(Pending { call, event, private: self.trace.private_pool(owner) });
                self.count_recorded(call);
            }
            (Transition::Allocated { .. }, Subject::Block(block)) => {
                self.settle_free();
                self.alloc(event, block);
            }
            (Transition::FreeRequested, Subject::Block(block)) => {
                self.settle_free();
                self.settle_releases(event);
                self.freed = Some((block.0, event));
            }
            (Transition::FreeCompleted { .. }, Subject::Block(block)) => self.free_completed(event, block.0),
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
        if let Some(gone) = self.trace.replaced_by(event)
            && !self.complete(event, gone.0)
        {
            self.free_now(event, gone.0, true);
        }
        let row = block.0 as usize;
        let block_override = self.plan.block_override(block.0);
        let stream = self.trace.blocks.stream[row];
        let pool = self.pools.number(self.trace.private_pool(Owner::Event(event)));
        let request = Request { event, bytes: self.bytes_of(row, block_override.share), stream, pool };
        self.has_streams |= self.last_stream.is_some_and(|last| last != stream);
        self.last_stream = Some(stream);
        self.settle_calls(&request);
        if !block_override.is_removed {
            self.ask(block.0, &request);
        }
        self.clear_pending();
    }

    /// Allocates a block, and stores its handle for the free.
    fn ask(&mut self, row: u32, request: &Request) {
        match self.serve(request) {
            Ok(block) => {
                self.tell(request, &block);
                self.output.alloc(request.event, row, &block, self.pools.private(request.pool));
                self.compare(request.event, row as usize, &block);
                self.handles.put(row, block, request.pool);
            }
            Err(AllocError::OutOfMemory(report)) => {
                self.tell_failed(request);
                self.die_of(request, *report);
            }
            Err(AllocError::TooLarge { .. }) => self.replay.impossible += 1,
            Err(other) => self.die(request, &other.to_string()),
        }
    }

    /// Replays a request that failed in the recording.
    fn fail(&mut self, event: EventId, row: usize) {
        let Some(oom) = self.trace.ooms.get(row).copied() else {
            return;
        };
        let stream = oom.stream.unwrap_or_else(|| self.last_stream());
        let mut request = Request { event, bytes: oom.requested.max(1), stream, pool: 0 };
        if !self.follows() && self.are_asked_for() {
            self.settle_releases(event);
        }
        let target = self.plan.target.filter(|_| !self.follows());
        if let Some(target) = target.filter(|target| target.event == event) {
            request.stream = target.stream;
            request.pool = self.pools.number(target.private);
            self.prepare(&request, target.before);
        }
        let is_target = target.is_some_and(|target| target.event == event);
        self.replay.stream_is_guessed |= oom.stream.is_none() && self.has_streams && !is_target;
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
                let goes_on = target.is_some_and(|target| event < target.event);
                if self.follows() || goes_on {
                    self.output.copy(event);
                } else {
                    self.die_of(&request, *report);
                }
            }
            Err(_) => self.replay.impossible += 1,
        }
        self.clear_pending();
    }

    /// Makes the changes right before the target's request.
    fn prepare(&mut self, request: &Request, before: Before) {
        for pool in self.pools.all() {
            // The device of a replay accepts every release, and completes events when they are waited for.
            match before {
                Before::Nothing => {}
                Before::EmptyCache => drop(pool.empty_cache()),
                Before::Synchronize => drop(pool.synchronize_events()),
            }
        }
        self.tell_failed(request);
    }

    /// Makes the block of the last requested free wait for another stream, since its completion did not follow
    /// immediately.
    fn settle_free(&mut self) {
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
        self.settle_free();
        // Completions within a retry are between its releases, which belong to the retried request.
        if self.plan.recorded.max_split_bytes().is_none() {
            self.settle_lone_releases(event);
        }
        if !self.complete(event, row) {
            self.free_now(event, row, false);
        }
    }

    /// Handles pending releases without a request, if the recording reserved nothing in the meantime.
    fn settle_lone_releases(&mut self, event: EventId) {
        if self.pending_releases == self.pending.len() {
            self.settle_releases(event);
        }
    }

    /// Returns the stream of the last request, or the default stream before the first.
    fn last_stream(&self) -> StreamId {
        self.last_stream.unwrap_or_default()
    }

    /// Completes the event that a block waits for; returns whether it waits.
    fn complete(&mut self, event: EventId, row: u32) -> bool {
        if !self.driver.complete(row) {
            return false;
        }
        for pool in self.pools.all() {
            // Only queries events of the replay's device, which cannot fail.
            drop(pool.process_events());
        }
        let home = Home { stream: self.last_stream(), pool: self.plan.config.pool(1), private: None };
        self.tell_calls(event, home);
        true
    }

    /// Frees a block that is freed in the recording, if it is still live.
    fn free_now(&mut self, event: EventId, row: u32, is_requested: bool) {
        let Some((block, pool)) = self.handles.take(row) else { return };
        if is_requested {
            self.output.free_requested(event, row);
        }
        self.pools.get(pool).free(block);
        self.output.free_completed(event, row);
    }

    /// Frees the blocks whose last use was `event`, if the plan says so.
    fn end_used(&mut self, event: EventId) {
        while let Some((at, row)) = self.endings.get(self.next_ending).copied()
            && at <= event
        {
            self.next_ending += 1;
            self.settle_lone_releases(event);
            self.free_now(event, row, true);
        }
    }
}

/// Returns `once` or, for example, `3 times`.
fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
