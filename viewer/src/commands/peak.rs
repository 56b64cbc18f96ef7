//! `highwater peak`: the use of memory at the peak or after an event.

use std::io;

use clap::Args;
use highwater_analysis::listed_blocks::LargestBlocks;
use highwater_analysis::peak::Query;
use highwater_analysis::phases::{phases, reached_elsewhere, steps_of};
use highwater_analysis::{BlockPool, Breakdown, Group, GroupKey, Leaks, Metric, Moment, Peak, Siblings, Together};
use highwater_app::figures::leaks::leak_lines;
use highwater_app::figures::moment::{elsewhere_text, how_much_and_when, moment_facts, peak_name, when};
use highwater_app::report::{Column, Fact, Facts, Table, Value, bar, percent};
use highwater_snapshots::{DeviceId, Trace, count_of, format_bytes, format_count};

use crate::args::values::{keys_help, metric_parser};
use crate::args::{At, BlockChoice, DeviceChoice, FilesAndOptions, GroupKeys, ModuleChoice, Source};
use crate::input::{Input, answer_from, choose_device, on_device, origin_keys, where_on};
use crate::output::{
    Failure, Page, Report, Status, answer, block_columns, caveats, each_text, key_columns, named, none_note,
    problem_texts, sum_names, trust,
};

const TOP: usize = 20;

/// Arguments of `highwater peak`.
#[derive(Clone, Debug, Args)]
pub struct PeakArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: Source,
    /// The device that the answer is about.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Memory total
    #[arg(long, value_name = "M", default_value = "requested", value_parser = metric_parser())]
    pub metric: Metric,
    /// State after event number EVENT, at `start`, `end`, `step:N` (the peak of step N) or `step-end:N` [default: the
    /// peak]
    #[arg(long, value_name = "EVENT")]
    pub at: Option<At>,
    /// The keys by which blocks are grouped, outermost first.
    #[arg(long, help = keys_help(""), value_name = "KEYS", default_value = "category")]
    pub by: GroupKeys,
    /// Number of groups to list; the others are summed up
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// Number of single blocks to list, the largest first
    #[arg(long = "blocks", value_name = "K", default_value_t = 0)]
    pub largest_blocks: usize,
    /// Whether each of several identical modules has its own row.
    #[command(flatten)]
    pub modules: ModuleChoice,
    /// The blocks that count; all by default.
    #[command(flatten)]
    pub blocks: BlockChoice,
}

impl PeakArguments {
    pub(crate) fn given(&self) -> FilesAndOptions {
        let given = FilesAndOptions::of(&self.source.file)
            .with("device", self.device.device)
            .with("at", self.at.as_ref().map(At::to_string));
        given.metric(self.metric).blocks(&self.blocks)
    }
}

pub(crate) fn run(arguments: &PeakArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.blocks.categories, |input| {
        let report = PeakReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// The report of `highwater peak`.
#[derive(Debug)]
pub struct PeakReport<'a> {
    trace: &'a Trace,
    arguments: &'a PeakArguments,
    peak: Peak,
    /// Other points with the same peak.
    elsewhere: Vec<Moment>,
    /// The pools, if reserved memory is grouped by pool.
    pools: Option<PoolsReport>,
    /// The leaks, and their memory that is live at the reported moment.
    leaks: Option<LeaksAt>,
    largest: Option<LargestBlocks>,
}

/// The leaks of a recording, and the groups of leaked blocks at some moment, without combining identical modules.
#[derive(Debug)]
struct LeaksAt {
    leaks: Leaks,
    at_moment: Breakdown,
}

impl LeaksAt {
    /// Returns the leaked bytes of the group with this key.
    fn of_key(&self, key: &[String]) -> u64 {
        let groups = self.at_moment.groups.iter().filter(|leaked| leaked.key == key);
        groups.map(|leaked| leaked.bytes).sum()
    }

    /// Returns the leaked bytes of `group`, or of all of its members.
    fn of_group(&self, group: &Group) -> u64 {
        if group.members.is_empty() {
            return self.of_key(&group.key);
        }
        group.members.iter().map(|member| self.of_key(member)).sum()
    }
}

/// Returns whether to compare pools: reserved memory is grouped by pool, and no filter selects blocks.
fn compares_pools(arguments: &PeakArguments) -> bool {
    !arguments.metric.is_of_blocks()
        && arguments.by.0.contains(&GroupKey::Pool)
        && arguments.blocks.filter.filter.is_empty()
}

fn query(arguments: &PeakArguments) -> Query<'_> {
    Query {
        keys: &arguments.by.0,
        top: arguments.top,
        filter: &arguments.blocks.filter.filter,
        siblings: arguments.modules.siblings(),
    }
}

