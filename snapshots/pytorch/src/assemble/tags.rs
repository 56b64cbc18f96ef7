//! Reads tags: texts that Highwater's Python package sets on allocations, with the step, the phase and the module.
//!
//! A tag is a text such as
//! `{"step":0,"phase":"backward","scope":"blocks.3.attn"}`. From PyTorch 2.10 on, it is the `user_metadata` of each
//! event. In older versions, it is the name of an annotation, and an event has the tag of the annotation that began
//! last and has not ended. The ranges of equal steps and phases become annotations, from which steps and phases are
//! found as in any other program.

use hashbrown::HashMap;

use super::annotations::Mark;
use crate::rows::Rows;
use highwater_snapshots::Phase;
use highwater_snapshots::ids::{DeviceId, EventId, ScopeId, StringId};
use highwater_snapshots::tables::Tables;
use highwater_snapshots::trace::{Annotation, Events, TAGGED_PHASE, TAGGED_STEP};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) step: u32,
    pub(super) phase: Phase,
    /// Whether the allocation was made by a recomputation within backward.
    pub(super) is_recompute: bool,
    /// The innermost module; none outside of the model.
    pub(super) scope: ScopeId,
}

#[derive(serde::Deserialize)]
struct TagText {
    step: u32,
    phase: String,
    scope: String,
}

/// The tags of a snapshot. Each text is parsed only once.
#[derive(Clone, Debug, Default)]
pub(super) struct Tags {
    /// Number of steps that the Python package counted by itself before the program marked the end of a step. Steps up
    /// to this number are merged with the first.
    extra_steps: u32,
    /// The last step. Events with a higher step number belong to it.
    last_step: u32,
    /// Whether the recording and the tags began together, so that events before the first tag belong to the same step.
    is_whole: bool,
    by_text: HashMap<StringId, Option<Tag>>,
    rows: Vec<(EventId, Tag)>,
}

impl Tags {
    pub(super) fn new(extra_steps: u32, last_step: u32, is_whole: bool) -> Self {
        Self { extra_steps, last_step, is_whole, ..Self::default() }
    }

