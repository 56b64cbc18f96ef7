//! Replays the recorded events in order.

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::event::{Alloc, Oom, Range, What};
use highwater_recorder::snapshots::trace::{Owner, Subject};
use highwater_recorder::snapshots::transition::Transition;
use highwater_recorder::snapshots::{BlockId, DeviceId, EventId, StackId, Trace};

use super::driver::{Call, Misfit};
use super::output::{Output, PoolAndStream};
use super::pools::RestoredBlocks;
use super::recorded::{At, Freed, Pending, Recorded, Request, UNKNOWN};
use super::run::{Guesses, Run, endings};
use super::start::Start;
use super::{Before, BlockOverride, Plan, Replay};
use crate::AllocError;

pub(super) fn walk(trace: &Trace, plan: &Plan<'_>) -> Replay {
    let start = Start::of(trace, plan);
    let (mut run, restored) = Run::new(trace, plan, &start, (addresses_end(trace), Output::trace(trace, plan)));
    run.endings = endings(trace, plan);
    run.output.start(&start);
    run.begin(&start, restored, at(trace, EventId(0)));
    for event in trace.events.ids() {
        if run.replay.death.is_some() {
            break;
        }
        if trace.events.device[event.0 as usize] == plan.device || trace.is_everywhere(event) {
            run.step(&recorded(trace, plan, event), trace.events.device[event.0 as usize]);
        }
        run.end_used(at(trace, event));
        if plan.target.is_some_and(|target| target.event == event) {
            break;
        }
    }
    run.end(trace.events.ids().next_back().map(|last| at(trace, last)));
    let (trace, source) = run.output.finish();
    Replay { trace, source, outcome: run.replay }
}

fn at(trace: &Trace, event: EventId) -> At {
    let row = event.0 as usize;
    let time_ns = trace.events.time_ns.get(row).copied().unwrap_or(0);
    At { number: row as u64, time_ns, stack: trace.events.stack.get(row).copied().unwrap_or_default() }
}

fn recorded(trace: &Trace, plan: &Plan<'_>, event: EventId) -> Recorded {
    let (done, what) = (trace.transition(event), trace.what(event));
    let (mut former, mut completion, mut private, mut change) = (None, 0, None, BlockOverride::default());
    match (done, trace.subject(event)) {
        (Transition::Allocated { .. }, Subject::Block(block)) => {
            change = plan.block_override(block);
            former = trace.replaced_by(event).map(|block| u64::from(block.0));
            private = trace.private_pool(Owner::Event(event));
        }
        (Transition::FreeRequested, Subject::Block(block)) => {
            completion = u64::from(trace.blocks.free_completed[block.0 as usize].0);
        }
        (Transition::Reserved | Transition::Released { .. }, Subject::Segment(row)) => {
            let obtained = trace.segments.alloc[row.0 as usize];
            private = trace.private_pool(if obtained.is_some() { Owner::Event(obtained) } else { Owner::Segment(row) });
        }
        _ => {}
    }
    Recorded { at: at(trace, event), what, done, former, completion, private, change }
}

/// The index of the event that completes the free of a block, if the trace has events.
fn completion_of(trace: &Trace, block: BlockId) -> u64 {
    if trace.events.is_empty() { UNKNOWN } else { u64::from(trace.blocks.free_completed[block.0 as usize].0) }
}

/// Returns the end, exclusive, of the highest segment or block of a trace; 0 if it has none.
pub fn addresses_end(trace: &Trace) -> u64 {
    let ends = trace.segments.range.iter().map(|range| range.address.saturating_add(range.bytes));
    let blocks = trace.blocks.address.iter().zip(&trace.blocks.allocated).map(|(at, bytes)| at.saturating_add(*bytes));
    ends.chain(blocks).max().unwrap_or(0)
}

