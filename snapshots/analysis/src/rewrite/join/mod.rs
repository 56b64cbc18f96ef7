//! Joins recordings of several allocators or processes into one, on a common time axis.
//!
//! Events are ordered by absolute time; the events of one recording keep their order. Devices stay separate, so their
//! totals after every event are unchanged. Recordings do not share blocks.
//!
//! Steps and phases concern every device, so they are taken from one recording: the first that has steps, otherwise the
//! first that has phases. The steps and phases of the other recordings are dropped and reported.

mod clock;
mod devices;
mod order;

use highwater_snapshots::Phase;
use highwater_snapshots::builder::TraceBuilder;
use highwater_snapshots::error::{Error, Problem, Result};
use highwater_snapshots::event::{Event, EventKind, What};
use highwater_snapshots::format::{block_keys, recorded_event, starting_states};
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, SegmentId, StackId};
use highwater_snapshots::merge::{MergedRows, MergedTables};
use highwater_snapshots::trace::{Annotation, Attribute, Header, Owner, Trace};
use highwater_snapshots::units::format_count;

use self::clock::Clock;
pub use self::devices::JoinedDevice;
use self::devices::Numbers;
use self::order::Order;

/// The header fact that describes the data dropped by joining.
pub const DROPPED: &str = "dropped by joining";

/// A recording to join.
#[derive(Clone, Copy, Debug)]
pub struct JoinPart<'a> {
    /// A name to distinguish it, such as the stem of its file name.
    pub name: &'a str,
    /// The recording to join.
    pub trace: &'a Trace,
    /// Offset added to the recording's times, in nanoseconds, to correct for differing clocks.
    pub offset_ns: i64,
}

/// The result of joining recordings.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The joined recording.
    pub trace: Trace,
    /// The devices, with their original numbers and recordings.
    pub devices: Vec<JoinedDevice>,
    /// Descriptions of the data that was dropped, one sentence each.
    pub lost: Vec<String>,
    /// Warnings about times, one sentence each.
    pub warnings: Vec<String>,
}

/// Joins recordings.
///
/// # Errors
/// Fails if they have more devices, events or blocks than one recording can contain.
pub fn join(parts: &[JoinPart<'_>]) -> Result<Joined> {
    let rows: usize = parts.iter().map(|part| part.trace.events.len() + part.trace.blocks.len()).sum();
    if rows + parts.iter().map(|part| part.trace.segments.len()).sum::<usize>() >= u32::MAX as usize {
        let what = "the recordings together have more than 2^32 events and blocks, the maximum of one recording; join \
                    fewer at once";
        return Err(Error::Encode { what: what.to_owned() });
    }
    let clock = Clock::of(parts);
    let numbers = Numbers::of(parts)?;
    let mut tables = MergedTables::default();
    let mapped: Vec<MergedRows> = parts.iter().map(|part| tables.take(&part.trace.tables)).collect();
    let mut builder = TraceBuilder::with_capacity(parts.iter().map(|part| part.trace.events.len()).sum());
    *builder.tables() = tables.into_tables();
    builder.set_header(header(parts, clock.origin_unix_us));
    for facts in numbers.facts(parts) {
        builder.set_device(facts);
    }
    let leader = parts.iter().position(|part| has_steps(part.trace));
    let leader = leader.or_else(|| parts.iter().position(|part| has_phases(part.trace)));
    let mut writers: Vec<Writer<'_>> = Vec::with_capacity(parts.len());
    for (index, (part, rows)) in parts.iter().zip(&mapped).enumerate() {
        let is_heard = leader.is_none_or(|leader| leader == index);
        let writer = Writer {
            part,
            rows,
            is_heard,
            index,
            numbers: &numbers,
            shift_ns: clock.shifts_ns[index],
            keys: block_keys(part.trace),
            blocks: builder.row_counts().0,
            segments: builder.row_counts().1,
            places: Vec::with_capacity(part.trace.events.len()),
            in_step: false,
        };
        for state in starting_states(part.trace, &writer.keys) {
            builder.set_starting_state(&writer.state(state));
        }
        writers.push(writer);
    }
    let shifted =
        parts.iter().zip(&clock.shifts_ns).map(|(part, shift)| (part.trace.events.time_ns.as_slice(), *shift));
    for (index, event) in Order::of(shifted.collect()) {
        if leader.is_some_and(|leader| leader != index && writers[leader].is_finished()) {
            writers[leader.unwrap_or_default()].end_steps(&mut builder);
        }
        writers[index].push(&mut builder, event);
    }
    let mut lost = Vec::new();
    for writer in &writers {
        let left_out = writer.finish(&mut builder);
        lost.extend(left_out.sentence(part_name(parts, leader), writer.part.name));
    }
    take_trust(&mut builder, parts);
    builder.add_facts(lost.iter().map(|what| (DROPPED.to_owned(), what.clone())));
    Ok(Joined { trace: builder.finish(), devices: numbers.devices, lost, warnings: clock.warnings })
}

fn part_name<'a>(parts: &[JoinPart<'a>], index: Option<usize>) -> &'a str {
    index.map_or("", |index| parts[index].name)
}

