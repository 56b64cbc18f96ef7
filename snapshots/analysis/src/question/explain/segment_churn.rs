//! Counts the segments that a device frees to the driver and allocates again.

use std::collections::HashMap;

use crate::stacks::frames::user_line;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{DeviceId, StackId};
use highwater_snapshots::trace::Trace;

/// Minimum number of segments that must be freed, and of those that must be allocated again, for advice.
const MIN_AGAIN: u64 = 20;

/// A device's allocations of segments from the driver, and frees of segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentChurn {
    /// Number of events of the device.
    pub(super) events: u64,
    /// Segments, or mappings of expandable segments, that were allocated before the first free.
    pub(super) first: ReservedSegments,
    /// Segments, or mappings, that were allocated after the first free.
    pub(super) again: ReservedSegments,
    pub(super) freed: u64,
    /// Number of segments that were freed within a request that then allocated a segment, according to the call stack.
    pub(super) freed_by_requests: u64,
    /// Whether call stacks of frees are recorded.
    pub(super) has_stacks: bool,
    /// Number of frees by source line.
    pub(super) freed_at: HashMap<String, u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ReservedSegments {
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// Number of segments by source line.
    pub(super) at: HashMap<String, u64>,
}

impl ReservedSegments {
    fn plus(mut self, other: Self) -> Self {
        (self.count, self.bytes) = (self.count + other.count, self.bytes + other.bytes);
        self.at = joined(self.at, other.at);
        self
    }
}

fn joined(mut one: HashMap<String, u64>, other: HashMap<String, u64>) -> HashMap<String, u64> {
    other.into_iter().for_each(|(line, count)| *one.entry(line).or_default() += count);
    one
}

impl SegmentChurn {
    pub(crate) fn of(trace: &Trace, device: DeviceId) -> Self {
        let mut churn = Self::default();
        let mut lines: HashMap<StackId, Option<String>> = HashMap::new();
        let mut line = |row: usize| {
            let stack = trace.events.stack[row];
            let text = || user_line(&trace.tables, stack).map(|line| trace.tables.line_text(&line));
            lines.entry(stack).or_insert_with(text).clone()
        };
        // The stacks of segments that were freed since the last event of another kind.
        let mut freed: Vec<StackId> = Vec::new();
        for row in (0..trace.events.len()).filter(|row| trace.events.device[*row] == device) {
            churn.events += 1;
            let stack = trace.events.stack[row];
            let counted = match trace.events.kind[row] {
                EventKind::SegmentAlloc | EventKind::SegmentMap => {
                    // A request frees cached segments where memory is short, and repeats its allocation.
                    churn.freed_by_requests += freed.drain(..).filter(|of| of.is_some() && *of == stack).count() as u64;
                    let obtained = if churn.freed == 0 { &mut churn.first } else { &mut churn.again };
                    obtained.count += 1;
                    obtained.bytes += trace.segments.range[trace.events.subject[row] as usize].bytes;
                    &mut obtained.at
                }
                EventKind::SegmentFree | EventKind::SegmentUnmap => {
                    churn.freed += 1;
                    churn.has_stacks |= stack.is_some();
                    freed.push(stack);
                    &mut churn.freed_at
                }
                _ => {
                    freed.clear();
                    continue;
                }
            };
            if let Some(line) = line(row) {
                *counted.entry(line).or_default() += 1;
            }
        }
        churn
    }

    pub(crate) fn followed_by(self, later: Self) -> Self {
        let (first, again) = match self.freed {
            0 => (self.first.plus(later.first), self.again.plus(later.again)),
            _ => (self.first, self.again.plus(later.first).plus(later.again)),
        };
        let freed_at = joined(self.freed_at, later.freed_at);
        Self {
            events: self.events + later.events,
            first,
            again,
            freed: self.freed + later.freed,
            freed_by_requests: self.freed_by_requests + later.freed_by_requests,
            has_stacks: self.has_stacks || later.has_stacks,
            freed_at,
        }
    }

    /// Returns whether there are enough frees and repeated allocations, and at least half as many of the latter.
    pub(super) fn is_significant(&self) -> bool {
        self.again.count >= MIN_AGAIN && self.freed >= MIN_AGAIN && self.again.count * 2 >= self.freed
    }

    /// Returns whether most of the segments were freed by requests rather than by the program.
    pub(super) fn is_by_requests(&self) -> bool {
        self.freed_by_requests * 2 > self.freed
    }
}
