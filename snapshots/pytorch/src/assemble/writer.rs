//! Passes each raw event to the builder as an event of a trace, with its attributes.

use super::super::raw::{Action, Extras, RawEvent};
use super::super::sequences::Sequences;
use super::annotations::Mark;
use super::attributes::Attributes;
use super::block_matching::{NOT_FINAL, Skipped};
use super::device::{Device, Source};
use super::ops::Ops;
use super::sizes::SizeReceiver;
use super::stacks::Stacks;
use super::start::ReservedRange;
use super::tags::{Tag, TagRanges, Tags};
use crate::rows::Rows;
use highwater_snapshots::event::{Alloc, Event, Oom, Range, What};
use highwater_snapshots::ids::{EventId, OpId, ScopeId, SegmentId, StackId, StreamId, StringId};
use highwater_snapshots::trace::Owner;
use highwater_snapshots::units::format_count;
use highwater_snapshots::{Category, StartingBlock, StartingState, TraceBuilder};

/// Block key that is never used, so that the builder counts the free as unmatched.
const NO_BLOCK: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Writer<'a> {
    pub(super) builder: TraceBuilder,
    pub(super) source: Source<'a>,
    pub(super) stacks: Stacks,
    pub(super) rows: Rows,
    pub(super) attributes: Attributes,
    pub(super) ops: Ops,
    /// Lists of strings, which are forward stacks.
    pub(super) texts: &'a Sequences,
    /// The recording's origin, in microseconds since 1970.
    pub(super) origin_us: u64,
    /// Ends of annotations that are events.
    pub(super) marks: Vec<Mark>,
    pub(super) tags: Tags,
    /// Tags that are names of annotations.
    pub(super) tag_ranges: TagRanges,
    /// Receives the rounded sizes of allocations from another thread; `None` if there is no such thread.
    pub(super) sizes: Option<SizeReceiver>,
    pub(super) allocs: u64,
    pub(super) untagged_allocs: u64,
    /// Number of baseline segments so far, and the segments of private pools.
    pub(super) starting_segments: usize,
    pub(super) private_segments: Vec<(SegmentId, (u64, u64))>,
}

