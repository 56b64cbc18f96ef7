//! Property tests of joining arbitrary recordings, valid or contradictory.

use proptest::collection::vec;
use proptest::prelude::*;

use highwater_analysis::join::{JoinPart, join};
use highwater_analysis::{Series, Totals};
use highwater_snapshots::event::{Event, EventKind};
use highwater_snapshots::format::{read_bytes, write_trace};
use highwater_snapshots::text::event_text;
use highwater_snapshots::trace::{Header, Trust};
use highwater_snapshots::{DeviceId, StartingState, Trace};

use crate::strange::{Named, builder_of, event, named, starting_state, whole};

/// A recording with a start time, and its clock offset.
fn recording() -> impl Strategy<Value = (Trace, i64)> {
    let started = prop_oneof![1 => Just(0_u64), 5 => 1_000_000..1_000_900_u64];
    let states = (starting_state(0), starting_state(2));
    let clock = (started, -2_000_000..2_000_000_i64);
    (clock, states, vec(event(), 0..80), named()).prop_map(|((started_unix_us, offset), states, events, named)| {
        let header = Header { recorder: "highwater 0.1.0".into(), started_unix_us, ..Header::default() };
        (trace(header, &[states.0, states.1], &events, &named), offset)
    })
}

fn trace(header: Header, states: &[StartingState], events: &[Event], named: &Named) -> Trace {
    builder_of(header, states, events, named).finish()
}

/// The events of `device`, each as text without its time, with the totals after it.
fn history(trace: &Trace, device: DeviceId) -> Vec<(EventKind, Totals)> {
    let series = Series::build(trace, device);
    let of_device =
        trace.events.ids().filter(|id| trace.events.device[id.0 as usize] == device && !trace.is_everywhere(*id));
    of_device.map(|id| (trace.events.kind[id.0 as usize], series.after(trace, id))).collect()
}

