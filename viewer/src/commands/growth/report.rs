//! The tables and facts that `highwater growth` prints: reserved memory, leaks, steps and an extrapolation.

use std::cmp::Ordering;
use std::sync::LazyLock;

use highwater_analysis::between::Sum;
use highwater_analysis::growth::{Bound, Kept, NoWindow};
use highwater_analysis::{Between, Filter, Group, GroupKey, Growth, GrowthQuery, Leak, Metric, Question};
use highwater_app::report::{Column, Facts, Table, Value};
use highwater_snapshots::trace::HOLDERS;
use highwater_snapshots::{DeviceId, Trace, count_of, format_bytes, format_count};
use serde::Deserialize;

use crate::commands::growth::GrowthArguments;
use crate::output::Failure;

/// Number of steps listed at the beginning and at the end if there are too many.
const SHOWN_STEPS: usize = 6;

pub(super) fn reserved_facts(growth: &Growth) -> Facts<'_> {
    Facts::new([
        ("growth_bytes", growth.net().into()),
        ("bytes_per_step", (growth.step_count() > 0).then(|| growth.bytes_per_step()).into()),
        ("causes", causes(&growth.causes).into()),
    ])
}

/// An extrapolation that assumes the same growth in every further step.
#[derive(Debug)]
pub(super) struct Projection {
    pub(super) capacity_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) steps_until_full: u64,
}

impl Projection {
    pub(super) fn value(&self) -> Value {
        Value::Map(vec![
            ("capacity_bytes", self.capacity_bytes.into()),
            ("peak_bytes", self.peak_bytes.into()),
            ("steps_until_full", self.steps_until_full.into()),
        ])
    }

    pub(super) fn text(&self, unit: &str) -> String {
        format!(
            "Extrapolated: if every {unit} adds as much, the peak of a {unit}, {} now, exceeds the device's {} after {}; \
             fragmentation and memory outside the allocator make this happen sooner.",
            format_bytes(self.peak_bytes),
            format_bytes(self.capacity_bytes),
            count_of(self.steps_until_full, &format!("more {unit}"))
        )
    }
}

pub(super) fn leaks<'a>(trace: &'a Trace, leaks: &'a [Leak]) -> Table<'a> {
    let columns = [
        Column::text("line", "line", |row| leaks[row].line.clone()),
        Column::bytes("bytes", "bytes", |row| leaks[row].kept.bytes),
        Column::count("blocks", "blocks", |row| leaks[row].kept.blocks),
        Column::bytes("bytes_per_step", "per step", |row| leaks[row].bytes_per_step),
        Column::text("stack", "stack", |row| trace.tables.stack_text(leaks[row].stack)),
    ];
    Table::new(leaks.len(), columns)
}

pub(super) fn causes(causes: &[Kept]) -> Table<'_> {
    let columns = [
        Column::text("cause", "cause", |row| Value::of(causes[row].because)),
        Column::difference("bytes", "bytes", |row| causes[row].net()),
        Column::count("segments", "segments", |row| causes[row].sum.blocks),
        Column::text("streams", "streams", |row| causes[row].streams.clone()),
        Column::text("pools", "pools", |row| causes[row].pools.iter().map(ToString::to_string).collect::<Vec<_>>()),
        // The bytes that one stream or pool would need in place of all of these, which are never in use at the same
        // time.
        Column::bytes("shared_bytes", "shared", |row| causes[row].shared_bytes),
        Column::text("text", "text", |row| causes[row].text()),
    ];
    Table::new(causes.len(), columns)
}

/// Returns the steps with their ranges of events, then a row for survivors allocated between steps, if there are any.
pub(super) fn steps(growth: &Growth) -> Table<'_> {
    let rows = &growth.steps;
    let events = |row: usize| growth.window.steps.get(row).map(|(_, events)| events.clone());
    let columns = [
        Column::number("step", "step", |row| rows[row].step),
        Column::number("first_event", "first event", move |row| events(row).map(|events| events.start)),
        Column::number("last_event", "last event", move |row| events(row).map(|events| events.end - 1)),
        Column::bytes("end_bytes", "live after step", |row| rows[row].step.map(|_| rows[row].end_bytes)),
        Column::nested("survivors", |row| sum(rows[row].survivors)),
    ];
    Table::new(rows.len(), columns)
}

/// Returns a table of the steps, and of the allocations between them; if there are many, only of the first and the
/// last.
pub(super) fn steps_table(growth: &Growth, measures_segments: bool) -> Table<'_> {
    let rows = &growth.steps;
    let more = rows.len().saturating_sub(2 * SHOWN_STEPS);
    // One row states how many are left out in the middle.
    let row = move |at: usize| match at.cmp(&SHOWN_STEPS) {
        Ordering::Equal if more > 0 => None,
        Ordering::Greater if more > 0 => Some(at + more - 1),
        _ => Some(at),
    };
    let of = move |at: usize| row(at).map(|row| &rows[row]);
    let name = move |at: usize| match of(at).map(|row| row.step) {
        Some(Some(step)) => step.to_string(),
        Some(None) => "between".to_owned(),
        None => format!("… {} more", format_count(more as u64)),
    };
    let end = move |at: usize| of(at).filter(|row| row.step.is_some()).map(|row| row.end_bytes);
    let start = growth.balance.get(Question::AliveAtA).bytes;
    let before = move |at: usize| row(at)?.checked_sub(1).map_or(Some(start), |before| Some(rows[before].end_bytes));
    let change = move |at: usize| Some(i128::from(end(at)?) - i128::from(before(at)?));
    let survivors = move |at: usize| of(at).map(|row| row.survivors);
    let unit = growth.window.between.unit();
    let [live, still, blocks] = match (measures_segments, growth.window.between) {
        (true, Between::Steps) => ["reserved after step", "still reserved at end", "segments"],
        (true, Between::Idle) => ["reserved after burst", "still reserved at end", "segments"],
        (false, Between::Steps) => ["live after step", "still live at end", "blocks"],
        (false, Between::Idle) => ["live after burst", "still live at end", "blocks"],
    };
    let columns = [
        Column::text("step", unit, name),
        Column::bytes("end_bytes", live, end),
        Column::difference("change_bytes", "change", change),
        Column::bytes("survivor_bytes", still, move |at| survivors(at).map(|sum| sum.bytes)),
        Column::count("survivor_blocks", blocks, move |at| survivors(at).map(|sum| sum.blocks)),
    ];
    Table::new(rows.len() - more + usize::from(more > 0), columns)
}

