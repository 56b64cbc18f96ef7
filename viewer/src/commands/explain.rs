//! `highwater explain`: the composition of the peak, and changes that would lower it.

use std::collections::BTreeMap;
use std::io;

use clap::Args;
use highwater_analysis::beside::SegmentKind;
use highwater_analysis::explain::{Idle, Remedy};
use highwater_analysis::peak::Query;
use highwater_analysis::{Advice, Beside, BlockPool, Breakdown, ExplainedGroup, Explanation, GroupKey, Metric, Moment};
use highwater_app::answers::explanation::explain;
use highwater_app::figures::moment::{how_much_and_when, moment_value, peak_name, when};
use highwater_app::report::{Column, Fact, Facts, Rows, Table, Value, bar, percent, wrapped};
use highwater_snapshots::{EventKind, Trace, count_of, format_bytes, format_count};

use crate::args::values::{block_metric_parser, keys_help};
use crate::args::{BlockChoice, DeviceChoice, FilesAndOptions, GroupKeys, ModuleChoice, Source};
use crate::input::{Input, answer_from, choose_device, origin_keys, where_on};
use crate::output::{
    Failure, Page, Report, Status, answer, caveats, each_text, key_columns, none_note, problem_texts, trust,
};

const TOP: usize = 12;

/// Default grouping keys; the second one is omitted for a recording without phases.
const DEFAULT_KEYS: [GroupKey; 2] = [GroupKey::Category, GroupKey::Phase];

/// Arguments of `highwater explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: Source,
    /// The device that the answer is about.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Memory total: requested, allocated or active
    #[arg(long, value_name = "M", default_value = "requested", value_parser = block_metric_parser())]
    pub metric: Metric,
    /// The keys by which blocks are grouped, outermost first.
    #[arg(long, help = keys_help(""), value_name = "KEYS", default_value_t = GroupKeys(DEFAULT_KEYS.to_vec()))]
    pub by: GroupKeys,
    /// Number of groups to list; the others are summed up
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// Whether each of several identical modules has its own row.
    #[command(flatten)]
    pub modules: ModuleChoice,
    /// The blocks that count; all by default.
    #[command(flatten)]
    pub blocks: BlockChoice,
}

impl ExplainArguments {
    /// Returns the grouping keys; `has_stages` states whether the recording has steps or phases.
    pub(crate) fn keys(&self, has_stages: bool) -> &[GroupKey] {
        let keys = self.by.0.as_slice();
        if keys == DEFAULT_KEYS && !has_stages { &keys[..1] } else { keys }
    }

    pub(crate) fn given(&self) -> FilesAndOptions {
        let given = FilesAndOptions::of(&self.source.file).with("device", self.device.device).metric(self.metric);
        given.blocks(&self.blocks)
    }
}