    /// Returns the tag with this text, or `None` if the text is not a tag. Steps are numbered without those that the
    /// package counted by itself, and none is above `last_step`.
    pub(super) fn read(&mut self, tables: &mut Tables, rows: &mut Rows, text: StringId) -> Option<Tag> {
        if let Some(known) = self.by_text.get(&text) {
            return *known;
        }
        let tag = serde_json::from_str(tables.string(text)).ok().and_then(|text: TagText| {
            let is_recompute = text.phase == "recompute";
            let phase = if is_recompute { Phase::Backward } else { Phase::from_name(&text.phase)? };
            let scope = rows.path(tables, &text.scope);
            let step = text.step.min(self.last_step).saturating_sub(self.extra_steps);
            Some(Tag { step, phase, is_recompute, scope })
        });
        self.by_text.insert(text, tag);
        tag
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn is_tag(&self, text: StringId) -> bool {
        self.by_text.get(&text).is_some_and(Option::is_some)
    }

    /// Events must be added in order.
    pub(super) fn push(&mut self, event: EventId, tag: Tag) {
        self.rows.push((event, tag));
    }

    /// Returns the annotations for ranges of equal steps, of equal phases within steps, and of recomputation. Events
    /// without a tag belong to the range before them. Events before the first range, such as those of a thread that has
    /// run no module, belong to the first step.
    pub(super) fn annotations(&self, tables: &mut Tables, rows: &mut Rows, events: &Events) -> Vec<Annotation> {
        let mut annotations = Vec::new();
        let mut add = |run: &[(EventId, Tag)], next: Option<&(EventId, Tag)>, text: &str| {
            let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { return };
            let end = next.map_or(EventId(last.0 + 1), |(event, _)| *event);
            let name = rows.text(tables, text);
            let (start_ns, end_ns) = (events.time_of(*first), events.time_of(EventId(end.0 - 1)));
            annotations.push(Annotation {
                name,
                device: DeviceId(0),
                start_ns,
                end_ns,
                first: *first,
                end,
                is_guessed: false,
            });
        };
        let runs = |key: fn(&Tag) -> u64| {
            let mut ends: Vec<usize> =
                (1..self.rows.len()).filter(|&row| key(&self.rows[row].1) != key(&self.rows[row - 1].1)).collect();
            ends.push(self.rows.len());
            let starts = std::iter::once(0).chain(ends.clone());
            starts.zip(ends).collect::<Vec<_>>()
        };
        for (start, end) in runs(|tag| u64::from(tag.step)) {
            let step = self.rows.get(start).map_or(0, |(_, tag)| tag.step);
            add(&self.rows[start..end], self.rows.get(end), &format!("{TAGGED_STEP}{step}"));
        }
        for (start, end) in runs(|tag| u64::from(tag.step) << 8 | tag.phase as u64) {
            let phase = self.rows.get(start).map_or(Phase::Other, |(_, tag)| tag.phase);
            if !matches!(phase, Phase::Setup | Phase::Other) {
                add(&self.rows[start..end], self.rows.get(end), &format!("{TAGGED_PHASE}{phase}"));
            }
        }
        for (start, end) in runs(|tag| u64::from(tag.step) << 8 | u64::from(tag.is_recompute)) {
            if self.rows.get(start).is_some_and(|(_, tag)| tag.is_recompute) {
                add(&self.rows[start..end], self.rows.get(end), "recompute");
            }
        }
        if let Some(first) = annotations.first_mut().filter(|_| self.is_whole) {
            (first.first, first.start_ns) = (EventId(0), events.time_of(EventId(0)));
        }
        annotations
    }
}

/// The tags that are names of annotations, used to determine which tag applies at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct TagRanges {
    /// The beginnings and ends, by time.
    marks: Vec<(Mark, Tag)>,
    next: usize,
    /// The ranges that have begun but not ended, in order of their beginnings.
    open: Vec<(StringId, Tag)>,
    /// Number of events in the same microsecond as a change of tag, which may belong to the previous tag.
    pub(super) ambiguous: u64,
}

impl TagRanges {
    pub(super) fn of(mut marks: Vec<(Mark, Tag)>) -> Self {
        // Those of one microsecond remain in the order in which they were recorded.
        marks.sort_by_key(|(mark, _)| mark.time_ns);
        Self { marks, ..Self::default() }
    }

