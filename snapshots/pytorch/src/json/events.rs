//! Reads the events of each device, converting each to a row when its dict ends.

use serde::de::{MapAccess, SeqAccess};

use super::super::intake::EventDraft;
use super::super::raw::RawEvent;
use super::reading::Reading;
use super::shape::{TakesElements, TakesKeys};

impl TakesKeys for EventDraft {
    const OF: &'static str = "events";
    const KEYS: &'static [&'static str] = &[
        "action",
        "addr",
        "size",
        "stream",
        "time_us",
        "frames",
        "compile_context",
        "user_metadata",
        "pool_id",
        "device_free",
        "forward_frames",
        "internal_metadata",
        "category",
    ];

    fn take<'de, A: MapAccess<'de>>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &str,
        dict: &mut A,
    ) -> Result<(), A::Error> {
        let extras = &mut self.extras;
        match key {
            "action" => self.action = dict.next_value_seed(reading.text("an event's action"))?,
            "addr" => self.address = dict.next_value_seed(reading.number("an event's addr"))?,
            "size" => self.size = dict.next_value_seed(reading.number("an event's size"))?,
            "stream" => self.stream = dict.next_value_seed(reading.number("an event's stream"))?,
            "time_us" => self.time_us = dict.next_value_seed(reading.number("an event's time_us"))?,
            "device_free" => {
                self.device_free = dict.next_value_seed(reading.maybe_number("an event's device_free"))?;
            }
            "frames" => self.stack = reading.read_stack(dict)?,
            "forward_frames" => extras.forward = reading.read_texts(dict)?,
            "pool_id" => extras.pool_id = reading.read_pool_id(dict)?,
            "compile_context" => {
                extras.compile_context = dict.next_value_seed(reading.text("an event's compile_context"))?;
            }
            "user_metadata" => {
                extras.user_metadata = dict.next_value_seed(reading.text("an event's user_metadata"))?;
            }
            "internal_metadata" => {
                extras.internal_metadata = dict.next_value_seed(reading.text("an event's internal_metadata"))?;
            }
            _ => extras.category = dict.next_value_seed(reading.text("an event's category"))?,
        }
        Ok(())
    }
}

/// The events of a device.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) rows: Vec<RawEvent>,
}

impl TakesElements for Events {
    const OF: &'static str = "events";

    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error> {
        let mut draft = EventDraft::default();
        if list.next_element_seed(reading.dict(&mut draft))?.is_none() {
            return Ok(false);
        }
        reading.count_event();
        self.rows.push(reading.intake.event(&draft));
        Ok(true)
    }
}

/// The events of all devices, by ordinal.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// The devices that have events, with their ordinals.
    pub(super) traces: Vec<(usize, Vec<RawEvent>)>,
    count: usize,
}

impl TakesElements for Devices {
    const OF: &'static str = "the devices' lists of events";

    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error> {
        let mut events = Events::default();
        if list.next_element_seed(reading.list(&mut events))?.is_none() {
            return Ok(false);
        }
        if !events.rows.is_empty() {
            self.traces.push((self.count, events.rows));
        }
        self.count += 1;
        Ok(true)
    }
}
