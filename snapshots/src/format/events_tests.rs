//! Property tests of the event columns: any events survive a round trip, and the decoder accepts any bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::columns::{Column, ColumnBytes};
use super::events_decode::decode_events;
use super::events_encode::EventEncoder;
use crate::event::{Alloc, Event, EventKind, Oom, Range, What};
use crate::ids::{DeviceId, OpId, ScopeId, StackId, StreamId, StringId};
use crate::{Category, Phase, Pool};

/// Any number, and often one at an edge.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_u64, Just(u64::MAX), Just(1 << 63), any::<u64>()]
}

fn handle() -> impl Strategy<Value = u32> {
    prop_oneof![0..100_u32, Just(u32::MAX), Just(u32::MAX - 1), any::<u32>()]
}

fn what() -> impl Strategy<Value = What> {
    let range = || {
        (number(), number(), number(), 0..Pool::ALL.len()).prop_map(|(address, bytes, stream, pool)| Range {
            address,
            bytes,
            stream: StreamId(stream),
            pool: Pool::ALL[pool],
        })
    };
    let category = (0..Category::ALL.len()).prop_map(|code| Category::ALL[code]);
    let sizes = (number(), number(), number(), number(), number());
    let alloc = (sizes, 0..Pool::ALL.len(), category.clone(), handle(), handle()).prop_map(
        |((block, address, requested, allocated, stream), pool, category, op, scope)| {
            let (stream, pool) = (StreamId(stream), Pool::ALL[pool]);
            let (op, scope) = (OpId(op), ScopeId(scope));
            What::Alloc(Alloc { block, address, requested, allocated, stream, pool, category, op, scope })
        },
    );
    let oom =
        (number(), number(), number(), handle(), handle()).prop_map(|(requested, device_free, stream, op, scope)| {
            let stream = Some(StreamId(stream)).filter(|stream| stream.0 % 3 > 0);
            What::Oom(Oom { requested, device_free, stream, op: OpId(op), scope: ScopeId(scope) })
        });
    prop_oneof![
        4 => alloc,
        2 => number().prop_map(What::FreeRequested),
        2 => number().prop_map(What::FreeCompleted),
        2 => number().prop_map(What::Used),
        1 => (number(), category).prop_map(|(key, category)| What::Tag(key, category)),
        1 => range().prop_map(What::SegmentAlloc),
        1 => range().prop_map(What::SegmentFree),
        1 => range().prop_map(What::SegmentMap),
        1 => range().prop_map(What::SegmentUnmap),
        1 => oom,
        1 => number().prop_map(What::DeviceUsed),
        1 => handle().prop_map(What::Step),
        1 => (0..Phase::ALL.len()).prop_map(|code| What::Phase(Phase::ALL[code])),
        1 => handle().prop_map(|text| What::Mark(StringId(text))),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let device = prop_oneof![Just(0_u16), any::<u16>()];
    (number(), device, handle(), what()).prop_map(|(time_ns, device, stack, what)| Event {
        time_ns,
        device: DeviceId(device),
        stack: StackId(stack),
        what,
    })
}

fn encoded(events: &[Event]) -> Vec<u8> {
    let mut out = Vec::new();
    EventEncoder::default().encode(events, &mut out);
    out
}

proptest! {
    #[test]
    fn any_events_come_back_as_they_were(events in vec(event(), 0..60)) {
        let decoded = decode_events(&encoded(&events), events.len() as u32).unwrap();
        prop_assert_eq!(decoded.events, events);
        prop_assert_eq!(decoded.unknown, 0);
    }

    #[test]
    fn changed_payloads_decode_or_are_refused_but_never_panic(
        events in vec(event(), 1..20), at in any::<prop::sample::Index>(), byte in any::<u8>(), count in 0..40_u32,
    ) {
        let mut payload = encoded(&events);
        let at = at.index(payload.len());
        payload[at] = byte;
        if let Ok(decoded) = decode_events(&payload, count) {
            prop_assert!(decoded.events.len() <= count as usize);
        }
        let _ = decode_events(&payload[..at], count);
    }
}

#[test]
fn events_of_unknown_kinds_and_columns_of_unknown_numbers_are_passed_over() {
    let events = [
        Event { time_ns: 5, device: DeviceId(0), stack: StackId(3), what: What::Step(0) },
        Event { time_ns: 9, device: DeviceId(0), stack: StackId(4), what: What::Step(1) },
    ];
    let mut columns = ColumnBytes::default();
    columns.get(Column::Kind).extend([EventKind::Step as u8, 200, EventKind::Step as u8]);
    columns.get(Column::Time).extend([10, 2, 6]);
    columns.get(Column::Stack).extend([7, 1, 3]);
    columns.get(Column::Rare).extend([0, 1]);
    let mut payload = Vec::new();
    columns.write_payload(&mut payload);
    // One more column, number 99, of three bytes.
    let directory_end = 1 + 5 * usize::from(payload[0]);
    payload[0] += 1;
    payload.splice(directory_end..directory_end, [99, 3, 0, 0, 0]);
    payload.extend([1, 2, 3]);
    let decoded = decode_events(&payload, 3).unwrap();
    assert_eq!(decoded.events, events);
    assert_eq!(decoded.unknown, 1);
}

#[test]
fn payloads_that_contradict_themselves_are_refused_with_the_column_named() {
    let event = Event { time_ns: 5, device: DeviceId(0), stack: StackId::NONE, what: What::DeviceUsed(7) };
    let payload = encoded(&[event]);
    assert_eq!(decode_events(&payload, 2).unwrap_err(), "it declares 2 events but has kinds for 1");
    let mut longer = payload.clone();
    longer.push(0);
    assert_eq!(decode_events(&longer, 1).unwrap_err(), "1 bytes are left over after its columns");
    assert!(decode_events(&payload[..3], 1).unwrap_err().contains("cut off"));
    assert!(decode_events(&[], 0).unwrap_err().contains("empty"));
}
