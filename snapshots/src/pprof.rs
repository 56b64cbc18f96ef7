//! The messages of pprof's profiles: a part of
//! [`profile.proto`](https://github.com/google/pprof/blob/main/proto/profile.proto).

use prost::Message;

/// A profile: samples, and tables that they refer to.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    /// The types of the values of each sample.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// The frames of call stacks.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// The functions of the frames.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// The first is empty; other messages name strings by their row.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Comments, as rows of the string table.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The type that is shown first, as a row of the string table.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// The meaning and unit of a value of each sample, as rows of the string table.
#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    /// The meaning.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// The unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// Values with the call stack and the labels that they belong to.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// The values, one for each of the profile's types.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Its labels.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A label of a sample, as rows of the string table.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
    /// The name.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// The text.
    #[prost(int64, tag = "2")]
    pub str: i64,
}

/// A place of the program: a frame of call stacks.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    /// Its number, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its lines, innermost (inlined) first.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<LineOf>,
}

/// A line of a function.
#[derive(Clone, PartialEq, Message)]
pub struct LineOf {
    /// The number of the function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The number of the line.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function; the name and the file are rows of the string table.
#[derive(Clone, PartialEq, Message)]
pub struct Function {
    /// Its number, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The name.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// The source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
}