fn has_steps(trace: &Trace) -> bool {
    trace.spans.rows().iter().any(|span| span.step.is_some())
}

fn has_phases(trace: &Trace) -> bool {
    trace.spans.rows().iter().any(|span| span.phase != Phase::Setup)
}

/// The header fields that all parts share, and the other fields of each part as facts.
fn header(parts: &[JoinPart<'_>], started_unix_us: u64) -> Header {
    let headers: Vec<&Header> = parts.iter().map(|part| &part.trace.header).collect();
    let program = all_same(&headers, |header| header.program.clone());
    let mut facts = Vec::new();
    for part in parts {
        let header = &part.trace.header;
        let mut add = |name: &str, value: String| facts.push((format!("{}: {name}", part.name), value));
        // Values that all parts share are in the header itself.
        let texts: [(&str, ReadText); 6] = [
            ("recorder", |header| header.recorder.clone()),
            ("program", |header| header.program.clone()),
            ("host", |header| header.host.clone()),
            ("level", |header| header.level.clone()),
            ("rank", |header| header.rank.map_or_else(String::new, |rank| rank.to_string())),
            ("pid", |header| if header.pid > 0 { header.pid.to_string() } else { String::new() }),
        ];
        for (name, read) in texts {
            let value = read(header);
            if !value.is_empty() && all_same(&headers, read).is_none() {
                add(name, value);
            }
        }
        if part.offset_ns != 0 {
            add("offset", format!("{} ns", part.offset_ns));
        }
        header.facts.iter().for_each(|(name, value)| add(name, value.clone()));
    }
    Header {
        recorder: all_same(&headers, |header| header.recorder.clone())
            .unwrap_or_else(|| concat!("highwater ", env!("CARGO_PKG_VERSION"), " join").to_owned()),
        program: program.unwrap_or_default(),
        host: all_same(&headers, |header| header.host.clone()).unwrap_or_default(),
        pid: all_same(&headers, |header| header.pid).unwrap_or_default(),
        rank: all_same(&headers, |header| header.rank).flatten(),
        world_size: all_same(&headers, |header| header.world_size).flatten(),
        started_unix_us,
        clock: all_same(&headers, |header| header.clock.clone()).unwrap_or_default(),
        level: all_same(&headers, |header| header.level.clone()).unwrap_or_default(),
        ring_capacity: all_same(&headers, |header| header.ring_capacity).flatten(),
        facts,
    }
}

/// Reads a header field as text.
type ReadText = fn(&Header) -> String;

/// Returns the value of `read` if it is the same for all headers; otherwise `None`.
fn all_same<T: PartialEq>(headers: &[&Header], read: impl Fn(&Header) -> T) -> Option<T> {
    let mut values = headers.iter().map(|header| read(header));
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// Sums up the limits of accuracy of all parts.
fn take_trust(builder: &mut TraceBuilder, parts: &[JoinPart<'_>]) {
    let trust = builder.trust();
    // The sums of the parts include the builder's own counts.
    *trust = parts.iter().fold(Default::default(), |mut sum: highwater_snapshots::trace::Trust, part| {
        let one = &part.trace.trust;
        sum.events_lost = sum.events_lost.saturating_add(one.events_lost);
        sum.unmatched_frees = sum.unmatched_frees.saturating_add(one.unmatched_frees);
        sum.repeated_allocs = sum.repeated_allocs.saturating_add(one.repeated_allocs);
        sum.unmatched_uses = sum.unmatched_uses.saturating_add(one.unmatched_uses);
        sum.unmatched_releases = sum.unmatched_releases.saturating_add(one.unmatched_releases);
        sum.baseline_inferred |= one.baseline_inferred;
        sum.sizes_inferred = sum.sizes_inferred.saturating_add(one.sizes_inferred);
        sum.categories_guessed |= one.categories_guessed;
        sum.unfinished |= one.unfinished;
        sum
    });
    for part in parts {
        for problem in &part.trace.problems {
            builder.add_problem(Problem::new(format!("{}: {problem}", part.name)));
        }
    }
}

/// Copies a part into the joined recording.
struct Writer<'a> {
    part: &'a JoinPart<'a>,
    rows: &'a MergedRows,
    /// Whether the part's steps and phases are used in the joined recording.
    is_heard: bool,
    index: usize,
    numbers: &'a Numbers,
    shift_ns: u64,
    keys: Vec<u64>,
    /// Number of blocks and segments in the joined tables before those of this part's baseline.
    blocks: usize,
    segments: usize,
    /// The new row of each event copied up to now; for a dropped event, the row of the next event.
    places: Vec<u32>,
    /// Whether the part's last step or phase is still running.
    in_step: bool,
}

/// Counts of the items dropped from a part.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut {
    steps: u64,
    phases: u64,
    ranges: u64,
}

impl LeftOut {
    fn sentence(self, leader: &str, name: &str) -> Option<String> {
        let counts = [
            (self.steps, "step", "steps"),
            (self.phases, "phase", "phases"),
            (self.ranges, "range named as a step or phase", "ranges named as steps or phases"),
        ];
        let listed: Vec<String> = counts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| format!("{} {}", format_count(*count), if *count == 1 { one } else { many }))
            .collect();
        (!listed.is_empty())
            .then(|| format!("{} of {name}: steps and phases are taken from {leader}", listed.join(", ")))
    }
}

