//! `highwater oom`: explains why a request failed, with the composition of memory at that moment and the changes that
//! would have prevented the failure.

use std::io;

use clap::Args;
use highwater_analysis::addresses::{Freed, Hole, Verdict};
use highwater_analysis::{FailedRequest, LiveGroup, LiveGroups, Source, short_stack};
use highwater_app::answers::oom_analysis::{OomAnalysis, Outcome, Remedy, Trials};
use highwater_app::answers::replays::analyse;
use highwater_app::figures::moment::{at_event, micros_since_1970};
use highwater_app::figures::requests::{requested, stream_text};
use highwater_app::report::{Column, Facts, Field, Rows, Table, Value, percent};
use highwater_snapshots::{DeviceId, Error, StackId, Trace, count_of, format_bytes, format_bytes_apart, format_count};

use crate::args::{self, CategoryChoice, FilesAndOptions};
use crate::input::{Input, answer_from, choose_device, where_on, with_spinner};
use crate::output::{Failure, Page, Report, Status, answer, caveats, key_columns, named, problem_texts, trust};

const TOP: usize = 3;

/// Arguments of `highwater oom`.
#[derive(Clone, Debug, Args)]
pub struct OomArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: args::Source,
    /// Failed request at event N [default: the first failed requests]
    #[arg(long, value_name = "N")]
    pub event: Option<u64>,
    /// Device N [default: all]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// Number of failed requests to show; the others are counted
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// The source of categories that were not recorded.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

impl OomArguments {
    pub(crate) fn given(&self) -> FilesAndOptions {
        FilesAndOptions::of(&self.source.file).with("device", self.device).categories(&self.categories)
    }
}

pub(crate) fn run(arguments: &OomArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.categories, |input| {
        let report = with_spinner("replaying", || OomReport::of(input, arguments))?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// Maximum number of additional failed requests whose event indices are listed.
const MAX_EVENTS: usize = 20;

/// If a recording is read in windows, number of events before the failed request at which the replay starts.
const EVENTS_BEFORE: u64 = 1 << 17;

/// The event index of a failed request, and its device.
type Failed = (u64, DeviceId);

/// Selects from failed requests, which are on `device` if one is requested, those to show and those that are only
/// counted.
fn selected(mut shown: Vec<Failed>, arguments: &OomArguments) -> Result<[Vec<Failed>; 2], Failure> {
    let mut others = Vec::new();
    match arguments.event.map(|number| (number, shown.iter().find(|(event, _)| *event == number).copied())) {
        Some((_, Some(found))) => shown = vec![found],
        Some((number, None)) => return Err(not_one(number, &numbers(&shown))),
        None => others = shown.split_off(arguments.top.min(shown.len())),
    }
    Ok([shown, others])
}

/// Analyses a failed request on a device; `None` if no request failed at that event.
fn case(source: &Source<'_>, (number, device): Failed) -> Result<Option<Case>, Error> {
    let window = source.window(number.saturating_sub(EVENTS_BEFORE)..number + 1)?;
    let (trace, index) = (&window.trace, window.index(device));
    let Some(event) = window.last() else { return Ok(None) };
    let request = FailedRequest::of(trace, index.addresses(trace), &index.live, &index.series, event);
    let analysis = request.and_then(|request| analyse(trace, request, &index.live));
    Ok(analysis.map(|analysis| Case { analysis, stack: trace.events.stack[event.0 as usize] }))
}

fn numbers(requests: &[Failed]) -> Vec<u64> {
    requests.iter().map(|(number, _)| *number).collect()
}

#[derive(Debug)]
struct Case {
    analysis: OomAnalysis,
    stack: StackId,
}

/// The report of `highwater oom`.
#[derive(Debug)]
pub struct OomReport<'a> {
    trace: &'a Trace,
    arguments: &'a OomArguments,
    cases: Vec<Case>,
    /// The event indices of failed requests that are only counted.
    others: Vec<u64>,
}

impl<'a> OomReport<'a> {
    /// Analyses the failed requests of a recording.
    pub fn of(input: &'a Input, arguments: &'a OomArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let device = arguments.device.map(|device| choose_device(trace, Some(device))).transpose()?;
        let mut all = input.ask(|source, _| source.failed_requests())?;
        all.retain(|(_, of)| device.is_none_or(|device| *of == device));
        let [shown, others] = selected(all, arguments)?;
        let analysed =
            |source: &Source<'_>| shown.iter().map(|request| case(source, *request)).collect::<Result<_, _>>();
        let cases: Vec<Option<Case>> = input.ask(|source, _| analysed(source))?;
        Ok(Self { trace, arguments, cases: cases.into_iter().flatten().collect(), others: numbers(&others) })
    }

    /// Prints the request, the use of the device's memory, its largest groups, the cause and possible fixes; then the
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
        page.table(&holders_table(trace, case))?;
        let (cause, why) = (Some(case.cause_text()), Some(case.reason_text()));
        let sentences = [case.state_text(), cause, case.helps(), case.does_not_help(), why];
        let notes = case.request.notes.iter().map(|note| format!("Note: {note}."));
        for text in sentences.into_iter().flatten().chain(notes) {
            page.line(&text)?;
        }
        page.gap()?.table(&sizes_table(&case.request))?;
        if let (Some(text), Some(smallest_eviction)) = (case.eviction_text(), &case.smallest_eviction) {
            page.gap()?.line(&text)?;
            page.table(&way_out_table(trace, smallest_eviction))?;
        }
        print_stack(trace, *stack, page)
    }

    fn hint(&self) -> String {
        let given = self.arguments.given();
        let Some(Case { analysis: case, .. }) = self.cases.first() else {
            if self.trace.is_state() {
                return given.next("peak", &[], "to see what is using memory");
            }
            return given.next("explain", &[], "for the peak, and ways to lower it");
        };
        let given = given.on_device((self.trace.device_ids().len() > 1).then_some(case.device.0));
        let event = case.number(case.request.event).to_string();
        match case.cause() {
            Verdict::Capacity => given.next("explain", &[], "for ways to lower the peak"),
            _ => {
                let options = ["--out", "segments.png", "--view", "segments", "--at", &event];
                given.next("render", &options, "for a picture of the segments at that event")
            }
        }
    }
}

