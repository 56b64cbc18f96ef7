//! Oom: `highwater oom`, why memory ran out, and what would have made the failed request fit.

use std::collections::BTreeMap;
use std::io;

use highwater_snapshots::analysis::addresses::{Hole, Verdict};
use highwater_snapshots::analysis::breakdown::Grouping;
use highwater_snapshots::analysis::frames::short_stack;
use highwater_snapshots::analysis::{AddressIndex, Autopsy, Breakdown, Group, GroupKey, LiveIndex, Metric, Series};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::units::{format_bytes, format_count};
use highwater_snapshots::{BlockId, DeviceId, EventId, Phase, StackId, Trace};
use serde::Serialize;

use super::caveats::{self, TrustFigures, problem_texts};
use super::moment::{count_of, micros_since_1970, when};
use super::outcome::Failure;
use super::page::Page;
use super::recording::{choose_device, names_operations};
use super::shell::next_command;
use super::table::{Column, Table};
use crate::args::OomArguments;

/// Groups by which the blocks in the way are named.
const NAMED: usize = 8;
/// Stacks that made them.
const STACKS: usize = 3;
/// Numbers of further events that are told.
const TOLD_EVENTS: usize = 20;

/// The answer, for people and programs.
#[derive(Debug)]
pub struct OomReport<'a> {
    trace: &'a Trace,
    arguments: &'a OomArguments,
    cases: Vec<Case>,
    /// Failed requests that are not told.
    others: Vec<EventId>,
}

/// One failed request.
#[derive(Debug)]
struct Case {
    device: DeviceId,
    autopsy: Autopsy,
    way_out: Option<WayOut>,
}

/// The smallest set of blocks whose absence would have made the request fit, and who made them.
#[derive(Debug)]
struct WayOut {
    /// How it would have fitted, in words that go on after the blocks.
    how: String,
    is_release: bool,
    is_smallest: bool,
    bytes: u64,
    blocks: usize,
    by_group: Breakdown,
    by_stack: Breakdown,
}

impl<'a> OomReport<'a> {
    /// Asks `trace`.
    pub fn of(trace: &'a Trace, arguments: &'a OomArguments) -> Result<Self, Failure> {
        let wanted = arguments.device.map(|device| choose_device(trace, Some(device))).transpose()?;
        let is_one = |row: &usize| {
            trace.events.kind[*row] == EventKind::Oom && wanted.is_none_or(|device| trace.events.device[*row] == device)
        };
        let mut told: Vec<EventId> = (0..trace.events.len()).filter(is_one).map(EventId::from_index).collect();
        let mut others = Vec::new();
        match arguments.event {
            Some(number) if told.contains(&EventId(number)) => told = vec![EventId(number)],
            Some(number) => return Err(not_one(number, &told)),
            None => others = told.split_off(arguments.top.min(told.len())),
        }
        let mut cases = Vec::with_capacity(told.len());
        let mut devices: Vec<DeviceId> = told.iter().map(|event| trace.events.device[event.0 as usize]).collect();
        devices.sort_unstable();
        devices.dedup();
        for device in devices {
            let (series, (live, index)) = rayon::join(
                || Series::build(trace, device),
                || rayon::join(|| LiveIndex::build(trace, device), || AddressIndex::build(trace, device)),
            );
            // Of another device, there is none.
            let of_event = |event: &EventId| Autopsy::of(trace, &index, &live, &series, *event);
            cases.extend(told.iter().filter_map(of_event).map(|autopsy| Case::new(trace, device, autopsy)));
        }
        cases.sort_by_key(|case| case.autopsy.event);
        Ok(Self { trace, arguments, cases, others })
    }

    /// The answer for programs.
    pub fn figures(&self) -> impl Serialize {
        OomFigures {
            ooms: self.cases.iter().map(|case| CaseFigures::of(self.trace, case)).collect(),
            rest_events: self.others.iter().map(|event| event.0).collect(),
            trust: TrustFigures::of(self.trace),
            problems: problem_texts(self.trace),
        }
    }

