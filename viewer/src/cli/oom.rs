//! The report of `highwater oom`: why a request failed, what filled the device, and what would have helped.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::addresses::{FailedRequest, Hole, Verdict, WayOut};
use highwater_analysis::frames::short_stack;
use highwater_analysis::holders::{Holder, Holders};
use highwater_analysis::source::Source;
use highwater_app::answers::oom_analysis::{OomAnalysis, Outcome, Remedy, Trials};
use highwater_app::answers::replays::analyse;
use highwater_app::figures::moment::{at_event, count_of, micros_since_1970};
use highwater_app::figures::requests::{requested, stream_text};
use highwater_snapshots::units::{format_bytes, format_bytes_apart, format_count};
use highwater_snapshots::{DeviceId, Error, StackId, Trace};
use serde::Serialize;

use crate::args::OomArguments;
use crate::cli::input::devices::where_on;
use crate::cli::input::recording::choose_device;
use crate::cli::input::source::Input;
use crate::cli::output::caveats::{self, TrustFigures, problem_texts};
use crate::cli::output::key_cells::key_columns;
use crate::cli::output::outcome::Failure;
use crate::cli::output::page::Page;
use crate::cli::output::shell::next_with;
use crate::cli::output::table::{Column, Table, percent};

/// Maximum number of further events whose numbers are listed.
const TOLD_EVENTS: usize = 20;

/// Events before a failed request from which on a recording that is read in windows is replayed.
const EVENTS_BEFORE: u64 = 1 << 17;

/// The selected failed requests.
#[derive(Debug)]
struct Selected {
    /// The numbers of the failed requests that are shown, and their devices.
    shown: Vec<(u64, DeviceId)>,
    /// The numbers of the failed requests that are only counted.
    others: Vec<u64>,
}

/// Returns those of `all` failed requests, each with its device, that `arguments` select; `device` is the requested one.
fn selected(all: &[(u64, DeviceId)], device: Option<DeviceId>, arguments: &OomArguments) -> Result<Selected, Failure> {
    let is_one = |(_, of): &&(u64, DeviceId)| device.is_none_or(|device| *of == device);
    let mut shown: Vec<(u64, DeviceId)> = all.iter().filter(is_one).copied().collect();
    let mut others = Vec::new();
    match arguments.event.map(|number| (number, shown.iter().find(|(event, _)| *event == number).copied())) {
        Some((_, Some(found))) => shown = vec![found],
        Some((number, None)) => return Err(not_one(number, &numbers(&shown))),
        None => others = shown.split_off(arguments.top.min(shown.len())),
    }
    Ok(Selected { shown, others: numbers(&others) })
}

/// Analyses a failed request of a device; `None` if there is none.
fn case(source: &Source<'_>, (number, device): (u64, DeviceId)) -> Result<Option<Case>, Error> {
    let window = source.window(number.saturating_sub(EVENTS_BEFORE)..number + 1)?;
    let (trace, index) = (&window.trace, window.index(device));
    let Some(event) = window.last() else { return Ok(None) };
    let request = FailedRequest::of(trace, index.addresses(trace), &index.live, &index.series, event);
    let analysis = request.and_then(|request| analyse(trace, request, &index.live));
    Ok(analysis.map(|analysis| Case { analysis, stack: trace.events.stack[event.0 as usize] }))
}

fn numbers(requests: &[(u64, DeviceId)]) -> Vec<u64> {
    requests.iter().map(|(number, _)| *number).collect()
}

/// A failed request, and its stack.
#[derive(Debug)]
struct Case {
    analysis: OomAnalysis,
    stack: StackId,
}

/// The report, as text and as JSON.
#[derive(Debug)]
pub struct OomReport<'a> {
    trace: &'a Trace,
    arguments: &'a OomArguments,
    cases: Vec<Case>,
    /// Failed requests that are only counted.
    others: Vec<u64>,
}

impl<'a> OomReport<'a> {
    /// Analyses the failed requests of a recording.
    pub fn of(input: &'a Input, arguments: &'a OomArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let device = arguments.device.map(|device| choose_device(trace, Some(device))).transpose()?;
        let all = input.ask(|source, _| source.failed_requests())?;
        let Selected { shown, others } = selected(&all, device, arguments)?;
        let analysed =
            |source: &Source<'_>| shown.iter().map(|request| case(source, *request)).collect::<Result<_, _>>();
        let cases: Vec<Option<Case>> = input.ask(|source, _| analysed(source))?;
        Ok(Self { trace, arguments, cases: cases.into_iter().flatten().collect(), others })
    }