pub(crate) fn run(arguments: &ExplainArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.blocks.categories, |input| {
        let report = ExplainReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// The report of `highwater explain`.
#[derive(Debug)]
pub struct ExplainReport<'a> {
    trace: &'a Trace,
    arguments: &'a ExplainArguments,
    explanation: Explanation,
    /// Whether the recording has use events that were ignored.
    ignores_uses: bool,
}

impl<'a> ExplainReport<'a> {
    /// Explains the peak of a recording.
    pub fn of(input: &'a Input, arguments: &'a ExplainArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let device = choose_device(trace, arguments.device.device)?;
        let query = Query {
            keys: arguments.keys(!trace.spans.is_all_setup()),
            top: arguments.top,
            filter: &arguments.blocks.filter.filter,
            siblings: arguments.modules.siblings(),
        };
        let explanation = input.ask(|source, watch| explain(source, device, arguments.metric, &query, watch))?;
        let ignores_uses = explanation.idle.is_none() && input.source.count(device, EventKind::Used) > 0;
        Ok(Self { trace, arguments, explanation, ignores_uses })
    }

    fn keys(&self) -> &'a [GroupKey] {
        self.arguments.keys(!self.trace.spans.is_all_setup())
    }

    /// Returns a table of `groups`, followed by rows of sums, given by name and bytes; the last of them is the total.
    fn groups_table<'t>(&'t self, groups: &'t [ExplainedGroup], sums: &[(String, u64)]) -> Table<'t> {
        let peak = &self.explanation.peak;
        let (names, sum_bytes): (Vec<String>, Vec<u64>) = sums.iter().cloned().unzip();
        let (rows, total) = (groups.len() + sums.len(), sum_bytes.last().copied().unwrap_or(0));
        let bytes = move |row: usize| match groups.get(row) {
            Some(group) => group.bytes_at_peak,
            None => sum_bytes[row - groups.len()],
        };
        let (of_share, of_bar) = (bytes.clone(), bytes.clone());
        let has_members = groups.iter().any(|group| !group.members.is_empty());
        let each = |row: usize| {
            groups.get(row).map_or_else(String::new, |group| each_text(group.bytes_at_peak, group.members.len()))
        };
        let without = |row: usize| groups.get(row).map(|group| &group.without);
        let members = |row: usize| {
            let members = groups.get(row).map(|group| &group.members).filter(|members| !members.is_empty());
            Value::or_absent(members.map(|keys| keys.iter().map(|key| key.join(", ")).collect::<Vec<_>>()))
        };
        let named = groups.iter().map(|group| (&group.key, (&self.trace.tables, group.stack)));
        let mut columns = key_columns(self.keys(), named, &names);
        let figure = |column: Column<'t>| if peak.is_state { column.in_files() } else { column };
        let title = if peak.is_state { "bytes" } else { "at the peak" };
        columns.push(Column::bytes("bytes_at_peak", title, bytes));
        columns.push(Column::shown_alone("share", true, move |row| percent(of_share(row), total)).optional());
        columns.push(Column::shown_alone("", false, move |row| bar(of_bar(row), total, 12)).optional());
        columns.extend(has_members.then(|| Column::shown_alone("each", false, each).optional()));
        columns.push(
            Column::count("blocks_at_peak", "blocks", |row| groups.get(row).map(|group| group.blocks_at_peak))
                .optional(),
        );
        columns
            .push(figure(Column::bytes("peak_without", "without it", move |row| without(row).map(|peak| peak.bytes))));
        columns.push(figure(Column::bytes("saved_bytes", "saves", |row| {
            groups.get(row).map(|group| group.saved_bytes(peak))
        })));
        columns.push(Column::number("new_peak_event", "", move |row| without(row).map(Moment::number)).in_files());
        columns.push(Column::number("new_peak_step", "", move |row| without(row).map(|peak| peak.step)).in_files());
        let phase = move |row| without(row).map(|peak| peak.phase.name());
        let new_peak = Column::text("new_peak_phase", "new peak in", phase);
        columns.push(figure(new_peak.shown(move |row| without(row).map_or_else(String::new, step_and_phase))));
        columns.push(Column::nested("members", members));
        Table::new(rows, columns).with_sums(sums.len())
    }

    fn removals(&self) -> Table<'_> {
        let removals = &self.explanation.removals;
        let columns = [
            Column::text("without", "without", |row| removals[row].cause.name()),
            Column::text("condition", "", |row| removals[row].cause.condition()).in_files(),
            Column::bytes("bytes_at_peak", "size at that peak", |row| removals[row].bytes_at_peak),
            Column::bytes("", "peak without it", |row| removals[row].left.bytes).in_tables(),
            Column::shown_alone("new peak in", false, |row| step_and_phase(&removals[row].left)),
            Column::nested("peak", |row| moment_value(&self.trace.header, &removals[row].left)),
        ];
        Table::new(removals.len(), columns)
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

    fn print_layers(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Some(layers) = &self.explanation.layers else { return Ok(()) };
        let mut parts = vec![format!("{} requested", format_bytes(layers.requested))];
        let mut add = |bytes: u64, what: &str| {
            if bytes > 0 {
                parts.push(format!("{} {what}", format_bytes(bytes)));
            }
        };
        add(layers.rounding, "rounding");
        add(layers.waiting, "awaiting free");
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
        page.gap()?.line(&format!("At that moment: {} = {all}.", parts.join(" + ")))?;
        self.print_free(page)
    }

    /// Prints the free bytes in segments by pool and stream, if there are several.
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
        let rest: Vec<_> = rows.drain(rows.len().min(MAX_POOLS)..).collect();
        let more = (!rest.is_empty()).then(|| count_of(rest.len() as u64, "more"));
        let rest_bytes: u64 = rest.iter().map(|(_, bytes)| bytes).sum();
        let of = |row: usize| rows.get(row);
        let pool = |row| of(row).map(|((pool, _), _)| pool.to_string()).or_else(|| more.clone());
        let columns = [
            Column::text("pool", "free in segments of pool", pool),
            Column::text("stream", "stream", |row| of(row).map(|((_, stream), _)| stream.to_string())),
            Column::bytes("bytes", "bytes", |row| of(row).map_or(rest_bytes, |(_, bytes)| *bytes)),
        ];
        page.table(&Table::new(rows.len() + usize::from(more.is_some()), columns))
    }

    fn hint(&self) -> String {
        let given = self.arguments.given();
        if self.arguments.by.0.contains(&GroupKey::Frame) {
            return given.next("whatif", &[], "for the same run under other allocator settings");
        }
        let is_by_origin = self.arguments.by.0.iter().any(|key| matches!(key, GroupKey::Scope | GroupKey::Op));
        match origin_keys(self.trace).filter(|_| !is_by_origin) {
            Some((keys, names)) => given.next("explain", &["--by", keys], &format!("for the {names} behind it")),
            None => given.next("explain", &["--by", "frame"], "for the lines of code behind it"),
        }
    }
}

