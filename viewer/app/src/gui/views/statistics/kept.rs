//! The blocks that are allocated in the recording and never freed, by source line or module, with their leaks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use highwater_analysis::growth::growth;
use highwater_analysis::lifetime::Lifetime;
use highwater_analysis::{
    Between, Filter, GroupKey, GrowthQuery, Leaks, LiveGroups, LiveIndex, Matches, Metric, Source, StepRange,
    StepWindow, condition, stack_lines,
};
use highwater_snapshots::{BlockId, Category, DeviceId, StackId, Trace, format_bytes};

use super::sheets::{bytes, count, words};
use crate::drawn_metric;
use crate::figures::leaks::{leak_texts, no_leak_text, reserved_growth};
use crate::gui::views::sheet::{Heading, Line, Sheet};
use crate::gui::views::view::Action;
use crate::gui::widgets::theme;
use crate::session::absent::Absent;

const LISTED_STEPS: usize = 12;

/// Returns a table of the blocks that are never freed, of the device of `live` and among `matches`. It has sentences
/// about leaks, as in `highwater growth`, and one row per source line.
pub(super) fn kept(
    trace: &Trace,
    absent: &Absent,
    (live, window): (&LiveIndex, Option<&StepWindow>),
    metric: Metric,
    matches: &Matches,
) -> Sheet {
    let metric = drawn_metric(metric);
    let leaks = window.map(|window| Leaks::in_trace(trace, live, metric, window, matches)).unwrap_or_default();
    let is_kept = |id: &BlockId| {
        let block = trace.blocks.get(*id);
        block.device == live.device() && matches.contains(*id) && Lifetime::of(trace, &block) == Lifetime::Kept
    };
    let blocks: Vec<BlockId> = (0..trace.blocks.len()).map(|row| BlockId(row as u32)).filter(is_kept).collect();
    let key = key(absent);
    let groups = groups(trace, &blocks, key, &leaks);
    let row = |(name, blocks)| Row::of(trace, metric, (name, blocks), (&leaks, window));
    let mut rows: Vec<Row> = groups.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.leaked, row.bytes)));
    let lead = if rows.is_empty() {
        let nothing = "Nothing allocated in this recording is live at its end.";
        let none = "No block that meets the search conditions was allocated in this recording and is live at its end.";
        vec![if matches.is_all() { nothing } else { none }.to_owned()]
    } else {
        lead(absent, &leaks, window)
    };
    let lines = rows.into_iter().map(|row| row.line(key));
    let between = window.map_or(Between::Steps, |window| window.between);
    Sheet { lead, ..Sheet::new("Kept", columns(key, between), lines).measured(1) }
}

/// Returns a sentence about growth of reserved memory, from step to step or burst to burst, without growth of live
/// memory; `None` if there is no such growth.
pub(super) fn reserved(source: &Source<'_>, device: DeviceId, between: Between) -> Option<String> {
    let filter = Filter::default();
    let query = |metric| GrowthQuery { metric, keys: &[GroupKey::Pool], top: 0, filter: &filter };
    let queries = [Metric::Requested, Metric::Reserved].map(query);
    // A recording in memory is read without errors.
    let range = StepRange { between, ..StepRange::default() };
    let found = growth(source, &[device], range, &queries, &mut |_| ControlFlow::Continue(())).ok()?;
    let mut found = found.into_iter().flatten();
    let (live, reserved) = (found.next()?.ok()?, found.next()?.ok()?);
    reserved_growth(&live, &reserved).map(|grows| format!("Reserved memory {grows}."))
}

/// The grouping key: the source line if stacks are recorded, otherwise the module or the category.
fn key(absent: &Absent) -> GroupKey {
    let is_there = |key: &GroupKey| absent.reason(*key).is_none();
    [GroupKey::Frame, GroupKey::Scope].into_iter().find(is_there).unwrap_or(GroupKey::Category)
}

/// Groups the blocks by `key`. Blocks of several lines that leak through a common caller are assigned to that caller.
fn groups(trace: &Trace, blocks: &[BlockId], key: GroupKey, leaks: &Leaks) -> BTreeMap<String, Vec<BlockId>> {
    let leaking: HashSet<&str> = leaks.lines.iter().map(|leak| leak.line.as_str()).collect();
    let mut callers: HashMap<StackId, Option<String>> = HashMap::new();
    let mut caller = |stack: StackId| {
        let found = callers.entry(stack).or_insert_with(|| {
            let mut lines = stack_lines(&trace.tables, stack).into_iter().map(|line| line.text);
            lines.find(|line| leaking.contains(line.as_str()))
        });
        found.clone()
    };
    let mut groups: BTreeMap<String, Vec<BlockId>> = BTreeMap::new();
    for group in LiveGroups::of(trace, blocks, &[key], usize::MAX).groups {
        let name = group.key.join("");
        let is_line_without_leak = key == GroupKey::Frame && !leaking.contains(name.as_str());
        for id in group.blocks {
            let line = if is_line_without_leak { caller(trace.blocks.stack[id.0 as usize]) } else { None };
            groups.entry(line.unwrap_or_else(|| name.clone())).or_default().push(id);
        }
    }
    groups
}