    /// Returns the JSON object.
    pub fn figures(&self) -> impl Serialize {
        OomFigures {
            ooms: self.cases.iter().map(|case| CaseFigures::of(self.trace, case)).collect(),
            rest_events: self.others.clone(),
            trust: TrustFigures::of(self.trace),
            problems: problem_texts(self.trace),
        }
    }

    /// Prints the report as text.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        for (position, case) in self.cases.iter().enumerate() {
            if position > 0 {
                page.gap()?;
            }
            self.print_case(case, page)?;
        }
        if self.cases.is_empty() && self.others.is_empty() {
            let on = self.arguments.device.map_or_else(String::new, |device| format!(" on device {device}"));
            page.headline(&format!("No request failed in this recording{on}."))?;
        }
        if !self.others.is_empty() {
            page.gap()?;
            let count = count_of(self.others.len() as u64, "more request");
            page.line(&format!("{count} failed, at {}: --event N shows one.", event_numbers(&self.others)))?;
        }
        caveats::print(self.trace, page)?;
        page.gap()?;
        page.hint(&self.hint())
    }

    /// Prints the request, how full the device was, its largest groups, the cause and what would have helped; then the
    /// figures.
    fn print_case(&self, case: &Case, page: &mut Page<'_>) -> io::Result<()> {
        let trace = self.trace;
        let Case { analysis: case, stack } = case;
        let event = case.number(case.request.event);
        let on = where_on(trace, case.device);
        let (asked, fill) = (requested(trace, case, *stack), case.fill());
        let when = at_event(event, case.step, (!trace.spans.is_all_setup()).then_some(case.phase));
        let lead = format!("Out of memory{on}: {asked}, {when}; {fill}.");
        page.headline(&lead)?;
        page.table(&holders_table(case))?;
        let sentences = [Some(case.cause_text()), case.helps(), case.does_not_help(), Some(case.reason_text())];
        let notes = case.request.notes.iter().map(|note| format!("Note: {note}."));
        for text in sentences.into_iter().flatten().chain(notes) {
            page.line(&text)?;
        }
        page.gap()?;
        page.table(&facts(&case.request))?;
        if let (Some(text), Some(way_out)) = (case.way_out_text(), &case.way_out) {
            page.gap()?;
            page.line(&text)?;
            page.table(&way_out_table(way_out))?;
        }
        print_stack(trace, *stack, page)
    }

    fn hint(&self) -> String {
        let (files, given) = ([self.arguments.source.file.as_path()], self.arguments.given());
        let Some(Case { analysis: case, .. }) = self.cases.first() else {
            return next_with(&["explain"], &files, &[], &given, "for the peak, and what would lower it");
        };
        let given = given.on_device((self.trace.device_ids().len() > 1).then_some(case.device.0));
        let event = case.number(case.request.event).to_string();
        match case.cause() {
            Verdict::Capacity => next_with(&["explain"], &files, &[], &given, "for what would lower the peak"),
            _ => {
                let options = ["--out", "segments.png", "--view", "segments", "--at", &event];
                next_with(&["render"], &files, &options, &given, "for a picture of the segments at that event")
            }
        }
    }
}

fn not_one(number: u64, known: &[u64]) -> Failure {
    if known.is_empty() {
        return Failure::Usage(format!("--event {number}: no request failed in this recording"));
    }
    let are = if known.len() == 1 { "the failed request is" } else { "the failed requests are" };
    Failure::Usage(format!("--event {number}: not a failed request; {are} {}", event_numbers(known)))
}

/// Formats event numbers: `event 15,059`, `events 3; 15,059; …`.
fn event_numbers(events: &[u64]) -> String {
    let numbers: Vec<String> = events.iter().take(TOLD_EVENTS).map(|event| format_count(*event)).collect();
    let more = if events.len() > TOLD_EVENTS { "; …" } else { "" };
    format!("{} {}{more}", if events.len() == 1 { "event" } else { "events" }, numbers.join("; "))
}

/// Returns the largest groups of live blocks, and whether the request succeeds without each.
fn holders_table(case: &OomAnalysis) -> Table {
    let holders = &case.holders;
    let mut columns = key_columns(&holders.keys);
    columns.extend([Column::number("live"), Column::number("share"), Column::number("blocks")]);
    let trials = case.trials.as_ref().ok().filter(|trials| trials.of_holder(0).is_some());
    if trials.is_some() {
        columns.push(Column::text("if freed first"));
    }
    let mut table = Table::new(columns);
    for (row, group) in holders.groups.iter().enumerate() {
        let mut cells = group.key.clone();
        cells.extend([format_bytes(group.bytes), percent(group.bytes, holders.total)]);
        cells.push(format_count(group.blocks.len() as u64));
        cells.extend(trials.and_then(|trials| trials.of_holder(row)).map(|outcome| outcome_text(outcome).to_owned()));
        table.push(cells);
    }
    push_rest(&mut table, holders);
    table
}