impl Report for OomReport<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts::new([
            ("ooms", self.table().into()),
            // Failed requests that are only counted.
            ("rest_events", self.others.clone().into()),
            ("trust", trust(self.trace).into()),
            ("problems", problem_texts(self.trace).into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let case = |row: usize| &self.cases[row].analysis;
        let request = move |row: usize| &case(row).request;
        let remedies =
            move |row: usize| case(row).trials.as_ref().ok().map(|trials| remedies_table(case(row), trials).list());
        let columns = [
            Column::number("event", "event", move |row| case(row).number(request(row).event)),
            Column::number("device", "device", move |row| case(row).device.0),
            Column::number("time_us", "time", move |row| {
                request(row).time_ns.map(|time| micros_since_1970(&self.trace.header, time))
            }),
            Column::number("step", "step", move |row| case(row).step),
            Column::text("phase", "phase", move |row| case(row).phase.name()),
            Column::text("op", "op", move |row| request(row).op.clone()),
            Column::text("scope", "scope", move |row| request(row).scope.clone()),
            Column::text("stack", "stack", |row| self.trace.tables.stack_text(self.cases[row].stack)),
            Column::bytes("requested_bytes", "requested", move |row| request(row).requested),
            Column::bytes("rounded_bytes", "rounded", move |row| request(row).rounded),
            Column::text("pool", "pool", move |row| request(row).pool.name()),
            Column::number("stream", "stream", move |row| request(row).stream.map(|stream| stream.0)),
            Column::text("stream_is_guessed", "", move |row| request(row).stream_is_guessed),
            Column::bytes("from_driver_bytes", "from the driver", move |row| request(row).from_driver),
            Column::bytes("device_free_bytes", "free on the device", move |row| request(row).device_free),
            Column::bytes("capacity_bytes", "device", move |row| request(row).device_memory().bytes),
            // Whether the capacity was inferred from the reserved and free memory at the failure.
            Column::text("capacity_is_inferred", "", move |row| request(row).device_memory().is_inferred),
            Column::bytes("outside_bytes", "outside the allocator", move |row| request(row).outside),
            Column::bytes("reserved_bytes", "reserved", move |row| request(row).reserved),
            Column::bytes("allocated_bytes", "in live blocks", move |row| request(row).allocated),
            Column::bytes("waiting_bytes", "awaiting free", move |row| request(row).waiting),
            Column::bytes("free_in_pool_bytes", "free in the pool", move |row| request(row).free_in_pool),
            Column::bytes("free_elsewhere_bytes", "free elsewhere", move |row| request(row).free_elsewhere),
            Column::bytes("total_free_bytes", "free in all segments", move |row| {
                request(row).free_in_pool + request(row).free_elsewhere
            }),
            Column::bytes("largest_fitting_hole_bytes", "largest free range", move |row| {
                request(row).holes.first().map_or(0, |hole| hole.bytes)
            }),
            Column::nested("holes", move |row| request(row).holes.iter().map(Value::of).collect::<Vec<_>>()),
            Column::text("verdict", "cause", move |row| Value::of(case(row).cause())),
            // Whether a replay confirms it; otherwise it is a guess.
            Column::text("verdict_is_tested", "", move |row| case(row).is_tested()),
            Column::nested("reasons", move |row| reasons(case(row))),
            Column::nested("holders", move |row| Value::Map(holder_values(&case(row).holders))),
            // Null if no replay is possible; `reasons` then has the cause.
            Column::nested("remedies", remedies),
            Column::nested("way_out", move |row| eviction_value(case(row))),
        ];
        Table::new(self.cases.len(), columns)
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
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
        page.gap()?.hint(&self.hint())
    }
}

fn not_one(number: u64, known: &[u64]) -> Failure {
    if known.is_empty() {
        return Failure::Usage(format!("--event {number}: no request failed in this recording"));
    }
    let are = if known.len() == 1 { "the failed request is" } else { "the failed requests are" };
    Failure::Usage(format!("--event {number}: not a failed request; {are} {}", event_numbers(known)))
}

/// Formats event numbers, such as `event 15,059` or `events 3; 15,059; …`.
fn event_numbers(events: &[u64]) -> String {
    let numbers: Vec<String> = events.iter().take(MAX_EVENTS).map(|event| format_count(*event)).collect();
    let more = if events.len() > MAX_EVENTS { "; …" } else { "" };
    format!("{} {}{more}", if events.len() == 1 { "event" } else { "events" }, numbers.join("; "))
}

/// Returns the columns for groups of blocks, and the number of rows for the unlisted rest: 0 or 1.
fn groups_columns<'a>(trace: &'a Trace, holders: &'a LiveGroups, title: &'static str) -> (Vec<Column<'a>>, usize) {
    let groups = &holders.groups;
    let sums: Vec<String> =
        (holders.rest_groups > 0).then(|| count_of(holders.rest_groups, "more group")).into_iter().collect();
    let named = groups.iter().map(|group| (&group.key, (&trace.tables, StackId::NONE)));
    let mut columns = key_columns(&holders.keys, named, &sums);
    columns.push(Column::bytes("bytes", title, |row| groups.get(row).map_or(holders.rest_bytes, |group| group.bytes)));
    let share = |row: usize| groups.get(row).map_or_else(String::new, |group| percent(group.bytes, holders.total));
    columns.push(Column::shown_alone("share", true, share).optional());
    columns.push(Column::count("blocks", "blocks", |row| groups.get(row).map(|group| group.blocks.len())));
    (columns, sums.len())
}