impl<'a> PeakReport<'a> {
    /// Computes the report of a recording.
    pub fn of(input: &'a Input, arguments: &'a PeakArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let (device, metric) = (choose_device(trace, arguments.device.device)?, arguments.metric);
        input.check_metric(device, metric)?;
        let at = arguments.at.map(|at| event_of(input, (device, metric), at)).transpose()?;
        input.ask(|source, watch| {
            let mut together = compares_pools(arguments).then(Together::default);
            if let Some(together) = &mut together {
                let append = |part| together.append(part);
                source.each_window(|window| Together::of_pools(window, device), append, &mut *watch)?;
            }
            // For a given event, a long recording is not read from end to end.
            let is_read = at.is_none() || source.passes().len() <= 1;
            let rows = std::thread::scope(|threads| {
                // For a recording in memory, both read all events.
                threads.spawn(|| source.index(device));
                if is_read { source.stages(device, metric, watch) } else { Ok(Vec::new()) }
            })?;
            let leaks = Leaks::of_recording(source, device, Metric::Requested, &rows)?.filter(|_| is_read);
            let (moment, elsewhere) = match at {
                Some(event) => (source.moment(device, metric, event)?, Vec::new()),
                None => {
                    let peak = source.peak(device, metric)?;
                    (peak, reached_elsewhere(&phases(trace, device, metric, rows), &peak))
                }
            };
            let mut window = source.window_at(moment.number())?;
            if arguments.largest_blocks > 0 {
                window.trace = source.number_blocks(window.trace)?;
            }
            let (trace_at, index) = (&window.trace, window.index(device));
            let broken_down = |query: &Query<'_>| Peak::at(trace_at, &index.live, &index.series, moment, query);
            let query = query(arguments);
            let pools = together.map(|together| {
                let by_pool = Query { keys: &[GroupKey::Pool], top: usize::MAX, siblings: Siblings::Each, ..query };
                PoolsReport::of(&broken_down(&by_pool).breakdown, together)
            });
            let leaks = leaks.map(|leaks| {
                let at_moment = leaks.breakdown(trace_at, &index.live, &moment, &query);
                LeaksAt { leaks, at_moment }
            });
            let largest = (arguments.largest_blocks > 0).then(|| {
                let filter = &arguments.blocks.filter.filter;
                LargestBlocks::at(trace_at, (&index.live, &index.series), &moment, filter, arguments.largest_blocks)
            });
            Ok(Self { trace, arguments, peak: broken_down(&query), elsewhere, pools, leaks, largest })
        })
    }

    /// Returns the leaks, if some of their memory is live at the reported moment.
    fn leaks(&self) -> Option<&LeaksAt> {
        self.leaks.as_ref().filter(|leaks| leaks.at_moment.total > 0)
    }

    /// Returns the identical modules combined in a group, each with the same share of bytes and blocks; `None` for a
    /// single module.
    fn members(&self, group: &Group) -> Option<Vec<Value>> {
        let keys = &self.arguments.by.0;
        let count = group.members.len() as u64;
        let has_free = !self.peak.moment.metric.is_of_blocks();
        let member = |values: &Vec<String>| {
            Value::Map(vec![
                ("key", values.join(", ").into()),
                ("keys", named(keys, values).into()),
                ("bytes", (group.bytes / count).into()),
                ("blocks", (group.blocks / count).into()),
                ("leaked_bytes", self.leaks.as_ref().map(|leaks| leaks.of_key(values)).into()),
                ("free_bytes", Value::or_absent(has_free.then_some(group.free_bytes / count)).into()),
            ])
        };
        (count > 0).then(|| group.members.iter().map(member).collect())
    }

