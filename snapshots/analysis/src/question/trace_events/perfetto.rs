//! Encodes packets of Perfetto's traces.

use prost::Message as _;

use super::messages::{Counter, EventType, PACKET_FIELD, Packet, TrackDescriptor, TrackEvent, Unit};
use super::{Encoder, Track, What};

/// Encoded packets.
#[derive(Debug, Default)]
pub(super) struct Perfetto(Vec<u8>);

impl Perfetto {
    fn push(&mut self, packet: Packet) {
        self.0.push(PACKET_FIELD);
        let packet = Packet { trusted_packet_sequence_id: 1, ..packet };
        // Memory grows as it is needed.
        let _ = packet.encode_length_delimited(&mut self.0);
    }
}

impl Encoder for Perfetto {
    fn describe(&mut self, track: Track, name: &str) {
        let counter = track.is_counter().then(|| Counter { unit: Unit::SizeBytes.into() });
        let parent_uuid = track.device().map(|device| Track::Device(device).id()).filter(|id| *id != track.id());
        let track = TrackDescriptor { uuid: track.id(), name: name.to_owned(), parent_uuid, counter };
        self.push(Packet { track_descriptor: Some(track), ..Packet::default() });
    }

    fn event(&mut self, time_ns: u64, track: Track, what: What<'_>) {
        let (kind, name, bytes) = match what {
            What::Begin(name) => (EventType::SliceBegin, Some(name), None),
            What::End => (EventType::SliceEnd, None, None),
            What::Instant(name) => (EventType::Instant, Some(name), None),
            What::Count(bytes) => (EventType::Counter, None, Some(i64::try_from(bytes).unwrap_or(i64::MAX))),
        };
        let event = TrackEvent {
            r#type: kind.into(),
            track_uuid: track.id(),
            name: name.map(str::to_owned),
            counter_value: bytes,
        };
        self.push(Packet { timestamp: Some(time_ns), track_event: Some(event), ..Packet::default() });
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}
