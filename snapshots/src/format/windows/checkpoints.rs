//! Finds checkpoints, stored in the file or computed from its events, and restores the state that they contain.

use crate::error::{Error, Result};
use crate::format::checkpoint::Checkpoint;
use crate::format::index::IndexRow;
use crate::format::kind::SectionKind;
use crate::format::section::{HEADER_BYTES, Label, Packer, Section, SectionHeader, Unpacker};
use crate::format::summary::{EndedBlock, Summarizer, Summary};
use crate::format::tables_codec::{put_row, row_from_bytes};
use crate::format::windows::files::{Boundary, Files, live_of};
use crate::ids::DeviceId;
use crate::live_state::LiveBlock;
use crate::live_state::LiveState;
use crate::metric::Totals;

#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    places: Vec<Place>,
    /// The sections of computed checkpoints, which are not in the file.
    computed: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Place {
    events: u64,
    /// The offsets of the parts of the checkpoint, in the file or in `computed`.
    parts: Vec<u64>,
    /// The index of the file that contains it; 0 if it is computed.
    file: usize,
    is_computed: bool,
}

impl Checkpoints {
    pub(super) fn in_files(files: &Files) -> Self {
        let mut places: Vec<Place> = Vec::new();
        for (file, part) in files.parts().iter().enumerate() {
            // A malicious file may contain any number.
            let is_inside = |row: &&IndexRow| (1..=part.events.count).contains(&row.events_before);
            for row in part.sections.of_kind(SectionKind::Checkpoint).filter(is_inside) {
                let events = part.first.saturating_add(row.events_before);
                match places.last_mut().filter(|last| (last.file, last.events) == (file, events)) {
                    Some(last) => last.parts.push(row.offset),
                    None => places.push(Place { events, file, parts: vec![row.offset], is_computed: false }),
                }
            }
        }
        Self { places, computed: Vec::new() }
    }

    /// Removes the checkpoints with more than `events` events before them.
    pub(super) fn forget_after(&mut self, events: u64) {
        self.places.truncate(self.places.partition_point(|place| place.events <= events));
    }