/// A row for the groups that are not listed, if any.
fn push_rest(table: &mut Table, holders: &Holders) {
    if holders.rest_groups > 0 {
        let mut row = vec![count_of(holders.rest_groups, "more group")];
        row.resize(holders.keys.len(), String::new());
        row.push(format_bytes(holders.rest_bytes));
        table.push(row);
    }
}

fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Met => "succeeds",
        Outcome::Fails | Outcome::FailsEarlier(_) => "still fails",
    }
}

/// The blocks to free.
fn way_out_table(way_out: &Holders) -> Table {
    let mut columns = key_columns(&way_out.keys);
    columns.extend([Column::number("bytes"), Column::number("blocks")]);
    let mut table = Table::new(columns);
    for group in &way_out.groups {
        let mut row = group.key.clone();
        row.extend([format_bytes(group.bytes), format_count(group.blocks.len() as u64)]);
        table.push(row);
    }
    push_rest(&mut table, way_out);
    table
}

/// The sizes around a failed request; those of segments only for an allocator that has them.
fn facts(request: &FailedRequest) -> Table {
    let mut table = Table::new(vec![Column::text("at that moment"), Column::number("bytes"), Column::text("")]);
    let mut row = |name: &str, bytes: String, note: String| table.push(vec![name.to_owned(), bytes, note]);
    let is_caching = request.allocator.has_settings();
    if is_caching {
        let stream = stream_text(request).map_or_else(String::new, |stream| format!(", {stream}"));
        row("request, rounded", format_bytes(request.rounded), format!("of the {} pool{stream}", request.pool));
        let largest = request.holes.first().map_or(0, |hole| hole.bytes);
        row("largest free range of its pool", format_bytes(largest), holes_text(&request.holes));
    }
    let memory = request.device_memory();
    let inferred = if memory.is_inferred { ", inferred from the failure" } else { "" };
    let [needed, free] = format_bytes_apart([request.from_driver, request.device_free]);
    row(if is_caching { "needed from the driver" } else { "request" }, needed, String::new());
    row("free on the device", free, format!("of {}{inferred}", format_bytes(memory.bytes)));
    let plain = |name: &'static str, bytes: u64| (name, bytes);
    let rows = if is_caching {
        vec![
            plain("reserved", request.reserved),
            plain("  in live blocks", request.allocated),
            plain("  freed, waiting for a stream", request.waiting),
            plain("  free in the request's pool and stream", request.free_in_pool),
            plain("  free in other pools or streams", request.free_elsewhere),
        ]
    } else {
        vec![plain("in live blocks", request.allocated)]
    };
    let outside = request.outside.map(|bytes| plain("outside the allocator", bytes));
    rows.into_iter().chain(outside).for_each(|(name, bytes)| row(name, format_bytes(bytes), String::new()));
    table
}

fn holes_text(holes: &[Hole]) -> String {
    let next: Vec<String> = holes.iter().skip(1).take(3).map(|hole| format_bytes(hole.bytes)).collect();
    if next.is_empty() { String::new() } else { format!("then {}", next.join(", ")) }
}

fn print_stack(trace: &Trace, stack: StackId, page: &mut Page<'_>) -> io::Result<()> {
    let lines = short_stack(&trace.tables, stack);
    if !stack.is_some() || lines.is_empty() {
        return Ok(());
    }
    page.gap()?;
    page.line("Requested at")?;
    lines.iter().try_for_each(|line| page.source_line(2, line))
}