/// Returns a table of the largest groups of live blocks, with whether the request succeeds if each is freed first,
/// where that was tried.
fn holders_table<'a>(trace: &'a Trace, case: &'a OomAnalysis) -> Table<'a> {
    let (mut columns, sums) = groups_columns(trace, &case.holders, "live");
    let trials = case.trials.as_ref().ok().filter(|trials| trials.of_holder(0).is_some());
    columns.extend(trials.map(|trials| {
        Column::shown_alone("if freed first", false, |row| trials.of_holder(row).map_or("", outcome_text).to_owned())
    }));
    Table::new(case.holders.groups.len() + sums, columns).with_sums(sums)
}

fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Met => "succeeds",
        Outcome::Fails | Outcome::FailsEarlier(_) => "still fails",
    }
}

fn way_out_table<'a>(trace: &'a Trace, smallest_eviction: &'a LiveGroups) -> Table<'a> {
    let (mut columns, sums) = groups_columns(trace, smallest_eviction, "bytes");
    columns.retain(|column| column.title != "share");
    Table::new(smallest_eviction.groups.len() + sums, columns).with_sums(sums)
}

/// A table of the sizes at a failed request; those of segments only if the allocator has segments.
fn sizes_table(request: &FailedRequest) -> Table<'static> {
    let mut rows: Vec<(&'static str, String, String)> = Vec::new();
    let mut row = |name: &'static str, bytes: String, note: String| rows.push((name, bytes, note));
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
    let of = match request.limit {
        Some(limit) => format!("beyond a limit of at least {}", format_bytes(limit)),
        None => format!("of {}{inferred}", format_bytes(memory.bytes)),
    };
    row("free on the device", free, of);
    let mut plain = |name, bytes| row(name, format_bytes(bytes), String::new());
    if is_caching {
        plain("reserved", request.reserved);
        plain("  in live blocks", request.allocated);
        plain("  awaiting free", request.waiting);
        plain("  free in the request's pool and stream", request.free_in_pool);
        plain("  free in other pools or streams", request.free_elsewhere);
    } else {
        plain("in live blocks", request.allocated);
    }
    if let Some(outside) = request.outside {
        plain("outside the allocator", outside);
    }
    let rows: Rows<_> = rows.into_iter().collect();
    let columns = [
        Column::text("what", "at that moment", rows.of(|row| row.0)),
        Column::number("size", "bytes", rows.of(|row| row.1.clone())),
        Column::text("note", "", rows.of(|row| row.2.clone())),
    ];
    Table::new(rows.count(), columns)
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
    page.gap()?.line("Requested at")?;
    lines.iter().try_for_each(|line| page.source_line(2, line))
}