    /// Returns the state at the start of file `file`; `None` for the first. `at_start` is the initial state.
    pub(super) fn boundary<'a>(
        &self,
        files: &'a Files,
        file: usize,
        at_start: impl Fn() -> Summarizer + Copy,
    ) -> Result<Option<&'a Boundary>> {
        let part = &files.parts()[file];
        part.boundary(|| {
            let is_before =
                |place: &Place| if place.is_computed { place.events <= part.first } else { place.file < file };
            let number = self.places.partition_point(is_before).checked_sub(1);
            let restored = number.map(|number| self.restore(files, number, at_start)).transpose()?;
            let mut summarizer = restored.unwrap_or_else(at_start);
            files.summarize(&mut summarizer, part.first)?;
            let used = summarizer.states().map(|(device, live)| (device, live.totals().device_used));
            let device_used = used.filter(|(_, bytes)| *bytes > 0).collect();
            let live = summarizer.states().map(|(device, live)| live_of(&live.state(device))).collect();
            let states = summarizer.states();
            let blocks = states.flat_map(|(device, live)| live.blocks().into_iter().map(move |block| (device, block)));
            let birth = |(device, live): (DeviceId, LiveBlock)| Some(((device, live.block.alloc.block), live.birth?));
            Ok(Boundary { births: blocks.filter_map(birth).collect(), stage: summarizer.stage(), device_used, live })
        })
    }

    pub(super) fn add(&mut self, summarizer: &Summarizer, deaths: &[EndedBlock], packer: &mut Packer) -> Result<()> {
        let (mut parts, mut raw) = (Vec::new(), Vec::new());
        for part in Checkpoint::of(summarizer, deaths) {
            raw.clear();
            put_row(&mut raw, &part)?;
            parts.push(self.computed.len() as u64);
            let label = Label { kind: SectionKind::Checkpoint, count: 1, first: summarizer.events() };
            self.computed.extend_from_slice(packer.pack(label, &raw)?);
        }
        self.places.push(Place { events: summarizer.events(), file: 0, parts, is_computed: true });
        Ok(())
    }

    pub(super) fn added(&self) -> &[u8] {
        &self.computed
    }

    /// Adds checkpoints that were computed earlier, whose sections are in `bytes`.
    pub(super) fn extend(&mut self, checkpoints: Vec<(u64, Vec<u64>)>, bytes: Vec<u8>) {
        let place = |(events, parts)| Place { events, file: 0, parts, is_computed: true };
        self.places.extend(checkpoints.into_iter().map(place));
        self.computed = bytes;
    }

    pub(super) fn forget_computed(&mut self) {
        self.places.retain(|place| !place.is_computed);
        self.computed = Vec::new();
    }

    /// Returns the index of the last checkpoint with at most `events` events before it; `None` if there is none.
    pub(super) fn before(&self, events: u64) -> Option<usize> {
        self.places.partition_point(|place| place.events <= events).checked_sub(1)
    }

    /// Returns the number of events before the last checkpoint; `None` if there are no checkpoints.
    pub(super) fn last_events(&self) -> Option<u64> {
        self.places.last().map(|place| place.events)
    }

    pub(super) fn forget_last(&mut self) {
        self.places.pop();
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of events before checkpoint `number`; `None` if it does not exist.
    pub(super) fn events(&self, number: usize) -> Option<u64> {
        self.places.get(number).map(|place| place.events)
    }

    pub(super) fn parts(
        &self,
        files: &Files,
        number: usize,
        at_start: impl Fn() -> Summarizer + Copy,
    ) -> Result<Vec<Checkpoint>> {
        let place = &self.places[number];
        let file = &files.parts()[place.file];
        let boundary = if place.is_computed { None } else { self.boundary(files, place.file, at_start)? };
        let mut unpacker = Unpacker::new();
        let mut parts: Vec<Checkpoint> = Vec::with_capacity(place.parts.len());
        for &offset in &place.parts {
            let damaged = |what: String| Error::Damaged { offset, what: format!("a checkpoint: {what}") };
            let raw = if place.is_computed {
                let bytes = &self.computed[offset as usize..];
                let header = SectionHeader::parse(bytes).expect("the checkpoint written here cannot be read");
                let stored = &bytes[HEADER_BYTES..][..header.stored as usize];
                unpacker.unpack(&Section { offset, header, stored }).map(<[u8]>::to_vec)
            } else {
                let found = file.sections.section(offset)?;
                unpacker.unpack(&found.section()).map(<[u8]>::to_vec)
            };
            let mut part: Checkpoint = raw.and_then(|raw| row_from_bytes(&raw)).map_err(damaged)?;
            if !place.is_computed {
                file.renumber_checkpoint(&mut part, boundary);
            }
            let more = place.parts.len() - parts.len() - 1;
            if part.events != place.events || part.more as usize != more {
                return Err(damaged("its parts are inconsistent".to_owned()));
            }
            parts.push(part);
        }
        Ok(parts)
    }

    /// Returns whether checkpoint `number` omits the list of blocks that died since the previous checkpoint. True for
    /// the first checkpoint of a file that continues another file.
    pub(super) fn names_no_deaths(&self, files: &Files, number: usize) -> bool {
        let (place, before) = (&self.places[number], number.checked_sub(1).map(|before| &self.places[before]));
        let is_first = before.is_some_and(|before| before.is_computed || before.file != place.file);
        !place.is_computed && is_first && files.parts()[place.file].is_later()
    }

    pub(super) fn restore(
        &self,
        files: &Files,
        number: usize,
        at_start: impl Fn() -> Summarizer + Copy,
    ) -> Result<Summarizer> {
        let parts = self.parts(files, number, at_start)?;
        let mut states: Vec<(DeviceId, LiveState, Totals)> = Vec::new();
        for part in &parts {
            let device = part.state.device;
            if part.totals == Totals::default() && part.state.is_empty() {
                continue;
            }
            let row = match states.iter().position(|(id, ..)| *id == device) {
                Some(row) => row,
                None => {
                    states.push((device, LiveState::default(), part.totals));
                    states.len() - 1
                }
            };
            let damaged = |what| Error::Damaged { offset: self.places[number].parts[0], what };
            part.restore(&mut states[row].1).map_err(damaged)?;
        }
        for (_, live, totals) in &mut states {
            let sums = *live.totals();
            if [sums.requested, sums.allocated, sums.active] != [totals.requested, totals.allocated, totals.active] {
                let what = "a checkpoint's blocks do not add up to its totals".to_owned();
                return Err(Error::Damaged { offset: self.places[number].parts[0], what });
            }
            live.set_driver_totals(totals);
        }
        let states = states.into_iter().map(|(device, live, _)| (device, live)).collect();
        let Checkpoint { events, time_ns, stage, largest_step, .. } = parts[0];
        let row = Summary { first: events, times_ns: (time_ns, time_ns), stage, largest_step, ..Summary::default() };
        Ok(Summarizer::resume(row, states))
    }
}
