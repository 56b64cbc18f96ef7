//! Collects the values parsed by the readers, interns strings, frames and stacks, and counts unexpected values.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::names::Names;
use super::raw::{
    Action, BlockState, Extras, LoggedShape, RawAnnotation, RawBlock, RawEvent, RawFrame, RawSegment, RawSnapshot,
    RawTensor,
};
use highwater_snapshots::error::Problem;
use highwater_snapshots::ids::StringId;
use highwater_snapshots::live_bytes::{LiveBytes, LiveBytesMeter};
use highwater_snapshots::trace::SourceText;

/// Builds a [`RawSnapshot`] from values in the order of the file.
#[derive(Clone, Debug)]
pub struct Intake {
    raw: RawSnapshot,
    names: Names,
    frames: HashMap<RawFrame, u32>,
    extras: HashMap<Extras, u32>,
    /// Number of occurrences of each unexpected value.
    unexpected: BTreeMap<String, u64>,
    meter: LiveBytesMeter,
}

/// The fields of an event. Fields missing from the file keep their defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventDraft {
    /// The field `action` of the snapshot.
    pub action: StringId,
    /// The field `addr` of the snapshot.
    pub address: u64,
    /// The field `device_free` of the snapshot, if present.
    pub device_free: Option<u64>,
    /// The field `size` of the snapshot.
    pub size: u64,
    /// The field `time_us` of the snapshot.
    pub time_us: u64,
    /// The field `stream` of the snapshot.
    pub stream: u64,
    /// The field `frames` of the snapshot, as the index of a stack: see [`Intake::stack`].
    pub stack: u32,
    /// The rare fields.
    pub extras: Extras,
}

/// The fields of a block. Fields missing from the file keep their defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockDraft {
    /// The field `address` of the snapshot, if present.
    pub address: Option<u64>,
    /// The field `size` of the snapshot.
    pub size: u64,
    /// `requested_size`, or `real_size` of the newest `history` entry, if present.
    pub requested_size: Option<u64>,
    /// The field `state` of the snapshot.
    pub state: BlockState,
    /// `frames`, or the frames of the newest `history` entry.
    pub stack: u32,
    /// The field `forward_frames` of the snapshot, as the index of a list of strings: see [`Intake::texts`].
    pub forward: u32,
}

/// Strings that carry no information. A field with such a string is treated as missing.
const EMPTY: [&str; 2] = ["", "N/A"];

/// Maximum number of distinct unexpected values that are reported individually.
const MAX_UNEXPECTED: usize = 200;

impl Default for Intake {
    fn default() -> Self {
        let mut intake = Self {
            raw: RawSnapshot::default(),
            names: Names::default(),
            frames: HashMap::new(),
            extras: HashMap::new(),
            unexpected: BTreeMap::new(),
            meter: LiveBytesMeter::default(),
        };
        // The names of the actions come first because `event` relies on their ids.
        for action in Action::known() {
            intake.text(action.name());
        }
        for text in EMPTY {
            intake.text(text);
        }
        intake.raw.extras.push(Extras::default());
        intake.extras.insert(Extras::default(), 0);
        intake
    }
}

impl Intake {
    /// Returns the id of `text`, adding the string if it is new.
    ///
    /// # Panics
    /// Panics if there are 2^32 - 1 distinct strings already.
    pub fn text(&mut self, text: &str) -> StringId {
        self.names.id(&mut self.raw.strings, text)
    }

    /// Returns the string with the id `id`, or an empty string if there is none.
    pub fn string(&self, id: StringId) -> &str {
        id.index().and_then(|row| self.raw.strings.get(row)).map_or("", String::as_str)
    }

    /// Returns the row of `frame`, adding the frame if it is new.
    ///
    /// # Panics
    /// Panics if there are 2^32 distinct frames.
    pub fn frame(&mut self, frame: RawFrame) -> u32 {
        let frames = &mut self.raw.frames;
        *self.frames.entry(frame).or_insert_with(|| {
            frames.push(frame);
            u32::try_from(frames.len() - 1).expect("more than 2^32 frames")
        })
    }