impl Report for ExplainReport<'_> {
    /// The groups and the rest sum to the bytes of the peak, or of `filtered` if there is a filter.
    fn facts(&self) -> Facts<'_> {
        let Explanation { peak, filtered, rest_bytes, rest_groups, .. } = &self.explanation;
        let free: Rows<(SegmentKind, u64)> = free_places(&self.explanation.beside).collect();
        let filtered = filtered.as_ref().map(|group| self.groups_table(std::slice::from_ref(group), &[]).object(0));
        let advice: Vec<&str> = self.explanation.advice.iter().map(|one| one.text.as_str()).collect();
        Facts::new([
            ("device", peak.device.0.into()),
            ("metric", Value::of(peak.metric).into()),
            ("peak", moment_value(&self.trace.header, peak).into()),
            ("layers", self.explanation.layers.map(Value::of).into()),
            // The free bytes of segments by pool, stream and size.
            ("free_in_segments", Fact::or_absent((free.count() > 0).then(|| free_table(&free)))),
            ("filter", Fact::or_absent(self.arguments.blocks.filter.stated())),
            ("filtered", Fact::or_absent(filtered)),
            ("groups", self.table().into()),
            ("rest_bytes", (*rest_bytes).into()),
            ("rest_groups", (*rest_groups).into()),
            ("removals", self.removals().into()),
            // Null if uses of blocks were not recorded.
            ("idle", self.explanation.idle.as_ref().map(|idle| idle_facts(idle, self.trace)).into()),
            ("advice", advice.into()),
            ("trust", trust(self.trace).into()),
            ("problems", problem_texts(self.trace).into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let Explanation { peak, groups, rest_bytes, rest_groups, filtered, .. } = &self.explanation;
        let total = filtered.as_ref().map_or(peak.bytes, |group| group.bytes_at_peak);
        let rest = (*rest_groups > 0).then(|| (count_of(*rest_groups, "more group"), *rest_bytes));
        let sums: Vec<(String, u64)> = rest.into_iter().chain([("total".to_owned(), total)]).collect();
        self.groups_table(groups, &sums)
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Explanation { peak, filtered, removals, advice, .. } = &self.explanation;
        let on = where_on(self.trace, peak.device);
        page.headline(&format!("{}{on}: {}.", peak_name(peak), how_much_and_when(peak)))?;
        if let Some(text) = caveats::out_of_memory(self.explanation.failed_requests) {
            page.warning(&text)?;
        }
        if let (Some(filter), Some(group)) = (self.arguments.blocks.filter.stated(), filtered) {
            let [bytes, without, saved] =
                [group.bytes_at_peak, group.without.bytes, group.saved_bytes(peak)].map(format_bytes);
            let effect = match peak.is_state {
                true => String::new(),
                false => {
                    let when = when(&group.without);
                    format!(" Without all such blocks the peak would be {without}, {saved} less, {when}.")
                }
            };
            let part = percent(group.bytes_at_peak, peak.bytes);
            page.line(&format!("Of these, {bytes} ({part}) are in blocks with {filter}.{effect}"))?;
        }
        self.print_advice(page, advice)?;
        page.gap()?.line(&match peak.is_state {
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
            print_idle(idle, peak, page)?;
        }
        if self.ignores_uses {
            page.gap()?
                .line("Blocks that are live but not used again are found only in recordings that fit into memory.")?;
        }
        self.print_layers(page)?;
        caveats::print(self.trace, page)?;
        page.gap()?.hint(&self.hint())?;
        let is_planned =
            |one: &Advice| matches!(one.remedy, Remedy::Checkpoint | Remedy::FusedOptimizer | Remedy::StepInBackward);
        if !advice.iter().any(is_planned) {
            return Ok(());
        }
        let given = self.arguments.given();
        page.hint(&given.next("plan", &["--budget", "SIZE"], "for the cheapest changes that fit"))
    }
}

const MAX_POOLS: usize = 12;

/// Returns the free bytes of segments with a known pool.
fn free_places(beside: &[(Beside, u64)]) -> impl Iterator<Item = (SegmentKind, u64)> {
    beside.iter().filter_map(|(beside, bytes)| match beside {
        Beside::Free(Some(place)) => Some((*place, *bytes)),
        _ => None,
    })
}

fn free_table<'t>(free: &Rows<(SegmentKind, u64)>) -> Table<'t> {
    let columns = [
        Column::text("pool", "pool", free.of(|(place, _)| place.pool.to_string())),
        Column::number("stream", "stream", free.of(|(place, _)| place.stream.0)),
        Column::bytes("segment_bytes", "segment", free.of(|(place, _)| place.bytes)),
        Column::bytes("bytes", "free", free.of(|(_, bytes)| *bytes)),
    ];
    Table::new(free.count(), columns)
}

/// Formats the phase and step of a moment, such as `backward, step 1`.
fn step_and_phase(moment: &Moment) -> String {
    match (moment.number(), moment.step) {
        (None, _) => "before the first event".to_owned(),
        (_, Some(step)) => format!("{}, step {step}", moment.phase),
        (Some(event), None) => match moment.known_phase() {
            Some(phase) => phase.to_string(),
            None => format!("event {}", format_count(event)),
        },
    }
}

fn print_idle(idle: &Idle, peak: &Moment, page: &mut Page<'_>) -> io::Result<()> {
    page.gap()?;
    if idle.blocks.is_empty() {
        return page
            .line("All memory that is live at the peak is used again later, or may be used after the recording.");
    }
    page.line(&format!(
        "Live at the peak but not used again: {} ({}), {}. Were all blocks freed after their last use, the peak would be \
         {}, {} less, {}.",
        format_bytes(idle.bytes()),
        percent(idle.bytes(), peak.bytes),
        idle.categories(),
        format_bytes(idle.without.bytes),
        format_bytes(peak.bytes - idle.without.bytes),
        when(&idle.without),
    ))?;
    page.table(&table(idle))
}

fn table(idle: &Idle) -> Table<'_> {
    let Breakdown { total, groups, rest_bytes, rest_groups } = &idle.breakdown;
    let rest = usize::from(*rest_groups > 0);
    let name =
        |row: usize| groups.get(row).map_or_else(|| count_of(*rest_groups, "more group"), |group| group.key[0].clone());
    let bytes = |row: usize| groups.get(row).map_or(*rest_bytes, |group| group.bytes);
    let columns = [
        Column::text("category", "category", name),
        Column::text("scope", "scope", |row| groups.get(row).map(|group| group.key[1].clone())).cut(),
        Column::bytes("bytes", "held", bytes),
        Column::shown_alone("share", true, move |row| percent(bytes(row), *total)),
        Column::shown_alone("", false, move |row| bar(bytes(row), *total, 12)),
        Column::count("blocks", "blocks", |row| groups.get(row).map(|group| group.blocks)),
    ];
    Table::new(groups.len() + rest, columns).with_sums(rest)
}

/// The groups and the rest sum to `bytes`.
fn idle_facts<'a>(idle: &'a Idle, trace: &Trace) -> Facts<'a> {
    let groups = idle.by_category.groups.iter().map(|group| (group.key.join(""), group.bytes));
    let by_category: BTreeMap<String, u64> = groups.collect();
    Facts::new([
        ("bytes", idle.bytes().into()),
        ("blocks", idle.blocks.len().into()),
        ("by_category", Value::of(by_category).into()),
        ("groups", table(idle).into()),
        ("rest_bytes", idle.breakdown.rest_bytes.into()),
        ("rest_groups", idle.breakdown.rest_groups.into()),
        // The peak if every block were freed after its last use.
        ("peak", moment_value(&trace.header, &idle.without).into()),
    ])
}