impl Writer<'_> {
    pub(super) fn time_ns(&self, time_us: u64) -> u64 {
        time_us.saturating_sub(self.origin_us).saturating_mul(1000)
    }

    /// Returns the rounded size of the next allocation.
    #[inline]
    fn allocated(&mut self, device: &Device, position: usize, requested: u64) -> u64 {
        match &mut self.sizes {
            Some(sizes) => sizes.next().map_or(requested, |bytes| requested.max(bytes)),
            None => device.lives.block_index(position).map_or(requested, |block| device.allocated(block, requested)),
        }
    }

    fn op(&mut self, forward: u32) -> OpId {
        self.ops.id(self.builder.tables(), &mut self.rows, (self.texts, forward))
    }

    pub(super) fn start(&mut self, device: &Device) {
        let mut blocks = Vec::with_capacity(device.lives.baseline.len());
        for (block, place) in device.lives.baseline_by_place().zip(0..) {
            let known =
                (block.of_final != NOT_FINAL).then(|| self.source.blocks.get(block.of_final as usize)).flatten();
            let alloc = Alloc {
                block: place,
                address: block.address,
                requested: block.requested,
                allocated: device.allocated(place, block.allocated.unwrap_or(block.requested)),
                stream: StreamId(block.stream),
                pool: device.pool(self.source.rules, block.requested),
                category: Category::Unknown,
                op: known.map_or(OpId::NONE, |block| self.op(block.forward)),
                scope: ScopeId::NONE,
            };
            let stack = known.map_or(StackId::NONE, |block| self.stacks.id(block.stack));
            blocks.push(StartingBlock { alloc, stack, free_requested: block.is_waiting });
        }
        let start = &device.start;
        for range in start.segments.iter().chain(&start.mappings) {
            if range.owner.pool_id != (0, 0) {
                let segment = SegmentId::from_index(self.starting_segments);
                self.private_segments.push((segment, range.owner.pool_id));
            }
            self.starting_segments += 1;
        }
        let ranges = |ranges: &[ReservedRange]| ranges.iter().map(ReservedRange::range).collect();
        let state = StartingState {
            device: device.id,
            segments: ranges(&start.segments),
            mappings: ranges(&start.mappings),
            blocks,
        };
        let is_inferred = !(state.segments.is_empty() && state.mappings.is_empty() && state.blocks.is_empty());
        self.builder.trust().baseline_inferred |= is_inferred;
        self.builder.trust().sizes_inferred += device.sizes_inferred;
        self.builder.set_starting_state(&state);
    }

    pub(super) fn write(&mut self, device: &Device, position: usize, event: &RawEvent, time_us: u64) {
        let mut extras = if event.extras == 0 { Extras::default() } else { self.source.extras(event) };
        let id = EventId::from_index(self.builder.event_count());
        let tag = self.tag(&extras, self.time_ns(time_us));
        self.untagged_allocs += u64::from(tag.is_none() && event.action == Action::Alloc);
        self.allocs += u64::from(event.action == Action::Alloc);
        if let Some(tag) = tag {
            self.tags.push(id, tag);
            if self.tags.is_tag(extras.user_metadata) {
                extras.user_metadata = StringId::NONE;
            }
        }
        let scope = tag.map_or(ScopeId::NONE, |tag| tag.scope);
        let key = device.lives.key(position).unwrap_or(NO_BLOCK);
        let rules = self.source.rules;
        let range = |pool| Range { address: event.address, bytes: event.size, stream: StreamId(event.stream), pool };
        let is_whole_free = device.lives.skipped == Skipped::Completions;
        let stack = self.stacks.id(event.stack);
        let what = match event.action {
            Action::Alloc => What::Alloc(Alloc {
                block: key,
                address: event.address,
                requested: event.size,
                allocated: self.allocated(device, position, event.size),
                stream: StreamId(event.stream),
                pool: device.pool(rules, event.size),
                category: self.category(extras.category),
                op: self.op(extras.forward),
                scope,
            }),
            Action::FreeRequested if !is_whole_free => What::FreeRequested(key),
            // A completion without a request does both at once.
            Action::FreeRequested | Action::FreeCompleted | Action::Free => What::FreeCompleted(key),
            Action::SegmentAlloc => What::SegmentAlloc(range(rules.segment_pool(event.size))),
            Action::SegmentFree => What::SegmentFree(range(rules.segment_pool(event.size))),
            Action::SegmentMap => What::SegmentMap(range(rules.page_pool(event.size))),
            Action::SegmentUnmap => What::SegmentUnmap(range(rules.page_pool(event.size))),
            Action::Oom => What::Oom(Oom {
                requested: event.size,
                device_free: event.address,
                stream: Some(StreamId(event.stream)),
                op: self.op(extras.forward),
                scope,
            }),
            Action::Snapshot | Action::Annotate | Action::UserDefined | Action::Unknown => {
                What::Mark(self.mark_text(event, &extras, stack))
            }
        };
        let time_ns = self.time_ns(time_us);
        self.builder.push(&Event { time_ns, device: device.id, stack, what });

        if let Some((name, is_start)) = self.user_defined(event, stack) {
            self.marks.push(Mark { name, is_start, device: i64::from(device.id.0), time_ns, event: id });
        }
        self.write_extras(event, &extras, id, what);
    }

    /// Moves the annotations whose names are tags from `marks` to `tag_ranges`.
    pub(super) fn take_tag_ranges(&mut self, marks: &mut Vec<Mark>) {
        let mut tagged = Vec::new();
        marks.retain(|mark| match self.tags.read(self.builder.tables(), &mut self.rows, mark.name) {
            Some(tag) => {
                tagged.push((*mark, tag));
                false
            }
            None => true,
        });
        self.tag_ranges = TagRanges::of(tagged);
    }

    /// Returns sentences that describe the facts missing in a snapshot with tags.
    pub(super) fn tag_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.tags.is_empty() {
            return notes;
        }
        if self.untagged_allocs > 0 {
            let what = format!(
                "allocations without a tag: {} of {}; the module is unknown, the phase is that of the event before",
                format_count(self.untagged_allocs),
                format_count(self.allocs)
            );
            notes.push(what);
        }
        let ambiguous = self.tag_ranges.ambiguous;
        if ambiguous > 0 {
            let has = if ambiguous == 1 { "event has" } else { "events have" };
            let count = format_count(ambiguous);
            let what = format!("{count} {has} exactly the time of a module change: the module may be the previous one");
            notes.push(what);
        }
        notes
    }

    /// Returns the tag of an event: its own, or otherwise that of an annotation; `None` if it has neither.
    fn tag(&mut self, extras: &Extras, time_ns: u64) -> Option<Tag> {
        let of_range = self.tag_ranges.at(time_ns);
        if !extras.user_metadata.is_some() {
            return of_range;
        }
        self.tags.read(self.builder.tables(), &mut self.rows, extras.user_metadata).or(of_range)
    }

    fn write_extras(&mut self, event: &RawEvent, extras: &Extras, id: EventId, what: What) {
        let owner = Owner::Event(id);
        let is_mark = matches!(what, What::Mark(_));
        let is_renamed = matches!(what, What::FreeCompleted(_)) && event.action != Action::FreeCompleted;
        if is_mark || is_renamed {
            let name = match event.action {
                Action::Unknown if extras.action.is_some() => self.builder.tables().string(extras.action).to_owned(),
                action => action.name().to_owned(),
            };
            self.attributes.add_action(&mut self.builder, &mut self.rows, owner, &name);
        }
        if is_mark || matches!(what, What::FreeRequested(NO_BLOCK) | What::FreeCompleted(NO_BLOCK)) {
            self.attributes.add_place(&mut self.builder, &mut self.rows, owner, event);
        }
        if event.extras != 0 {
            self.attributes.add_extras(&mut self.builder, &mut self.rows, owner, extras);
        }
    }

    /// Writes the attributes of segments, after those of the events.
    pub(super) fn finish(&mut self) {
        for (segment, pool) in std::mem::take(&mut self.private_segments) {
            let owner = Owner::Segment(segment);
            self.attributes.add_pool(&mut self.builder, &mut self.rows, owner, pool);
        }
    }

    fn mark_text(&mut self, event: &RawEvent, extras: &Extras, stack: StackId) -> StringId {
        match event.action {
            Action::Annotate if extras.user_metadata.is_some() => return extras.user_metadata,
            Action::Unknown if extras.action.is_some() => return extras.action,
            _ => {}
        }
        let text = match self.user_defined(event, stack) {
            Some((name, true)) => format!("{} begins", self.builder.tables().string(name)),
            Some((name, false)) => format!("{} ends", self.builder.tables().string(name)),
            None => event.action.name().to_owned(),
        };
        self.rows.text(self.builder.tables(), &text)
    }

    /// Returns the name of a historical annotation and whether it starts, from the innermost frame's file and function.
    fn user_defined(&mut self, event: &RawEvent, stack: StackId) -> Option<(StringId, bool)> {
        if event.action != Action::UserDefined {
            return None;
        }
        let tables = self.builder.tables();
        let frame = tables.stack_frames(stack).next()?;
        let line = tables.frame_lines(frame).last()?;
        match tables.string(line.function) {
            "START" => Some((line.file, true)),
            "END" => Some((line.file, false)),
            _ => None,
        }
    }

    fn category(&mut self, name: StringId) -> Category {
        if !name.is_some() {
            return Category::Unknown;
        }
        match self.builder.tables().string(name).to_ascii_uppercase().as_str() {
            "PARAMETER" => Category::Parameter,
            "OPTIMIZER_STATE" => Category::OptimizerState,
            "INPUT" => Category::Input,
            "TEMPORARY" | "AUTOGRAD_DETAIL" => Category::Temporary,
            "ACTIVATION" => Category::Activation,
            "GRADIENT" => Category::Gradient,
            _ => Category::Unknown,
        }
    }
}