fn reasons(case: &OomAnalysis) -> Vec<String> {
    let stated =
        [Some(case.cause_text()), Some(case.reason_text()), case.helps(), case.does_not_help(), case.eviction_text()];
    stated.into_iter().flatten().chain(case.request.notes.iter().cloned()).chain(case.state_text()).collect()
}

/// Returns the groups and the rest, which sum to `bytes`.
fn holder_values(holders: &LiveGroups) -> Vec<(&'static str, Field)> {
    let group = |group: &LiveGroup| {
        Value::Map(vec![
            ("key", group.key.join(", ").into()),
            ("keys", named(&holders.keys, &group.key).into()),
            ("bytes", group.bytes.into()),
            ("blocks", group.blocks.len().into()),
        ])
    };
    let groups: Vec<Value> = holders.groups.iter().map(group).collect();
    vec![("bytes", holders.total.into()), ("groups", groups.into()), ("rest_bytes", holders.rest_bytes.into())]
}

fn remedies_table<'a>(case: &'a OomAnalysis, trials: &'a Trials) -> Table<'a> {
    let results = &trials.results;
    // The event at which the replay runs out of memory before the request.
    let earlier = |row: usize| match results[row].outcome {
        Outcome::FailsEarlier(event) => Some(case.number(event)),
        _ => None,
    };
    let more = |row: usize| match results[row].remedy {
        Remedy::MoreMemory(bytes) => Some(bytes),
        _ => None,
    };
    let columns = [
        Column::text("remedy", "remedy", |row| case.name(&results[row].remedy)),
        Column::text("met", "succeeds", |row| results[row].outcome == Outcome::Met),
        Column::number("earlier_event", "fails at", earlier),
        Column::bytes("more_bytes", "more memory", more),
    ];
    Table::new(results.len(), columns)
}

/// Returns live blocks whose freeing lets the request succeed; `is_smallest` is whether they are known to have the fewest
/// bytes of their kind.
fn eviction_value(case: &OomAnalysis) -> Option<Value> {
    let smallest_eviction = case.request.smallest_eviction()?;
    let kind = if matches!(smallest_eviction.freed, Freed::Segments { .. }) { "segments" } else { "neighbours" };
    let own = vec![
        ("kind", kind.into()),
        ("is_smallest", smallest_eviction.is_smallest.into()),
        ("blocks", smallest_eviction.blocks.len().into()),
    ];
    Some(Value::Map(own.into_iter().chain(holder_values(case.smallest_eviction.as_ref()?)).collect()))
}
