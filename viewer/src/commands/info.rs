//! `highwater info`: the contents of a recording, or the ranks in a folder.

pub(super) mod ranks;

use std::collections::BTreeMap;
use std::io;

use clap::Args;
use highwater_analysis::join::DROPPED;
use highwater_analysis::summary::summarize;
use highwater_analysis::{DeviceSummary, Metric};
use highwater_app::answers::request_failure::RequestFailure;
use highwater_app::figures::device::capacity_text;
use highwater_app::figures::moment::{how_much_and_when, micros_since_1970, utc};
use highwater_app::figures::requests::failure_text;
use highwater_app::report::{Column, Fact, Facts, Table, Value};
use highwater_pytorch::open::FileFormat;
use highwater_snapshots::format::Windows;
use highwater_snapshots::trace::{Annotation, EXCERPT, HOLDERS, LEFT_OUT, NOTE, SIMULATION, UNREGISTERED};
use highwater_snapshots::{BlockId, Trace, count_of, format_bytes, format_count, format_duration};

use crate::args::{BlockChoice, FilesAndOptions, Source};
use crate::input::{Input, answer_counting, choose_device, on_device, where_on};
use crate::output::{Failure, Page, Report, Status, answer, caveats, peaks_table, peaks_value, problem_texts, trust};

/// Arguments of `highwater info`; FILE may be a folder with the recordings of a run's ranks.
#[derive(Clone, Debug, Args)]
pub struct InfoArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: Source,
    /// Device N [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// The blocks that count; by default all.
    #[command(flatten)]
    pub blocks: BlockChoice,
}

impl InfoArguments {
    pub(crate) fn given(&self) -> FilesAndOptions {
        FilesAndOptions::of(&self.source.file).with("device", self.device).blocks(&self.blocks)
    }
}