    fn hint(&self) -> String {
        let given = self.arguments.given();
        if self.peak.breakdown.groups.is_empty() {
            return FilesAndOptions::of(&self.arguments.source.file).next(
                "peak",
                &[],
                "to see what is using memory at the peak",
            );
        }
        let keys = &self.arguments.by.0;
        // Most of reserved memory may be free, which has no origin.
        let is_reserved = self.arguments.metric == Metric::Reserved;
        if is_reserved && !keys.contains(&GroupKey::Pool) {
            let by = ["--by", "pool,stream,size"];
            return given.next("peak", &by, "for the segments behind it, by pool and stream");
        }
        if let Some((keys, names)) = origin_keys(self.trace).filter(|_| *keys == [GroupKey::Category]) {
            return given.next("peak", &["--by", keys], &format!("for the {names} behind it"));
        }
        if !is_reserved && !keys.iter().any(|key| matches!(key, GroupKey::Frame | GroupKey::Stack)) {
            return given.next("peak", &["--by", "frame"], "for the lines of code behind it");
        }
        if self.peak.moment.step.is_none() {
            return given.next("explain", &[], "for ways to lower the peak");
        }
        given.next("phases", &[], "for the memory of each step and phase")
    }
}

impl Report for PeakReport<'_> {
    /// The bytes of groups and rest sum to `bytes`, or with a filter to `filtered_bytes`.
    fn facts(&self) -> Facts<'_> {
        let Peak { moment, breakdown } = &self.peak;
        let filter = self.arguments.blocks.filter.stated();
        let subject = Facts::new([("device", moment.device.0.into()), ("metric", Value::of(moment.metric).into())]);
        subject.and(moment_facts(&self.trace.header, moment).into()).and(Facts::new([
            ("reached_elsewhere", elsewhere_table(&self.elsewhere).into()),
            ("filter", Fact::or_absent(filter)),
            ("filtered_bytes", Fact::or_absent(filter.map(|_| breakdown.total))),
            // Bytes of leaks that are live at the moment. Null where leaks are not searched: without whole steps, and
            // at a given event of a recording that is read in windows.
            ("leaked_bytes", self.leaks.as_ref().map(|leaks| leaks.at_moment.total).into()),
            ("groups", self.table().into()),
            ("rest_bytes", breakdown.rest_bytes.into()),
            ("rest_groups", breakdown.rest_groups.into()),
            ("blocks", Fact::or_absent(self.largest.as_ref().map(blocks_table))),
            ("pools", Fact::or_absent(self.pools.as_ref().map(PoolsReport::table))),
            ("trust", trust(self.trace).into()),
            ("problems", problem_texts(self.trace).into()),
        ]))
    }

    fn table(&self) -> Table<'_> {
        let breakdown = &self.peak.breakdown;
        let keys = &self.arguments.by.0;
        let groups = &breakdown.groups;
        let has_members = groups.iter().any(|group| !group.members.is_empty());
        let sums = sum_names(breakdown.rest_groups);
        let rows = groups.len() + sums.len();
        let bytes = move |row: usize| match groups.get(row) {
            Some(group) => group.bytes,
            None if row + 1 < rows => breakdown.rest_bytes,
            None => breakdown.total,
        };
        let is_of_blocks = self.peak.moment.metric.is_of_blocks();
        let free = move |row: usize| groups.get(row).filter(|_| !is_of_blocks).map(|group| group.free_bytes);
        // Free bytes have rows of their own unless they are in the rows of pools and streams.
        let are_in_rows = keys.iter().all(|key| matches!(key, GroupKey::Pool | GroupKey::Stream));
        let has_free =
            groups.iter().any(|group| group.free_bytes > 0 && (are_in_rows || group.free_bytes < group.bytes));
        let free_cell = move |row| free(row).filter(|bytes| *bytes > 0).map_or_else(String::new, format_bytes);
        let blocks = |row: usize| groups.get(row).map(|group| group.blocks);
        let blocks_cell = move |row| blocks(row).filter(|blocks| *blocks > 0).map_or_else(String::new, format_count);
        let leaked = move |row: usize| {
            let leaks = self.leaks.as_ref()?;
            match groups.get(row) {
                Some(group) => Some(leaks.of_group(group)),
                None => (row + 1 == rows).then_some(leaks.at_moment.total),
            }
        };
        let leaked_cell = move |row| leaked(row).filter(|bytes| *bytes > 0).map_or_else(String::new, format_bytes);
        let each =
            |row: usize| groups.get(row).map_or_else(String::new, |group| each_text(group.bytes, group.members.len()));
        let total = breakdown.total;
        let bar = move |row: usize| if row + 1 < rows { bar(bytes(row), total, 20) } else { String::new() };
        let members = |row: usize| Value::or_absent(groups.get(row).and_then(|group| self.members(group)));
        let named = groups.iter().map(|group| (&group.key, (&self.trace.tables, group.stack)));
        let mut columns = key_columns(keys, named, &sums);
        columns.push(Column::bytes("bytes", "bytes", bytes));
        columns.push(Column::shown_alone("share", true, move |row| percent(bytes(row), total)));
        columns.push(Column::shown_alone("", false, bar).optional());
        columns.extend(has_members.then(|| Column::shown_alone("each", false, each).optional()));
        columns.extend(has_free.then(|| Column::shown_alone("free", true, free_cell)));
        columns.push(Column::count("blocks", "blocks", blocks).shown(blocks_cell));
        let leaking = Column::bytes("leaked_bytes", "leaking", leaked).shown(leaked_cell);
        columns.push(if self.leaks().is_some() { leaking } else { leaking.in_files() });
        columns.extend((!is_of_blocks).then(|| Column::bytes("free_bytes", "", free).in_files()));
        columns.push(Column::nested("members", members));
        Table::new(rows, columns).with_sums(sums.len())
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Peak { moment, breakdown } = &self.peak;
        match self.arguments.at {
            None => {
                let on = where_on(self.trace, moment.device);
                page.headline(&format!("{}{on}: {}.", peak_name(moment), how_much_and_when(moment)))?;
                elsewhere_text(&self.elsewhere).map_or(Ok(()), |text| page.line(&text))?;
            }
            Some(_) => {
                let when = when(moment);
                let metric = moment.metric.name().replace('_', " ");
                let when = when[..1].to_uppercase() + &when[1..];
                let on = on_device(self.trace, moment.device);
                page.headline(&format!("{on}{when}: {} {metric}.", format_bytes(moment.bytes)))?;
            }
        }
        if let Some(filter) = self.arguments.blocks.filter.stated() {
            let share = percent(breakdown.total, moment.bytes);
            page.line(&format!("Of these, {} ({share}) are in blocks with {filter}.", format_bytes(breakdown.total)))?;
        }
        if let Some(leaks) = self.leaks() {
            let bytes = leaks.at_moment.total;
            page.line(&format!("Of these, {} ({}) leak:", format_bytes(bytes), percent(bytes, moment.bytes)))?;
            for text in leak_lines(&leaks.leaks.lines, "step") {
                page.line(&format!("  {text}"))?;
            }
        }
        page.gap()?;
        let has_match = !breakdown.groups.is_empty();
        if has_match {
            page.table(&self.table())?;
            let keys = breakdown.groups.iter().map(|group| &group.key);
            none_note(self.trace, &self.arguments.by.0, keys).map_or(Ok(()), |note| page.hint(&note))?;
            for line in self.pools.iter().flat_map(PoolsReport::lines) {
                page.line(&line)?;
            }
            if let Some(largest) = self.largest.as_ref().filter(|largest| !largest.blocks.is_empty()) {
                page.gap()?.line("The largest blocks:")?;
                page.table(&blocks_table(largest))?;
            }
        } else {
            page.line("No block matches.")?;
        }
        caveats::print(self.trace, page)?;
        page.gap()?.hint(&self.hint())
    }
}