fn lead(absent: &Absent, leaks: &Leaks, window: Option<&StepWindow>) -> Vec<String> {
    let Some(window) = window else { return absent.reason(GroupKey::Step).map(str::to_owned).into_iter().collect() };
    match window.steps.len() {
        0 => absent.reason(GroupKey::Step).map(str::to_owned).into_iter().collect(),
        // The program may have no steps.
        _ if window.between == Between::Idle => {
            let mut texts = leak_texts(&leaks.lines, window);
            if texts.is_empty() {
                texts.push(no_leak_text(window.between).to_owned());
            }
            let idle = "The recording has too few steps to compare, so bursts between idle moments are compared, as \
                        for a server.";
            [texts, vec![idle.to_owned()], window.reasons()].concat()
        }
        1 => vec!["One whole step only: a leak cannot be distinguished from first allocations.".to_owned()],
        _ if leaks.lines.is_empty() => vec![no_leak_text(window.between).to_owned()],
        _ => leak_texts(&leaks.lines, window),
    }
}

fn columns(key: GroupKey, between: Between) -> Vec<Heading> {
    let colour = |name: &str| Category::from_name(name).map(theme::category);
    let first = match key {
        GroupKey::Frame => words("Line", "The source line that allocated the blocks.", 0.0),
        GroupKey::Scope => words("Module", "The module that allocated the blocks.", 0.0),
        _ => Heading { swatch: Some(colour), ..words("Category", "The category of the blocks.", 0.0) },
    };
    let [per_period, periods] = match between {
        Between::Steps => ["Per step", "Steps"],
        Between::Idle => ["Per burst", "Bursts"],
    };
    vec![
        first,
        bytes("Live at end", "Bytes allocated in the recording and never freed.", 140.0),
        bytes(per_period, "Bytes leaked in each step or burst, on average; 0 without a leak.", 76.0),
        bytes("Leaked", "Bytes leaked from the second to the last complete step or burst.", 84.0),
        count("Blocks", "Number of blocks.", 76.0),
        count(periods, "Number of steps or bursts with bytes that are never freed.", 70.0),
        words("From", "The steps or bursts with bytes that are never freed, each with the sum of its bytes.", 240.0),
    ]
}

struct Row {
    name: String,
    bytes: u64,
    leaked: u64,
    per_step: u64,
    blocks: u64,
    /// Bytes by the step in which they were allocated; `None` outside of steps.
    by_step: BTreeMap<Option<u32>, u64>,
    /// The unit of growth, such as `step`.
    unit: &'static str,
}

impl Row {
    fn of(
        trace: &Trace,
        metric: Metric,
        (name, blocks): (String, Vec<BlockId>),
        (leaks, window): (&Leaks, Option<&StepWindow>),
    ) -> Self {
        let bursts = window.filter(|window| window.between == Between::Idle);
        let (mut bytes, mut leaked) = (0_u64, 0_u64);
        let mut by_step: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for &id in &blocks {
            let size = highwater_analysis::between::bytes_of(trace, metric, id);
            bytes += size;
            leaked += if leaks.blocks.contains(&id) { size } else { 0 };
            let marked = || trace.spans.at(trace.blocks.alloc[id.0 as usize]).and_then(|span| span.step);
            let step = bursts.map_or_else(marked, |bursts| bursts.step_of(trace, id));
            *by_step.entry(step).or_default() += size;
        }
        let steps = window.map_or(0, |window| window.steps.len());
        let per_step = leaked.div_ceil(steps.max(1) as u64);
        let unit = window.map_or(Between::Steps, |window| window.between).unit();
        Self { name, bytes, leaked, per_step, blocks: blocks.len() as u64, by_step, unit }
    }

    fn steps_text(&self) -> String {
        let one = |(step, bytes): (&Option<u32>, &u64)| {
            let step = step.map_or_else(|| "outside".to_owned(), |step| format!("{} {step}", self.unit));
            format!("{step}: {}", format_bytes(*bytes))
        };
        let listed: Vec<String> = self.by_step.iter().take(LISTED_STEPS).map(one).collect();
        let more = self.by_step.len().saturating_sub(LISTED_STEPS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", listed.join(", "))
    }

    fn line(self, key: GroupKey) -> Line {
        let steps = self.by_step.keys().filter(|step| step.is_some()).count() as u64;
        let values = vec![
            self.name.clone().into(),
            self.bytes.into(),
            self.per_step.into(),
            self.leaked.into(),
            self.blocks.into(),
            steps.into(),
            self.steps_text().into(),
        ];
        let condition = condition::of_group(&[key], std::slice::from_ref(&self.name), &[]);
        Line { values, action: condition.map(|condition| Action::Where(format!("lifetime=kept {condition}"))) }
    }
}