#[derive(Debug, Serialize)]
struct OomFigures {
    ooms: Vec<CaseFigures>,
    /// Failed requests that are only counted.
    rest_events: Vec<u64>,
    trust: TrustFigures,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CaseFigures {
    event: u64,
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
    stream: Option<u64>,
    stream_is_guessed: bool,
    from_driver_bytes: u64,
    device_free_bytes: u64,
    capacity_bytes: Option<u64>,
    /// Whether that is not recorded, but what the allocator had and what was free at the failure.
    capacity_is_inferred: bool,
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
    /// The cause of the failure.
    verdict: Verdict,
    /// Whether a replay confirms it; otherwise it is a guess.
    verdict_is_tested: bool,
    reasons: Vec<String>,
    holders: HolderFigures,
    /// Null if no replay is possible; `reasons` then has the cause.
    remedies: Option<Vec<RemedyFigures>>,
    way_out: Option<WayOutFigures>,
}

impl CaseFigures {
    fn of(trace: &Trace, Case { analysis: case, stack }: &Case) -> Self {
        let request = &case.request;
        let stated = [
            Some(case.cause_text()),
            Some(case.reason_text()),
            case.helps(),
            case.does_not_help(),
            case.way_out_text(),
        ];
        Self {
            event: case.number(request.event),
            device: case.device.0,
            time_us: request.time_ns.map(|time| micros_since_1970(trace, time)),
            step: case.step,
            phase: case.phase.name(),
            op: request.op.clone(),
            scope: request.scope.clone(),
            stack: trace.tables.stack_text(*stack),
            requested_bytes: request.requested,
            rounded_bytes: request.rounded,
            pool: request.pool.name(),
            stream: request.stream.map(|stream| stream.0),
            stream_is_guessed: request.stream_is_guessed,
            from_driver_bytes: request.from_driver,
            device_free_bytes: request.device_free,
            capacity_bytes: Some(request.device_memory().bytes),
            capacity_is_inferred: request.device_memory().is_inferred,
            outside_bytes: request.outside,
            reserved_bytes: request.reserved,
            allocated_bytes: request.allocated,
            waiting_bytes: request.waiting,
            free_in_pool_bytes: request.free_in_pool,
            free_elsewhere_bytes: request.free_elsewhere,
            total_free_bytes: request.free_in_pool + request.free_elsewhere,
            largest_fitting_hole_bytes: request.holes.first().map_or(0, |hole| hole.bytes),
            holes: request.holes.clone(),
            verdict: case.cause(),
            verdict_is_tested: case.is_tested(),
            reasons: stated.into_iter().flatten().chain(request.notes.iter().cloned()).collect(),
            holders: HolderFigures::of(&case.holders),
            remedies: case.trials.as_ref().ok().map(|trials| RemedyFigures::of_all(case, trials)),
            way_out: WayOutFigures::of(case),
        }
    }
}

/// Groups and rest sum to `bytes`.
#[derive(Debug, Serialize)]
struct HolderFigures {
    bytes: u64,
    groups: Vec<GroupFigures>,
    rest_bytes: u64,
}

impl HolderFigures {
    fn of(holders: &Holders) -> Self {
        let group = |group: &Holder| GroupFigures {
            key: group.key.join(", "),
            keys: holders.keys.iter().map(|key| key.name()).zip(group.key.iter().cloned()).collect(),
            bytes: group.bytes,
            blocks: group.blocks.len() as u64,
        };
        Self {
            bytes: holders.total,
            groups: holders.groups.iter().map(group).collect(),
            rest_bytes: holders.rest_bytes,
        }
    }
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
struct RemedyFigures {
    /// The change.
    remedy: String,
    /// Whether the request succeeds with it.
    met: bool,
    /// The event at which the replay runs out of memory before the request.
    earlier_event: Option<u64>,
    /// For more device memory: how much is needed.
    more_bytes: Option<u64>,
}

impl RemedyFigures {
    fn of_all(case: &OomAnalysis, trials: &Trials) -> Vec<Self> {
        let one = |trial: &highwater_app::answers::oom_analysis::Trial| Self {
            remedy: case.name(&trial.remedy),
            met: trial.outcome == Outcome::Met,
            earlier_event: match trial.outcome {
                Outcome::FailsEarlier(event) => Some(case.number(event)),
                _ => None,
            },
            more_bytes: match trial.remedy {
                Remedy::MoreMemory(bytes) => Some(bytes),
                _ => None,
            },
        };
        trials.results.iter().map(one).collect()
    }
}

/// The fewest bytes of live blocks to free.
#[derive(Debug, Serialize)]
struct WayOutFigures {
    kind: &'static str,
    is_smallest: bool,
    blocks: usize,
    #[serde(flatten)]
    holders: HolderFigures,
}

impl WayOutFigures {
    fn of(case: &OomAnalysis) -> Option<Self> {
        let way_out = case.request.way_out()?;
        let kind = if matches!(way_out, WayOut::Segments(_)) { "segments" } else { "neighbours" };
        let holders = HolderFigures::of(case.way_out.as_ref()?);
        Some(Self { kind, is_smallest: way_out.is_smallest(), blocks: way_out.blocks().len(), holders })
    }
}
