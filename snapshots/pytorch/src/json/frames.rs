//! Reads stacks and lists of strings, interning them as they are read.

use serde::de::{MapAccess, SeqAccess};

use super::super::raw::RawFrame;
use super::super::sequences::Sequences;
use super::leaf::{Value, strange};
use super::reading::Reading;
use super::shape::{TakesElements, TakesKeys};
use highwater_snapshots::ids::StringId;

/// A frame being read.
#[derive(Debug)]
struct Frame {
    frame: RawFrame,
    /// The torch.fx node's operation, name and target, and the line of the model.
    fx: [StringId; 4],
}

impl Default for Frame {
    fn default() -> Self {
        Self { frame: RawFrame::default(), fx: [StringId::NONE; 4] }
    }
}

impl TakesKeys for Frame {
    const OF: &'static str = "frames";
    const KEYS: &'static [&'static str] =
        &["name", "filename", "line", "fx_node_op", "fx_node_name", "fx_node_target", "fx_original_trace"];

    fn take<'de, A: MapAccess<'de>>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &str,
        dict: &mut A,
    ) -> Result<(), A::Error> {
        match key {
            "name" => self.frame.name = dict.next_value_seed(reading.text("a frame's name"))?,
            "filename" => self.frame.file = dict.next_value_seed(reading.text("a frame's filename"))?,
            "line" => self.frame.line = dict.next_value_seed(reading.line("a frame's line"))?,
            "fx_node_op" => self.fx[0] = dict.next_value_seed(reading.text("a frame's fx_node_op"))?,
            "fx_node_name" => self.fx[1] = dict.next_value_seed(reading.text("a frame's fx_node_name"))?,
            "fx_node_target" => self.fx[2] = dict.next_value_seed(reading.text("a frame's fx_node_target"))?,
            _ => self.fx[3] = dict.next_value_seed(reading.text("a frame's fx_original_trace"))?,
        }
        Ok(())
    }
}

/// The frames of a stack.
#[derive(Debug)]
pub(super) struct Frames;

impl TakesElements for Frames {
    const OF: &'static str = "frames";

    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error> {
        let mut frame = Frame::default();
        if list.next_element_seed(reading.dict(&mut frame))?.is_none() {
            return Ok(false);
        }
        frame.frame.fx = reading.intake.fx(frame.fx);
        let row = reading.intake.frame(frame.frame);
        reading.row.push(row);
        Ok(true)
    }
}

/// The strings of a list.
#[derive(Debug)]
pub(super) struct Texts;

impl TakesElements for Texts {
    const OF: &'static str = "texts";

    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error> {
        let Some(text) = list.next_element_seed(reading.text("a text of forward_frames"))? else {
            return Ok(false);
        };
        if text.is_some() {
            reading.row.push(text.0);
        }
        Ok(true)
    }
}

/// The two integers of a pool id.
#[derive(Debug, Default)]
pub(super) struct PoolId {
    numbers: [u64; 2],
    count: usize,
}

impl TakesElements for PoolId {
    const OF: &'static str = "two numbers of a pool id";

    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error> {
        let Some(number) = list.next_element_seed(reading.number("a number of a pool id"))? else {
            return Ok(false);
        };
        if let Some(place) = self.numbers.get_mut(self.count) {
            *place = number;
        }
        self.count += 1;
        Ok(true)
    }
}

impl Reading<'_> {
    /// Reads `frames` and returns the index of the stack.
    pub(super) fn read_stack<'de, A: MapAccess<'de>>(&mut self, dict: &mut A) -> Result<u32, A::Error> {
        self.row.clear();
        dict.next_value_seed(self.list(&mut Frames))?;
        let Self { intake, row, .. } = self;
        Ok(if row.is_empty() { Sequences::NONE } else { intake.stack(row) })
    }

    /// Reads `forward_frames` and returns the index of the list of strings.
    pub(super) fn read_texts<'de, A: MapAccess<'de>>(&mut self, dict: &mut A) -> Result<u32, A::Error> {
        self.row.clear();
        dict.next_value_seed(self.list(&mut Texts))?;
        let Self { intake, row, .. } = self;
        Ok(if row.is_empty() { Sequences::NONE } else { intake.texts(row) })
    }

    /// Reads `pool_id` or `segment_pool_id`.
    pub(super) fn read_pool_id<'de, A: MapAccess<'de>>(&mut self, dict: &mut A) -> Result<(u64, u64), A::Error> {
        let mut pool = PoolId::default();
        dict.next_value_seed(self.list(&mut pool))?;
        let [owner, number] = pool.numbers;
        match pool.count {
            0 | 2 => Ok((owner, number)),
            _ => {
                strange(self, "a pool id without exactly two numbers", Value::List);
                Ok((0, 0))
            }
        }
    }
}
