//! Extracts part of a recording as a separate recording with the same totals after every event.

use std::ops::Range;
use std::sync::Arc;

use highwater_snapshots::event::{BlockKey, Event, EventKind, Range as Addresses, What};
use highwater_snapshots::format::{block_keys, recorded_event};
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, SegmentId, StackId, StringId};
use highwater_snapshots::ranges::Ranges;
use highwater_snapshots::references::{ATTRIBUTE, References};
use highwater_snapshots::trace::{Annotation, Attribute, EXCERPT, NOTE, Owner, SegmentRole, Trace, Trust};
use highwater_snapshots::units::{count_of, format_count};
use highwater_snapshots::{Phase, StartingBlock, StartingState, TraceBuilder};

/// Returns a recording of only `events`. The blocks live before these events become its baseline; events for the
/// current step, phase and memory used on the device are inserted at the start.
pub fn excerpt(trace: &Trace, events: Range<usize>) -> Trace {
    let events = events.start.min(trace.events.len())..events.end.min(trace.events.len());
    let (builder, keys) = (TraceBuilder::with_capacity(events.len() + 3), block_keys(trace));
    let mut part = Excerpt { trace, builder, start: events.start, keys };
    part.copy_facts(&events);
    for device in trace.device_ids() {
        part.start_device(device);
    }
    part.push_current_facts();
    let before = part.builder.event_count();
    for row in events.clone() {
        let event = EventId::from_index(row);
        let owner = Owner::Event(EventId::from_index(part.builder.event_count()));
        part.copy_attributes(Owner::Event(event), owner);
        part.builder.push(&recorded_event(trace, event, &part.keys));
    }
    let place = |event: EventId| {
        let row = (event.0 as usize).clamp(events.start, events.end.max(events.start));
        EventId::from_index(row - events.start + before)
    };
    for annotation in &trace.annotations {
        let (first, end) = (place(annotation.first), place(annotation.end));
        if first < end {
            part.builder.add_annotation(Annotation { first, end, ..*annotation });
        }
    }
    part.builder.finish()
}

/// An excerpt under construction.
struct Excerpt<'a> {
    trace: &'a Trace,
    builder: TraceBuilder,
    /// The row of the first event of the excerpt.
    start: usize,
    /// The key of each block.
    keys: Vec<BlockKey>,
}