/// The blocks of `device`: their facts, their names, and the distances between their events.
fn blocks(trace: &Trace, device: DeviceId) -> Vec<String> {
    let of_device = trace.blocks.ids().filter(|id| trace.blocks.device[id.0 as usize] == device);
    let described = of_device.map(|id| {
        let block = trace.blocks.get(id);
        let alloc = block.as_alloc(Default::default());
        let kind = |event: highwater_snapshots::EventId| event.index().and_then(|row| trace.events.kind.get(row));
        format!(
            "{:x} {}/{} {:?} {:?} {:?} {} {} {:?} {:?} {:?} {:?} {}",
            alloc.address,
            alloc.requested,
            alloc.allocated,
            alloc.stream,
            alloc.pool,
            alloc.category,
            trace.tables.op_name(alloc.op),
            trace.tables.scope_path(alloc.scope),
            trace.tables.stack_text(block.stack),
            kind(block.free_requested).filter(|_| !trace.was_waiting_at_start(id)),
            kind(block.free_completed),
            kind(block.last_use),
            trace.was_waiting_at_start(id),
        )
    });
    described.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_device_has_the_blocks_and_after_every_event_the_totals_that_it_had_alone(
        recordings in vec(recording(), 1..4),
    ) {
        let names = ["a", "b", "c"];
        let parts: Vec<JoinPart<'_>> = recordings.iter().zip(names)
            .map(|((trace, offset_ns), name)| JoinPart { name, trace, offset_ns: *offset_ns }).collect();
        let joined = join(&parts).unwrap();
        let whole_trace = &joined.trace;
        let mut devices = 0;
        for device in &joined.devices {
            let alone = parts[device.part].trace;
            prop_assert_eq!(history(alone, device.was), history(whole_trace, device.device));
            prop_assert_eq!(blocks(alone, device.was), blocks(whole_trace, device.device));
            let [alone, whole] = [(alone, device.was), (whole_trace, device.device)].map(|(trace, device)| {
                let series = Series::build(trace, device);
                (series.baseline(), series.end(trace), highwater_analysis::Metric::ALL.map(|metric| series.peak(trace, metric).0))
            });
            prop_assert_eq!(alone, whole);
            devices += 1;
        }
        let is_there = |part: usize, was: &DeviceId| joined.devices.iter().any(|at| (at.part, at.was) == (part, *was));
        prop_assert!(parts.iter().enumerate().all(|(part, of)| of.trace.device_ids().iter().all(|was| is_there(part, was))));
        let mut numbers: Vec<DeviceId> = joined.devices.iter().map(|device| device.device).collect();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), devices, "no number is given twice");
        let sum = |read: fn(&Trust) -> u64| parts.iter().map(|part| read(&part.trace.trust)).sum::<u64>();
        let trust = &whole_trace.trust;
        prop_assert_eq!(trust.unmatched_frees, sum(|trust| trust.unmatched_frees));
        prop_assert_eq!(trust.repeated_allocs, sum(|trust| trust.repeated_allocs));
        prop_assert_eq!(trust.unmatched_uses, sum(|trust| trust.unmatched_uses));
        prop_assert_eq!(trust.unmatched_releases, sum(|trust| trust.unmatched_releases));
        // The file reader counts the same facts that limit trust.
        let again = read_bytes(&write_trace(Vec::new(), whole_trace).unwrap()).unwrap();
        prop_assert_eq!(whole(&again), whole(whole_trace));
    }

    #[test]
    fn events_whose_clocks_run_forward_stand_in_the_order_of_their_times(
        recordings in vec((recording(), vec(0..1_000_000_u64, 80)), 2..4),
    ) {
        let sorted: Vec<(Trace, i64)> = recordings.into_iter().map(|((trace, offset), mut times)| {
            times.sort_unstable();
            times.truncate(trace.events.len());
            (trace.edited(|trace| trace.events.time_ns = times), offset)
        }).collect();
        let parts: Vec<JoinPart<'_>> =
            sorted.iter().map(|(trace, offset_ns)| JoinPart { name: "x", trace, offset_ns: *offset_ns }).collect();
        let joined = join(&parts).unwrap().trace;
        prop_assert!(joined.events.time_ns.is_sorted());
        // Times are unchanged, except for the smallest of the shifts.
        let absolute = |part: &JoinPart<'_>, row: usize| {
            let known = parts.iter().map(|part| part.trace.header.started_unix_us).find(|started| *started > 0);
            let started = Some(part.trace.header.started_unix_us).filter(|started| *started > 0).or(known).unwrap_or(0);
            i128::from(started) * 1000 + i128::from(part.trace.events.time_ns[row]) + i128::from(part.offset_ns)
        };
        let is_kept = |part: &JoinPart<'_>, row: &usize| !matches!(part.trace.events.kind[*row], EventKind::Step | EventKind::Phase);
        let mut expected: Vec<i128> = parts.iter().flat_map(|part| {
            (0..part.trace.events.len()).filter(|row| is_kept(part, row)).map(|row| absolute(part, row)).collect::<Vec<_>>()
        }).collect();
        expected.sort_unstable();
        let rows = (0..joined.events.len()).filter(|row| !matches!(joined.events.kind[*row], EventKind::Step | EventKind::Phase));
        let found: Vec<i128> = rows.map(|row| i128::from(joined.events.time_ns[row])).collect();
        let shift = expected.first().zip(found.first()).map_or(0, |(expected, found)| expected - found);
        prop_assert_eq!(found.iter().map(|time| time + shift).collect::<Vec<_>>(), expected);
        if joined.header.started_unix_us > 0 && !found.is_empty() {
            prop_assert_eq!(i128::from(joined.header.started_unix_us) * 1000, shift);
        }
    }

    #[test]
    fn a_recording_joined_with_nothing_is_itself((trace, _) in recording()) {
        let joined = join(&[JoinPart { name: "only", trace: &trace, offset_ns: 0 }]).unwrap();
        let lines = |trace: &Trace| {
            // Operations and modules that no table has become none.
            let is_said = |word: &&str| !matches!(*word, "#" | "@");
            let text = |id| event_text(trace, id).split(' ').filter(is_said).collect::<Vec<_>>().join(" ");
            trace.events.ids().map(text).collect::<Vec<_>>()
        };
        prop_assert_eq!(lines(&joined.trace), lines(&trace));
        prop_assert_eq!(&joined.trace.annotations.len(), &trace.annotations.len());
        prop_assert_eq!(&joined.trace.attributes, &trace.attributes);
        prop_assert_eq!(&joined.trace.spans, &trace.spans);
        prop_assert_eq!((joined.lost, joined.warnings), (vec![], vec![]));
        prop_assert_eq!(&joined.trace.header.started_unix_us, &trace.header.started_unix_us);
    }
}