impl Writer<'_> {
    fn device(&self, device: DeviceId) -> DeviceId {
        self.numbers.of_part(self.index, device)
    }

    /// Converts a starting state to the rows of the joined recording.
    fn state(&self, mut state: highwater_snapshots::StartingState) -> highwater_snapshots::StartingState {
        state.device = self.device(state.device);
        self.rows.rename_state(&mut state);
        state
    }

    fn is_left_out(&self, kind: EventKind) -> bool {
        !self.is_heard && matches!(kind, EventKind::Step | EventKind::Phase)
    }

    /// Returns whether all events of the part have been appended.
    fn is_finished(&self) -> bool {
        self.places.len() == self.part.trace.events.len()
    }

    /// Ends the part's running step and phase, so that they do not include later events of other parts.
    fn end_steps(&mut self, builder: &mut TraceBuilder) {
        let last = self.part.trace.events.time_ns.last().filter(|_| self.in_step);
        if let Some(time_ns) = last.map(|time| time.saturating_add(self.shift_ns)) {
            builder.push(&Event {
                time_ns,
                device: DeviceId(0),
                stack: StackId::NONE,
                what: What::Phase(Phase::Setup),
            });
            self.in_step = false;
        }
    }

    /// Appends the next event.
    fn push(&mut self, builder: &mut TraceBuilder, id: EventId) {
        self.places.push(builder.event_count() as u32);
        let trace = self.part.trace;
        if self.is_left_out(trace.events.kind[id.0 as usize]) {
            return;
        }
        let mut event = recorded_event(trace, id, &self.keys);
        self.rows.rename(&mut event);
        match event.what {
            What::Step(_) => self.in_step = true,
            What::Phase(phase) => self.in_step = phase != Phase::Setup,
            _ => {}
        }
        // Events that concern every device carry device 0 in every recording.
        let device = if trace.is_everywhere(id) { DeviceId(0) } else { self.device(event.device) };
        let time_ns = event.time_ns.saturating_add(self.shift_ns);
        builder.push(&Event { time_ns, device, ..event });
    }

    /// Adds annotations and attributes after all events have been appended; returns the counts of dropped items.
    fn finish(&self, builder: &mut TraceBuilder) -> LeftOut {
        let trace = self.part.trace;
        let mut out = LeftOut::default();
        if !self.is_heard {
            let count = |kind| trace.events.kind.iter().filter(|known| **known == kind).count() as u64;
            (out.steps, out.phases) = (count(EventKind::Step), count(EventKind::Phase));
        }
        for annotation in &trace.annotations {
            if !self.is_heard && trace.names_step_or_phase(annotation.name) {
                out.ranges += 1;
            } else {
                builder.add_annotation(self.annotation(annotation, builder.event_count()));
            }
        }
        builder.merge_sources(&trace.sources);
        for attribute in &trace.attributes {
            if let Some(owner) = self.owner(attribute.owner) {
                let (name, value) = (self.rows.string(attribute.name), self.rows.string(attribute.value));
                builder.add_attribute(Attribute { owner, name, value });
            }
        }
        out
    }

    fn annotation(&self, annotation: &Annotation, events: usize) -> Annotation {
        let (first, end) = (annotation.first.0 as usize, annotation.end.0 as usize);
        let place = |row: usize| self.places.get(row).map_or(events, |row| *row as usize);
        let new_first = place(first);
        let new_end = match end.checked_sub(1).filter(|last| *last >= first) {
            Some(last) if last < self.places.len() => {
                place(last) + usize::from(!self.is_left_out(self.part.trace.events.kind[last]))
            }
            Some(_) => events,
            None => new_first,
        };
        let shifted = |time: Option<u64>| time.map(|time| time.saturating_add(self.shift_ns));
        Annotation {
            name: self.rows.string(annotation.name),
            device: self.device(annotation.device),
            start_ns: shifted(annotation.start_ns),
            end_ns: shifted(annotation.end_ns),
            first: EventId::from_index(new_first),
            end: EventId::from_index(new_end.max(new_first)),
            is_guessed: annotation.is_guessed,
        }
    }

    fn owner(&self, owner: Owner) -> Option<Owner> {
        Some(match owner {
            Owner::Event(id) => {
                let row = id.index().filter(|row| *row < self.places.len())?;
                if self.is_left_out(self.part.trace.events.kind[row]) {
                    return None;
                }
                Owner::Event(EventId(self.places[row]))
            }
            Owner::Block(id) => Owner::Block(BlockId::from_index(self.blocks + id.index()?)),
            Owner::Segment(id) => Owner::Segment(SegmentId::from_index(self.segments + id.index()?)),
        })
    }
}