    /// The answer in words.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        for (position, case) in self.cases.iter().enumerate() {
            if position > 0 {
                page.gap()?;
            }
            self.print_case(case, page)?;
        }
        if self.cases.is_empty() && self.others.is_empty() {
            let on = self.arguments.device.map_or_else(String::new, |device| format!(" on device {device}"));
            page.headline(&format!("Memory did not run out in this recording{on}: no request failed."))?;
        }
        if !self.others.is_empty() {
            page.gap()?;
            let numbers: Vec<String> = self.others.iter().take(TOLD_EVENTS).map(|event| event.0.to_string()).collect();
            let more = if self.others.len() > TOLD_EVENTS { ", …" } else { "" };
            let count = count_of(self.others.len() as u64, "more request");
            page.line(&format!("{count} failed: --event N tells of one; they are {}{more}.", numbers.join(", ")))?;
        }
        caveats::print(self.trace, page)?;
        page.gap()?;
        page.hint(&self.hint())
    }

    fn print_case(&self, case: &Case, page: &mut Page<'_>) -> io::Result<()> {
        let Autopsy { event, op, scope, requested, verdict, reasons, .. } = &case.autopsy;
        let trace = self.trace;
        let (step, phase) = place_of(trace, *event);
        let devices = trace.device_ids();
        let on = if devices.len() > 1 { format!(", on device {}", case.device.0) } else { String::new() };
        let by = match (op.is_empty(), scope.is_empty()) {
            (true, true) => String::new(),
            (false, true) => format!(" by {op}"),
            (true, false) => format!(" in {scope}"),
            (false, false) => format!(" by {op} of {scope}"),
        };
        let asked = format_bytes(*requested);
        page.headline(&format!("Out of memory: {asked} were asked for{by}, {}{on}.", when(Some(*event), step, phase)))?;
        for (position, reason) in reasons.iter().enumerate() {
            let lead = if position == 0 { format!("Why: {}: ", verdict.name()) } else { "  ".to_owned() };
            page.line(&format!("{lead}{reason}."))?;
        }
        page.gap()?;
        page.table(&facts(&case.autopsy))?;
        if let Some(way_out) = &case.way_out {
            page.gap()?;
            page.line(&way_out.text())?;
            page.table(&way_out.table(trace))?;
            for group in &way_out.by_stack.groups {
                print_stack(trace, group.stack, &format!("{} made at", of_blocks(group)), page)?;
            }
        }
        print_stack(trace, trace.events.stack[event.0 as usize], "Asked for at", page)
    }

    fn hint(&self) -> String {
        let file = &self.arguments.source.file;
        let Some(case) = self.cases.first() else {
            return next_command(&["explain"], file, &[], "for the peak, and what would lower it");
        };
        let event = case.autopsy.event.0.to_string();
        match case.autopsy.verdict {
            Verdict::Capacity => next_command(&["explain"], file, &[], "for what would lower the peak"),
            _ => {
                let options = ["--out", "segments.png", "--view", "segments", "--at", &event];
                next_command(&["render"], file, &options, "for a picture of the segments then")
            }
        }
    }
}

fn not_one(number: u32, known: &[EventId]) -> Failure {
    if known.is_empty() {
        return Failure::Usage(format!("--event {number}: no request failed in this recording"));
    }
    let numbers: Vec<String> = known.iter().take(TOLD_EVENTS).map(|event| event.0.to_string()).collect();
    let more = if known.len() > TOLD_EVENTS { ", …" } else { "" };
    Failure::Usage(format!("--event {number}: that is no failed request; these are {}{more}", numbers.join(", ")))
}

impl Case {
    fn new(trace: &Trace, device: DeviceId, autopsy: Autopsy) -> Self {
        let way_out = WayOut::of(trace, &autopsy);
        Self { device, autopsy, way_out }
    }
}

impl WayOut {
    fn of(trace: &Trace, autopsy: &Autopsy) -> Option<Self> {
        let is_release = autopsy.is_release_cheaper();
        let (blocks, how, is_smallest): (&[BlockId], String, bool) = match (&autopsy.release, &autopsy.relief) {
            (Some(release), _) if is_release => {
                let parts = [(release.segments, "segment"), (release.pages, "page")];
                let parts = parts.into_iter().filter(|(count, _)| *count > 0);
                let parts: Vec<String> = parts.map(|(count, noun)| count_of(count, noun)).collect();
                let returned = format_bytes(release.returned);
                let how = format!("{} of {returned} would have gone back to the driver", parts.join(" and "));
                (&release.blocks, how, release.is_smallest)
            }
            (_, Some(relief)) => {
                let range = format!("{} at {:#x}", format_bytes(relief.free), relief.address);
                (&relief.blocks, format!("they lie side by side in one segment, where {range} would be free"), true)
            }
            _ => return None,
        };
        let keys: &[GroupKey] = if names_operations(trace) {
            &[GroupKey::Category, GroupKey::Op, GroupKey::Scope]
        } else {
            &[GroupKey::Category, GroupKey::Frame]
        };
        let by = |keys, top| Breakdown::of(trace, Metric::Allocated, blocks, &Grouping { keys, beside: &[], top });
        let by_group = by(keys, NAMED);
        let mut by_stack = by(&[GroupKey::Stack], STACKS);
        by_stack.groups.retain(|group| group.stack.is_some());
        Some(Self { how, is_release, is_smallest, bytes: by_group.total, blocks: blocks.len(), by_group, by_stack })
    }

