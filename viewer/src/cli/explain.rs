//! The report of `highwater explain`: the composition of the peak, and what would lower it.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::beside::SegmentKind;
use highwater_analysis::explain::{Advice, ExplainQuery, ExplainedGroup, Layers, Remedy, Removal};
use highwater_analysis::pools::BlockPool;
use highwater_analysis::{Beside, Explanation, GroupKey, Metric, Moment};
use highwater_app::answers::explanation::explain;
use highwater_app::figures::moment::{MomentFigures, count_of, how_much_and_when, peak_name, when};
use highwater_snapshots::Trace;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use super::idle::{self, IdleFigures};
use crate::args::ExplainArguments;
use crate::cli::input::devices::where_on;
use crate::cli::input::recording::{choose_device, origin_keys};
use crate::cli::input::source::Input;
use crate::cli::output::caveats::{self, TrustFigures, problem_texts};
use crate::cli::output::key_cells::{each_text, key_cells, key_columns, none_note};
use crate::cli::output::outcome::Failure;
use crate::cli::output::page::Page;
use crate::cli::output::shell::next_with;
use crate::cli::output::table::{Column, Table, bytes_cells, percent};
use crate::cli::output::wrap::wrapped;

/// The report, as text and as JSON.
#[derive(Debug)]
pub struct ExplainReport<'a> {
    trace: &'a Trace,
    arguments: &'a ExplainArguments,
    explanation: Explanation,
    /// Whether the recording has uses of blocks that were not evaluated.
    ignores_uses: bool,
}

impl<'a> ExplainReport<'a> {
    /// Explains the peak of a recording.
    pub fn of(input: &'a Input, arguments: &'a ExplainArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let device = choose_device(trace, arguments.device.device)?;
        let query = ExplainQuery {
            metric: arguments.metric,
            keys: arguments.keys(!trace.spans.is_all_setup()),
            top: arguments.top,
            filter: &arguments.blocks.filter.filter,
            siblings: arguments.modules.siblings(),
        };
        let explanation = input.ask(|source, watch| explain(source, device, &query, watch))?;
        let has_uses = || input.source.count(device, EventKind::Used) > 0;
        let ignores_uses = input.source.whole().is_none() && has_uses();
        Ok(Self { trace, arguments, explanation, ignores_uses })
    }

    /// Returns the JSON object: bytes of groups and rest sum to the peak's, or with a filter to `filtered`'s.
    pub fn figures(&self) -> impl Serialize {
        let Explanation { peak, groups, filtered, .. } = &self.explanation;
        let figures = |group: &ExplainedGroup| GroupFigures::of(group, peak, self.keys());
        ExplainFigures {
            device: peak.device.0,
            metric: peak.metric,
            peak: MomentFigures::of(self.trace, peak),
            layers: self.explanation.layers,
            free_in_segments: free_places(&self.explanation.beside).map(FreeFigures::of).collect(),
            filter: self.arguments.blocks.filter.stated().map(str::to_owned),
            filtered: filtered.as_ref().map(figures),
            groups: groups.iter().map(figures).collect(),
            rest_bytes: self.explanation.rest_bytes,
            rest_groups: self.explanation.rest_groups,
            removals: self.explanation.removals.iter().map(|one| RemovalFigures::of(one, self.trace)).collect(),
            idle: self.explanation.idle.as_ref().map(|idle| IdleFigures::of(idle, self.trace)),
            advice: self.explanation.advice.iter().map(|one| one.text.clone()).collect(),
            trust: TrustFigures::of(self.trace),
            problems: problem_texts(self.trace),
        }
    }

