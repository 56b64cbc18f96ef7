//! Names the cause of an exceeded budget in a sentence.

use std::collections::BTreeMap;

use super::Budget;
use super::entries::{Entry, culprit_keys, leading_place, place_of};
use super::measure::Measured;
use crate::grouping::dimension::GroupKey;
use crate::grouping::siblings::Siblings;
use crate::question::diff::{Asked, Diff};
use crate::question::growth::{Growth, Kept};
use crate::question::peak::{Moment, Peak, Query};
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::units::{count_of, format_bytes};

const SHOWN_LEAKS: usize = 3;

/// The cause of an exceeded budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// The category of the blocks, a name in parentheses for bytes outside of blocks, or empty for segments.
    pub category: String,
    /// The module or line of code; empty if unknown. `*` stands for numbers that differ between similar modules.
    pub place: String,
    /// The operation that accounts for at least three quarters of the bytes, or of their growth; empty without such an
    /// operation, and for leaks and segments.
    pub op: String,
    /// Bytes of the cause in the checked recording; for growth per step, the bytes that all steps together kept.
    pub bytes: u64,
    /// The bytes in the baseline; `None` unless the cause is growth from the baseline to the checked recording.
    pub baseline_bytes: Option<u64>,
    /// The cause as a sentence.
    pub text: String,
}

/// Returns the phrase for the point at which a budget was measured.
fn moment_of(budget: &Budget) -> String {
    match budget {
        Budget::Reserved(_) | Budget::ReservedGrowth(_) => "at the peak of reserved memory".to_owned(),
        Budget::Category(category, _) => format!("at the maximum of {}", category.name().replace('_', " ")),
        Budget::Phase(phase, _) => format!("at the peak of {phase}"),
        Budget::Peak(_) | Budget::Growth(_) | Budget::StepGrowth(_) => "at the peak".to_owned(),
    }
}