    fn text(&self) -> String {
        let smallest = if self.is_smallest { "The smallest set of blocks" } else { "A set of blocks" };
        format!(
            "{smallest} without which it would have fitted: {} in {}; {}.",
            format_bytes(self.bytes),
            count_of(self.blocks as u64, "block"),
            self.how
        )
    }

    fn table(&self, trace: &Trace) -> Table {
        let mut columns = vec![Column::text("category")];
        if names_operations(trace) {
            columns.extend([Column::text("op").giving_way(), Column::text("scope").giving_way()]);
        } else {
            columns.push(Column::text("frame").giving_way_within());
        }
        let names = columns.len();
        columns.extend([Column::number("bytes"), Column::number("blocks")]);
        let mut table = Table::new(columns);
        for group in &self.by_group.groups {
            let mut row = group.key.clone();
            row.extend([format_bytes(group.bytes), format_count(group.blocks)]);
            table.push(row);
        }
        if self.by_group.rest_groups > 0 {
            let mut row = vec![count_of(self.by_group.rest_groups, "more group")];
            row.resize(names, String::new());
            row.push(format_bytes(self.by_group.rest_bytes));
            table.push(row);
        }
        table
    }
}

/// The sizes around a failed request.
fn facts(autopsy: &Autopsy) -> Table {
    let mut table = Table::new(vec![Column::text("at that moment"), Column::number("bytes"), Column::text("")]);
    let mut row = |name: &str, bytes: u64, note: String| table.push(vec![name.to_owned(), format_bytes(bytes), note]);
    let stream = autopsy.likely_stream.map_or_else(String::new, |stream| format!(", probably of stream {}", stream.0));
    row("rounded request", autopsy.rounded, format!("of the {} pool{stream}", autopsy.pool));
    row(
        "largest free range of its pool",
        autopsy.holes.first().map_or(0, |hole| hole.bytes),
        holes_text(&autopsy.holes),
    );
    row("needed from the driver", autopsy.from_driver, String::new());
    let of_device = autopsy.capacity.map_or_else(String::new, |all| format!("of {}", format_bytes(all)));
    row("free on the device", autopsy.device_free, of_device);
    row("held from the driver", autopsy.reserved, String::new());
    row("  in live blocks", autopsy.allocated, String::new());
    row("  waiting for a stream", autopsy.waiting, String::new());
    row("  free, for such requests", autopsy.free_in_pool, String::new());
    row("  free, for others", autopsy.free_elsewhere, String::new());
    if let Some(outside) = autopsy.outside {
        row("outside the allocator", outside, String::new());
    }
    table
}

fn holes_text(holes: &[Hole]) -> String {
    let next: Vec<String> = holes.iter().skip(1).take(3).map(|hole| format_bytes(hole.bytes)).collect();
    if next.is_empty() { String::new() } else { format!("then {}", next.join(", ")) }
}

fn of_blocks(group: &Group) -> String {
    format!("{} in {}", format_bytes(group.bytes), count_of(group.blocks, "block"))
}

fn print_stack(trace: &Trace, stack: StackId, title: &str, page: &mut Page<'_>) -> io::Result<()> {
    let lines = short_stack(&trace.tables, stack);
    if !stack.is_some() || lines.is_empty() {
        return Ok(());
    }
    page.gap()?;
    page.line(title)?;
    lines.iter().try_for_each(|line| page.line(&format!("  {line}")))
}

fn place_of(trace: &Trace, event: EventId) -> (Option<u32>, Phase) {
    trace.spans.at(event).map_or((None, Phase::Setup), |span| (span.step, span.phase))
}

