//! Small hand-made snapshots for tests.

use crate::raw::{BlockState, Extras, RawAnnotation, RawEvent, RawFrame, RawSegment};
use crate::{BlockDraft, EventDraft, Intake};
use highwater_analysis::Totals;
use highwater_analysis::replay::Replay;
use highwater_snapshots::Trace;
use highwater_snapshots::ids::{DeviceId, StringId};

pub(crate) const MIB: u64 = 1 << 20;

/// A snapshot being built. Each event is one microsecond after the preceding one.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) intake: Intake,
    traces: Vec<Vec<RawEvent>>,
    host: Vec<RawEvent>,
    pub(crate) clock: u64,
}

impl Sample {
    /// Creates a snapshot with events of device 0, given as action, address and size.
    pub(crate) fn of(events: &[(&str, u64, u64)]) -> Self {
        let mut sample = Self { clock: 1_000_000, ..Self::default() };
        for &(action, address, size) in events {
            sample.event(0, action, address, size);
        }
        sample
    }

    pub(crate) fn event(&mut self, device: usize, action: &str, address: u64, size: u64) {
        self.event_with(device, action, address, size, |_, _| {});
    }

    pub(crate) fn event_with(
        &mut self,
        device: usize,
        action: &str,
        address: u64,
        size: u64,
        more: impl FnOnce(&mut Intake, &mut EventDraft),
    ) {
        let action = self.intake.text(action);
        let mut draft = EventDraft { action, address, size, time_us: self.clock, ..EventDraft::default() };
        self.clock = self.clock.wrapping_add(1);
        more(&mut self.intake, &mut draft);
        let event = self.intake.event(&draft);
        if device == 255 {
            self.host.push(event);
        } else {
            self.traces.resize_with(self.traces.len().max(device + 1), Vec::new);
            self.traces[device].push(event);
        }
    }

    /// Adds a segment of the final state; its blocks are given as size, requested size and state.
    pub(crate) fn segment(&mut self, address: u64, blocks: &[(u64, u64, BlockState)]) -> &mut Self {
        self.segment_with(address, blocks, |_| {})
    }

    pub(crate) fn segment_with(
        &mut self,
        address: u64,
        blocks: &[(u64, u64, BlockState)],
        more: impl FnOnce(&mut RawSegment),
    ) -> &mut Self {
        let total_size = blocks.iter().map(|block| block.0).sum();
        let is_small = total_size <= 2 * MIB;
        let mut segment = RawSegment { address, total_size, is_small, ..RawSegment::default() };
        more(&mut segment);
        let blocks: Vec<BlockDraft> = blocks
            .iter()
            .map(|&(size, requested, state)| BlockDraft {
                size,
                requested_size: Some(requested),
                state,
                ..BlockDraft::default()
            })
            .collect();
        let is_host = segment.device == -1;
        self.intake.segment(segment, &blocks, is_host);
        self
    }

    pub(crate) fn annotation(&mut self, name: &str, is_start: bool, time_us: u64) {
        let name = self.intake.text(name);
        self.intake.annotation(RawAnnotation { name, is_start, device: 0, time_us });
    }

    pub(crate) fn assemble(mut self) -> Trace {
        for (device, trace) in self.traces.into_iter().enumerate() {
            self.intake.trace(device, trace);
        }
        self.intake.host_trace(self.host);
        crate::assemble(self.intake.finish())
    }
}

/// Interns a stack of frames given as function, file and line.
pub(crate) fn stack(intake: &mut Intake, frames: &[(&str, &str, u32)]) -> u32 {
    let rows: Vec<u32> = frames
        .iter()
        .map(|&(name, file, line)| {
            let (name, file) = (intake.text(name), intake.text(file));
            intake.frame(RawFrame { name, file, line, fx: StringId::NONE })
        })
        .collect();
    intake.stack(&rows)
}

/// Returns the extras of an event in a private pool.
pub(crate) fn private(a: u64, b: u64) -> Extras {
    Extras { pool_id: (a, b), ..Extras::default() }
}

/// Returns the totals of a device before the first event and after each.
pub(crate) fn totals(trace: &Trace, device: u16) -> Vec<Totals> {
    let mut replay = Replay::new(trace, DeviceId(device));
    let mut totals = vec![replay.totals()];
    while replay.step().is_some() {
        totals.push(replay.totals());
    }
    totals
}

/// Like [`totals`], with each row as requested, allocated, active and reserved bytes.
pub(crate) fn rows(trace: &Trace, device: u16) -> Vec<[u64; 4]> {
    totals(trace, device).iter().map(|row| [row.requested, row.allocated, row.active, row.reserved]).collect()
}