impl Excerpt<'_> {
    fn copy_facts(&mut self, events: &Range<usize>) {
        let (trace, builder) = (self.trace, &mut self.builder);
        let mut header = trace.header.clone();
        let [first, end] = [events.start, events.end].map(|event| trace.start.events + event as u64);
        if (first, end) != (0, trace.event_count()) {
            let [from, to, n] = [first, end.saturating_sub(1), trace.event_count()].map(format_count);
            let (text, numbering) = match first < end {
                true => (format!("events {from} to {to} of {n}"), ", numbered from 0 here"),
                false => (format!("none of {}", count_of(trace.event_count(), "event")), ""),
            };
            header.facts.push((NOTE.to_owned(), format!("an excerpt: {text}{numbering}")));
            header.facts.push((EXCERPT.to_owned(), text));
        }
        builder.set_header(header);
        trace.devices.iter().for_each(|facts| builder.set_device(facts.clone()));
        *builder.tables() = trace.tables.clone();
        builder.merge_sources(&trace.sources);
        // Counts that the builder itself keeps would be added twice.
        *builder.trust() = Trust {
            unmatched_frees: 0,
            repeated_allocs: 0,
            unmatched_uses: 0,
            unmatched_releases: 0,
            ..trace.trust.clone()
        };
        trace.problems.iter().for_each(|problem| builder.add_problem(problem.clone()));
    }

    /// Sets the starting state of `device`.
    fn start_device(&mut self, device: DeviceId) {
        let trace = self.trace;
        let (blocks_before, segments_before) = self.builder.row_counts();
        let mut state = StartingState { device, ..StartingState::default() };
        let mut owners = Vec::new();
        for id in trace.segments.ids().filter(|id| self.is_reserved_at_start(*id, device)) {
            let row = SegmentId::from_index(segments_before + state.segments.len());
            let segment = trace.segments.get(id);
            owners.push((owner_of(segment.alloc, Owner::Segment(id)), Owner::Segment(row)));
            state.segments.push(segment.range);
        }
        state.mappings = self.mapped_at_start(device);
        let is_alloc = |row: &usize| trace.events.kind[*row] == EventKind::Alloc && trace.events.device[*row] == device;
        let allocs: Vec<usize> = (0..self.start).filter(is_alloc).collect();
        for id in trace.blocks.ids() {
            let block = trace.blocks.get(id);
            let is_later = block.alloc.index().is_some_and(|alloc| alloc >= self.start);
            if block.device != device || is_later || self.is_over(block.free_completed) {
                continue;
            }
            let row = BlockId::from_index(blocks_before + state.blocks.len());
            let own = block.alloc.index().map_or(0, |alloc| allocs.partition_point(|other| *other <= alloc));
            self.copy_references(owner_of(block.alloc, Owner::Block(id)), Owner::Block(row), own, allocs.len());
            owners.push((owner_of(block.alloc, Owner::Block(id)), Owner::Block(row)));
            let mut alloc = block.as_alloc(id);
            alloc.block = self.keys[id.0 as usize];
            let free_requested = self.is_over(block.free_requested) || trace.was_waiting_at_start(id);
            state.blocks.push(StartingBlock { alloc, stack: block.stack, free_requested });
        }
        self.builder.set_starting_state(&state);
        for (from, to) in owners {
            self.copy_attributes_but(from, to, ATTRIBUTE);
        }
    }

    /// Copies the references to a block that becomes part of the baseline. Of the `before` allocations that precede the
    /// excerpt, `own` allocations precede the end of the block's own allocation.
    fn copy_references(&mut self, from: Owner, owner: Owner, own: usize, before: usize) {
        let tables = &self.trace.tables;
        for attribute in self.trace.attributes_of(from).iter().filter(|fact| tables.string(fact.name) == ATTRIBUTE) {
            let Ok(references) = tables.string(attribute.value).parse::<References>() else { continue };
            let text = references.from_start(own as u64, before as u64).to_string();
            let strings = &mut self.builder.tables().strings;
            let value = StringId::from_index(strings.len());
            strings.push(text);
            self.builder.add_attribute(Attribute { owner, value, ..*attribute });
        }
    }

    /// Returns whether `event` precedes the excerpt.
    fn is_over(&self, event: EventId) -> bool {
        event.index().is_some_and(|event| event < self.start)
    }

    fn is_reserved_at_start(&self, id: SegmentId, device: DeviceId) -> bool {
        let segment = self.trace.segments.get(id);
        let is_there = !segment.alloc.is_some() || self.is_over(segment.alloc);
        segment.device == device && segment.role == SegmentRole::Segment && is_there && !self.is_over(segment.free)
    }

    /// The ranges that are mapped when the excerpt starts.
    fn mapped_at_start(&self, device: DeviceId) -> Vec<Addresses> {
        let mut mapped = Ranges::default();
        for id in self.trace.segments.ids() {
            let segment = self.trace.segments.get(id);
            if segment.device != device || segment.alloc.is_some() && !self.is_over(segment.alloc) {
                continue;
            }
            let (address, end) = (segment.range.address, segment.range.address.saturating_add(segment.range.bytes));
            match segment.role {
                // Each range has a tag of its own, so that neighbours stay apart.
                SegmentRole::Mapping => mapped.insert(address, end, id),
                SegmentRole::Unmapping => mapped.remove(address, end),
                SegmentRole::Segment => {}
            }
        }
        let range =
            |(address, end, id)| Addresses { address, bytes: end - address, ..self.trace.segments.get(id).range };
        mapped.iter().map(range).collect()
    }

    /// Adds events at the start for the current step, phase and memory used on each device, if the recording has any.
    fn push_current_facts(&mut self) {
        let (trace, start) = (self.trace, self.start);
        let Some(last) = start.checked_sub(1) else { return };
        let kinds = &trace.events.kind[..start];
        let time_ns = trace.events.time_ns[last];
        let mut push = |device, what| self.builder.push(&Event { time_ns, device, stack: StackId::NONE, what });
        // Of a window, events before it may have set them; an explicit phase is then any that a step does not set.
        let is_window = trace.start.events > 0;
        if let Some(span) = trace.spans.at(EventId::from_index(last)) {
            if let Some(step) = span.step.filter(|_| is_window || kinds.contains(&EventKind::Step)) {
                push(DeviceId::default(), What::Step(step));
            }
            let is_default = span.phase == if span.step.is_some() { Phase::Other } else { Phase::Setup };
            if kinds.contains(&EventKind::Phase) || is_window && !is_default {
                push(DeviceId::default(), What::Phase(span.phase));
            }
        }
        for device in trace.device_ids() {
            let is_sample = |row: &usize| kinds[*row] == EventKind::DeviceUsed && trace.events.device[*row] == device;
            let before = trace.start.device(device).map_or(0, |start| start.device_used);
            match (0..start).rev().find(is_sample) {
                Some(row) => push(device, trace.what(EventId::from_index(row))),
                None if before > 0 => push(device, What::DeviceUsed(before)),
                None => {}
            }
        }
    }

    fn copy_attributes(&mut self, from: Owner, owner: Owner) {
        self.copy_attributes_but(from, owner, "");
    }

    /// Copies the attributes except those called `left_out`.
    fn copy_attributes_but(&mut self, from: Owner, owner: Owner, left_out: &str) {
        let tables = &self.trace.tables;
        for attribute in self.trace.attributes_of(from).iter().filter(|fact| tables.string(fact.name) != left_out) {
            self.builder.add_attribute(Attribute { owner, ..*attribute });
        }
    }
}