pub(crate) fn run(arguments: &InfoArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let file = &arguments.source.file;
    if file.is_dir() && Windows::find_rotated(file).is_none() {
        return ranks::info(arguments, page);
    }
    answer_counting(file, &arguments.blocks.categories, &arguments.blocks.filter.filter, |input| {
        let report = InfoReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// The report of `highwater info`.
#[derive(Debug)]
pub struct InfoReport<'a> {
    trace: &'a Trace,
    format: FileFormat,
    arguments: &'a InfoArguments,
    devices: Vec<DeviceSummary>,
    failures: Vec<RequestFailure>,
    /// The time from the first event to the last, in nanoseconds; `None` without times.
    duration_ns: Option<u64>,
}

/// Values that mean that a setting is disabled. PyTorch's snapshots also list disabled settings.
const OFF: [&str; 7] = ["", "0", "0.0", "-1", "False", "false", "None"];

const FACT_INDENT: usize = 13;
/// Names of facts that are printed as sentences, or by other commands.
const NOTED: [&str; 6] = [NOTE, SIMULATION, HOLDERS, EXCERPT, LEFT_OUT, UNREGISTERED];

/// Maximum number of failed requests to list for each device.
const MAX_LISTED_OOMS: usize = 3;

impl<'a> InfoReport<'a> {
    /// Computes the report of a recording, counting only the blocks of the filter.
    pub fn of(input: &'a Input, arguments: &'a InfoArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let chosen = arguments.device.map(|device| choose_device(trace, Some(device))).transpose()?;
        input.ask(|source, watch| {
            let mut devices = summarize(source, watch)?;
            devices.retain(|summary| chosen.is_none_or(|chosen| chosen == summary.device));
            let mut failures = Vec::new();
            for summary in &devices {
                failures.extend(RequestFailure::first(source, summary.device, MAX_LISTED_OOMS)?);
            }
            let duration_ns = source.duration_ns();
            Ok(Self { trace, format: input.format, arguments, devices, failures, duration_ns })
        })
    }

    /// Prints the report as text, without the limits of accuracy and the suggested next command.
    pub(crate) fn print_facts(&self, page: &mut Page<'_>) -> io::Result<()> {
        if let Some(failed) = self.out_of_memory() {
            page.headline(&failed)?;
        }
        page.headline(&self.headline())?;
        if let Some(filter) = self.arguments.blocks.filter.stated() {
            let but = "reserved memory and event counts are those of the whole recording";
            page.line(&format!("Counting only blocks with {filter}; {but}."))?;
        }
        page.gap()?;
        self.print_header(page)?;
        // PyTorch lists every device of the machine, although a process mostly uses one.
        let (used, unused): (Vec<_>, Vec<_>) =
            self.default_first().enumerate().partition(|(row, summary)| *row == 0 || has_memory(summary));
        for (_, summary) in used {
            page.gap()?;
            self.print_device(summary, page)?;
        }
        if !unused.is_empty() {
            page.gap()?.headline(&format!("{}: no memory.", count_of(unused.len() as u64, "other device")))?;
        }
        Ok(())
    }

    fn default_first(&self) -> impl Iterator<Item = &DeviceSummary> {
        let main = self.trace.main_device();
        let (default, others): (Vec<_>, Vec<_>) = self.devices.iter().partition(|summary| summary.device == main);
        default.into_iter().chain(others)
    }

    /// Returns a sentence about the first failed request and the number of failed requests, on the first device with
    /// failed requests.
    fn out_of_memory(&self) -> Option<String> {
        let summary = self.default_first().find(|summary| summary.oom_events > 0)?;
        let on = where_on(self.trace, summary.device);
        let more = match summary.oom_events - 1 {
            0 => String::new(),
            more => format!("; {} failed later", count_of(more, "more request")),
        };
        Some(format!("Out of memory{on}: {}{more}.", failure_text(self.failures(summary).next()?)))
    }

    fn headline(&self) -> String {
        let Some(summary) = self.default_first().next() else {
            return "An empty recording: no device, no block, no event.".to_owned();
        };
        if self.trace.event_count() == 0 {
            let on = on_device(self.trace, summary.device);
            let is_waiting = |id: &BlockId| self.trace.was_waiting_at_start(*id);
            let of_device = |id: &BlockId| self.trace.blocks.device[id.0 as usize] == summary.device;
            let (waiting, live): (Vec<BlockId>, Vec<BlockId>) =
                self.trace.blocks.ids().filter(of_device).partition(is_waiting);
            let bytes = format_bytes(summary.end.requested);
            let more = match waiting.len() as u64 {
                0 => String::new(),
                waiting => format!(", and {} awaiting free", count_of(waiting, "block")),
            };
            return format!(
                "{on}State at the dump, without events: {bytes} requested in {}{more}.",
                count_of(live.len() as u64, "block")
            );
        }
        let peak = summary.peak(Metric::Requested);
        let on = where_on(self.trace, summary.device);
        peak.map_or_else(String::new, |moment| format!("Peak{on}: {}.", how_much_and_when(moment)))
    }

    fn print_header(&self, page: &mut Page<'_>) -> io::Result<()> {
        let header = &self.trace.header;
        let level = if header.level.is_empty() { String::new() } else { format!(", level {}", header.level) };
        fact(page, "file", &format!("{} ({}{level})", self.arguments.source.file.display(), self.format.name()))?;
        fact(page, "recorder", &header.recorder)?;
        let mut program = header.program.clone();
        if header.pid != 0 {
            program += &format!(", process {}", header.pid);
        }
        if !header.host.is_empty() {
            program += &format!(", on {}", header.host);
        }
        fact(page, "program", program.trim_start_matches(", "))?;
        match (header.rank, header.world_size) {
            (Some(rank), Some(size)) => fact(page, "rank", &format!("{rank} of {size}"))?,
            (Some(rank), None) => fact(page, "rank", &rank.to_string())?,
            _ => {}
        }
        if header.started_unix_us > 0 {
            let clock = if header.clock.is_empty() { String::new() } else { format!(", {} clock", header.clock) };
            fact(page, "started", &(utc(header.started_unix_us) + &clock))?;
        }
        let ring = header.ring_capacity.map(|most| format!(", in a ring of {}", format_count(most)));
        let length = self.duration_ns.map(|nanos| format!(", over {}", format_duration(nanos)));
        let count = format_count(self.trace.event_count());
        let has_no_times = self.trace.event_count() > 0 && !self.trace.has_times();
        let length = length.unwrap_or(if has_no_times { ", without times".to_owned() } else { String::new() });
        fact(page, "events", &format!("{count}{length}{}", ring.unwrap_or_default()))?;
        fact(page, "annotated", &self.annotations())?;
        let is_plain = |(name, _): &&(String, String)| !NOTED.contains(&name.as_str());
        for (name, value) in header.facts.iter().filter(is_plain) {
            fact(page, name, value)?;
        }
        Ok(())
    }

    /// Returns the number of annotations other than tags as text; empty if there are none.
    fn annotations(&self) -> String {
        let is_stated = |annotation: &&Annotation| !self.trace.is_tag(annotation.name);
        let annotations: Vec<&Annotation> = self.trace.annotations.iter().filter(is_stated).collect();
        let guessed = annotations.iter().filter(|annotation| annotation.is_guessed).count() as u64;
        match (annotations.len() as u64, guessed) {
            (0, _) => String::new(),
            (count, 0) => count_of(count, "range"),
            (count, guessed) if guessed == count => format!("{}, guessed", count_of(count, "range")),
            (count, guessed) => format!("{}, {} of them guessed", count_of(count, "range"), format_count(guessed)),
        }
    }

    fn print_device(&self, summary: &DeviceSummary, page: &mut Page<'_>) -> io::Result<()> {
        let facts = self.trace.device_facts(summary.device);
        let driver = facts.map_or("", |facts| facts.driver.as_str());
        let capacity = capacity_text(summary).unwrap_or_default();
        let known: Vec<&str> =
            [summary.name.as_str(), &capacity, driver].into_iter().filter(|text| !text.is_empty()).collect();
        let known = if known.is_empty() { "nothing known".to_owned() } else { known.join(", ") };
        page.headline(&format!("Device {}: {known}", summary.device.0))?;
        let settings: Vec<&(String, String)> = facts.into_iter().flat_map(|facts| &facts.settings).collect();
        let is_set = |setting: &&&(String, String)| !OFF.contains(&setting.1.as_str());
        let set: Vec<String> = settings.iter().filter(is_set).map(|(name, value)| format!("{name}={value}")).collect();
        let off = settings.len() - set.len();
        let off = (off > 0).then(|| match (set.is_empty(), off) {
            (true, _) => "default".to_owned(),
            (false, 1) => "1 other at its default".to_owned(),
            (false, _) => format!("{off} others at their defaults"),
        });
        fact(page, "settings", &set.into_iter().chain(off).collect::<Vec<_>>().join(", "))?;
        let counts = [
            count_of(summary.steps, "step"),
            count_of(summary.events, "event"),
            count_of(summary.allocs, "alloc"),
            count_of(summary.frees, "free"),
            count_of(summary.segments, "segment"),
        ];
        let uses = (summary.uses > 0).then(|| count_of(summary.uses, "use"));
        fact(page, "counts", &counts.into_iter().chain(uses).collect::<Vec<_>>().join(", "))?;
        if !self.trace.is_state() {
            let bytes = format_bytes(summary.baseline_bytes);
            fact(page, "baseline", &format!("{bytes} requested before the first event"))?;
        }
        self.print_ooms(summary, page)?;
        page.gap()?.table(&peaks_table(summary, self.trace.is_state()))
    }

    fn failures(&self, summary: &DeviceSummary) -> impl Iterator<Item = &RequestFailure> {
        self.failures.iter().filter(|failure| failure.device == summary.device)
    }

    fn print_ooms(&self, summary: &DeviceSummary, page: &mut Page<'_>) -> io::Result<()> {
        if summary.oom_events == 0 {
            return Ok(());
        }
        page.warning(&format!("  Out of memory: {} failed.", count_of(summary.oom_events, "request")))?;
        for line in self.failures(summary).map(failure_text) {
            page.warning(&format!("    {line}"))?;
        }
        Ok(())
    }
}

impl Report for InfoReport<'_> {
    fn facts(&self) -> Facts<'_> {
        let header = &self.trace.header;
        let facts: BTreeMap<String, String> = header.facts.iter().filter(|(name, _)| name != NOTE).cloned().collect();
        let notes: Vec<&str> = header.notes().collect();
        Facts::new([
            ("format", self.format.name().into()),
            ("recorder", header.recorder.as_str().into()),
            ("program", header.program.as_str().into()),
            ("host", header.host.as_str().into()),
            ("pid", header.pid.into()),
            ("rank", header.rank.into()),
            ("world_size", header.world_size.into()),
            ("started_us", header.started_unix_us.into()),
            ("clock", header.clock.as_str().into()),
            ("level", header.level.as_str().into()),
            ("ring_capacity", header.ring_capacity.into()),
            ("facts", Value::of(facts).into()),
            ("events", self.trace.event_count().into()),
            ("annotations", self.trace.annotations.len().into()),
            ("filter", Fact::or_absent(self.arguments.blocks.filter.stated())),
            ("devices", self.table().into()),
            ("notes", notes.into()),
            ("problems", problem_texts(self.trace).into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let of = |row: usize| &self.devices[row];
        let facts = move |row: usize| self.trace.device_facts(of(row).device);
        let driver = move |row: usize| facts(row).map_or_else(String::new, |facts| facts.driver.clone());
        let settings = move |row: usize| {
            let settings: BTreeMap<&str, &str> = facts(row)
                .map(|facts| facts.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect())
                .unwrap_or_default();
            Value::of(settings)
        };
        let time_us = move |time: Option<u64>| time.map(|time| micros_since_1970(&self.trace.header, time));
        let peak_of = |metric: Metric, key: &'static str| {
            let peak = move |row: usize| of(row).peak(metric).map(|peak| peak.bytes);
            Column::bytes(key, "", peak).in_tables()
        };
        let end = move |row: usize| {
            Value::Map(Metric::ALL.map(|metric| (metric.name(), of(row).end.get(metric).into())).into())
        };
        let mut columns = vec![
            Column::number("device", "device", move |row| of(row).device.0),
            Column::text("name", "name", move |row| of(row).name.clone()),
            Column::text("driver", "driver", driver),
            Column::nested("settings", settings),
            Column::bytes("capacity_bytes", "memory", move |row| of(row).capacity_bytes),
            // Whether the capacity was inferred from the reserved and free memory when a request failed.
            Column::text("capacity_is_inferred", "", move |row| of(row).capacity_is_inferred),
            Column::count("events", "events", move |row| of(row).events),
            Column::count("allocs", "allocs", move |row| of(row).allocs),
            Column::count("frees", "frees", move |row| of(row).frees),
            Column::count("uses", "uses", move |row| of(row).uses),
            Column::count("segments", "segments", move |row| of(row).segments),
            Column::bytes("baseline_bytes", "baseline", move |row| of(row).baseline_bytes),
            Column::nested("end", end),
            Column::nested("peaks", move |row| peaks_value(&self.trace.header, of(row))),
            Column::count("oom_events", "failed requests", move |row| of(row).oom_events),
            Column::count("steps", "steps", move |row| of(row).steps),
            Column::number("first_time_us", "first time", move |row| time_us(of(row).first_time_ns)),
            Column::number("last_time_us", "last time", move |row| time_us(of(row).last_time_ns)),
            Column::nested("trust", |_| trust(self.trace)),
        ];
        let peaks = ["requested_peak_bytes", "allocated_peak_bytes", "active_peak_bytes", "reserved_peak_bytes"];
        let peaks = peaks.into_iter().chain(["device_used_peak_bytes"]);
        columns.extend(Metric::ALL.into_iter().zip(peaks).map(|(metric, key)| peak_of(metric, key)));
        Table::new(self.devices.len(), columns)
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        self.print_facts(page)?;
        let dropped = self.trace.header.facts.iter().any(|(name, _)| name == DROPPED);
        if self.trace.is_complete() && self.trace.problems.is_empty() && !dropped {
            page.gap()?.line("Complete: nothing was lost, inferred or guessed.")?;
        }
        caveats::print(self.trace, page)?;
        page.gap()?;
        let given = self.arguments.given();
        let what_for = if self.trace.is_state() {
            "to see what is using memory"
        } else {
            "to see what is using memory at the peak"
        };
        page.hint(&if self.out_of_memory().is_none() {
            given.next("peak", &[], what_for)
        } else {
            given.next("oom", &[], "for the cause of the failure, and possible fixes")
        })
    }
}

/// Whether a device has, had, or requested any memory.
fn has_memory(summary: &DeviceSummary) -> bool {
    let peak = summary.peaks.iter().map(|moment| moment.bytes).max().unwrap_or(0);
    peak > 0 || summary.allocs + summary.frees + summary.segments + summary.oom_events > 0
}

fn fact(page: &mut Page<'_>, name: &str, value: &str) -> io::Result<()> {
    if value.is_empty() {
        return Ok(());
    }
    let indent = " ".repeat(FACT_INDENT);
    for (at, line) in page.broken(FACT_INDENT, value).iter().enumerate() {
        let line = line.strip_prefix(&indent).unwrap_or(line);
        page.line(&if at == 0 { format!("  {name:<10} {line}") } else { format!("{indent}{line}") })?;
    }
    Ok(())
}
