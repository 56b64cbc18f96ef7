//! The input of commands: recordings, devices, and rules for categories.

pub(crate) mod recording;
pub(crate) mod categories;
pub(crate) mod source;
pub(crate) mod devices;

pub(crate) use categories::{read_with, reader};
pub(crate) use devices::{compared_devices, covered, covered_phrase, on_device, on_devices, phrase, where_on};
pub(crate) use recording::{
    Recording, choose_device, event_range, origin_keys, read, read_any, read_fleet, with_spinner,
};
pub(crate) use source::{Input, answer_counting, answer_from, answer_or_whole, opener, opener_up_to, resident_events};
