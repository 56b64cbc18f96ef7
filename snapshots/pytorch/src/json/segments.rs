//! Reads segments with their blocks, of all devices or of pinned host memory.

use std::ops::Range;

use serde::de::{MapAccess, SeqAccess};

use super::super::intake::{Intake, SegmentDraft};
use super::blocks::Blocks;
use super::reading::{Reading, SHOWN, shown};
use super::shape::{TakesElements, TakesKeys};

/// A segment being read.
struct Segment<'s> {
    draft: SegmentDraft,
    blocks: &'s mut Blocks,
    /// Index of its first block in `blocks`.
    first: usize,
    /// Whether the dict has at least one key of a segment.
    is_segment: bool,
}

impl TakesKeys for Segment<'_> {
    const OF: &'static str = "segments";
    const KEYS: &'static [&'static str] = &[
        "device",
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "requested_size",
        "stream",
        "segment_type",
        "segment_pool_id",
        "is_expandable",
        "frames",
        "forward_frames",
        "blocks",
    ];

    fn take<'de, A: MapAccess<'de>>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &str,
        dict: &mut A,
    ) -> Result<(), A::Error> {
        self.is_segment = true;
        let segment = &mut self.draft.segment;
        match key {
            "device" => segment.device = dict.next_value_seed(reading.ordinal("a segment's device"))?,
            "address" => segment.address = dict.next_value_seed(reading.number("a segment's address"))?,
            "total_size" => segment.total_size = dict.next_value_seed(reading.number("a segment's total_size"))?,
            "allocated_size" => {
                segment.allocated_size = dict.next_value_seed(reading.maybe_number("a segment's allocated_size"))?;
            }
            "active_size" => {
                segment.active_size = dict.next_value_seed(reading.maybe_number("a segment's active_size"))?;
            }
            "requested_size" => {
                segment.requested_size = dict.next_value_seed(reading.maybe_number("a segment's requested_size"))?;
            }
            "stream" => segment.stream = dict.next_value_seed(reading.number("a segment's stream"))?,
            "segment_type" => segment.is_small = read_is_small(reading, dict)?,
            "segment_pool_id" => segment.pool_id = reading.read_pool_id(dict)?,
            "is_expandable" => segment.is_expandable = dict.next_value_seed(reading.flag("is_expandable"))?,
            "frames" => segment.stack = reading.read_stack(dict)?,
            // Ignored: segments are not allocated in backward passes of their own, so `frames` is sufficient.
            "forward_frames" => drop(reading.read_texts(dict)?),
            _ => {
                self.blocks.rows.truncate(self.first);
                dict.next_value_seed(reading.list(self.blocks))?;
            }
        }
        Ok(())
    }
}

fn read_is_small<'de, A: MapAccess<'de>>(reading: &mut Reading<'_>, dict: &mut A) -> Result<bool, A::Error> {
    let kind = dict.next_value_seed(reading.copied("a segment's segment_type"))?;
    if !matches!(kind.as_str(), "small" | "large" | "") {
        let what = format!("the segment type '{}', which this program does not know", shown(&kind, SHOWN));
        reading.intake.strange(what + ": taken as large");
    }
    Ok(kind == "small")
}

/// Segments in file order.
#[derive(Debug, Default)]
pub(super) struct Segments {
    rows: Vec<(SegmentDraft, Range<usize>)>,
    blocks: Blocks,
    is_any_known: bool,
}

impl Segments {
    /// Returns whether these may be dicts other than segments: none has a key of a segment.
    pub(super) fn are_others(&self) -> bool {
        !self.rows.is_empty() && !self.is_any_known
    }

    /// Adds the segments to `intake`.
    pub(super) fn hand_over(self, intake: &mut Intake, are_host: bool) {
        for (segment, blocks) in self.rows {
            intake.segment(segment, self.blocks.rows.get(blocks).unwrap_or_default(), are_host);
        }
    }
}

impl TakesElements for Segments {
    const OF: &'static str = "segments";

    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error> {
        let first = self.blocks.rows.len();
        let draft = SegmentDraft::default();
        let mut segment = Segment { draft, blocks: &mut self.blocks, first, is_segment: false };
        if list.next_element_seed(reading.dict(&mut segment))?.is_none() {
            return Ok(false);
        }
        self.is_any_known |= segment.is_segment;
        let draft = segment.draft;
        self.rows.push((draft, first..self.blocks.rows.len()));
        Ok(true)
    }
}
