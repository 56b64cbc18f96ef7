//! Merges the events of several devices by time, keeping the order within each device's trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::raw::RawEvent;

/// An event in the merged order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) trace: usize,
    pub(super) position: usize,
    /// Time in microseconds, or the preceding event's time if that is later.
    pub(super) time_us: u64,
}

/// Calls `each` with every event of `traces`. At equal times the first trace comes first, so traces without times
/// follow one another. For each trace, returns the number of events that are earlier than an event before them.
pub(super) fn merge<'a>(traces: &[&'a [RawEvent]], mut each: impl FnMut(Next, &'a RawEvent)) -> Vec<u64> {
    let mut backwards = vec![0; traces.len()];
    // The next event of each trace: time, trace, position.
    let mut heads = BinaryHeap::with_capacity(traces.len());
    for (trace, events) in traces.iter().enumerate() {
        heads.extend(events.first().map(|event| Reverse((event.time_us, trace, 0))));
    }
    while let Some(Reverse((time_us, trace, first))) = heads.pop() {
        let others = heads.peek().map(|Reverse((time_us, trace, _))| (*time_us, *trace));
        let mut latest = time_us;
        for (position, event) in traces[trace].iter().enumerate().skip(first) {
            let time_us = latest.max(event.time_us);
            if others.is_some_and(|other| other < (time_us, trace)) {
                heads.push(Reverse((time_us, trace, position)));
                break;
            }
            backwards[trace] += u64::from(event.time_us < time_us);
            latest = time_us;
            each(Next { trace, position, time_us }, event);
        }
    }
    backwards
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(times: &[u64]) -> Vec<RawEvent> {
        let event = RawEvent {
            address: 0,
            size: 0,
            time_us: 0,
            stream: 0,
            stack: 0,
            extras: 0,
            action: crate::raw::Action::Snapshot,
        };
        times.iter().map(|&time_us| RawEvent { time_us, ..event }).collect()
    }

    fn merged(traces: &[Vec<RawEvent>]) -> (Vec<(usize, usize, u64)>, Vec<u64>) {
        let mut order = Vec::new();
        let traces: Vec<&[RawEvent]> = traces.iter().map(Vec::as_slice).collect();
        let backwards = merge(&traces, |next, _| order.push((next.trace, next.position, next.time_us)));
        (order, backwards)
    }

    #[test]
    fn devices_interleave_by_time_and_keep_their_own_order() {
        let (order, backwards) = merged(&[trace(&[1, 5, 4, 9]), trace(&[2, 5, 8])]);
        let expected = [(0, 0, 1), (1, 0, 2), (0, 1, 5), (0, 2, 5), (1, 1, 5), (1, 2, 8), (0, 3, 9)];
        assert_eq!(order, expected);
        assert_eq!(backwards, [1, 0]);
    }

    #[test]
    fn traces_without_times_follow_one_another() {
        let (order, _) = merged(&[trace(&[0, 0]), trace(&[]), trace(&[0, 0])]);
        assert_eq!(order, [(0, 0, 0), (0, 1, 0), (2, 0, 0), (2, 1, 0)]);
    }

    proptest! {
        #[test]
        fn every_event_comes_once_and_times_never_fall(
            times in prop::collection::vec(prop::collection::vec(0_u64..20, 0..20), 0..5)
        ) {
            let traces: Vec<_> = times.iter().map(|times| trace(times)).collect();
            let (order, _) = merged(&traces);
            prop_assert_eq!(order.len(), times.iter().map(Vec::len).sum::<usize>());
            prop_assert!(order.windows(2).all(|pair| pair[0].2 <= pair[1].2));
            for (number, trace) in traces.iter().enumerate() {
                let places: Vec<usize> = order.iter().filter(|row| row.0 == number).map(|row| row.1).collect();
                prop_assert_eq!(places, (0..trace.len()).collect::<Vec<_>>());
            }
        }
    }
}
