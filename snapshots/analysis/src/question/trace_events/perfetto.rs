//! Encodes packets of Perfetto's traces.

use prost::Message as _;

use super::messages::{
    COUNTER, Counter, INSTANT, PACKET_FIELD, Packet, SIZE_BYTES, SLICE_BEGIN, SLICE_END, TrackDescriptor, TrackEvent,
};
use super::output::{Encoding, What};
use super::tracks::Track;

#[derive(Clone, Copy, Debug)]
pub(super) struct Perfetto;

fn push(bytes: &mut Vec<u8>, packet: Packet) {
    bytes.push(PACKET_FIELD);
    let packet = Packet { trusted_packet_sequence_id: 1, ..packet };
    // Writing to a vector does not fail.
    let _ = packet.encode_length_delimited(bytes);
}

impl Encoding for Perfetto {
    fn describe(self, bytes: &mut Vec<u8>, track: Track, name: &str) {
        let counter = track.is_counter().then_some(Counter { unit: SIZE_BYTES });
        let parent_uuid = track.device().map(|device| Track::Device(device).id()).filter(|id| *id != track.id());
        let track = TrackDescriptor { uuid: track.id(), name: name.to_owned(), parent_uuid, counter };
        push(bytes, Packet { track_descriptor: Some(track), ..Packet::default() });
    }

    fn event(self, bytes: &mut Vec<u8>, time_ns: u64, track: Track, what: What<'_>) {
        let (kind, name, counter_value) = match what {
            What::Begin(name) => (SLICE_BEGIN, Some(name), None),
            What::End => (SLICE_END, None, None),
            What::Instant(name) => (INSTANT, Some(name), None),
            What::Count(bytes) => (COUNTER, None, Some(i64::try_from(bytes).unwrap_or(i64::MAX))),
        };
        let name = name.map(str::to_owned);
        let event = TrackEvent { r#type: kind, track_uuid: track.id(), name, counter_value };
        push(bytes, Packet { timestamp: Some(time_ns), track_event: Some(event), ..Packet::default() });
    }
}
