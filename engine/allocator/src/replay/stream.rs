//! Replays a recording event by event, so that it need not be in memory. Keeps only live blocks and segments.

use std::ops::ControlFlow;

use highwater_recorder::snapshots::event::{Event, What};
use highwater_recorder::snapshots::live_state::LiveState;
use highwater_recorder::snapshots::stage::Stage;
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::snapshots::transition::{Named, Transition};
use highwater_recorder::snapshots::{DeviceId, StartingState, Trace, TraceBuilder};

use super::output::Output;
use super::pools::RestoredBlocks;
use super::recorded::{At, Recorded, UNKNOWN};
use super::run::{ReplayOutcome, Run};
use super::start::Start;
use super::{BlockOverride, Plan};

/// The facts that the replay of a stream needs before its first event.
#[derive(Clone, Debug)]
pub struct StreamStart {
    /// The recording's facts and tables, with the live blocks.
    trace: Trace,
    /// The keys of the live blocks, by row.
    keys: Vec<u64>,
    states: Vec<StartingState>,
    addresses_end: u64,
}

impl StreamStart {
    /// Creates the start of a recording from `facts`, which has its header, devices, tables and trust, and the end of
    /// its addresses, `addresses_end`.
    pub fn new(facts: &Trace, states: &[StartingState], addresses_end: u64) -> Self {
        // A trace has no others.
        let states: Vec<StartingState> = states.iter().filter(|state| state.device.0 < 256).cloned().collect();
        let mut builder = TraceBuilder::with_capacity(0);
        builder.set_header(facts.header.clone());
        facts.devices.iter().for_each(|device| builder.set_device(device.clone()));
        *builder.tables() = facts.tables.clone();
        *builder.trust() = facts.trust.clone();
        states.iter().for_each(|state| builder.set_starting_state(state));
        let keys = states.iter().flat_map(|state| &state.blocks).map(|block| block.alloc.block).collect();
        Self { trace: builder.finish(), keys, states, addresses_end }
    }
}

/// A running replay of events that are passed one by one.
pub struct Stream<'a> {
    run: Run<'a>,
    /// The state that the replay starts with, until the first event.
    start: Option<(Start, RestoredBlocks)>,
    /// The live state of the device in the recording.
    live: LiveState,
    last: Option<At>,
}

impl<'a> Stream<'a> {
    /// Creates a replay with `plan`. Blocks keep their recorded keys. Also returns the facts of the device, and the
    /// state before its first event.
    pub fn new(start: &'a StreamStart, plan: &'a Plan<'a>) -> (Self, DeviceFacts, StartingState) {
        let StreamStart { trace, keys, states, addresses_end } = start;
        let begun = Start::of(trace, plan);
        let output = Output::events((trace, keys), plan);
        let (mut run, restored) = Run::new(trace, plan, &begun, (*addresses_end, output));
        let state = run.output.start(&begun).unwrap_or_default();
        let mut live = LiveState::default();
        states.iter().filter(|state| state.device == plan.device).for_each(|state| live.begin(state));
        let facts = run.output.device_facts();
        (Self { run, start: Some((begun, restored)), live, last: None }, facts, state)
    }

    /// Returns the replayed events that the caller has not removed yet, in order.
    pub fn events(&mut self) -> &mut Vec<Event> {
        self.run.output.made().expect("the stream did not keep its events")
    }

    /// Replays the next recorded event, given its index and the change to the block that it allocates, of which
    /// [`BlockOverride::ends_after`] is ignored. Breaks at a failed request at which the replay ends.
    pub fn take(&mut self, number: u64, event: &Event, change: BlockOverride) -> ControlFlow<()> {
        let at = At { number, time_ns: event.time_ns, stack: event.stack };
        self.begin(at);
        self.last = Some(at);
        if self.run.replay.death.is_none() {
            let is_here = event.device == self.run.plan.device;
            if is_here || is_everywhere(self.run.trace, event) {
                self.step(at, event, is_here.then_some(change));
            }
        }
        if self.run.replay.death.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn begin(&mut self, first: At) {
        if let Some((start, restored)) = self.start.take() {
            self.run.begin(&start, restored, first);
        }
    }

    /// Replays an event, with the change to its block, if the event belongs to the replayed device.
    fn step(&mut self, at: At, event: &Event, change: Option<BlockOverride>) {
        let done = if change.is_some() { self.live.transition(&event.what) } else { Transition::Nothing };
        let former = match (done, event.what) {
            (Transition::Allocated { former: Named::Live | Named::Waiting }, What::Alloc(alloc)) => Some(alloc.block),
            _ => None,
        };
        if change.is_some() {
            self.live.apply(event, done, at.number, &Stage::default());
        }
        let change = change.unwrap_or_default();
        let recorded = Recorded { at, what: event.what, done, former, completion: UNKNOWN, private: None, change };
        self.run.step(&recorded, event.device);
    }

    /// Ends the replay after the last event, which may add further events.
    pub fn end(&mut self) {
        self.begin(At::default());
        self.run.end(self.last);
    }

    /// Returns the result. The replay must have [ended](Self::end).
    pub fn finish(self) -> ReplayOutcome {
        self.run.replay
    }
}

impl std::fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("last", &self.last).finish_non_exhaustive()
    }
}

/// Whether an event concerns every device, as in [`Trace::is_everywhere`].
fn is_everywhere(facts: &Trace, event: &Event) -> bool {
    match event.what {
        What::Step(_) | What::Phase(_) => true,
        What::Mark(_) => event.device == DeviceId(0) && facts.header.recorder.starts_with("highwater"),
        _ => false,
    }
}