impl Run<'_> {
    /// Begins right before the event at `first`.
    pub(super) fn begin(&mut self, start: &Start, restored: RestoredBlocks, first: At) {
        self.recorded_reserved = self.output.reserved;
        for (range, ..) in &start.segments {
            self.driver.hold(range.address, range.bytes);
        }
        for (row, block, pool) in restored {
            self.handles.put(self.output.key(row), block, pool);
        }
        self.assume(start);
        for (block, private) in &start.unplaced {
            let row = self.trace.blocks.get(*block);
            let alloc = Alloc { block: self.output.key(block.0), ..row.as_alloc(*block) };
            let bytes = Self::bytes_of(&alloc, self.plan.block_override(*block).share);
            let (pool, stream) = (self.pools.number(*private), row.stream);
            let request = Request { event: first, bytes, stream, pool, origin: (row.op, row.scope) };
            self.ask((&alloc, row.stack), &request);
            if self.replay.death.is_some() {
                return;
            }
            if self.trace.was_waiting_at_start(*block) && self.handles.has(alloc.block) {
                self.output.free_requested(first, alloc.block);
            }
        }
        for block in &self.trace.waiting_at_start {
            let key = self.output.key(block.0);
            if let Some((handle, pool)) = self.handles.take(key) {
                self.wait(key, completion_of(self.trace, *block), handle, pool);
            }
        }
    }

    /// Ends the replay after the event at `last`, once pending frees and releases are resolved.
    pub(super) fn end(&mut self, last: Option<At>) {
        if self.replay.death.is_none()
            && let Some(last) = last
        {
            self.resolve_free();
            self.resolve_releases(last);
            if self.follows()
                && let Some(left) = self.pending.first()
            {
                self.diverge(left.event, Misfit::LeftOut(left.call).into());
            }
        }
        self.conclude();
    }

    fn conclude(&mut self) {
        self.replay.retries = self.pools.all().map(|pool| pool.stats().num_alloc_retries).sum();
        let Guesses { own_releases, unknown_releases, collections, impossible, stream_is_guessed } = self.guesses;
        let mut assume = |text: String| self.replay.assumptions.push(text);
        let last_stream = self.last_stream.unwrap_or_default().0;
        if stream_is_guessed {
            assume(format!(
                "the failed request was made on stream {last_stream}, the stream of the allocation before it, because \
                 its own was not recorded"
            ));
        }
        if own_releases > 0 {
            assume(format!(
                "cached segments released right before new memory was requested from the driver ({}) were released by \
                 the allocator itself; the replay makes its own decision",
                times(own_releases)
            ));
        }
        if unknown_releases > 0 {
            assume(format!(
                "cached segments released right before new memory was requested from the driver ({}) were released by \
                 the program, because nothing shows that the device was full",
                times(unknown_releases)
            ));
        }
        if collections > 0 {
            assume(format!(
                "garbage collection ({}) releases the same segments as in the recording, because the memory limit \
                 that triggers it was not recorded",
                times(collections)
            ));
        }
        if impossible > 0 {
            let requests = if impossible == 1 { "1 request" } else { &format!("{impossible} requests") };
            assume(format!("{requests} larger than 1 EiB left out"));
        }
    }

    pub(super) fn step(&mut self, recorded: &Recorded, device: DeviceId) {
        let Recorded { at, what, done, private, .. } = *recorded;
        match (done, what) {
            (Transition::Nothing, What::Oom(oom)) => {
                self.resolve_free();
                self.fail(at, &oom, device);
            }
            (Transition::Nothing, _) => {
                self.resolve_free();
                self.resolve_lone_releases(at);
                self.output.copy(at, device, what);
            }
            (Transition::Tagged { .. }, What::Tag(block, _)) | (Transition::Used, What::Used(block)) => {
                self.resolve_free();
                if self.handles.has(block) {
                    self.output.copy(at, device, what);
                }
            }
            (Transition::Reserved | Transition::Released { .. }, _) => {
                self.resolve_free();
                let call = match what {
                    What::SegmentAlloc(Range { address, bytes, .. }) => Call::Reserve { address, bytes },
                    What::SegmentMap(Range { address, bytes, .. }) => Call::Map { address, bytes },
                    What::SegmentFree(Range { address, bytes, .. }) => Call::Release { address, bytes },
                    What::SegmentUnmap(Range { address, bytes, .. }) => Call::Unmap { address, bytes },
                    _ => return,
                };
                self.push_pending(Pending { call, event: at, private });
                self.count_recorded(call);
            }
            (Transition::Allocated { .. }, What::Alloc(alloc)) => {
                self.resolve_free();
                self.alloc(recorded, &alloc);
            }
            (Transition::FreeRequested, What::FreeRequested(block)) => {
                self.resolve_free();
                self.resolve_releases(at);
                self.freed = Some(Freed { block, requested: at, completion: recorded.completion });
            }
            (Transition::FreeCompleted { .. }, What::FreeCompleted(block)) => self.free_completed(at, block),
            _ => {}
        }
    }

    fn count_recorded(&mut self, call: Call) {
        match call {
            Call::Reserve { bytes, .. } | Call::Map { bytes, .. } => {
                self.recorded_reserved = self.recorded_reserved.saturating_add(bytes);
            }
            Call::Release { bytes, .. } | Call::Unmap { bytes, .. } => {
                self.recorded_reserved = self.recorded_reserved.saturating_sub(bytes);
            }
            Call::Completed { .. } => {}
        }
    }

    fn alloc(&mut self, recorded: &Recorded, alloc: &Alloc) {
        let Recorded { at, former, private, change, .. } = *recorded;
        if let Some(gone) = former
            && !self.complete(at, gone)
        {
            self.free_now(at, gone, true);
        }
        let stream = alloc.stream;
        let pool = self.pools.number(private);
        let (bytes, origin) = (Self::bytes_of(alloc, change.share), (alloc.op, alloc.scope));
        let request = Request { event: at, bytes, stream, pool, origin };
        self.has_streams |= self.last_stream.is_some_and(|last| last != stream);
        self.last_stream = Some(stream);
        self.resolve_calls(&request);
        if !change.is_removed {
            self.ask((alloc, at.stack), &request);
        }
        self.clear_pending();
    }

    /// Allocates a block as recorded, with its stack, and stores its handle for the free.
    fn ask(&mut self, recorded: (&Alloc, StackId), request: &Request) {
        match self.serve(request) {
            Ok(block) => {
                self.report(request, &block);
                self.output.alloc(request.event, recorded, &block, self.pools.private(request.pool));
                self.compare(request.event, recorded.0, &block);
                self.handles.put(recorded.0.block, block, request.pool);
            }
            Err(AllocError::OutOfMemory(report)) => {
                self.report_failed(request);
                self.die_of(request, *report);
            }
            Err(AllocError::TooLarge { .. }) => self.guesses.impossible += 1,
            Err(other) => self.die(request, &other.to_string()),
        }
    }

    /// Replays a request that failed in the recording.
    fn fail(&mut self, event: At, oom: &Oom, device: DeviceId) {
        let stream = oom.stream.unwrap_or_else(|| self.last_stream());
        let (bytes, origin) = (oom.requested.max(1), (oom.op, oom.scope));
        let mut request = Request { event, bytes, stream, pool: 0, origin };
        if !self.follows() && self.are_asked_for() {
            self.resolve_releases(event);
        }
        let target = self.plan.target.filter(|_| !self.follows());
        if let Some(target) = target.filter(|target| u64::from(target.event.0) == event.number) {
            request.stream = target.stream;
            request.pool = self.pools.number(target.private);
            self.prepare(&request, target.before);
        }
        let is_target = target.is_some_and(|target| u64::from(target.event.0) == event.number);
        self.guesses.stream_is_guessed |= oom.stream.is_none() && self.has_streams && !is_target;
        let served = self.serve_failed(&request);
        match served {
            Ok(block) => {
                self.report(&request, &block);
                self.output.passing(&request, &block);
                self.pools.get(request.pool).free(block);
                self.replay.rescued.push(event.number);
            }
            Err(AllocError::OutOfMemory(report)) => {
                self.report_failed(&request);
                let goes_on = target.is_some_and(|target| event.number < u64::from(target.event.0));
                if self.follows() || goes_on {
                    self.output.copy(event, device, What::Oom(*oom));
                } else {
                    self.die_of(&request, *report);
                }
            }
            Err(_) => self.guesses.impossible += 1,
        }
        self.clear_pending();
    }

    /// Performs the program's action right before the target's request.
    fn prepare(&mut self, request: &Request, before: Before) {
        for pool in self.pools.all() {
            // The device of a replay accepts every release, and completes events when they are waited for.
            match before {
                Before::Nothing => {}
                Before::EmptyCache => drop(pool.empty_cache()),
                Before::Synchronize => drop(pool.synchronize_events()),
            }
        }
        self.report_failed(request);
    }

    /// Makes the block of the last requested free await another stream, since its completion did not follow
    /// immediately.
    fn resolve_free(&mut self) {
        let Some(Freed { block, requested, completion }) = self.freed.take() else { return };
        if let Some((handle, pool)) = self.handles.take(block) {
            self.output.free_requested(requested, block);
            self.wait(block, completion, handle, pool);
        }
    }

    fn free_completed(&mut self, event: At, block: u64) {
        if let Some(Freed { requested, .. }) = self.freed.filter(|freed| freed.block == block) {
            self.freed = None;
            if let Some((handle, pool)) = self.handles.take(block) {
                self.output.free_requested(requested, block);
                self.pools.get(pool).free(handle);
                self.output.free_completed(event, block);
            }
            return;
        }
        self.resolve_free();
        // Completions within a retry are between its releases, which belong to the retried request.
        if self.plan.recorded.max_split_bytes().is_none() {
            self.resolve_lone_releases(event);
        }
        if !self.complete(event, block) {
            self.free_now(event, block, false);
        }
    }

    /// Handles pending releases that belong to no request, if the recording reserved nothing after them.
    fn resolve_lone_releases(&mut self, event: At) {
        if self.pending_releases == self.pending.len() {
            self.resolve_releases(event);
        }
    }

    /// Returns the stream of the last request, or the default stream before the first.
    fn last_stream(&self) -> StreamId {
        self.last_stream.unwrap_or_default()
    }

    /// Completes the event of a block, and returns whether the block awaits one.
    fn complete(&mut self, event: At, block: u64) -> bool {
        self.complete_queue(event, block);
        if !self.driver.complete(block) {
            return false;
        }
        for pool in self.pools.all() {
            // Only queries events of the replay's device, which cannot fail.
            drop(pool.process_events());
        }
        let home = PoolAndStream { stream: self.last_stream(), pool: self.plan.config.pool(1), private: None };
        self.report_calls(event, home);
        true
    }

    /// Frees a block that is freed in the recording, unless it has already been freed.
    fn free_now(&mut self, event: At, block: u64, is_requested: bool) {
        let Some((handle, pool)) = self.handles.take(block) else { return };
        if is_requested {
            self.output.free_requested(event, block);
        }
        self.pools.get(pool).free(handle);
        self.output.free_completed(event, block);
    }

    /// Frees the blocks whose last use was at or before `event`, if the replay frees blocks after their last use.
    fn end_used(&mut self, event: At) {
        while let Some((after, block)) = self.endings.get(self.next_ending).copied()
            && after <= event.number
        {
            self.next_ending += 1;
            self.resolve_lone_releases(event);
            self.free_now(event, block, true);
        }
    }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
