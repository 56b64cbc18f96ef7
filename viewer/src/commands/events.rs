//! `highwater events`: lists events while the recording is being read.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Write as _;
use std::ops::Range;

use clap::Args;
use highwater_analysis::filter::BlockFilter;
use highwater_app::figures::events::{attributes_of, events_table};
use highwater_app::report::{Table, cut};
use highwater_snapshots::line_text::shorten_line;
use highwater_snapshots::references::readable;
use highwater_snapshots::shown::{MAX_IN_TABLE, MAX_SHOWN, shown};
use highwater_snapshots::text::event_text_without_stack;
use highwater_snapshots::{BlockId, DeviceId, EventId, EventKind, Subject, Trace, format_count};

use crate::args::values::kind_parser;
use crate::args::{BlockChoice, FilesAndOptions, Form, Source};
use crate::input::{Input, answer_from, choose_device, event_range, on_device, on_devices};
use crate::output::{Failure, JsonText, Page, SCHEMA_VERSION, Status, caveats, problem_texts};

const EVENT_NOTATION: &str = "In a line, b8 is block 8, 4194304/5242880 its requested and allocated bytes, #op the \
                              operation, @module the module, small or large the allocator's pool, free= the bytes that \
                              were free on the device.";

/// Arguments of `highwater events`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = EVENT_NOTATION, after_help = EVENT_NOTATION)]
pub struct EventsArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: Source,
    /// Events of device N, with steps, phases and marks that concern all devices [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// First event
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: u64,
    /// Last event [default: the last of the recording]
    #[arg(long, value_name = "N")]
    pub to: Option<u64>,
    /// Event kinds, comma-separated [default: all]
    #[arg(long, value_name = "K", value_delimiter = ',', value_parser = kind_parser())]
    pub kind: Vec<EventKind>,
    /// Show the stack of each event (always in the JSON)
    #[arg(long)]
    pub stacks: bool,
    /// The blocks whose events are listed.
    #[command(flatten)]
    pub blocks: BlockChoice,
}

impl EventsArguments {
    pub(crate) fn given(&self) -> FilesAndOptions {
        FilesAndOptions::of(&self.source.file).with("device", self.device).blocks(&self.blocks)
    }
}

pub(crate) fn run(arguments: &EventsArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.blocks.categories, |input| {
        let listing = EventsListing::of(input, arguments)?;
        // Once events are written, a damaged one ends the list.
        Ok(match arguments.source.form {
            Form { json: true, .. } => listing.write_json(page),
            Form { csv: true, .. } => listing.write_csv(page),
            _ => caveats::lead(input.facts(), "", page).map_err(Failure::from).and_then(|()| listing.print(page)),
        })
    })?
    .map(|()| Status::Fine)
}

/// The requested events of a recording.
#[derive(Debug)]
pub struct EventsListing<'a> {
    input: &'a Input,
    trace: &'a Trace,
    arguments: &'a EventsArguments,
    device: Option<DeviceId>,
    /// The indices of the listed events; `None` if the recording has no events.
    range: Option<Range<u64>>,
    /// The time of the last event in `range`.
    last_time_ns: u64,
}

const EVENTS_AT_ONCE: u64 = 1 << 19;

impl<'a> EventsListing<'a> {
    /// Selects events of a recording, and reads the first of them.
    pub fn of(input: &'a Input, arguments: &'a EventsArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let device = arguments.device.map(|_| choose_device(trace, arguments.device)).transpose()?;
        let range = event_range(arguments.from, arguments.to, input.source.events().end)?;
        let mut last_time_ns = 0;
        if let Some(range) = &range {
            input.ask(|source, _| source.window(range.start..range.end.min(range.start + EVENTS_AT_ONCE)).map(drop))?;
            let last = input.ask(|source, _| source.window_at(Some(range.end - 1)))?;
            last_time_ns = last.last().and_then(|id| last.trace.events.time_of(id)).unwrap_or(0);
        }
        Ok(Self { input, trace, arguments, device, range, last_time_ns })
    }