    fn keys(&self) -> &'a [GroupKey] {
        self.arguments.keys(!self.trace.spans.is_all_setup())
    }

    /// Prints the report as text.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Explanation { peak, filtered, removals, advice, .. } = &self.explanation;
        let on = where_on(self.trace, peak.device);
        page.headline(&format!("{}{on}: {}.", peak_name(peak), how_much_and_when(peak)))?;
        if let Some(text) = caveats::out_of_memory(self.explanation.failed_requests) {
            page.warning(&text)?;
        }
        if let (Some(filter), Some(group)) = (self.arguments.blocks.filter.stated(), filtered) {
            page.line(&format!(
                "Of these, {} ({}) are in blocks with {filter}. Without all such blocks the peak would be {}, {} less, {}.",
                format_bytes(group.bytes_at_peak),
                percent(group.bytes_at_peak, peak.bytes),
                format_bytes(group.without.bytes),
                format_bytes(group.saved_bytes(peak)),
                when(&group.without),
            ))?;
        }
        self.print_advice(page, advice)?;
        page.gap()?;
        page.line(&match peak.is_state {
            true => "Composition of the state:".to_owned(),
            false => {
                format!("Composition of the peak, and {} without each group:", self.explanation.reach.the_peak(""))
            }
        })?;
        page.table(&self.table())?;
        let keys = self.explanation.groups.iter().map(|group| &group.key);
        none_note(self.trace, self.keys(), keys).map_or(Ok(()), |note| page.hint(&note))?;
        if !removals.is_empty() && !peak.is_state {
            page.gap()?;
            let of_all = if filtered.is_some() { " of the whole peak" } else { "" };
            page.line(&format!(
                "Removing parts{of_all} that the program may do without, each time the one that lowers the peak most:"
            ))?;
            page.table(&self.removals())?;
        }
        if let Some(idle) = &self.explanation.idle {
            idle::print(idle, peak, page)?;
        }
        if self.ignores_uses {
            page.gap()?;
            page.line("Blocks that are live but not used again are found only in recordings that fit into memory.")?;
        }
        self.print_layers(page)?;
        caveats::print(self.trace, page)?;
        page.gap()?;
        page.hint(&self.hint())?;
        let is_planned =
            |one: &Advice| matches!(one.remedy, Remedy::Checkpoint | Remedy::FusedOptimizer | Remedy::StepInBackward);
        if !advice.iter().any(is_planned) {
            return Ok(());
        }
        let files = [self.arguments.source.file.as_path()];
        let given = self.arguments.given();
        page.hint(&next_with(&["plan"], &files, &["--budget", "SIZE"], &given, "for the cheapest changes that fit"))
    }

    fn print_advice(&self, page: &mut Page<'_>, advice: &[Advice]) -> io::Result<()> {
        if advice.is_empty() {
            return Ok(());
        }
        page.gap()?;
        if self.explanation.filtered.is_some() {
            page.line("For the whole peak:")?;
        }
        let width = page.width().unwrap_or(110).saturating_sub(2).max(40);
        for one in advice {
            for (position, line) in wrapped(&one.text, width).iter().enumerate() {
                page.line(&format!("{} {line}", if position == 0 { "•" } else { " " }))?;
            }
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let Explanation { peak, groups, rest_bytes, rest_groups, filtered, .. } = &self.explanation;
        let keys = self.keys();
        let total = filtered.as_ref().map_or(peak.bytes, |group| group.bytes_at_peak);
        let mut columns = key_columns(keys);
        columns.extend([
            Column::number(if peak.is_state { "bytes" } else { "at the peak" }),
            Column::number("share").optional(),
            Column::text("").optional(),
        ]);
        let has_members = groups.iter().any(|group| !group.members.is_empty());
        columns.extend(has_members.then(|| Column::text("each").optional()));
        columns.push(Column::number("blocks").optional());
        if !peak.is_state {
            columns.extend([Column::number("without it"), Column::number("saves")]);
            columns.push(Column::text("new peak in"));
        }
        let width = columns.len();
        let mut table = Table::new(columns);
        let cells = key_cells(self.trace, keys, groups.iter().map(|group| (&group.key, group.stack)));
        for (group, mut row) in groups.iter().zip(cells) {
            row.extend(bytes_cells(group.bytes_at_peak, total));
            row.extend(has_members.then(|| each_text(group.bytes_at_peak, group.members.len())));
            row.push(format_count(group.blocks_at_peak));
            row.extend([format_bytes(group.without.bytes), format_bytes(group.saved_bytes(peak))]);
            row.push(place(&group.without));
            row.truncate(width);
            table.push(row);
        }
        let mut plain = |name: String, bytes: u64| {
            let mut row = vec![name];
            row.resize(keys.len(), String::new());
            row.extend(bytes_cells(bytes, total));
            row.resize(width, String::new());
            table.push(row);
        };
        if *rest_groups > 0 {
            plain(count_of(*rest_groups, "more group"), *rest_bytes);
        }
        plain("total".to_owned(), total);
        table
    }

    fn removals(&self) -> Table {
        let mut table = Table::new(vec![
            Column::text("without"),
            Column::number("size at that peak"),
            Column::number("peak without it"),
            Column::text("new peak in"),
        ]);
        for removal in &self.explanation.removals {
            let row = [removal.cause.name(), format_bytes(removal.bytes_at_peak), format_bytes(removal.left.bytes)];
            table.push(row.into_iter().chain([place(&removal.left)]).collect());
        }
        table
    }

    fn print_layers(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Some(layers) = &self.explanation.layers else { return Ok(()) };
        let mut parts = vec![format!("{} requested", format_bytes(layers.requested))];
        let mut add = |bytes: u64, what: &str| {
            if bytes > 0 {
                parts.push(format!("{} {what}", format_bytes(bytes)));
            }
        };
        add(layers.rounding, "rounding");
        add(layers.waiting, "waiting for a stream");
        add(layers.free_in_segments, "free in segments");
        let reserved = layers.requested + layers.rounding + layers.waiting + layers.free_in_segments;
        add(layers.outside.unwrap_or(0), "outside the allocator");
        if reserved == 0 || parts.len() < 2 {
            return Ok(());
        }
        let all = match layers.outside {
            Some(outside) => format!("{} in use on the device", format_bytes(reserved + outside)),
            None => format!("{} reserved", format_bytes(reserved)),
        };
        page.gap()?;
        page.line(&format!("At that moment: {} = {all}.", parts.join(" + ")))?;
        self.print_free(page)
    }

    /// Prints where bytes are free in segments, if that is in more than one pool or stream.
    fn print_free(&self, page: &mut Page<'_>) -> io::Result<()> {
        let mut free: BTreeMap<(BlockPool, u64), u64> = BTreeMap::new();
        for (place, bytes) in free_places(&self.explanation.beside) {
            *free.entry((place.pool, place.stream.0)).or_default() += bytes;
        }
        if free.len() < 2 {
            return Ok(());
        }
        let mut rows: Vec<((BlockPool, u64), u64)> = free.into_iter().collect();
        rows.sort_by_key(|(place, bytes)| (std::cmp::Reverse(*bytes), *place));
        let mut table =
            Table::new(vec![Column::text("free in segments of pool"), Column::text("stream"), Column::number("bytes")]);
        for ((pool, stream), bytes) in rows.iter().take(MOST_POOLS) {
            table.push(vec![pool.to_string(), stream.to_string(), format_bytes(*bytes)]);
        }
        if let Some(rest @ [_, ..]) = rows.get(MOST_POOLS..) {
            let bytes = rest.iter().map(|(_, bytes)| bytes).sum();
            table.push(vec![count_of(rest.len() as u64, "more"), String::new(), format_bytes(bytes)]);
        }
        page.table(&table)
    }

    fn hint(&self) -> String {
        let files = [self.arguments.source.file.as_path()];
        let given = self.arguments.given();
        if self.arguments.by.0.contains(&GroupKey::Frame) {
            return next_with(&["whatif"], &files, &[], &given, "for the same run under other allocator settings");
        }
        let is_by_origin = self.arguments.by.0.iter().any(|key| matches!(key, GroupKey::Scope | GroupKey::Op));
        match origin_keys(self.trace).filter(|_| !is_by_origin) {
            Some((keys, names)) => {
                next_with(&["explain"], &files, &["--by", keys], &given, &format!("for the {names} behind it"))
            }
            None => next_with(&["explain"], &files, &["--by", "frame"], &given, "for the lines of code behind it"),
        }
    }
}