/// The last row sums up the other blocks, if there are any.
fn blocks_table(largest: &LargestBlocks) -> Table<'_> {
    let sums = usize::from(largest.rest_blocks > 0);
    let rest = (largest.rest_blocks, largest.rest_bytes);
    let columns = block_columns(|row| largest.blocks.get(row), rest);
    Table::new(largest.blocks.len() + sums, columns).with_sums(sums)
}

fn elsewhere_table(moments: &[Moment]) -> Table<'_> {
    let columns = [
        Column::number("event", "event", |row| moments[row].number()),
        Column::number("step", "step", |row| moments[row].step),
        Column::text("phase", "phase", |row| moments[row].phase.name()),
    ];
    Table::new(moments.len(), columns)
}

/// Returns the error for a step that the recording does not have. `what` is the option that names the step.
pub(crate) fn missing_step(what: &str, input: &Input, device: DeviceId) -> Result<Failure, Failure> {
    let rows = input.ask(|source, watch| source.stages(device, Metric::Requested, watch))?;
    let steps = steps_of(&rows);
    let have = match (steps.first(), steps.last()) {
        (Some(first), Some(last)) if first != last => format!("it has steps {first} to {last}"),
        (Some(one), _) => format!("it has step {one} only"),
        _ => "it has no steps".to_owned(),
    };
    Ok(Failure::Usage(format!("{what}: the recording has no such step; {have}")))
}

