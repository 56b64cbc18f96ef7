//! The messages of pprof's profile format: a subset of
//! [`profile.proto`](https://github.com/google/pprof/blob/main/proto/profile.proto).

use prost::Message;

/// A profile: samples, and the tables to which the samples refer.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    /// The types of the values of each sample.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The samples, one for each distinct stack and labels.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// The frames of call stacks.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// The functions of the frames.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All strings, to which other messages refer by index. The first string is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// Time of the profile, in nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Comments, as indices into the string table.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The value type to show by default, as an index into the string table.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// The quantity and the unit of a sample's value, as indices into the string table.
#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    /// The quantity, such as `inuse_space`.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// The unit, such as `bytes`.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// Values with their call stack and labels.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// The ids of the call stack's locations, innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One value for each of the profile's sample types.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// The labels of the sample.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A label of a sample, as indices into the string table.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
    /// The label's name.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// The value of a text label.
    #[prost(int64, tag = "2")]
    pub str: i64,
}

/// A frame of a call stack.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    /// The id, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The lines, innermost (inlined) first.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<LineOf>,
}

/// A source line and the function that contains it.
#[derive(Clone, PartialEq, Message)]
pub struct LineOf {
    /// The id of the function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line number.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function; its name and file are indices into the string table.
#[derive(Clone, PartialEq, Message)]
pub struct Function {
    /// The id, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The name, as an index into the string table.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// The source file, as an index into the string table.
    #[prost(int64, tag = "4")]
    pub filename: i64,
}