    /// Returns the tag that applies at `time_ns`, if any. `time_ns` must not be before the time of the last call.
    pub(super) fn at(&mut self, time_ns: u64) -> Option<Tag> {
        let before = self.open.last().map(|(_, tag)| *tag);
        let mut is_same_time = false;
        while let Some((mark, tag)) = self.marks.get(self.next).filter(|(mark, _)| mark.time_ns <= time_ns) {
            is_same_time = mark.time_ns == time_ns;
            if mark.is_start {
                self.open.push((mark.name, *tag));
            } else if let Some(at) = self.open.iter().rposition(|(name, _)| *name == mark.name) {
                self.open.remove(at);
            }
            self.next += 1;
        }
        let now = self.open.last().map(|(_, tag)| *tag);
        self.ambiguous += u64::from(is_same_time && now != before);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample::{MIB, Sample};
    use highwater_snapshots::Trace;

    fn tag(step: u32, phase: &str, scope: &str) -> String {
        format!(r#"{{"step":{step},"phase":"{phase}","scope":"{scope}"}}"#)
    }

    fn tagged(sample: &mut Sample, action: &str, address: u64, text: &str) {
        sample.event_with(0, action, address, 512, |intake, draft| draft.extras.user_metadata = intake.text(text));
    }

    fn scopes(trace: &Trace) -> Vec<String> {
        trace.blocks.scope.iter().map(|scope| trace.tables.scope_path(*scope)).collect()
    }

    fn spans(trace: &Trace) -> Vec<(Option<u32>, &'static str, u32)> {
        trace.spans.rows().iter().map(|span| (span.step, span.phase.name(), span.first.0)).collect()
    }

    #[test]
    fn tags_of_events_are_their_modules_steps_and_phases() {
        let mut sample = Sample::of(&[("segment_alloc", 0x1000_0000, 2 * MIB)]);
        for (row, (step, phase, scope)) in [
            (0, "other", ""),
            (0, "forward", "blocks.0.attn"),
            (0, "forward", "blocks.0"),
            (0, "backward", "blocks.0"),
            (0, "recompute", "blocks.0.attn"),
            (0, "backward", "blocks.0.attn"),
            (0, "optimizer", ""),
            (1, "forward", "blocks.0.attn"),
        ]
        .into_iter()
        .enumerate()
        {
            tagged(&mut sample, "alloc", 0x1000_0000 + 512 * row as u64, &tag(step, phase, scope));
        }
        let trace = sample.assemble();
        let (attn, block) = ("blocks.0.attn", "blocks.0");
        assert_eq!(scopes(&trace), ["", attn, block, block, attn, attn, "", attn]);
        assert_eq!(trace.tables.scopes.len(), 3, "each path once");
        assert_eq!(
            spans(&trace),
            [
                (None, "setup", 0),
                (Some(0), "other", 1),
                (Some(0), "forward", 2),
                (Some(0), "backward", 4),
                (Some(0), "optimizer", 7),
                (Some(1), "forward", 8),
            ]
        );
        assert!(!trace.spans.are_guessed() && trace.spans.names_steps());
        let names: Vec<&str> = trace.annotations.iter().map(|row| trace.tables.string(row.name)).collect();
        assert_eq!(names.iter().filter(|name| **name == "recompute").count(), 1, "{names:?}");
        assert_eq!(trace.attributes.len(), 0);
    }

    #[test]
    fn events_before_the_first_tag_are_of_its_step_if_the_package_has_recorded_them() {
        let spans_of = |value: Option<&str>| {
            let mut sample = Sample::of(&[("segment_alloc", 0x1000_0000, 2 * MIB), ("alloc", 0x1000_0000, 512)]);
            tagged(&mut sample, "alloc", 0x1000_0200, &tag(4, "forward", "net"));
            value.into_iter().for_each(|value| sample.intake.run_value("tags", value));
            spans(&sample.assemble())
        };
        assert_eq!(spans_of(Some("metadata")), [(Some(4), "other", 0), (Some(4), "forward", 2)]);
        assert_eq!(spans_of(None), [(None, "setup", 0), (Some(4), "forward", 2)]);
    }

    #[test]
    fn tags_that_are_names_of_annotations_hold_from_start_to_end() {
        let mut sample = Sample::of(&[("segment_alloc", 0x1000_0000, 2 * MIB)]);
        let (outer, inner) = (tag(0, "forward", "net"), tag(0, "backward", "net.fc"));
        for (row, (name, is_start)) in
            [(&outer, true), (&inner, true), (&inner, false), (&outer, false)].iter().enumerate()
        {
            sample.annotation(name, *is_start, sample.clock);
            sample.clock += 1;
            sample.event(0, "alloc", 0x1000_0000 + 512 * row as u64, 512);
        }
        let trace = sample.assemble();
        assert_eq!(scopes(&trace), ["net", "net.fc", "net", ""]);
        let names: Vec<&str> = trace.annotations.iter().map(|row| trace.tables.string(row.name)).collect();
        assert!(names.iter().all(|name| !name.contains("scope")), "tags are no regions: {names:?}");
    }

    #[test]
    fn events_in_the_microsecond_in_which_the_tag_changes_are_counted() {
        let mut sample = Sample::of(&[("segment_alloc", 0x1000_0000, 2 * MIB)]);
        sample.annotation(&tag(0, "forward", "net"), true, sample.clock);
        sample.annotation(&tag(0, "forward", "net"), false, sample.clock);
        sample.annotation(&tag(0, "forward", "net.fc"), true, sample.clock);
        sample.event(0, "alloc", 0x1000_0000, 512);
        sample.event(0, "alloc", 0x1000_0200, 512);
        let trace = sample.assemble();
        assert_eq!(scopes(&trace), ["net.fc", "net.fc"]);
        assert!(trace.header.notes().any(|note| note.contains("1 event has exactly the time")), "{:?}", trace.header);
    }

    #[test]
    fn tags_outweigh_the_names_of_the_programs_own_regions() {
        let mut sample = Sample::of(&[("segment_alloc", 0x1000_0000, 2 * MIB)]);
        tagged(&mut sample, "alloc", 0x1000_0000, &tag(3, "backward", "net"));
        for name in ["forward_step", "ProfilerStep#9"] {
            sample.annotation(name, true, sample.clock);
        }
        tagged(&mut sample, "alloc", 0x1000_0200, &tag(3, "backward", "net"));
        let trace = sample.assemble();
        assert_eq!(spans(&trace), [(None, "setup", 0), (Some(3), "backward", 1)]);
    }

    #[test]
    fn steps_counted_before_the_program_ended_its_first_belong_to_it() {
        let mut sample = Sample::of(&[]);
        sample.intake.run_value("extra_steps", "1");
        for (row, step) in [0, 1, 2].into_iter().enumerate() {
            tagged(&mut sample, "alloc", 0x1000_0000 + 512 * row as u64, &tag(step, "forward", "net"));
        }
        assert_eq!(spans(&sample.assemble()), [(Some(0), "forward", 0), (Some(1), "forward", 2)]);
    }

    #[test]
    fn a_step_that_ended_last_is_followed_by_no_other() {
        let mut sample = Sample::of(&[]);
        sample.intake.run_value("last_step", "1");
        for (row, step) in [0, 1, 2].into_iter().enumerate() {
            tagged(&mut sample, "alloc", 0x1000_0000 + 512 * row as u64, &tag(step, "forward", "net"));
        }
        assert_eq!(spans(&sample.assemble()), [(Some(0), "forward", 0), (Some(1), "forward", 1)]);
    }

    #[test]
    fn evaluation_is_a_phase_of_its_step() {
        let mut sample = Sample::of(&[]);
        for (row, phase) in ["forward", "optimizer", "eval", "other"].into_iter().enumerate() {
            tagged(&mut sample, "alloc", 0x1000_0000 + 512 * row as u64, &tag(0, phase, "net"));
        }
        let expected =
            [(Some(0), "forward", 0), (Some(0), "optimizer", 1), (Some(0), "eval", 2), (Some(0), "other", 3)];
        assert_eq!(spans(&sample.assemble()), expected);
    }

    #[test]
    fn allocations_without_a_tag_in_a_tagged_snapshot_are_counted() {
        let mut sample = Sample::of(&[("alloc", 0x1000_0000, 512)]);
        tagged(&mut sample, "alloc", 0x1000_0200, &tag(0, "forward", "net"));
        let trace = sample.assemble();
        assert!(trace.header.notes().any(|note| note.contains("without a tag: 1 of 2")), "{:?}", trace.header);
    }

    #[test]
    fn texts_of_another_shape_remain_attributes() {
        let mut sample = Sample::of(&[("segment_alloc", 0x1000_0000, 2 * MIB)]);
        let texts = ["saved", r#"{"step":0}"#, r#"{"step":-1,"phase":"forward","scope":""}"#, &tag(0, "lunch", "net")];
        for (row, text) in texts.iter().enumerate() {
            tagged(&mut sample, "alloc", 0x1000_0000 + 512 * row as u64, text);
        }
        let trace = sample.assemble();
        assert_eq!((trace.attributes.len(), trace.tables.scopes.len(), trace.annotations.len()), (4, 0, 0));
    }
}