/// Returns the event of `at`; `None` for the state before the first event.
fn event_of(input: &Input, (device, metric): (DeviceId, Metric), at: At) -> Result<Option<u64>, Failure> {
    let count = input.facts().event_count();
    match at {
        At::Start => Ok(None),
        At::Compared(compared) => match input.ask(|source, _| compared.0.find(source, device, metric))? {
            Some(moment) => Ok(moment.number()),
            None => Err(missing_step(&format!("--at {at}"), input, device)?),
        },
        At::Event(number) if number < count => Ok(Some(number)),
        At::Event(number) if count == 0 => {
            Err(Failure::Usage(format!("--at {number}: the recording has no events; use --at start")))
        }
        At::Event(number) => {
            let last = count - 1;
            Err(Failure::Usage(format!("invalid value '{number}' for --at: expected an event from 0 to {last}")))
        }
    }
}

const MAX_NAMES: usize = 12;

/// The pools at a moment, and the sets of pools that are never in use at the same time.
#[derive(Debug)]
struct PoolsReport {
    /// The pools, each with its reserved bytes and its free bytes.
    pools: Vec<(BlockPool, [u64; 2])>,
    together: Together,
}

impl PoolsReport {
    fn of(by_pool: &Breakdown, together: Together) -> Self {
        let pools = by_pool.groups.iter().filter_map(|group| {
            let pool = BlockPool::from_name(group.key.first()?)?;
            Some((pool, [group.bytes, group.free_bytes]))
        });
        Self { pools: pools.collect(), together }
    }

    /// Returns a sentence for each set of private pools that are never in use at the same time.
    fn lines(&self) -> Vec<String> {
        let sets = self.together.private_apart(self.pools.iter().map(|(pool, _)| *pool));
        let line = |(pools, most): (Vec<BlockPool>, u64)| {
            let reserved: u64 =
                self.pools.iter().filter(|(pool, _)| pools.contains(pool)).map(|(_, [bytes, _])| bytes).sum();
            let names: Vec<String> = pools.iter().map(BlockPool::to_string).take(MAX_NAMES).collect();
            let more = pools.len().saturating_sub(MAX_NAMES);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "{} ({}{more}) are never in use at the same time: {} reserved, at most {} active at once. CUDA \
                 graphs and other code that never run at the same time can share a pool.",
                count_of(pools.len() as u64, "private pool"),
                names.join(" "),
                format_bytes(reserved),
                format_bytes(most),
            )
        };
        sets.into_iter().map(line).collect()
    }

    fn table(&self) -> Table<'_> {
        let pool = |row: usize| self.pools[row].0;
        let never_in_use_with = move |row: usize| -> Vec<String> {
            let others = self.pools.iter().map(|(other, _)| *other).filter(|other| other.is_private());
            let is_apart =
                |other: &BlockPool| pool(row).is_private() && self.together.are_apart(pool(row).code(), other.code());
            others.filter(is_apart).map(|other| other.to_string()).collect()
        };
        let columns = [
            Column::text("pool", "pool", move |row| pool(row).to_string()),
            Column::bytes("bytes", "bytes", |row| self.pools[row].1[0]),
            Column::bytes("free_bytes", "free", |row| self.pools[row].1[1]),
            // The most bytes in its blocks at any moment of the recording.
            Column::bytes("most_in_use_bytes", "most in use", move |row| self.together.most(pool(row).code())),
            // The private pools that never have blocks at the same time.
            Column::text("never_in_use_with", "never in use with", never_in_use_with),
        ];
        Table::new(self.pools.len(), columns)
    }
}
