//! Encodes the summaries and checkpoints computed for a recording without them, so that they can be cached.

use std::ops::Range;

use crate::error::Result;
use crate::format::kind::SectionKind;
use crate::format::section::{Label, Packer, Unpacker};
use crate::format::sniff::{PREAMBLE_BYTES, preamble};
use crate::format::step_rows::StepActivityRow;
use crate::format::summary::Summary;
use crate::format::tables_codec::{EndFacts, put_row, rows_from_bytes};
use crate::format::walk::{WalkItem, Walker};

/// A cache of results computed when a recording was opened. `()` caches nothing.
pub trait ComputedStore {
    /// Returns whether to cache the results computed from `events` events.
    fn is_for(&self, events: u64) -> bool;

    /// Returns the cached data for the recording in its present state; `None` if there is none.
    fn load(&self) -> Option<Vec<u8>>;

    /// Saves the computed data. If this fails, the data is computed again the next time.
    fn save(&self, computed: &[u8]);
}

impl ComputedStore for () {
    fn is_for(&self, _: u64) -> bool {
        false
    }

    fn load(&self) -> Option<Vec<u8>> {
        None
    }

    fn save(&self, _: &[u8]) {}
}

/// Maximum number of summary rows in one section.
const SECTION_ROWS: usize = 4096;

#[derive(Debug)]
pub(super) struct Computed {
    pub(super) summaries: Vec<Summary>,
    /// For each checkpoint, the number of events before it and the offsets of its parts in `bytes`.
    pub(super) checkpoints: Vec<(u64, Vec<u64>)>,
    pub(super) bytes: Vec<u8>,
}

impl Computed {
    /// Encodes `summaries` and the sections of checkpoints, for events up to `end`, as a `.snap` file without events.
    pub(super) fn encode(summaries: &[Summary], checkpoints: &[u8], end: u64, packer: &mut Packer) -> Result<Vec<u8>> {
        let (mut out, mut raw) = (preamble().to_vec(), Vec::new());
        for rows in summaries.chunks(SECTION_ROWS) {
            raw.clear();
            rows.iter().try_for_each(|row| put_row(&mut raw, row))?;
            let label = Label { kind: SectionKind::Summaries, count: rows.len() as u32, first: 0 };
            out.extend_from_slice(packer.pack(label, &raw)?);
            raw.clear();
            let activity: Vec<StepActivityRow> = rows.iter().filter_map(StepActivityRow::of).collect();
            activity.iter().try_for_each(|row| put_row(&mut raw, row))?;
            let label = Label { kind: SectionKind::StepActivity, count: activity.len() as u32, first: 0 };
            out.extend_from_slice(packer.pack(label, &raw)?);
        }
        out.extend_from_slice(checkpoints);
        raw.clear();
        put_row(&mut raw, &EndFacts::default())?;
        out.extend_from_slice(packer.pack(Label { kind: SectionKind::End, count: 1, first: end }, &raw)?);
        Ok(out)
    }

    /// Decodes the output of [`Self::encode`] for `events`; `None` if it is for other events or another version, or
    /// damaged.
    pub(super) fn decode(bytes: Vec<u8>, events: &Range<u64>) -> Option<Self> {
        if !bytes.starts_with(&preamble()) {
            return None;
        }
        let (mut summaries, mut checkpoints) = (Vec::new(), Vec::<(u64, Vec<u64>)>::new());
        let (mut end, mut unpacker) = (None, Unpacker::new());
        for item in Walker::new(&bytes, PREAMBLE_BYTES) {
            let WalkItem::Section(section) = item else { return None };
            let header = section.header;
            match header.kind()? {
                SectionKind::Summaries => {
                    let raw = unpacker.unpack(&section).ok()?;
                    summaries.extend(rows_from_bytes::<Summary>(raw, header.count).ok()?);
                }
                SectionKind::StepActivity => {
                    let raw = unpacker.unpack(&section).ok()?;
                    let rows = rows_from_bytes::<StepActivityRow>(raw, header.count).ok()?;
                    rows.into_iter().for_each(|row| row.add_to(&mut summaries));
                }
                SectionKind::Checkpoint => match checkpoints.last_mut().filter(|last| last.0 == header.first) {
                    Some((_, parts)) => parts.push(section.offset),
                    None => checkpoints.push((header.first, vec![section.offset])),
                },
                SectionKind::End => end = Some(header.first),
                _ => return None,
            }
        }
        let is_whole = end == Some(events.end)
            && end_of(&summaries, events.start) == Some(events.end)
            && checkpoints.is_sorted_by(|a, b| a.0 < b.0)
            && checkpoints.first().is_some_and(|(first, _)| *first > events.start)
            && checkpoints.last().is_some_and(|(last, _)| *last == events.end);
        is_whole.then_some(Self { summaries, checkpoints, bytes })
    }
}

/// Returns one past the last event of the summaries `rows`, which start at event `first`; `None` if they are invalid.
pub(super) fn end_of(rows: &[Summary], first: u64) -> Option<u64> {
    rows.iter().try_fold(first, |next, row| {
        (row.first == next && row.is_plausible()).then(|| next.saturating_add(u64::from(row.events)))
    })
}