pub(super) fn stacks<'a>(trace: &'a Trace, groups: &'a [Group]) -> Table<'a> {
    let columns = [
        Column::bytes("bytes", "bytes", |row| groups[row].bytes),
        Column::count("blocks", "blocks", |row| groups[row].blocks),
        Column::text("stack", "stack", |row| trace.tables.stack_text(groups[row].stack)),
    ];
    Table::new(groups.len(), columns)
}

pub(super) fn sum(sum: Sum) -> Value {
    Value::Map(vec![("bytes", sum.bytes.into()), ("blocks", sum.blocks.into())])
}

/// Tensors that the program references from variables other than parameters, gradients, buffers and optimizer state.
#[derive(Debug, Deserialize)]
struct Holder {
    /// The variable, and the path from it, such as `trainer.history (list of 12)`.
    holder: String,
    tensors: u64,
    bytes: u64,
    /// Number of the referenced tensors that keep an autograd graph alive.
    graphs: u64,
}

/// The rows in the recorder's order: by number of graphs and then by bytes, the largest first, and last those that only
/// PyTorch itself refers to.
#[derive(Debug, Default)]
pub(super) struct Holders(Vec<Holder>);

impl Holders {
    /// Returns the tensors listed in the recording, if its recorder lists any.
    pub(super) fn of(trace: &Trace) -> Self {
        let fact = trace.header.facts.iter().find(|(name, _)| name == HOLDERS);
        Self(fact.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn table(&self) -> Table<'_> {
        let rows = &self.0;
        let columns = vec![
            Column::text("holder", "held by", |row| rows[row].holder.as_str()).cut(),
            Column::count("tensors", "tensors", |row| rows[row].tensors),
            Column::count("graphs", "with a graph", |row| rows[row].graphs),
            Column::bytes("bytes", "bytes", |row| rows[row].bytes),
        ];
        Table::new(rows.len(), columns)
    }
}

pub(super) fn keys(trace: &Trace, arguments: &GrowthArguments) -> Vec<GroupKey> {
    // Guessed categories would split the memory kept by one line.
    let by_default = match (trace.tables.scopes.is_empty(), trace.trust.categories_guessed) {
        (false, _) => vec![GroupKey::Category, GroupKey::Scope],
        (true, false) => vec![GroupKey::Category, GroupKey::Frame],
        (true, true) => vec![GroupKey::Frame],
    };
    let by_default = if arguments.metric == Metric::Reserved { OF_SEGMENTS.to_vec() } else { by_default };
    arguments.by.as_ref().map_or(by_default, |by| by.0.clone())
}

const OF_SEGMENTS: [GroupKey; 2] = [GroupKey::Pool, GroupKey::Frame];

static NO_FILTER: LazyLock<Filter> = LazyLock::new(Filter::default);

/// Returns the additional query for reserved memory; `None` if only that is measured, or if blocks are selected.
pub(super) fn reserved_query(arguments: &GrowthArguments) -> Option<GrowthQuery<'static>> {
    let is_asked = arguments.metric != Metric::Reserved && arguments.blocks.filter.filter.is_empty();
    is_asked.then(|| GrowthQuery { metric: Metric::Reserved, keys: &OF_SEGMENTS, top: 0, filter: &NO_FILTER })
}

/// Returns an error if blocks are selected while segments are measured.
pub(super) fn check_filter(arguments: &GrowthArguments) -> Result<(), Failure> {
    match arguments.blocks.filter.stated() {
        Some(_) if arguments.metric == Metric::Reserved => {
            let text = "--where selects blocks, and --metric reserved measures segments: leave one out";
            Err(Failure::Usage(text.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Returns `device`, and also the other devices unless `device` was requested.
pub(super) fn measured_devices(device: DeviceId, all: Vec<DeviceId>, arguments: &GrowthArguments) -> Vec<DeviceId> {
    let is_measured = |other: &DeviceId| *other != device && arguments.device.device.is_none();
    std::iter::once(device).chain(all.into_iter().filter(is_measured)).collect()
}

/// Returns the error for a window of steps that does not exist. Names the option that requested the window.
pub(super) fn refused(refused: &NoWindow, arguments: &GrowthArguments) -> Failure {
    let option = match refused.step {
        Some(Bound::From(step)) => format!("--from-step {step}: "),
        Some(Bound::To(step)) => format!("--to-step {step}: "),
        None if arguments.between == Between::Idle => "--between idle: ".to_owned(),
        None => String::new(),
    };
    Failure::Usage(format!("{option}{}", refused.why))
}
