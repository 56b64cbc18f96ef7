//! Checks, while a device's events are added, that its blocks fit into its segments and that no segments overlap.

use crate::error::Problem;
use crate::event::Range;
use crate::ids::DeviceId;
use crate::units::{format_bytes, format_count};

/// The reserved and active bytes of one device, and the contradictions found between them.
#[derive(Clone, Debug, Default)]
pub struct SumRule {
    active: u64,
    reserved: u64,
    /// Number of events of the recording before the window.
    before: u64,
    /// Whether a segment or mapping was recorded; some recorders do not record them.
    has_segments: bool,
    /// Number of events after which active bytes first exceeded reserved bytes, and the largest excess; `None` if they
    /// never did.
    exceeded: Option<(u64, Excess)>,
    /// The first two segments that overlap, and the number of overlapping pairs of neighbouring segments; `None`
    /// if no segments overlap.
    overlap: Option<([Range; 2], u64)>,
}

/// Totals of which `active` exceeds `reserved`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excess {
    pub(crate) active: u64,
    pub(crate) reserved: u64,
}

impl SumRule {
    #[inline]
    pub(crate) fn begin(&mut self, bytes: u64, events: usize) {
        self.active += bytes;
        self.check(events);
    }

    #[inline]
    pub(crate) fn end(&mut self, bytes: u64) {
        self.active -= bytes;
    }

    pub(crate) fn reserve(&mut self, bytes: u64) {
        self.has_segments = true;
        self.reserved += bytes;
    }

    pub(crate) fn compare(&mut self, range: Range, other: Range) {
        let end = |range: &Range| range.address.saturating_add(range.bytes);
        if range.address < end(&other) && other.address < end(&range) {
            self.overlap.get_or_insert(([other, range], 0)).1 += 1;
        }
    }

    pub(crate) fn release(&mut self, bytes: u64, events: usize) {
        self.reserved = self.reserved.saturating_sub(bytes);
        self.check(events);
    }

    /// Checks the totals after `events` events of the window.
    #[inline]
    pub(crate) fn check(&mut self, events: usize) {
        if self.active > self.reserved && self.has_segments {
            let now = Excess { active: self.active, reserved: self.reserved };
            let (_, most) = self.exceeded.get_or_insert((self.before + events as u64, now));
            *most = most.larger(now);
        }
    }

    /// Sets the number of events before a window. Discards overlaps among the segments of its starting state, which
    /// were reported for the previous window.
    pub(crate) fn begin_window(&mut self, events: u64) {
        self.before = events;
        self.overlap = self.overlap.filter(|_| events == 0);
    }

    /// Adds the findings of the next window.
    pub fn merge(&mut self, next: &Self) {
        self.exceeded = match (self.exceeded, next.exceeded) {
            (Some((first, excess)), Some((_, next))) => Some((first, excess.larger(next))),
            (one, other) => one.or(other),
        };
        self.overlap = match (self.overlap, next.overlap) {
            (Some((pair, count)), Some((_, more))) => Some((pair, count + more)),
            (one, other) => one.or(other),
        };
    }

    /// The problems found for `device`.
    pub fn problems(&self, device: DeviceId) -> Vec<Problem> {
        let exceeded = self.exceeded.map(|(events, excess)| excess.problem(device, events));
        let overlap = self.overlap.map(|([one, other], count)| {
            let more = if count > 1 { format!(" (further pairs: {})", format_count(count - 1)) } else { String::new() };
            let [at, also] = [one, other].map(|range| format!("{:#x} ({})", range.address, format_bytes(range.bytes)));
            let what = format!("device {}: segments at {at} and {also} overlap{more}: reserved is too high", device.0);
            Problem::of_sums(what)
        });
        exceeded.into_iter().chain(overlap).collect()
    }
}

impl Excess {
    pub(crate) fn larger(self, other: Self) -> Self {
        if other.active - other.reserved > self.active - self.reserved { other } else { self }
    }

    pub(crate) fn problem(&self, device: DeviceId, events: u64) -> Problem {
        let since = events
            .checked_sub(1)
            .map_or("before the first event".to_owned(), |event| format!("from event {} on", format_count(event)));
        let [active, reserved] = [self.active, self.reserved].map(format_bytes);
        Problem::of_sums(format!(
            "device {}: live blocks exceed the segments {since}, by up to {}: {active} active, {reserved} reserved",
            device.0,
            format_bytes(self.active - self.reserved)
        ))
    }
}
