//! Writes a trace as the dict returned by `torch.cuda.memory._snapshot()`, value by value while walking the trace.

use std::ops::ControlFlow;

use super::document::{Document, Plain};
use super::entries::{Entries, Entry, HOST, LeftOut, Name};
use super::facts::Facts;
use super::final_state::{FinalSegment, FinalState};
use super::frames::{Stacks, write_frames, write_traceback};
use super::lost::Lost;
use super::{Exported, regions, settings};
use crate::digest::EventDigest;
use crate::embedded;
use crate::raw::{Action, MAX_EMBEDDED};
use highwater_snapshots::category::{Category, Phase, Pool};
use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::format::write_trace;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, OpId, StackId, StringId};
use highwater_snapshots::trace::{Owner, Trace};

/// Callback with the number of events written so far. It stops the export by returning [`ControlFlow::Break`].
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// Number of events between two calls of [`Progress`].
const PROGRESS_EVENTS: usize = 16_384;

pub(super) fn write<D: Document>(mut document: D, trace: &Trace, progress: Progress<'_>) -> Result<Exported> {
    let entries = Entries::new(trace);
    let mut devices = trace.device_ids();
    devices.push(entries.home());
    devices.sort_unstable();
    devices.dedup();
    let holdings = devices.iter().map(|&device| (device, FinalState::of(trace, device))).collect();
    let mut writer = Writer {
        trace,
        entries: &entries,
        stacks: Stacks::new(trace),
        needs_unknown: has_categories(trace),
        digest: EventDigest::default(),
        events: 0,
        left_out: LeftOut::default(),
        progress,
        document: &mut document,
    };
    let mut lost = writer.run(&holdings)?;
    lost.left_out = writer.left_out;
    let (events, digest) = (writer.events, std::mem::take(&mut writer.digest).finish());
    lost.embedded_bytes = embed(&mut document, trace, digest)?;
    document.close_dict()?;
    document.finish()?;
    // The embedded recording has every event.
    let events = if lost.embedded_bytes.is_none() { trace.events.len() as u64 } else { events };
    Ok(Exported { events, lost: lost.sentences() })
}

fn has_categories(trace: &Trace) -> bool {
    let is_name = |id: StringId| trace.tables.string(id) == "category";
    trace.blocks.category.iter().any(|category| *category != Category::Unknown)
        || trace.attributes.iter().any(|attribute| is_name(attribute.name))
}

/// Devices with their final states.
type AllHoldings = Vec<(DeviceId, FinalState)>;

/// Embeds the whole recording as a string. Returns its size in bytes if it is too large.
fn embed(document: &mut impl Document, trace: &Trace, digest: u32) -> Result<Option<usize>> {
    let bytes = write_trace(Vec::new(), trace)?;
    if super::document::base64_length(bytes.len()) > MAX_EMBEDDED {
        return Ok(Some(bytes.len()));
    }
    document.key("highwater")?;
    document.base64(&embedded::prefix(digest), &bytes)?;
    Ok(None)
}

struct Writer<'a, D> {
    document: &'a mut D,
    trace: &'a Trace,
    entries: &'a Entries<'a>,
    stacks: Stacks,
    /// Whether the file has categories, but no event of the category `unknown` yet. PyTorch's viewer adds this category
    /// to its legend if it is missing, and then fails.
    needs_unknown: bool,
    digest: EventDigest,
    events: u64,
    left_out: LeftOut,
    progress: Progress<'a>,
}

