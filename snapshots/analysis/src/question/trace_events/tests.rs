//! Tests of recordings exported as trace events.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::messages::{COUNTER, INSTANT, PACKET_FIELD, Packet, SLICE_BEGIN, SLICE_END, TrackEvent};
use super::*;
use highwater_notation::trace_from_text;
use highwater_snapshots::format::{Windows, write_trace};
use prost::Message as _;

/// The packets of a trace.
fn packets(text: &str) -> Vec<Packet> {
    packets_of(&Source::in_memory(trace_from_text(text).unwrap()))
}

fn packets_of(source: &Source<'_>) -> Vec<Packet> {
    let mut bytes = Vec::new();
    write_perfetto(&mut bytes, source, &mut |_| ControlFlow::Continue(())).unwrap();
    let mut left = &*bytes;
    let mut packets = Vec::new();
    while let Some(rest) = left.strip_prefix(&[PACKET_FIELD]) {
        left = rest;
        packets.push(Packet::decode_length_delimited(&mut left).unwrap());
    }
    assert!(left.is_empty());
    packets
}

#[test]
fn totals_categories_steps_and_moments_are_tracks() {
    let text = "step 0\nphase forward\nalloc a 3000/3072 activation\nalloc t 1000/1024\nphase backward\nfree t\nmark half\n\
                step 1\noom 5000 free=1\nfree a\n";
    let packets = packets(text);
    let name = |uuid: u64| {
        let track = packets.iter().filter_map(|packet| packet.track_descriptor.as_ref()).find(|of| of.uuid == uuid);
        track.map(|track| track.name.clone()).unwrap()
    };
    let events = packets.iter().filter_map(|packet| packet.track_event.as_ref());
    let of = |kind: i32| {
        let events = events.clone().filter(move |event| event.r#type == kind);
        let text = |event: &TrackEvent| {
            let value = event.counter_value.map(|bytes| bytes.to_string());
            format!("{}: {}", name(event.track_uuid), event.name.clone().or(value).unwrap_or_default())
        };
        events.map(text).collect::<Vec<String>>()
    };
    let values = of(COUNTER);
    assert_eq!(values.iter().filter(|text| text.starts_with("requested")).count(), 4, "{values:?}");
    assert!(values.contains(&"requested: 4000".to_owned()) && values.contains(&"active: 4096".to_owned()));
    assert_eq!(values.iter().filter(|text| text.starts_with("live activation")).count(), 2);
    assert_eq!(values.last().unwrap(), "active: 0");
    let begun = of(SLICE_BEGIN);
    let steps: Vec<&String> = begun.iter().filter(|name| name.starts_with("Steps")).collect();
    assert_eq!(steps, ["Steps: step 0", "Steps: step 1"]);
    assert_eq!(begun[2..4], ["Phases: forward", "Phases: backward"]);
    assert_eq!(of(SLICE_END).len(), begun.len(), "everything ends");
    let instants = of(INSTANT);
    assert_eq!(instants.len(), 3);
    assert!(instants[0].ends_with("peak: 3.91 KiB requested") && instants[1] == "Marks: half", "{instants:?}");
}

#[test]
fn regions_are_slices_on_as_many_tracks_as_overlap() {
    let packets = packets(
        "begin outer\nalloc a 1\nbegin inner\nalloc b 1\nend inner\nalloc c 1\nend outer\nbegin next\nalloc d 1\nend next\n",
    );
    let tracks = packets.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let rows: Vec<u64> = tracks.filter(|track| track.name == "Regions").map(|track| track.uuid).collect();
    assert_eq!(rows.len(), 2);
    let events = packets.iter().filter_map(|packet| packet.track_event.as_ref());
    let begun =
        events.filter_map(|event| Some((event.name.clone()?, rows.iter().position(|row| *row == event.track_uuid)?)));
    let begun: Vec<(String, usize)> = begun.collect();
    assert_eq!(begun, [("outer".to_owned(), 0), ("inner".to_owned(), 1), ("next".to_owned(), 0)]);
}

#[test]
fn windows_have_the_packets_of_the_whole() {
    let step = |n: u64| {
        format!("step {n}\nphase forward\nalloc a{n} {} activation\nmark m{n}\nphase backward\nfree a{n}\n", n + 1)
    };
    let text: String = (0..2000).map(step).collect();
    let trace = trace_from_text(&text).unwrap();
    let bytes: Arc<[u8]> = write_trace(Vec::new(), &trace).unwrap().into();
    let windows = Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap();
    let sorted = |source: Source<'_>| {
        let mut packets = packets_of(&source);
        packets.sort_by_key(|packet| (packet.timestamp, packet.track_event.as_ref().map(|event| event.track_uuid)));
        packets
    };
    let whole = sorted(Source::in_memory(trace));
    assert!(whole.len() > 10_000, "{}", whole.len());
    let source = Source::in_windows(windows).unwrap().in_windows_of(700);
    assert!(source.passes().len() > 10);
    assert_eq!(sorted(source), whole);
}

#[test]
fn a_trace_is_written_while_it_is_encoded() {
    /// The lengths of what is written.
    #[derive(Default)]
    struct Lengths(Vec<usize>);

    impl Write for Lengths {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let text: String = (0..30_000).map(|n| format!("alloc b{n} 1000 activation\nmark m{n}\nfree b{n}\n")).collect();
    let source = Source::in_memory(trace_from_text(&text).unwrap());
    let mut lengths = Lengths::default();
    write_chrome(&mut lengths, &source, None, &mut |_| ControlFlow::Continue(())).unwrap();
    let (all, most) = (lengths.0.iter().sum::<usize>(), lengths.0.iter().max().copied());
    assert!(all > 20 << 20 && most < Some(2 << 20), "{most:?} of {all}");
}
