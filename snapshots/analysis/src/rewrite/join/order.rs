//! Merges the events of several recordings by time, preserving the order within each recording.

use highwater_snapshots::ids::EventId;

/// Iterates over all events of several recordings in order of time. The items are indices of recordings.
pub(super) struct Order<'a> {
    heads: Vec<Head<'a>>,
}

/// A recording and its current position.
struct Head<'a> {
    times_ns: &'a [u64],
    shift_ns: u64,
    next: usize,
    /// The latest time up to the next event. Threads may record slightly out of order, but events keep their order.
    time_ns: u64,
}

impl<'a> Order<'a> {
    /// Merges recordings, given as event times and the offset to add to these times.
    pub(super) fn of(recordings: Vec<(&'a [u64], u64)>) -> Self {
        let head = |(times_ns, shift_ns)| {
            let mut head = Head { times_ns, shift_ns, next: 0, time_ns: 0 };
            head.reach();
            head
        };
        Self { heads: recordings.into_iter().map(head).collect() }
    }
}

impl Head<'_> {
    fn is_over(&self) -> bool {
        self.next >= self.times_ns.len()
    }

    fn reach(&mut self) {
        if let Some(time) = self.times_ns.get(self.next) {
            self.time_ns = self.time_ns.max(time.saturating_add(self.shift_ns));
        }
    }
}

impl Iterator for Order<'_> {
    type Item = (usize, EventId);

    fn next(&mut self) -> Option<Self::Item> {
        let heads = self.heads.iter().enumerate().filter(|(_, head)| !head.is_over());
        let (index, _) = heads.min_by_key(|(index, head)| (head.time_ns, *index))?;
        let head = &mut self.heads[index];
        let event = EventId::from_index(head.next);
        head.next += 1;
        head.reach();
        Some((index, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_go_by_time_and_at_one_time_by_recording_and_wait_for_those_before_them() {
        let order = Order::of(vec![(&[0, 10, 5, 20], 0), (&[0, 7, 10], 3), (&[], 9)]);
        let order: Vec<(usize, u32)> = order.map(|(index, id)| (index, id.0)).collect();
        assert_eq!(order, [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (1, 2), (0, 3)]);
    }
}