    /// Joins the torch.fx fields of a frame into one string, with the node's operation, name and target, and the line
    /// of the model.
    pub fn fx(&mut self, parts: [StringId; 4]) -> StringId {
        if parts == [StringId::NONE; 4] {
            return StringId::NONE;
        }
        let texts = parts.map(|part| self.string(part).split_whitespace().collect::<Vec<_>>().join(" "));
        let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        let text = format!("torch.fx: {}", texts.join(" "));
        self.text(&text)
    }

    /// Returns the index of a stack, given as rows of frames, innermost first.
    ///
    /// # Panics
    /// Panics if there are 2^32 distinct stacks.
    pub fn stack(&mut self, frames: &[u32]) -> u32 {
        self.raw.stacks.intern(frames)
    }

    /// Returns the rows of the frames of a stack, innermost first.
    pub fn stack_frames(&self, stack: u32) -> &[u32] {
        self.raw.stacks.get(stack)
    }

    /// Returns the index of a list of string ids.
    ///
    /// # Panics
    /// Panics if there are 2^32 distinct lists.
    pub fn texts(&mut self, ids: &[u32]) -> u32 {
        self.raw.texts.intern(ids)
    }

    /// Returns the row of a combination of rare fields, adding the combination if it is new. Strings that carry no
    /// information are omitted.
    pub(crate) fn extras(&mut self, mut extras: Extras) -> u32 {
        let first_empty = Action::known().len() as u32;
        let is_empty = |id: StringId| (first_empty..first_empty + EMPTY.len() as u32).contains(&id.0);
        for text in [
            &mut extras.compile_context,
            &mut extras.user_metadata,
            &mut extras.internal_metadata,
            &mut extras.category,
        ] {
            if is_empty(*text) {
                *text = StringId::NONE;
            }
        }
        if extras == Extras::default() {
            return 0;
        }
        let rows = &mut self.raw.extras;
        *self.extras.entry(extras).or_insert_with(|| {
            rows.push(extras);
            u32::try_from(rows.len() - 1).expect("more than 2^32 combinations")
        })
    }

    /// Converts `draft` to an event of fixed size, without adding it to a trace.
    ///
    /// # Panics
    /// Panics if there are 2^32 distinct combinations of rare fields.
    pub fn event(&mut self, draft: &EventDraft) -> RawEvent {
        let mut extras = draft.extras;
        let action = match draft.action.index().and_then(|row| Action::known().get(row)) {
            Some(&action) => action,
            None => {
                extras.action = draft.action;
                let name = if draft.action.is_some() { self.string(draft.action) } else { "(none)" };
                self.count_unexpected(format!("unknown action '{name:.60}' (kept as a mark)"));
                Action::Unknown
            }
        };
        self.meter(action, draft.time_us, draft.size);
        let address = if action == Action::Oom { draft.device_free.unwrap_or(draft.address) } else { draft.address };
        RawEvent {
            address,
            size: draft.size,
            time_us: draft.time_us,
            stream: draft.stream,
            stack: draft.stack,
            extras: self.extras(extras),
            action,
        }
    }

    /// Counts an event's effect on live memory.
    #[inline]
    pub(crate) fn meter(&mut self, action: Action, time_us: u64, size: u64) {
        self.meter.at_time(time_us);
        match action {
            Action::Alloc => self.meter.begin(size),
            Action::FreeRequested => self.meter.end(size),
            _ => {}
        }
    }

    /// Returns the minimum and maximum of live memory over the events since the last call.
    pub fn take_levels(&mut self) -> LiveBytes {
        self.meter.take()
    }

    /// Adds a segment with its blocks, ordered by address, to `host_segments` if `is_host`, otherwise to `segments`.
    /// Sets the segment's range of blocks.
    pub fn segment(&mut self, mut segment: RawSegment, blocks: &[BlockDraft], is_host: bool) {
        let first = self.raw.blocks.len();
        let mut address = segment.address;
        for block in blocks {
            let at = block.address.unwrap_or(address);
            let requested_size = block.requested_size.unwrap_or(block.size);
            let (size, state, stack, forward) = (block.size, block.state, block.stack, block.forward);
            self.raw.blocks.push(RawBlock { address: at, size, requested_size, state, stack, forward });
            address = at.saturating_add(size);
        }
        segment.blocks = first..self.raw.blocks.len();
        let rows = if is_host { &mut self.raw.host_segments } else { &mut self.raw.segments };
        rows.push(segment);
    }

