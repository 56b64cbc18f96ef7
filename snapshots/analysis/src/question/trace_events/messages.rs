//! The protobuf messages of a Perfetto trace, with only the fields that are written: a subset of `perfetto_trace.proto`
//! (<https://perfetto.dev/docs/reference/trace-packet-proto>).

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Packet {
    /// Time in nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    /// The id of the packet's writer.
    #[prost(uint32, tag = "10")]
    pub(super) trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    pub(super) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    pub(super) track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub(super) uuid: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<Counter>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Counter {
    #[prost(int32, tag = "3")]
    pub(super) unit: i32,
}

/// The unit of counters of bytes.
pub(super) const SIZE_BYTES: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(int32, tag = "9")]
    pub(super) r#type: i32,
    #[prost(uint64, tag = "11")]
    pub(super) track_uuid: u64,
    #[prost(string, optional, tag = "23")]
    pub(super) name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub(super) counter_value: Option<i64>,
}

/// The types of events: a slice begins, the innermost slice of the track ends, an instant event, a counter value.
pub(super) const SLICE_BEGIN: i32 = 1;
pub(super) const SLICE_END: i32 = 2;
pub(super) const INSTANT: i32 = 3;
pub(super) const COUNTER: i32 = 4;

/// The tag of a trace's field of packets, which precedes each packet: field number 1, length-delimited.
pub(super) const PACKET_FIELD: u8 = 0x0a;
