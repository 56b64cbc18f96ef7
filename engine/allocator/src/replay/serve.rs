//! Serves recorded requests and releases with the allocator, on a device that behaves as recorded or as modelled.

use highwater_recorder::StreamId;

use super::Difference;
use super::driver::{Call, Misfit};
use super::output::PoolAndStream;
use super::recorded::{At, Pending, Request};
use super::run::Run;
use crate::{AllocError, Block};

impl Run<'_> {
    /// Handles the recorded releases before a request that were requested by the program, not made by the allocator.
    pub(super) fn resolve_calls(&mut self, request: &Request) {
        if self.pending_releases == 0 {
            return;
        }
        let obtains = self.pending_releases < self.pending.len();
        // A request that the cache could serve needs no release. Releases requested by the program come first.
        if !obtains || self.are_asked_for() {
            self.resolve_releases(request.event);
        } else if self.follows() && self.could_serve(request) {
            self.replay.cache_flushes.extend(self.first_release());
            self.resolve_releases(request.event);
        } else if !self.follows() {
            self.resolve_unknown(request.event);
        } else if self.collects_unseen() {
            self.release_as_recorded(request);
        }
    }

    /// Handles releases right before memory is reserved. They are the allocator's if the device was full, otherwise the
    /// program's.
    fn resolve_unknown(&mut self, event: At) {
        let has_stack = |pending: &Pending| pending.event.stack.is_some();
        let is_own = match self.plan.recorded_capacity {
            // The call stack is known and does not show the program emptying the cache.
            _ if self.pending.iter().any(|pending| !pending.call.obtains() && has_stack(pending)) => true,
            Some(capacity) => self.recorded_before_pending() > capacity,
            None => false,
        };
        if is_own {
            self.guesses.own_releases += 1;
        } else {
            self.guesses.unknown_releases += 1;
            self.resolve_releases(event);
        }
    }

    /// Returns the bytes that would be reserved after the pending calls without the releases among them.
    fn recorded_before_pending(&self) -> u64 {
        let released = self.pending.iter().map(|pending| match pending.call {
            Call::Release { bytes, .. } | Call::Unmap { bytes, .. } => bytes,
            _ => 0,
        });
        released.fold(self.recorded_reserved, u64::saturating_add)
    }

    /// Returns the event index of the first pending release; `None` if none is pending.
    fn first_release(&self) -> Option<u64> {
        self.pending.iter().find(|pending| !pending.call.obtains()).map(|pending| pending.event.number)
    }

    fn could_serve(&self, request: &Request) -> bool {
        self.pools.get(request.pool).could_serve(request.bytes, request.stream)
    }

    /// Returns whether segments are garbage collected because of a limit that is not in the recording.
    fn collects_unseen(&self) -> bool {
        self.plan.config.garbage_collection_threshold().is_some() && !self.is_limit_known()
    }

    /// Releases the segments that the recording releases before it reserves any memory.
    fn release_as_recorded(&mut self, request: &Request) {
        let count = self.pending.iter().take_while(|pending| !pending.call.obtains()).count();
        let obtained = self.pending.split_off(count);
        let released = std::mem::take(&mut self.pending);
        self.pending_releases -= released.len();
        self.guesses.collections += 1;
        self.driver.expect(released.iter().map(|pending| pending.call), false);
        for pending in &released {
            if let Call::Release { address, .. } = pending.call {
                // The device of a replay accepts every release.
                drop(self.pools.get(0).release_at(address));
            }
        }
        let last = released.last().map_or(request.event, |last| last.event);
        self.pending = released;
        self.end_releases(last);
        self.pending = obtained;
    }

    /// Empties the cache, as the program did if the recording releases memory without a request.
    pub(super) fn resolve_releases(&mut self, event: At) {
        if self.pending_releases == 0 {
            return;
        }
        let calls = std::mem::take(&mut self.pending);
        self.pending_releases = 0;
        let (obtained, released): (Vec<Pending>, Vec<Pending>) =
            calls.into_iter().partition(|pending| pending.call.obtains());
        if self.follows() {
            self.driver.expect(released.iter().map(|pending| pending.call), false);
        }
        // A private pool may be emptied on its own.
        let mut numbers: Vec<usize> = if self.follows() { Vec::new() } else { vec![0] };
        numbers.extend(released.iter().map(|pending| self.pools.number(pending.private)));
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            // The device of a replay accepts every release.
            drop(self.pools.get(number).empty_cache());
        }
        let last = released.last().map_or(event, |last| last.event);
        self.pending = released;
        self.end_releases(last);
        // Memory that the recording reserved is for the next request.
        self.pending = obtained;
    }

    fn end_releases(&mut self, event: At) {
        if self.follows()
            && let Some(misfit) = self.driver.end_expecting()
        {
            self.diverge(event, misfit.into());
        }
        let home = PoolAndStream { stream: StreamId(0), pool: self.plan.config.pool(1), private: None };
        self.report_calls(event, home);
    }

    /// Serves a request that succeeded in the recording.
    pub(super) fn serve(&mut self, request: &Request) -> Result<Block, AllocError> {
        let (mut served, misfit) = self.serve_expecting(request, false);
        if !self.follows() {
            return served;
        }
        if matches!(served, Err(AllocError::OutOfMemory(_))) {
            self.diverge(request.event, Difference::Outcome { requested: request.bytes, fails: true });
            served = self.pools.get(request.pool).malloc(request.bytes, request.stream);
            // The memory reserved from here on is part of the same difference.
            self.driver.end_expecting();
        } else if let Some(misfit) = misfit {
            self.diverge(request.event, misfit.into());
        }
        served
    }

    pub(super) fn serve_failed(&mut self, request: &Request) -> Result<Block, AllocError> {
        let (served, misfit) = self.serve_expecting(request, true);
        if !self.follows() {
            return served;
        }
        if served.is_ok() {
            self.diverge(request.event, Difference::Outcome { requested: request.bytes, fails: false });
        } else if let Some(misfit) = misfit {
            self.diverge(request.event, misfit.into());
        }
        served
    }

    fn serve_expecting(&self, request: &Request, fails: bool) -> (Result<Block, AllocError>, Option<Misfit>) {
        if self.follows() {
            self.driver.expect(self.pending.iter().map(|pending| pending.call), fails);
        }
        let allocator = self.pools.get(request.pool);
        let mut served = allocator.malloc(request.bytes, request.stream);
        if matches!(served, Err(AllocError::OutOfMemory(_))) && self.pools.len() > 1 {
            // When out of memory, the caches of the other pools are released as well.
            for number in (0..self.pools.len()).filter(|number| *number != request.pool) {
                // The device of a replay accepts every release.
                drop(self.pools.get(number).empty_cache());
            }
            served = allocator.malloc(request.bytes, request.stream);
        }
        (served, if self.follows() { self.driver.end_expecting() } else { None })
    }

    /// Returns whether the program itself empties the cache, according to the unchanged replay or the call stacks of
    /// the pending releases.
    pub(super) fn are_asked_for(&self) -> bool {
        if self.first_release().is_some_and(|first| self.plan.cache_flushes.binary_search(&first).is_ok()) {
            return true;
        }
        let releases = self.pending.iter().filter(|pending| !pending.call.obtains());
        let mut stacks: Vec<_> = releases.map(|pending| pending.event.stack).collect();
        stacks.dedup();
        stacks.into_iter().any(|stack| {
            let frames = self.trace.tables.stack_text(stack);
            frames.iter().any(|frame| frame.contains("empty_cache") || frame.contains("emptyCache"))
        })
    }
}
