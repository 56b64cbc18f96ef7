//! The report of `highwater peak`: what is using memory at the peak or after an event.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::breakdown::Breakdown;
use highwater_analysis::growth::Leaks;
use highwater_analysis::peak::Query;
use highwater_analysis::phases::{phases, reached_elsewhere, stages};
use highwater_analysis::{Filter, Group, GroupKey, Metric, Moment, Peak, Siblings, Together};
use highwater_app::figures::leaks::leak_lines;
use highwater_app::figures::moment::{count_of, elsewhere_text, how_much_and_when, micros_since_1970, peak_name, when};
use highwater_snapshots::Trace;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use super::pools::{PoolFigures, PoolsReport};
use crate::args::{At, Given, PeakArguments};
use crate::cli::input::devices::{on_device, where_on};
use crate::cli::input::recording::{choose_device, origin_keys};
use crate::cli::input::source::Input;
use crate::cli::output::caveats::{self, TrustFigures, problem_texts};
use crate::cli::output::key_cells::{each_text, key_cells, key_columns, none_note};
use crate::cli::output::outcome::Failure;
use crate::cli::output::page::Page;
use crate::cli::output::shell::next_with;
use crate::cli::output::table::{Column, Table, bar, percent};

/// The report, as text and as JSON.
#[derive(Debug)]
pub struct PeakReport<'a> {
    trace: &'a Trace,
    arguments: &'a PeakArguments,
    peak: Peak,
    /// Other moments with the same peak.
    elsewhere: Vec<Moment>,
    /// The pools, if reserved memory is grouped by them.
    pools: Option<PoolsReport>,
    /// What leaks, and what of it is live at the moment.
    leaks: Option<LeaksAt>,
}

/// The leaks of a recording, and their blocks at a moment, each module by itself.
#[derive(Debug)]
struct LeaksAt {
    leaks: Leaks,
    at_moment: Breakdown,
}

impl LeaksAt {
    /// Returns the bytes of the group with these values of all keys.
    fn of_key(&self, key: &[String]) -> u64 {
        let groups = self.at_moment.groups.iter().filter(|leaked| leaked.key == key);
        groups.map(|leaked| leaked.bytes).sum()
    }

    /// Returns the bytes of `group`, or of all of its members.
    fn of_group(&self, group: &Group) -> u64 {
        if group.members.is_empty() {
            return self.of_key(&group.key);
        }
        group.members.iter().map(|member| self.of_key(member)).sum()
    }
}

/// Returns whether pools are compared: reserved memory is grouped by pool.
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

/// The query for all pools.
const BY_POOL: &[GroupKey] = &[GroupKey::Pool];

fn by_pool(filter: &Filter) -> Query<'_> {
    Query { keys: BY_POOL, top: usize::MAX, filter, siblings: Siblings::Each }
}

impl<'a> PeakReport<'a> {
    /// Computes the report of a recording.
    pub fn of(input: &'a Input, arguments: &'a PeakArguments) -> Result<Self, Failure> {
        let trace = input.facts();
        let (device, metric) = (choose_device(trace, arguments.device.device)?, arguments.metric);
        input.check_metric(device, metric)?;
        let at = arguments.at.map(|at| event_of(trace.event_count(), at)).transpose()?;
        input.ask(|source, watch| {
            let mut together = compares_pools(arguments).then(Together::default);
            if let Some(together) = &mut together {
                let append = |part| together.append(part);
                source.each_window(|window| Together::of_pools(window, device), append, &mut *watch)?;
            }
            // For a given event, a long recording is not read from end to end.
            let is_read = at.is_none() || source.whole().is_some();
            let rows = std::thread::scope(|threads| {
                // Of a recording in memory, both go through all events.
                threads.spawn(|| source.index(device));
                if is_read { stages(source, device, metric, watch) } else { Ok(Vec::new()) }
            })?;
            let leaks = Leaks::of_recording(source, device, Metric::Requested, &rows)?.filter(|_| is_read);
            let (moment, elsewhere) = match at {
                Some(event) => (source.moment(device, metric, event)?, Vec::new()),
                None => {
                    let peak = source.peak(device, metric)?;
                    (peak, reached_elsewhere(&phases(source, device, metric, rows), &peak))
                }
            };
            let window = source.window_at(moment.number())?;
            let (trace_at, index) = (&window.trace, window.index(device));
            let broken_down = |query: &Query<'_>| Peak::at(trace_at, &index.live, &index.series, moment, query);
            let query = query(arguments);
            let pools = together.map(|together| {
                let peak = broken_down(&by_pool(&arguments.blocks.filter.filter));
                PoolsReport::of(&peak.breakdown, together)
            });
            let leaks = leaks.map(|leaks| {
                let at_moment = leaks.breakdown(trace_at, &index.live, &moment, &query);
                LeaksAt { leaks, at_moment }
            });
            Ok(Self { trace, arguments, peak: broken_down(&query), elsewhere, pools, leaks })
        })
    }

