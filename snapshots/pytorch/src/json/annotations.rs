//! Reads `external_annotations`: the starts and ends of ranges named by the program.

use serde::de::{MapAccess, SeqAccess};

use super::super::raw::RawAnnotation;
use super::reading::{Reading, SHOWN, shown};
use super::shape::{TakesElements, TakesKeys};
use highwater_snapshots::ids::StringId;

impl TakesKeys for RawAnnotation {
    const OF: &'static str = "external_annotations";
    const KEYS: &'static [&'static str] = &["name", "stage", "device", "time_us"];

    fn take<'de, A: MapAccess<'de>>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &str,
        dict: &mut A,
    ) -> Result<(), A::Error> {
        match key {
            "name" => self.name = dict.next_value_seed(reading.text("an annotation's name"))?,
            "stage" => {
                let stage = dict.next_value_seed(reading.copied("an annotation's stage"))?;
                if !matches!(stage.as_str(), "START" | "END") {
                    let what = format!("the annotation stage '{}': taken as END", shown(&stage, SHOWN));
                    reading.intake.strange(what);
                }
                self.is_start = stage == "START";
            }
            "device" => self.device = dict.next_value_seed(reading.ordinal("an annotation's device"))?,
            _ => self.time_us = dict.next_value_seed(reading.number("an annotation's time_us"))?,
        }
        Ok(())
    }
}

/// Annotations in file order.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    pub(super) rows: Vec<RawAnnotation>,
}

impl TakesElements for Annotations {
    const OF: &'static str = "external_annotations";

    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error> {
        let mut annotation = RawAnnotation { name: StringId::NONE, is_start: false, device: 0, time_us: 0 };
        if list.next_element_seed(reading.dict(&mut annotation))?.is_none() {
            return Ok(false);
        }
        self.rows.push(annotation);
        Ok(true)
    }
}