/// Returns the owner of the attributes of a row created by `event`, which is the event, or the row itself in the
/// baseline.
fn owner_of(event: EventId, baseline: Owner) -> Owner {
    if event.is_some() { Owner::Event(event) } else { baseline }
}

/// Returns `trace` without stacks, the texts that only they use, the program's arguments and the machine's name. The
/// recording gets smaller and contains no source paths or lines.
pub fn without_stacks(trace: Trace) -> Trace {
    trace.edited(|trace| {
        let program = trace.header.program.split_whitespace().next().unwrap_or_default();
        trace.header.program = program.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        trace.header.host.clear();
        trace.sources = Arc::default();
        let tables = &mut trace.tables;
        // What PyTorch's compiler was compiling: the file, the function and the line.
        trace.attributes.retain(|attribute| tables.string(attribute.name) != "compile_context");
        trace.events.stack.fill(StackId::NONE);
        trace.blocks.stack.fill(StackId::NONE);
        let mut used = vec![false; tables.strings.len()];
        let mut keep = |id: StringId| {
            if let Some(used) = id.index().and_then(|row| used.get_mut(row)) {
                *used = true;
            }
        };
        let events = trace.events.kind.iter().zip(&trace.events.subject);
        events.filter(|(kind, _)| **kind == EventKind::Mark).for_each(|(_, text)| keep(StringId(*text)));
        trace.annotations.iter().for_each(|annotation| keep(annotation.name));
        trace.attributes.iter().flat_map(|attribute| [attribute.name, attribute.value]).for_each(&mut keep);
        tables.scopes.iter().for_each(|scope| keep(scope.name));
        for op in &mut tables.ops {
            keep(op.name);
            op.stack = StackId::NONE;
        }
        tables.modules.clear();
        tables.frames.clear();
        tables.lines.clear();
        tables.stacks.clear();
        tables.strings.iter_mut().zip(used).filter(|(_, used)| !used).for_each(|(text, _)| text.clear());
    })
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::{read_bytes, write_trace};
    use highwater_snapshots::trace::SourceText;

    use super::*;
    use crate::Totals;
    use crate::index::replay::Replay;

    const TEXT: &str = r#"
        baseline w 40 parameter
        baseline_segment 0x200000 2000
        alloc a 100 activation #linear @net.fc
        alloc x 70 device=1
        step 0
        phase forward
        alloc b 300 temporary #relu @net.act < relu net.py:7 < main train.py:3
        segment_alloc 0x400000 4096
        device_used 9000
        free_requested a
        alloc c 50
        mark here
        phase backward
        free_completed a
        free b
        step 1
        free x device=1
        alloc d 8 gradient
        tag c gradient
        used d
        segment_map 0x800000 2048
        free c
        segment_unmap 0x800000 1024
        oom 4096 free=1024
        free gone
        begin "region"
        alloc e 16 activation
        attribute references "end 1\nsaved 1 2 - 3 net.fc"
        alloc f 16
        alloc h 16
        end "region"
        segment_free 0x400000 4096
    "#;

    fn totals(trace: &Trace, device: DeviceId) -> Vec<Totals> {
        let mut replay = Replay::new(trace, device);
        let mut all = vec![replay.totals()];
        for _ in 0..trace.events.len() {
            replay.step();
            all.push(replay.totals());
        }
        all
    }

    /// Whether an event is anything but a free of an unknown block.
    fn is_matched(trace: &Trace, row: usize) -> bool {
        let is_free = matches!(trace.events.kind[row], EventKind::FreeRequested | EventKind::FreeCompleted);
        !is_free || BlockId(trace.events.subject[row]).is_some()
    }

    #[test]
    fn every_excerpt_has_the_totals_of_the_whole_at_every_event() {
        let whole = trace_from_text(TEXT).unwrap();
        let count = whole.events.len();
        for start in 0..=count {
            for end in start..=count {
                let part = excerpt(&whole, start..end);
                let added = part.events.len() - (end - start);
                for device in whole.device_ids() {
                    let (all, ours) = (totals(&whole, device), totals(&part, device));
                    assert_eq!(ours[added..], all[start..=end], "{start}..{end} of {device:?}");
                }
                let unmatched = (start..end).filter(|row| !is_matched(&whole, *row)).count();
                assert_eq!(part.trust.unmatched_frees, unmatched as u64, "{start}..{end}: {:?}", part.trust);
                assert!(crate::question::verify::verify_trace(&part).is_empty(), "{start}..{end}");
                let back = read_bytes(&write_trace(Vec::new(), &part).unwrap()).unwrap();
                assert_eq!(totals(&back, DeviceId(0)), totals(&part, DeviceId(0)));
            }
        }
    }

    #[test]
    fn steps_phases_names_and_texts_stay() {
        let whole = trace_from_text(TEXT).unwrap();
        for row in 1..whole.events.len() {
            let part = excerpt(&whole, row..whole.events.len());
            let added = part.events.len() - (whole.events.len() - row);
            let span = |trace: &Trace, row: usize| {
                trace.spans.at(EventId::from_index(row)).map(|span| (span.step, span.phase))
            };
            assert_eq!(span(&part, added), span(&whole, row), "{row}");
        }
        let part = excerpt(&whole, 5..12);
        assert!(part.header.excerpt().is_some_and(|events| events.starts_with("events 5 to 11 of")));
        let none = excerpt(&whole, 5..5);
        assert!(none.header.excerpt().is_some_and(|events| events.starts_with("none of")));
        assert!(part.problems.is_empty() && part.header.notes().any(|note| note.contains("an excerpt")));
        assert_eq!(excerpt(&whole, 0..whole.events.len()).header.excerpt(), None, "it is the whole");
        let live = part.blocks.ids().find(|id| part.blocks.get(*id).requested == 100).unwrap();
        let block = part.blocks.get(live);
        assert_eq!((part.tables.op_name(block.op), part.tables.scope_path(block.scope).as_str()), ("linear", "net.fc"));
    }

    #[test]
    fn references_of_a_block_of_the_baseline_count_from_the_start() {
        let whole = trace_from_text(TEXT).unwrap();
        let e = whole.blocks.ids().find(|id| whole.blocks.get(*id).requested == 16).unwrap();
        let start = whole.blocks.get(e).alloc.0 as usize + 2;
        let part = excerpt(&whole, start..whole.events.len());
        let block = part.blocks.ids().find(|id| part.blocks.get(*id).requested == 16).unwrap();
        let [fact] = part.attributes_of(Owner::Block(block)) else { panic!("no references") };
        // One allocation after its own, f, precedes the excerpt.
        assert_eq!(part.tables.string(fact.value), "end 0\nsaved 0 1 - 2 net.fc");
    }

    #[test]
    fn without_stacks_no_text_of_the_source_is_left_and_no_byte_is_missing() {
        let source = SourceText { path: "net.py".to_owned(), text: "def relu(x): …".to_owned() };
        let whole = trace_from_text(TEXT).unwrap().edited(|trace| trace.sources = Arc::new(vec![source]));
        assert_eq!(excerpt(&whole, 1..2).source("net.py"), Some("def relu(x): …"));
        let bare = without_stacks(whole.clone().edited(|trace| {
            trace.header.program = "/home/ada/bin/train.py --data /home/ada/secret".to_owned();
            trace.header.host = "ada".to_owned();
        }));
        assert_eq!((bare.header.program.as_str(), bare.header.host.as_str()), ("train.py", ""));
        assert!(bare.sources.is_empty());
        assert_eq!(totals(&bare, DeviceId(0)), totals(&whole, DeviceId(0)));
        let texts = bare.tables.strings.concat();
        assert!(!texts.contains("train.py") && !texts.contains("net.py"), "{texts}");
        assert!(texts.contains("linear") && texts.contains("here") && bare.tables.stacks.is_empty());
        assert!(crate::question::verify::verify_trace(&bare).is_empty());
        let back = read_bytes(&write_trace(Vec::new(), &bare).unwrap()).unwrap();
        assert_eq!(totals(&back, DeviceId(0)), totals(&whole, DeviceId(0)));
    }
}