    /// Returns the leaks, if some of them are live at the moment.
    fn leaks(&self) -> Option<&LeaksAt> {
        self.leaks.as_ref().filter(|leaks| leaks.at_moment.total > 0)
    }

    /// Returns the JSON object: groups and rest sum to `bytes`, or with a filter to `filtered_bytes`.
    pub fn figures(&self) -> impl Serialize {
        let Peak { moment, breakdown } = &self.peak;
        let filter = self.arguments.blocks.filter.stated();
        PeakFigures {
            device: moment.device.0,
            metric: moment.metric,
            bytes: moment.bytes,
            event: moment.number(),
            time_us: moment.time_ns.map(|time| micros_since_1970(self.trace, time)),
            step: moment.step,
            phase: moment.phase.name(),
            reached_elsewhere: self.elsewhere.iter().map(ElsewhereFigures::of).collect(),
            filter: filter.map(str::to_owned),
            filtered_bytes: filter.map(|_| breakdown.total),
            leaked_bytes: self.leaks.as_ref().map(|leaks| leaks.at_moment.total),
            groups: breakdown.groups.iter().map(|group| self.group_figures(group)).collect(),
            rest_bytes: breakdown.rest_bytes,
            rest_groups: breakdown.rest_groups,
            pools: self.pools.as_ref().map(PoolsReport::figures),
            trust: TrustFigures::of(self.trace),
            problems: problem_texts(self.trace),
        }
    }