/// Returns the blocks that grew most compared with the baseline; `None` if nothing grew.
pub(super) fn grown(budget: &Budget, asked: [Asked<'_>; 2], [before, now]: [&Measured; 2]) -> Option<Culprit> {
    let keys = culprit_keys(asked[1].trace);
    let query = Query { keys: &keys, top: usize::MAX, filter: &now.filter, siblings: Siblings::Each };
    let diff = Diff::of(asked, [before.moment, now.moment], &query);
    let entries: Vec<Entry> = diff.groups.iter().map(|group| Entry::new(&group.key, keys[1], group.bytes)).collect();
    let all: Vec<&Entry> = entries.iter().collect();
    // A place with most of the growth in any category is more informative than a category.
    let place = place_of(&all);
    let within: Vec<&Entry> = all.iter().copied().filter(|entry| entry.is_within(&place)).collect();
    let category = leading_category(&within)?;
    let own: Vec<&Entry> = within.iter().copied().filter(|entry| entry.category == category).collect();
    let lead = if place.is_empty() { Lead::of(&own, keys[1]) } else { Lead::at(place, &own, keys[1]) };
    let [was, is] = lead.bytes(&own);
    let grown = format_bytes(is.saturating_sub(was));
    let mut text = format!(
        "{} grew {grown} {} (from {} to {}){}",
        lead.named(&category),
        moment_of(budget),
        format_bytes(was),
        format_bytes(is),
        lead.by_op()
    );
    text += &lead.with_others(&within);
    text += &moved(&before.moment, &now.moment);
    Some(Culprit { category, place: lead.place.join("."), op: lead.op, bytes: is, baseline_bytes: Some(was), text })
}

/// Returns the category that uses the most memory, and the module or line that accounts for most of it.
pub(super) fn at_moment(budget: &Budget, asked: Asked<'_>, now: &Measured) -> Option<Culprit> {
    let keys = culprit_keys(asked.trace);
    let query = Query { keys: &keys, top: usize::MAX, filter: &now.filter, siblings: Siblings::Each };
    let peak = Peak::at(asked.trace, asked.live, asked.series, now.moment, &query);
    let groups = &peak.breakdown.groups;
    let entries: Vec<Entry> = groups.iter().map(|group| Entry::new(&group.key, keys[1], [0, group.bytes])).collect();
    let all: Vec<&Entry> = entries.iter().collect();
    let category = leading_category(&all)?;
    let own: Vec<&Entry> = all.iter().copied().filter(|entry| entry.category == category).collect();
    let lead = Lead::of(&own, keys[1]);
    let [_, is] = lead.bytes(&own);
    let share = if now.bytes > 0 { is as f64 * 100.0 / now.bytes as f64 } else { 0.0 };
    let (named, at) = (lead.named(&category), moment_of(budget));
    let mut text = match is == now.bytes {
        true => format!("{named} take all {} {at}", format_bytes(is)),
        false => {
            format!("{named} take {} of the {} {at} ({share:.0}%)", format_bytes(is), format_bytes(now.bytes))
        }
    };
    text += &lead.by_op();
    if let Some((place, bytes)) = lead.outstanding(&own) {
        text += &format!("; `{place}` alone takes {}", format_bytes(bytes));
    }
    Some(Culprit { category, place: lead.place.join("."), op: lead.op, bytes: is, baseline_bytes: None, text })
}

/// The segments that stay reserved, and the lines that reserved them.
pub(super) fn of_segments(growth: &Growth) -> Option<Culprit> {
    let largest = growth.causes.first()?;
    let mut text = growth.causes.iter().map(Kept::text).collect::<Vec<_>>().join("; ");
    if !growth.leaks.is_empty() {
        text += &format!("; {}", leak_lines(growth, "obtain"));
    }
    Some(Culprit {
        category: String::new(),
        place: growth.leaks.first().map(|leak| leak.line.clone()).unwrap_or_default(),
        op: String::new(),
        bytes: u64::try_from(largest.net()).unwrap_or(0),
        baseline_bytes: None,
        text,
    })
}

/// Returns the cause of the growth of `growth`, which must be grouped by [`culprit_keys`] with `place` as the second
/// key: the leaks, unless they have no lines and are all in one group; otherwise the group that grew most. `None` if
/// no group grew.
pub(super) fn of_steps(growth: &Growth, place: GroupKey) -> Option<Culprit> {
    let group = growth.groups.first().filter(|group| group.net() > 0)?;
    let has_lines = growth.leaks.iter().any(|leak| leak.stack.is_some());
    if !growth.leaks.is_empty() && (has_lines || growth.recurring != group.survivors) {
        return of_leaks(growth, &group.key);
    }
    let entry = Entry::new(&group.key, place, [0, group.survivors.bytes]);
    let own = [&entry];
    let lead = Lead::at(entry.path.clone(), &own, place);
    let steps = growth.step_count();
    let how = if group.is_recurring {
        format!("were kept by every step, {} or more each", format_bytes(group.least_bytes))
    } else {
        format!("were kept by {} of {}", group.steps, count_of(steps as u64, "step"))
    };
    let text = format!(
        "{} {how}: {} in {} over {}{}",
        lead.named(&entry.category),
        format_bytes(group.survivors.bytes),
        count_of(group.survivors.blocks, "block"),
        count_of(steps as u64, "step"),
        lead.by_op()
    );
    Some(Culprit {
        place: lead.place.join("."),
        op: lead.op,
        bytes: group.survivors.bytes,
        baseline_bytes: None,
        text,
        category: entry.category.clone(),
    })
}

/// Returns the leaking lines as the cause, with the category of the group `key`.
fn of_leaks(growth: &Growth, key: &[String]) -> Option<Culprit> {
    let kept = growth.recurring;
    let text = format!(
        "{}; in all {} in {} over {}",
        leak_lines(growth, "keep"),
        format_bytes(kept.bytes),
        count_of(kept.blocks, "block"),
        count_of(growth.step_count() as u64, "step"),
    );
    let category = key.first().cloned().unwrap_or_default();
    let place = growth.leaks.first()?.line.clone();
    Some(Culprit { category, place, op: String::new(), bytes: kept.bytes, baseline_bytes: None, text })
}

/// Lists the lines that leak, each with its bytes per step. `verb` is `keep`, or `obtain` for segments.
fn leak_lines(growth: &Growth, verb: &str) -> String {
    let leaks = &growth.leaks;
    let lines = unique_suffixes(&leaks.iter().map(|leak| leak.line.as_str()).collect::<Vec<_>>());
    let each = leaks.iter().zip(lines).take(SHOWN_LEAKS);
    let mut listed: Vec<String> =
        each.map(|(leak, line)| format!("`{line}` {} a step", format_bytes(leak.bytes_per_step))).collect();
    if let Some(more) = leaks.len().checked_sub(SHOWN_LEAKS).filter(|more| *more > 0) {
        listed.push(count_of(more as u64, "more line"));
    }
    let s = if leaks.len() == 1 { "s" } else { "" };
    format!("{} {verb}{s} memory of every step: {}", count_of(leaks.len() as u64, "line"), listed.join(", "))
}

/// The module or line, and the operation, that account for most memory of one category.
struct Lead {
    place: Vec<String>,
    is_line: bool,
    op: String,
}

impl Lead {
    fn of(own: &[&Entry], place: GroupKey) -> Self {
        let found = place_of(own);
        Self::at(if found.is_empty() { leading_place(own) } else { found }, own, place)
    }

    fn at(place: Vec<String>, own: &[&Entry], key: GroupKey) -> Self {
        let within = own.iter().copied().filter(|entry| entry.is_within(&place));
        let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
        for entry in within {
            *sums.entry(entry.op.as_str()).or_default() += entry.delta();
        }
        let whole: i128 = sums.values().filter(|sum| **sum > 0).sum();
        let most = sums.into_iter().find(|(op, sum)| !op.is_empty() && *sum * 4 >= whole * 3 && whole > 0);
        let op = most.map(|(op, _)| op.to_owned()).unwrap_or_default();
        Self { place, is_line: key != GroupKey::Scope, op }
    }

    /// Returns the bytes of the entries in `own` that are at this place: in the baseline, and in the checked recording.
    fn bytes(&self, own: &[&Entry]) -> [u64; 2] {
        let within = own.iter().filter(|entry| entry.is_within(&self.place));
        within.fold([0, 0], |[before, now], entry| [before + entry.before, now + entry.now])
    }

    /// Formats the blocks, such as ``activations of scope `blocks.17` ``.
    fn named(&self, category: &str) -> String {
        let noun = noun(category);
        if self.place.is_empty() {
            return noun.to_owned();
        }
        format!("{noun} {}", self.place_text())
    }

    fn place_text(&self) -> String {
        let place = self.place.join(".");
        match (self.is_line, place.contains('*')) {
            (true, _) => format!("allocated at `{place}`"),
            (false, true) => format!("of scopes `{place}`"),
            (false, false) => format!("of scope `{place}`"),
        }
    }

    fn by_op(&self) -> String {
        if self.op.is_empty() { String::new() } else { format!(", by op `{}`", self.op) }
    }

    /// Lists the categories that grew at the same place; empty if only one did.
    fn with_others(&self, all: &[&Entry]) -> String {
        let within: Vec<&Entry> = all.iter().copied().filter(|entry| entry.is_within(&self.place)).collect();
        let mut rows: Vec<(&str, i128)> = by_category(&within).into_iter().filter(|(_, sum)| *sum > 0).collect();
        rows.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
        if self.place.is_empty() || rows.len() < 2 {
            return String::new();
        }
        let parts: Vec<String> = rows.iter().map(|(name, sum)| format!("{} {}", noun(name), size(*sum))).collect();
        let whole = size(rows.iter().map(|(_, sum)| sum).sum());
        let place = match (self.is_line, self.place.iter().any(|part| part.contains('*'))) {
            (true, _) => "that line allocated",
            (false, true) => "those scopes grew",
            (false, false) => "that scope grew",
        };
        format!("; {place} {whole} in all: {}", parts.join(", "))
    }

    /// Returns the module that uses over one and a half times the average of the others, if several similar modules are
    /// combined.
    fn outstanding(&self, own: &[&Entry]) -> Option<(String, u64)> {
        let mut sums: BTreeMap<&[String], u64> = BTreeMap::new();
        for entry in own.iter().filter(|entry| entry.is_within(&self.place)) {
            *sums.entry(&entry.path[..self.place.len()]).or_default() += entry.now;
        }
        let whole: u64 = sums.values().sum();
        let others = sums.len().checked_sub(1).filter(|others| *others > 0)? as u64;
        let (path, bytes) = sums.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        (bytes > (whole - bytes) / others * 3 / 2).then(|| (path.join("."), bytes))
    }
}

fn by_category<'a>(entries: &[&'a Entry]) -> BTreeMap<&'a str, i128> {
    let mut sums = BTreeMap::new();
    for entry in entries {
        *sums.entry(entry.category.as_str()).or_insert(0) += entry.delta();
    }
    sums
}

/// The category that grew most; `None` if none grew.
fn leading_category(entries: &[&Entry]) -> Option<String> {
    let most = by_category(entries).into_iter().max_by_key(|(_, sum)| *sum);
    most.filter(|(_, sum)| *sum > 0).map(|(category, _)| category.to_owned())
}

fn size(bytes: i128) -> String {
    format_bytes(u64::try_from(bytes).unwrap_or(0))
}

fn noun(category: &str) -> &str {
    match category {
        "parameter" => "parameters",
        "buffer" => "buffers",
        "gradient" => "gradients",
        "activation" => "activations",
        "optimizer_state" => "optimizer states",
        "input" => "inputs",
        "temporary" => "temporaries",
        "workspace" => "workspaces",
        "unknown" => "blocks of unknown category",
        "(free in segments)" => "free bytes in segments",
        "(outside the allocator)" => "bytes outside the allocator",
        other => other,
    }
}

fn moved(before: &Moment, now: &Moment) -> String {
    if before.phase == now.phase {
        return String::new();
    }
    format!("; the peak has moved from {} to {}", before.phase, now.phase)
}