#[derive(Debug, Serialize)]
struct OomFigures {
    ooms: Vec<CaseFigures>,
    /// Failed requests that are not told.
    rest_events: Vec<u32>,
    trust: TrustFigures,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CaseFigures {
    event: u32,
    device: u16,
    time_us: Option<u64>,
    step: Option<u32>,
    phase: &'static str,
    op: String,
    scope: String,
    stack: Vec<String>,
    requested_bytes: u64,
    rounded_bytes: u64,
    pool: &'static str,
    likely_stream: Option<u64>,
    from_driver_bytes: u64,
    device_free_bytes: u64,
    capacity_bytes: Option<u64>,
    outside_bytes: Option<u64>,
    reserved_bytes: u64,
    allocated_bytes: u64,
    waiting_bytes: u64,
    free_in_pool_bytes: u64,
    free_elsewhere_bytes: u64,
    /// Free bytes of all segments.
    total_free_bytes: u64,
    largest_fitting_hole_bytes: u64,
    holes: Vec<Hole>,
    verdict: Verdict,
    reasons: Vec<String>,
    way_out: Option<WayOutFigures>,
}

impl CaseFigures {
    fn of(trace: &Trace, case: &Case) -> Self {
        let autopsy = &case.autopsy;
        let (step, phase) = place_of(trace, autopsy.event);
        Self {
            event: autopsy.event.0,
            device: case.device.0,
            time_us: autopsy.time_ns.map(|time| micros_since_1970(trace, time)),
            step,
            phase: phase.name(),
            op: autopsy.op.clone(),
            scope: autopsy.scope.clone(),
            stack: trace.tables.stack_text(trace.events.stack[autopsy.event.0 as usize]),
            requested_bytes: autopsy.requested,
            rounded_bytes: autopsy.rounded,
            pool: autopsy.pool.name(),
            likely_stream: autopsy.likely_stream.map(|stream| stream.0),
            from_driver_bytes: autopsy.from_driver,
            device_free_bytes: autopsy.device_free,
            capacity_bytes: autopsy.capacity,
            outside_bytes: autopsy.outside,
            reserved_bytes: autopsy.reserved,
            allocated_bytes: autopsy.allocated,
            waiting_bytes: autopsy.waiting,
            free_in_pool_bytes: autopsy.free_in_pool,
            free_elsewhere_bytes: autopsy.free_elsewhere,
            total_free_bytes: autopsy.free_in_pool + autopsy.free_elsewhere,
            largest_fitting_hole_bytes: autopsy.holes.first().map_or(0, |hole| hole.bytes),
            holes: autopsy.holes.clone(),
            verdict: autopsy.verdict,
            reasons: autopsy.reasons.clone(),
            way_out: case.way_out.as_ref().map(|way_out| WayOutFigures::of(way_out, trace)),
        }
    }
}

/// Groups and rest sum to `bytes`.
#[derive(Debug, Serialize)]
struct WayOutFigures {
    kind: &'static str,
    is_smallest: bool,
    bytes: u64,
    blocks: usize,
    groups: Vec<GroupFigures>,
    rest_bytes: u64,
    stacks: Vec<StackFigures>,
}

#[derive(Debug, Serialize)]
struct GroupFigures {
    /// The values of all keys, joined.
    key: String,
    keys: BTreeMap<&'static str, String>,
    bytes: u64,
    blocks: u64,
}

#[derive(Debug, Serialize)]
struct StackFigures {
    bytes: u64,
    blocks: u64,
    stack: Vec<String>,
}

impl WayOutFigures {
    fn of(way_out: &WayOut, trace: &Trace) -> Self {
        let names: &[&'static str] =
            if names_operations(trace) { &["category", "op", "scope"] } else { &["category", "frame"] };
        let group = |group: &Group| GroupFigures {
            key: group.key.join(", "),
            keys: names.iter().copied().zip(group.key.iter().cloned()).collect(),
            bytes: group.bytes,
            blocks: group.blocks,
        };
        let stack = |group: &Group| StackFigures {
            bytes: group.bytes,
            blocks: group.blocks,
            stack: trace.tables.stack_text(group.stack),
        };
        Self {
            kind: if way_out.is_release { "segments" } else { "neighbours" },
            is_smallest: way_out.is_smallest,
            bytes: way_out.bytes,
            blocks: way_out.blocks,
            groups: way_out.by_group.groups.iter().map(group).collect(),
            rest_bytes: way_out.by_group.rest_bytes,
            stacks: way_out.by_stack.groups.iter().map(stack).collect(),
        }
    }
}