    /// Sets the events of a device, replacing earlier ones.
    pub fn trace(&mut self, device: usize, events: Vec<RawEvent>) {
        if device >= self.raw.traces.len() {
            self.raw.traces.resize_with(device + 1, Vec::new);
        }
        self.raw.traces[device] = events;
    }

    /// Sets the events of pinned host memory.
    pub fn host_trace(&mut self, events: Vec<RawEvent>) {
        self.raw.host_trace = events;
    }

    /// Adds the start or the end of an annotation.
    pub fn annotation(&mut self, annotation: RawAnnotation) {
        self.raw.annotations.push(annotation);
    }

    /// Adds an allocator setting.
    pub fn setting(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.raw.settings.push((name.into(), value.into()));
    }

    pub(crate) fn run_value(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.raw.run.values.push((name.into(), value.into()));
    }

    pub(crate) fn run_tensor(&mut self, tensor: RawTensor) {
        self.raw.run.tensors.push(tensor);
    }

    pub(crate) fn logged_shape(&mut self, shape: LoggedShape) {
        self.raw.logged_shapes.push(shape);
    }

    /// Adds source files as pairs of path and text, and removes texts of several lines from the strings.
    pub fn sources(&mut self, files: &[(StringId, StringId)]) {
        for (path, text) in files {
            let [path, text] = [path, text].map(|id| self.string(*id).to_owned());
            self.raw.sources.push(SourceText { path, text });
        }
        for row in files.iter().filter_map(|(_, text)| text.index()) {
            // A text of one line may be a name elsewhere. A text that is cleared would keep its memory.
            if let Some(text) = self.raw.strings.get_mut(row).filter(|text| text.contains('\n')) {
                *text = String::new();
            }
        }
    }

    /// Sets the string that this program embedded in the file when exporting it, and removes it from the strings.
    pub fn highwater(&mut self, id: StringId) {
        let text = id.index().and_then(|row| self.raw.strings.get_mut(row)).map(std::mem::take);
        self.raw.highwater = text.filter(|text| !text.is_empty());
    }

    /// Counts an unexpected value. `what` completes a sentence such as "3 times: unexpected key 'foo' in events
    /// (ignored)".
    pub(crate) fn count_unexpected(&mut self, what: impl Into<String>) {
        let mut what = what.into();
        if self.unexpected.len() >= MAX_UNEXPECTED && !self.unexpected.contains_key(&what) {
            "… and others".clone_into(&mut what);
        }
        *self.unexpected.entry(what).or_default() += 1;
    }

    /// Adds a problem.
    pub fn problem(&mut self, problem: Problem) {
        self.raw.problems.push(problem);
    }

    /// Returns the snapshot, with the unexpected values added to its problems.
    pub fn finish(mut self) -> RawSnapshot {
        for (what, count) in self.unexpected {
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            self.raw.problems.push(Problem::new(format!("{times}: {what}")));
        }
        self.raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_takes_no_row_and_what_is_unknown_is_counted() {
        let mut intake = Intake::default();
        let (alloc, nothing, new) = (intake.text("alloc"), intake.text("N/A"), intake.text("teleport"));
        let extras = Extras { compile_context: nothing, ..Extras::default() };
        let event = intake.event(&EventDraft { action: alloc, address: 7, extras, ..EventDraft::default() });
        assert_eq!((event.action, event.extras, event.address), (Action::Alloc, 0, 7));
        for _ in 0..2 {
            let event = intake.event(&EventDraft { action: new, ..EventDraft::default() });
            assert_eq!((event.action, event.extras), (Action::Unknown, 1));
        }
        let raw = intake.finish();
        assert_eq!(raw.extras[1].action, new);
        assert!(raw.problems[0].what.starts_with("2 times: unknown action 'teleport'"), "{:?}", raw.problems);
    }

    #[test]
    fn blocks_without_an_address_lie_one_after_the_other() {
        let mut intake = Intake::default();
        let segment = RawSegment { address: 1000, ..RawSegment::default() };
        let block = |size| BlockDraft { size, ..BlockDraft::default() };
        intake.segment(segment, &[block(512), block(1024), block(512)], false);
        let raw = intake.finish();
        let addresses: Vec<u64> = raw.blocks.iter().map(|block| block.address).collect();
        assert_eq!(addresses, [1000, 1512, 2536]);
        assert_eq!(raw.segments[0].blocks, 0..3);
    }
}