impl<D: Document> Writer<'_, D> {
    fn run(&mut self, holdings: &AllHoldings) -> Result<Lost> {
        self.count_stacks(holdings)?;
        let is_host = |device: DeviceId| device == HOST;
        self.document.open_dict()?;
        self.document.key("segments")?;
        self.segments(holdings, |device| !is_host(device))?;
        self.document.key("device_traces")?;
        self.device_traces(holdings)?;
        self.document.key("allocator_settings")?;
        let with_settings = || self.trace.devices.iter().filter(|facts| !facts.settings.is_empty());
        settings::write(self.document, with_settings().next().map_or(&[], |facts| &facts.settings))?;
        let lost = Lost {
            differing_settings: with_settings()
                .zip(with_settings().skip(1))
                .any(|(one, next)| one.settings != next.settings),
            ..Lost::of(holdings.iter().map(|(_, holdings)| holdings))
        };
        self.document.key("external_annotations")?;
        self.annotations()?;
        if holdings.iter().any(|(device, _)| is_host(*device)) {
            self.document.key("host_segments")?;
            self.segments(holdings, is_host)?;
            self.document.key("host_traces")?;
            self.document.open_list()?;
            self.trace_of(HOST)?;
            self.digest.end_trace(EventDigest::HOST);
            self.document.close_list()?;
        }
        Ok(lost)
    }

    /// Determines which stacks are written more than once.
    fn count_stacks(&mut self, holdings: &AllHoldings) -> Result<()> {
        for row in 0..self.trace.events.len() {
            let stacks = &mut self.stacks;
            self.entries.each(row, &mut LeftOut::default(), |entry| {
                stacks.count(StackId(entry.raw.stack));
                Ok(())
            })?;
        }
        for (_, holdings) in holdings {
            for segment in &holdings.segments {
                self.stacks.count(self.stack_of_segment(segment));
            }
            for block in &holdings.blocks {
                self.stacks.count(self.trace.blocks.stack[block.0 as usize]);
            }
        }
        Ok(())
    }

    fn device_traces(&mut self, holdings: &AllHoldings) -> Result<()> {
        let last = holdings.iter().map(|(device, _)| device.0).filter(|device| *device < HOST.0).max();
        self.document.open_list()?;
        for device in 0..=last.unwrap_or(0) {
            self.document.open_list()?;
            self.trace_of(DeviceId(device))?;
            if self.needs_unknown && Some(device) == last {
                self.snapshot_event(holdings, DeviceId(device))?;
            }
            self.digest.end_trace(u64::from(device));
            self.document.close_list()?;
        }
        self.document.close_list()
    }

    fn trace_of(&mut self, device: DeviceId) -> Result<()> {
        let entries = self.entries;
        let mut left_out = self.left_out;
        for row in 0..self.trace.events.len() {
            if row.is_multiple_of(PROGRESS_EVENTS) && (self.progress)(self.events).is_break() {
                return Err(Error::Cancelled);
            }
            if entries.device(row) == device {
                let event = EventId(row as u32);
                entries.each(row, &mut left_out, |entry| self.event(event, entry))?;
            }
        }
        self.left_out = left_out;
        Ok(())
    }

    fn event(&mut self, event: EventId, entry: Entry) -> Result<()> {
        self.digest.take(&entry.raw);
        self.events += 1;
        let Entry { raw, facts, .. } = entry;
        self.document.open_dict()?;
        self.document.key("action")?;
        self.name(entry.action)?;
        self.document.key(if raw.action == Action::Oom { "device_free" } else { "addr" })?;
        self.document.number(raw.address)?;
        self.document.key("size")?;
        self.document.number(raw.size)?;
        self.document.key("stream")?;
        self.document.number(raw.stream)?;
        self.document.key("time_us")?;
        self.document.number(raw.time_us)?;
        self.named("compile_context", facts.compile_context)?;
        if let Some(note) = entry.note {
            self.document.key("user_metadata")?;
            self.name(note)?;
        }
        self.named("internal_metadata", facts.internal_metadata)?;
        if let Some((first, second)) = facts.pool_id {
            self.document.key("pool_id")?;
            self.document.pair(first, second)?;
        }
        self.category(&entry)?;
        let stack = StackId(raw.stack);
        if stack.is_some() {
            self.document.key("frames")?;
            write_frames(self.document, self.trace, stack, self.stacks.is_shared(stack))?;
        }
        if raw.action == Action::Alloc {
            self.forward_frames(event, entry.op, facts)?;
        }
        self.document.close_dict()
    }

    fn category(&mut self, entry: &Entry) -> Result<()> {
        let known = entry.category.filter(|category| *category != Category::Unknown).map(Category::name);
        if let Some(name) = known {
            self.document.key("category")?;
            return self.document.word(name);
        }
        if let Some(id) = entry.facts.category {
            return self.named("category", Some(id));
        }
        if std::mem::take(&mut self.needs_unknown) {
            self.document.key("category")?;
            self.document.word(Category::Unknown.name())?;
        }
        Ok(())
    }

    /// Writes the entry that PyTorch adds when it takes a snapshot.
    fn snapshot_event(&mut self, holdings: &AllHoldings, device: DeviceId) -> Result<()> {
        let blocks = holdings.iter().filter(|(owner, _)| *owner == device).flat_map(|(_, holdings)| &holdings.blocks);
        let active = blocks.map(|block| self.trace.blocks.allocated[block.0 as usize]).sum();
        let last = self.trace.events.len().checked_sub(1).map(EventId::from_index);
        let Some(entry) = last.map(|last| self.entries.snapshot(last, active)) else { return Ok(()) };
        self.event(last.unwrap_or_default(), entry)
    }

    /// Writes the forward stack that an imported event states, or that of the operation unless the event is in the
    /// forward phase itself.
    fn forward_frames(&mut self, event: EventId, op: OpId, facts: Facts) -> Result<()> {
        if let Some(id) = facts.forward_frames {
            self.document.key("forward_frames")?;
            self.document.open_list()?;
            self.document.named(id, self.trace.tables.string(id))?;
            return self.document.close_list();
        }
        let Some(op) = self.trace.tables.op(op).filter(|op| op.stack.is_some()) else { return Ok(()) };
        let phase = self.trace.spans.at(event).map(|span| span.phase);
        if phase == Some(Phase::Forward) {
            return Ok(());
        }
        self.document.key("forward_frames")?;
        write_traceback(self.document, self.trace, op.stack)
    }

    fn segments(&mut self, holdings: &AllHoldings, is_wanted: impl Fn(DeviceId) -> bool) -> Result<()> {
        self.document.open_list()?;
        for (device, holdings) in holdings.iter().filter(|(device, _)| is_wanted(*device)) {
            for segment in &holdings.segments {
                self.segment(*device, segment, &holdings.blocks[segment.blocks.clone()])?;
            }
        }
        self.document.close_list()
    }

    fn segment(&mut self, device: DeviceId, segment: &FinalSegment, blocks: &[BlockId]) -> Result<()> {
        let (mut allocated, mut active, mut requested) = (0, 0, 0);
        for &id in blocks {
            let block = self.trace.blocks.get(id);
            let size = block.allocated.min(segment.addresses.end - block.address);
            active += size;
            requested += block.requested;
            allocated += if block.free_requested.is_some() { 0 } else { size };
        }
        self.document.open_dict()?;
        self.document.key("device")?;
        if device == HOST {
            self.document.plain(Plain::Negative(-1))?;
        } else {
            self.document.number(u64::from(device.0))?;
        }
        let numbers = [
            ("address", segment.addresses.start),
            ("total_size", segment.addresses.end - segment.addresses.start),
            ("allocated_size", allocated),
            ("active_size", active),
            ("requested_size", requested),
            ("stream", segment.stream.0),
        ];
        self.numbers(&numbers)?;
        self.document.key("segment_type")?;
        self.document.word(if segment.pool == Pool::Small { "small" } else { "large" })?;
        self.document.key("segment_pool_id")?;
        let (first, second) = self.facts_of_segment(segment).pool_id.unwrap_or_default();
        self.document.pair(first, second)?;
        self.document.key("is_expandable")?;
        self.document.plain(Plain::Truth(segment.is_expandable))?;
        self.document.key("frames")?;
        let stack = self.stack_of_segment(segment);
        write_frames(self.document, self.trace, stack, self.stacks.is_shared(stack))?;
        self.document.key("blocks")?;
        self.document.open_list()?;
        let mut next = segment.addresses.start;
        for &id in blocks {
            let block = self.trace.blocks.get(id);
            self.hole(next, block.address)?;
            next = block.address.saturating_add(block.allocated).min(segment.addresses.end);
            self.block(id, next - block.address)?;
        }
        self.hole(next, segment.addresses.end)?;
        self.document.close_list()?;
        self.document.close_dict()
    }

    fn hole(&mut self, start: u64, end: u64) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        self.document.open_dict()?;
        self.numbers(&[("address", start), ("size", end - start), ("requested_size", 0)])?;
        self.document.key("state")?;
        self.document.word("inactive")?;
        self.document.key("frames")?;
        self.document.open_list()?;
        self.document.close_list()?;
        self.document.close_dict()
    }

    fn block(&mut self, id: BlockId, size: u64) -> Result<()> {
        let block = self.trace.blocks.get(id);
        self.document.open_dict()?;
        self.numbers(&[("address", block.address), ("size", size), ("requested_size", block.requested)])?;
        self.document.key("state")?;
        self.document.word(if block.free_requested.is_some() { "active_pending_free" } else { "active_allocated" })?;
        self.document.key("frames")?;
        write_frames(self.document, self.trace, block.stack, self.stacks.is_shared(block.stack))?;
        let owner = if block.is_baseline() { Owner::Block(id) } else { Owner::Event(block.alloc) };
        let facts = Facts::of(self.trace, owner);
        self.forward_frames(block.alloc, block.op, facts)?;
        self.document.close_dict()
    }

    fn annotations(&mut self) -> Result<()> {
        self.document.open_list()?;
        for end in regions::ends(self.trace, self.entries.home()) {
            self.document.open_dict()?;
            self.document.key("name")?;
            match end.name {
                regions::RegionName::Text(id) => self.document.named(id, self.trace.tables.string(id))?,
                regions::RegionName::Phase(phase) => self.document.word(phase.name())?,
                regions::RegionName::Step(_) => self.document.text(&end.name.text(self.trace))?,
            }
            self.document.key("stage")?;
            self.document.word(if end.is_start { "START" } else { "END" })?;
            self.numbers(&[("device", u64::from(end.device.0)), ("time_us", end.time_us)])?;
            self.document.close_dict()?;
        }
        self.document.close_list()
    }

    fn facts_of_segment(&self, segment: &FinalSegment) -> Facts {
        let Some(&event) = segment.row.index().and_then(|row| self.trace.segments.alloc.get(row)) else {
            return Facts::default();
        };
        Facts::of(self.trace, if event.is_some() { Owner::Event(event) } else { Owner::Segment(segment.row) })
    }

    fn stack_of_segment(&self, segment: &FinalSegment) -> StackId {
        let event = segment.row.index().and_then(|row| self.trace.segments.alloc.get(row)?.index());
        event.and_then(|event| self.trace.events.stack.get(event)).copied().unwrap_or_default()
    }

    fn numbers(&mut self, numbers: &[(&'static str, u64)]) -> Result<()> {
        for &(key, value) in numbers {
            self.document.key(key)?;
            self.document.number(value)?;
        }
        Ok(())
    }

    fn name(&mut self, name: Name) -> Result<()> {
        match name {
            Name::Word(word) => self.document.word(word),
            Name::Text(id) => self.document.named(id, self.trace.tables.string(id)),
        }
    }

    fn named(&mut self, key: &'static str, id: Option<StringId>) -> Result<()> {
        let Some(id) = id else { return Ok(()) };
        self.document.key(key)?;
        self.document.named(id, self.trace.tables.string(id))
    }
}