    /// Writes one JSON object, one event per line.
    pub fn write_json(&self, page: &mut Page<'_>) -> Result<(), Failure> {
        let problems = serde_json::to_string(&problem_texts(self.trace))?;
        write!(
            JsonText(page.raw()),
            "{{\"schema_version\": {SCHEMA_VERSION},\n\"problems\": {problems},\n\"events\": ["
        )?;
        let mut separator = "\n";
        self.each_table(|table| {
            for row in 0..table.rows() {
                write!(page.raw(), "{separator}")?;
                serde_json::to_writer(JsonText(page.raw()), &table.object(row))?;
                separator = ",\n";
            }
            Ok(())
        })?;
        writeln!(page.raw(), "\n]}}")?;
        Ok(())
    }

    /// Writes the events as CSV.
    pub fn write_csv(&self, page: &mut Page<'_>) -> Result<(), Failure> {
        let stacks = RefCell::default();
        events_table(self.trace, &[], &stacks).write_csv(page.raw())?;
        self.each_table(|table| Ok(table.write_csv_rows(page.raw())?))
    }

    fn each_table(&self, mut take: impl FnMut(&Table<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let stacks = RefCell::default();
        self.each_window(|trace, ids| take(&events_table(trace, ids, &stacks)))
    }

    /// Prints the listing as text.
    pub fn print(&self, page: &mut Page<'_>) -> Result<(), Failure> {
        let count = format_count(self.input.source.events().end);
        let Some(range) = &self.range else {
            page.headline("No events: the recording contains only a state.")?;
            return Ok(caveats::print(self.trace, page)?);
        };
        let (first, last) = (range.start, range.end - 1);
        let restriction = self.restriction();
        let on = match self.device {
            Some(device) => on_device(self.trace, device),
            None => on_devices(self.trace, &self.trace.device_ids()),
        };
        page.headline(&format!(
            "{on}Events {} to {} of {count}{restriction}:",
            format_count(first),
            format_count(last)
        ))?;
        page.gap()?;
        let number_width = format_count(last).len().max("event".len());
        // A recording without times has no such column.
        let time_width =
            if self.trace.has_times() { seconds(self.last_time_ns).len().max("seconds".len()) + 2 } else { 0 };
        let heading = if self.trace.has_times() { "seconds" } else { "" };
        page.hint(&format!("  {:>number_width$}{heading:>time_width$}  {:<14}  what", "event", "kind"))?;
        let mut last_listed = None;
        let mut print = |trace: &Trace, id: EventId| -> Result<(), Failure> {
            let number = trace.number(id);
            let is_everywhere = trace.is_everywhere(id);
            last_listed = Some((number, (!is_everywhere).then(|| trace.events.device[id.0 as usize])));
            let kind = trace.events.kind[id.0 as usize].name();
            let text = event_text_without_stack(trace, id);
            let what = text.strip_prefix(kind).unwrap_or(&text).trim_start();
            let shape = shape_of(trace, id).map(|shape| format!(" {shape}")).unwrap_or_default();
            let (number, seconds) = (format_count(number), trace.time_of(id).map(seconds).unwrap_or_default());
            let line = format!("  {number:>number_width$}{seconds:>time_width$}  {kind:<14}  {what}{shape}");
            page.line(&page.width().map_or_else(|| line.clone(), |width| cut(&line, width)))?;
            if self.arguments.stacks {
                let indent = " ".repeat(number_width + time_width + 4);
                for frame in trace.tables.stack_text(trace.events.stack[id.0 as usize]) {
                    let room =
                        page.width().map_or(MAX_IN_TABLE, |width| width.saturating_sub(indent.len() + 2).max(40));
                    page.line(&format!("{indent}< {}", shorten_line(&frame, room)))?;
                }
                let attributes = attributes_of(trace, id).into_iter();
                for (name, value) in attributes.flat_map(|(name, value)| readable(name, value)) {
                    page.line(&format!("{indent}{name}: {value}"))?;
                }
            }
            Ok(())
        };
        self.each_window(|trace, ids| ids.iter().try_for_each(|id| print(trace, *id)))?;
        if last_listed.is_none() {
            page.line("  none")?;
        }
        caveats::print(self.trace, page)?;
        page.gap()?.hint(&self.hint(last_listed))?;
        Ok(())
    }

    /// Returns a suggested command that shows the memory after the last listed event, given by its index and device.
    fn hint(&self, last_listed: Option<(u64, Option<DeviceId>)>) -> String {
        let given = self.arguments.given();
        let Some((number, device)) = last_listed else {
            return given.next("peak", &[], "to see what is using memory at the peak");
        };
        let device = device.filter(|_| self.trace.device_ids().len() > 1).map(|device| device.0);
        let what_for = "to see what is using memory after this event";
        given.on_device(device).next("peak", &["--at", &number.to_string()], what_for)
    }

    fn restriction(&self) -> String {
        let mut parts = Vec::new();
        if !self.arguments.kind.is_empty() {
            let kinds: Vec<&str> = self.arguments.kind.iter().map(|kind| kind.name()).collect();
            parts.push(format!("of kind {}", kinds.join(", ")));
        }
        if let Some(filter) = self.arguments.blocks.filter.stated() {
            parts.push(format!("of blocks with {filter}"));
        }
        if parts.is_empty() { String::new() } else { format!(", those {}", parts.join(" and ")) }
    }

    /// Passes the events to list to `take`, in parts.
    fn each_window(&self, mut take: impl FnMut(&Trace, &[EventId]) -> Result<(), Failure>) -> Result<(), Failure> {
        let Some(range) = &self.range else { return Ok(()) };
        let filter = &self.arguments.blocks.filter.filter;
        let source = &self.input.source;
        for window in source.windows_within(range.clone(), EVENTS_AT_ONCE) {
            let window = window.map_err(|why| self.input.unreadable(why))?;
            let trace = &source.number_blocks(window.trace).map_err(|why| self.input.unreadable(why))?;
            let mut matcher = (!filter.is_empty()).then(|| filter.on(trace));
            let all: Vec<EventId> = window.events.map(EventId::from_index).collect();
            for some in all.chunks(EVENTS_AT_ONCE as usize) {
                let listed: Vec<EventId> =
                    some.iter().copied().filter(|id| self.is_chosen(trace, *id, matcher.as_mut())).collect();
                take(trace, &listed)?;
            }
        }
        Ok(())
    }

    fn is_chosen(&self, trace: &Trace, id: EventId, matcher: Option<&mut BlockFilter<'_>>) -> bool {
        let row = id.0 as usize;
        let kind = trace.events.kind[row];
        let is_of_kind = self.arguments.kind.is_empty() || self.arguments.kind.contains(&kind);
        let is_there = self.device.is_none_or(|device| trace.events.device[row] == device || trace.is_everywhere(id));
        is_of_kind
            && is_there
            && matcher.is_none_or(|matcher| block_of(trace, id).is_some_and(|block| matcher.matches(block)))
    }
}

/// Formats a time as seconds since the recording's origin.
fn seconds(time_ns: u64) -> String {
    let micros = time_ns / 1000;
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn shape_of(trace: &Trace, id: EventId) -> Option<Cow<'_, str>> {
    let block = block_of(trace, id).filter(|block| trace.blocks.alloc[block.0 as usize] == id)?;
    Some(shown(trace.shape(block)?, MAX_SHOWN))
}

fn block_of(trace: &Trace, id: EventId) -> Option<BlockId> {
    match trace.subject(id) {
        Subject::Block(block) | Subject::Tag(block, _) => Some(block).filter(|block| block.is_some()),
        _ => None,
    }
}