/// Maximum number of pools and streams that are listed.
const MOST_POOLS: usize = 12;

/// Returns the free bytes of segments whose pool is known.
fn free_places(beside: &[(Beside, u64)]) -> impl Iterator<Item = (SegmentKind, u64)> {
    beside.iter().filter_map(|(beside, bytes)| match beside {
        Beside::Free(Some(place)) => Some((*place, *bytes)),
        _ => None,
    })
}

/// Formats a moment's phase and step: `backward, step 1`.
fn place(moment: &Moment) -> String {
    match (moment.number(), moment.step) {
        (None, _) => "before the first event".to_owned(),
        (_, Some(step)) => format!("{}, step {step}", moment.phase),
        (Some(event), None) => match moment.known_phase() {
            Some(phase) => phase.to_string(),
            None => format!("event {}", format_count(event)),
        },
    }
}

#[derive(Debug, Serialize)]
struct ExplainFigures {
    device: u16,
    metric: Metric,
    peak: MomentFigures,
    layers: Option<Layers>,
    /// The free bytes of segments by pool, stream and size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    free_in_segments: Vec<FreeFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filtered: Option<GroupFigures>,
    groups: Vec<GroupFigures>,
    rest_bytes: u64,
    rest_groups: u64,
    removals: Vec<RemovalFigures>,
    /// Null if uses of blocks were not recorded.
    idle: Option<IdleFigures>,
    advice: Vec<String>,
    trust: TrustFigures,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FreeFigures {
    pool: String,
    stream: u64,
    segment_bytes: u64,
    bytes: u64,
}

impl FreeFigures {
    fn of((place, bytes): (SegmentKind, u64)) -> Self {
        Self { pool: place.pool.to_string(), stream: place.stream.0, segment_bytes: place.bytes, bytes }
    }
}

#[derive(Debug, Serialize)]
struct GroupFigures {
    /// The values of all keys, joined.
    key: String,
    /// The values by key.
    keys: BTreeMap<&'static str, String>,
    bytes_at_peak: u64,
    blocks_at_peak: u64,
    peak_without: u64,
    saved_bytes: u64,
    new_peak_event: Option<u64>,
    new_peak_step: Option<u32>,
    new_peak_phase: &'static str,
    /// The equal modules that are one group: the names of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<String>,
}

impl GroupFigures {
    fn of(group: &ExplainedGroup, peak: &Moment, keys: &[GroupKey]) -> Self {
        let named = keys.iter().zip(&group.key).map(|(key, value)| (key.name(), value.clone()));
        Self {
            key: group.key.join(", "),
            keys: named.collect(),
            bytes_at_peak: group.bytes_at_peak,
            blocks_at_peak: group.blocks_at_peak,
            peak_without: group.without.bytes,
            saved_bytes: group.saved_bytes(peak),
            new_peak_event: group.without.number(),
            new_peak_step: group.without.step,
            new_peak_phase: group.without.phase.name(),
            members: group.members.iter().map(|key| key.join(", ")).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct RemovalFigures {
    without: String,
    /// The condition that selects the blocks, in the syntax of `--where`.
    condition: String,
    bytes_at_peak: u64,
    peak: MomentFigures,
}

impl RemovalFigures {
    fn of(removal: &Removal, trace: &Trace) -> Self {
        Self {
            without: removal.cause.name(),
            condition: removal.cause.condition(),
            bytes_at_peak: removal.bytes_at_peak,
            peak: MomentFigures::of(trace, &removal.left),
        }
    }
}