    /// Prints the report as text.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Peak { moment, breakdown } = &self.peak;
        match self.arguments.at {
            None => {
                let on = where_on(self.trace, moment.device);
                page.headline(&format!("{}{on}: {}.", peak_name(moment), how_much_and_when(moment)))?;
                self.print_elsewhere(page)?;
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
            page.line(&format!(
                "Of these, {} ({}) leak from earlier steps:",
                format_bytes(bytes),
                percent(bytes, moment.bytes)
            ))?;
            for text in leak_lines(&leaks.leaks.lines) {
                page.broken(2, &text).iter().try_for_each(|line| page.line(line))?;
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
        } else {
            page.line("No block matches.")?;
        }
        caveats::print(self.trace, page)?;
        page.gap()?;
        page.hint(&self.hint())
    }

    /// Prints the first other moment with the same peak, and the number of further ones.
    fn print_elsewhere(&self, page: &mut Page<'_>) -> io::Result<()> {
        elsewhere_text(&self.elsewhere).map_or(Ok(()), |text| page.line(&text))
    }

    fn table(&self) -> Table {
        let breakdown = &self.peak.breakdown;
        let keys = &self.arguments.by.0;
        let groups = &breakdown.groups;
        let has_members = groups.iter().any(|group| !group.members.is_empty());
        // Free bytes have a row of their own unless they are in the rows of pools, streams or sizes.
        let has_free = groups.iter().any(|group| group.free_bytes > 0 && group.free_bytes < group.bytes);
        let mut columns = key_columns(keys);
        columns.extend([Column::number("bytes"), Column::number("share"), Column::text("").optional()]);
        columns.extend(has_members.then(|| Column::text("each").optional()));
        columns.extend(has_free.then(|| Column::number("free")));
        columns.push(Column::number("blocks"));
        let leaks = self.leaks();
        columns.extend(leaks.map(|_| Column::number("leaking")));
        let mut table = Table::new(columns);
        let mut row = |mut names: Vec<String>, (bytes, bar): (u64, String), others: [String; 3], leaked: u64| {
            let [each, free, blocks] = others;
            names.resize(keys.len(), String::new());
            names.extend([format_bytes(bytes), percent(bytes, breakdown.total), bar]);
            names.extend(has_members.then_some(each));
            names.extend(has_free.then_some(free));
            names.push(blocks);
            if leaks.is_some() {
                names.push(if leaked > 0 { format_bytes(leaked) } else { String::new() });
            }
            table.push(names);
        };
        let bar = |bytes| (bytes, bar(bytes, breakdown.total, 20));
        let none = || [String::new(), String::new(), String::new()];
        let cells = key_cells(self.trace, keys, groups.iter().map(|group| (&group.key, group.stack)));
        for (group, names) in groups.iter().zip(cells) {
            let free = (group.free_bytes > 0).then(|| format_bytes(group.free_bytes));
            let blocks = (group.blocks > 0).then(|| format_count(group.blocks));
            let each = each_text(group.bytes, group.members.len());
            let others = [each, free.unwrap_or_default(), blocks.unwrap_or_default()];
            row(names, bar(group.bytes), others, leaks.map_or(0, |leaks| leaks.of_group(group)));
        }
        if breakdown.rest_groups > 0 {
            let name = count_of(breakdown.rest_groups, "more group");
            row(vec![name], bar(breakdown.rest_bytes), none(), 0);
        }
        let leaked = leaks.map_or(0, |leaks| leaks.at_moment.total);
        row(vec!["total".to_owned()], (breakdown.total, String::new()), none(), leaked);
        table
    }

    fn group_figures(&self, group: &Group) -> GroupFigures {
        let keys = &self.arguments.by.0;
        let has_free = !self.peak.moment.metric.is_of_blocks();
        let one = |values: &[String], count: u64, leaked_bytes: Option<u64>, members: Vec<GroupFigures>| {
            let named = keys.iter().zip(values).map(|(key, value)| (key.name(), value.clone()));
            GroupFigures {
                key: values.join(", "),
                keys: named.collect(),
                bytes: group.bytes / count,
                blocks: group.blocks / count,
                leaked_bytes,
                free_bytes: has_free.then_some(group.free_bytes / count),
                members,
            }
        };
        let count = group.members.len().max(1) as u64;
        let leaks = self.leaks.as_ref();
        let member = |values: &Vec<String>| one(values, count, leaks.map(|leaks| leaks.of_key(values)), Vec::new());
        let members = group.members.iter().map(member).collect();
        one(&group.key, 1, leaks.map(|leaks| leaks.of_group(group)), members)
    }

    fn hint(&self) -> String {
        let files = [self.arguments.source.file.as_path()];
        let given = self.arguments.given();
        if self.peak.breakdown.groups.is_empty() {
            return next_with(&["peak"], &files, &[], &Given::default(), "for what is using memory at the peak");
        }
        if let Some((keys, names)) = origin_keys(self.trace).filter(|_| self.arguments.by.0 == [GroupKey::Category]) {
            return next_with(&["peak"], &files, &["--by", keys], &given, &format!("for the {names} behind it"));
        }
        if !self.arguments.by.0.iter().any(|key| matches!(key, GroupKey::Frame | GroupKey::Stack)) {
            return next_with(&["peak"], &files, &["--by", "frame"], &given, "for the lines of code behind it");
        }
        if self.peak.moment.step.is_none() {
            return next_with(&["explain"], &files, &[], &given, "for what would lower the peak");
        }
        next_with(&["phases"], &files, &[], &given, "for what each step and phase did")
    }
}

/// Another moment with the same peak.
#[derive(Debug, Serialize)]
struct ElsewhereFigures {
    event: Option<u64>,
    step: Option<u32>,
    phase: &'static str,
}

impl ElsewhereFigures {
    fn of(moment: &Moment) -> Self {
        Self { event: moment.number(), step: moment.step, phase: moment.phase.name() }
    }
}

/// Returns the event of `at` among `count`; `None` for the moment before the first.
fn event_of(count: u64, at: At) -> Result<Option<u64>, Failure> {
    match at {
        At::Start => Ok(None),
        At::End => Ok(count.checked_sub(1)),
        At::Event(number) if number < count => Ok(Some(number)),
        At::Event(number) if count == 0 => {
            Err(Failure::Usage(format!("--at {number}: the recording has no events; use --at start")))
        }
        At::Event(number) => {
            let last = count - 1;
            Err(Failure::Usage(format!("--at {number}: the recording has no such event; they go from 0 to {last}")))
        }
    }
}

#[derive(Debug, Serialize)]
struct PeakFigures {
    device: u16,
    metric: Metric,
    bytes: u64,
    event: Option<u64>,
    time_us: Option<u64>,
    step: Option<u32>,
    phase: &'static str,
    reached_elsewhere: Vec<ElsewhereFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filtered_bytes: Option<u64>,
    /// Bytes of blocks that earlier steps left, from lines that leave some in every step; `None` where it is not
    /// searched: without whole steps, and at a given event of a long recording.
    leaked_bytes: Option<u64>,
    groups: Vec<GroupFigures>,
    rest_bytes: u64,
    rest_groups: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pools: Option<Vec<PoolFigures>>,
    trust: TrustFigures,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct GroupFigures {
    /// The values of all keys, joined.
    key: String,
    /// The values by key.
    keys: BTreeMap<&'static str, String>,
    bytes: u64,
    blocks: u64,
    leaked_bytes: Option<u64>,
    /// Of the bytes, those that are free in segments; only of totals that have such.
    #[serde(skip_serializing_if = "Option::is_none")]
    free_bytes: Option<u64>,
    /// The equal modules that are one group, each with the same share of bytes and blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<Self>,
}
