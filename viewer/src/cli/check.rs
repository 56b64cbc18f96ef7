//! Check: `highwater check`, a recording beside its budgets.

use std::collections::BTreeMap;
use std::io;

use highwater_snapshots::analysis::budget::{AlikeGroups, Culprit, Differences, Outcome, check, culprit_keys};
use highwater_snapshots::analysis::diff::{Asked, DiffQuery};
use highwater_snapshots::analysis::{Diff, Filter, GroupKey, LiveIndex, Metric, Moment, Series};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::units::format_bytes;
use highwater_snapshots::{DeviceId, Trace};
use serde::Serialize;

use super::budgets::Budgets;
use super::caveats::{self, TrustFigures, problem_texts};
use super::diff::signed;
use super::moment::{PeakFigure, count_of, when};
use super::outcome::{Failure, Status};
use super::page::Page;
use super::recording::{check_metric, choose_device};
use super::shell::{next_command, quoted};
use super::table::{Column, Table};
use crate::args::CheckArguments;

/// The answer, for people and programs.
#[derive(Debug)]
pub struct CheckReport<'a> {
    pub(super) arguments: &'a CheckArguments,
    pub(super) budgets: &'a Budgets,
    pub(super) trace: &'a Trace,
    pub(super) device: DeviceId,
    pub(super) outcomes: Vec<Outcome>,
    /// What makes the difference of the peaks to the baseline's.
    pub(super) differences: Option<Differences>,
    /// The category, and the module or the line of code.
    pub(super) keys: [GroupKey; 2],
    baseline: Option<&'a Trace>,
}

impl<'a> CheckReport<'a> {
    /// Measures `trace` and, where there is one, the baseline.
    pub fn of(
        trace: &'a Trace,
        baseline: Option<&'a Trace>,
        budgets: &'a Budgets,
        arguments: &'a CheckArguments,
    ) -> Result<Self, Failure> {
        let metric = budgets.metric;
        let device_of = |trace: &Trace| {
            let device = choose_device(trace, arguments.device.device)?;
            check_metric(trace, device, metric).map(|()| device)
        };
        let device = device_of(trace)?;
        let of_baseline = |failure| match failure {
            Failure::Usage(text) => Failure::Usage(format!("baseline: {text}")),
            other => other,
        };
        let other_device = baseline.map(device_of).transpose().map_err(of_baseline)?;
        let index =
            |trace: &Trace, device| rayon::join(|| Series::build(trace, device), || LiveIndex::build(trace, device));
        let (own, other) = rayon::join(
            || index(trace, device),
            || baseline.zip(other_device).map(|(trace, device)| index(trace, device)),
        );
        let asked = Asked { trace, series: &own.0, live: &own.1 };
        let other = baseline.zip(other.as_ref()).map(|(trace, (series, live))| Asked { trace, series, live });
        let outcomes = check(asked, other, metric, &budgets.rows).map_err(Failure::Usage)?;
        let [category, place, _] = culprit_keys(trace);
        let keys = [category, place];
        let differences = other.map(|other| {
            let moments = [other, asked].map(|asked| Moment::peak(asked.trace, asked.series, metric));
            let query = DiffQuery { keys: &keys, top: usize::MAX, filter: &Filter::default() };
            Differences::of(&Diff::of([other, asked], moments, &query), arguments.top)
        });
        Ok(Self { arguments, budgets, trace, device, outcomes, differences, keys, baseline })
    }

    /// Whether every budget is kept.
    pub fn has_passed(&self) -> bool {
        self.broken().next().is_none()
    }

    /// How the command ends.
    pub fn status(&self) -> Status {
        if self.has_passed() { Status::Fine } else { Status::Broken }
    }

    /// The outcomes of broken budgets.
    pub(super) fn broken(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.is_broken())
    }

    /// What makes the difference to the baseline, where there is any.
    pub(super) fn told_differences(&self) -> Option<&Differences> {
        self.differences.as_ref().filter(|differences| !differences.rows.is_empty())
    }

    /// The verdict in a sentence.
    pub(super) fn verdict(&self) -> String {
        let all = self.outcomes.len() as u64;
        match self.broken().count() as u64 {
            0 if all == 1 => "Passed: the budget is kept.".to_owned(),
            0 => format!("Passed: all {all} budgets are kept."),
            broken => format!("Broken: {broken} of {}.", count_of(all, "budget")),
        }
    }

    /// What limits the verdict, beside what limits trust: failed requests.
    pub(super) fn warning(&self) -> Option<String> {
        let is_failed =
            |row: usize| self.trace.events.kind[row] == EventKind::Oom && self.trace.events.device[row] == self.device;
        let failed = (0..self.trace.events.len()).filter(|row| is_failed(*row)).count() as u64;
        let s = count_of(failed, "request");
        (failed > 0).then(|| {
            format!("Memory ran out in this recording: {s} failed, and what the program would have taken is not known.")
        })
    }

    /// The answer for programs.
    pub fn figures(&self) -> impl Serialize {
        let rows = |outcomes: &mut dyn Iterator<Item = &Outcome>| -> Vec<RuleFigures> {
            outcomes.map(|outcome| RuleFigures::of(outcome, self.budgets.metric, self.trace)).collect()
        };
        CheckFigures {
            passed: self.has_passed(),
            broken: rows(&mut self.broken()),
            rules: rows(&mut self.outcomes.iter()),
            file: self.arguments.source.file.display().to_string(),
            baseline: self.budgets.baseline.as_ref().map(|file| file.display().to_string()),
            device: self.device.0,
            metric: self.budgets.metric,
            differences: self.differences.as_ref().map(|all| DifferenceFigures::of(all, self.keys)),
            oom: self.warning(),
            trust: TrustFigures::of(self.trace),
            problems: problem_texts(self.trace),
        }
    }

    /// The answer in words.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        page.headline(&self.verdict())?;
        page.gap()?;
        page.table(&self.table())?;
        for outcome in self.broken() {
            page.gap()?;
            let over = format_bytes(outcome.actual_bytes - outcome.limit_bytes);
            page.line(&format!("{}: {over} too much, {}.", outcome.budget, at_moment(&outcome.moment)))?;
            if let Some(culprit) = &outcome.culprit {
                page.line(&format!("  {}.", culprit.text))?;
            }
        }
        if let Some(differences) = self.told_differences() {
            page.gap()?;
            page.line("What makes the difference to the baseline at the peak:")?;
            page.table(&self.differences_table(differences))?;
        }
        if let Some(warning) = self.warning() {
            page.gap()?;
            page.warning(&warning)?;
        }
        caveats::print(self.trace, page)?;
        if let Some(baseline) = self.baseline {
            caveats::print(baseline, page)?;
        }
        page.gap()?;
        page.hint(&self.hint())
    }

    /// A line for each broken budget that GitHub Actions takes for a message about the run.
    pub fn print_github(&self, page: &mut Page<'_>) -> io::Result<()> {
        for outcome in self.broken() {
            let culprit = outcome.culprit.as_ref().map_or(String::new(), |culprit| format!(": {}", culprit.text));
            let text = format!(
                "{} takes {}, and may take {}{culprit}",
                outcome.budget.subject(self.budgets.metric),
                format_bytes(outcome.actual_bytes),
                format_bytes(outcome.limit_bytes)
            );
            let escaped = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
            page.line(&format!("::error title=highwater check {}::{escaped}", outcome.budget))?;
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let has_baseline = self.baseline.is_some();
        let mut columns = vec![Column::text(""), Column::text("rule"), Column::text("what").giving_way()];
        columns.extend([Column::number("limit"), Column::number("actual"), Column::number("headroom")]);
        if has_baseline {
            columns.push(Column::number("baseline"));
        }
        let mut table = Table::new(columns);
        for outcome in &self.outcomes {
            let mark = if outcome.is_broken() { "broken" } else { "kept" };
            let mut row =
                vec![mark.to_owned(), outcome.budget.to_string(), outcome.budget.subject(self.budgets.metric)];
            row.extend([format_bytes(outcome.limit_bytes), format_bytes(outcome.actual_bytes)]);
            row.push(headroom(outcome));
            if has_baseline {
                row.push(outcome.baseline_bytes.map_or_else(|| "-".to_owned(), format_bytes));
            }
            table.push(row);
        }
        table
    }

    fn differences_table(&self, differences: &Differences) -> Table {
        let place = match self.keys[1] {
            GroupKey::Scope => Column::text(self.keys[1].name()).giving_way(),
            _ => Column::text(self.keys[1].name()).giving_way_within(),
        };
        let columns = vec![Column::text(self.keys[0].name()), place, Column::number("baseline"), Column::number("now")];
        let mut table = Table::new(columns.into_iter().chain([Column::number("difference")]).collect());
        let mut push = |mut names: Vec<String>, [before, now]: [u64; 2]| {
            names.resize(2, String::new());
            names.extend([format_bytes(before), format_bytes(now), signed(i128::from(now) - i128::from(before))]);
            table.push(names);
        };
        for row in &differences.rows {
            push(named(row), [row.before, row.now]);
        }
        if differences.rest_groups > 0 {
            push(vec![count_of(differences.rest_groups, "more group")], differences.rest_bytes);
        }
        push(vec!["total".to_owned()], differences.bytes);
        table
    }

    fn hint(&self) -> String {
        let file = &self.arguments.source.file;
        let place = if self.keys[1] == GroupKey::Scope { "scope,op" } else { "frame" };
        match (&self.budgets.baseline, self.has_passed()) {
            (Some(baseline), _) => {
                let baseline = quoted(&baseline.display().to_string());
                next_command(&["diff", &baseline], file, &["--by", place], "for all that differs from the baseline")
            }
            (None, false) => next_command(&["explain"], file, &[], "for what could be done about the peak"),
            (None, true) => next_command(&["peak"], file, &["--by", place], "for who holds memory at the peak"),
        }
    }
}

/// The names of groups, with their number where there are several.
pub(super) fn named(row: &AlikeGroups) -> Vec<String> {
    let mut names = row.key.clone();
    if let (Some(last), 2..) = (names.last_mut(), row.groups) {
        *last = format!("{last} ({} alike)", row.groups);
    }
    names
}

/// `820 MiB`, or `−412 MiB` where it is broken.
pub(super) fn headroom(outcome: &Outcome) -> String {
    signed(outcome.headroom()).trim_start_matches('+').to_owned()
}

/// `at event 12, step 1, optimizer`.
pub(super) fn at_moment(moment: &Moment) -> String {
    when(moment.event, moment.step, moment.phase)
}

#[derive(Debug, Serialize)]
struct CheckFigures {
    passed: bool,
    broken: Vec<RuleFigures>,
    rules: Vec<RuleFigures>,
    file: String,
    baseline: Option<String>,
    device: u16,
    metric: Metric,
    differences: Option<DifferenceFigures>,
    oom: Option<String>,
    trust: TrustFigures,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RuleFigures {
    rule: String,
    subject: String,
    limit_bytes: u64,
    actual_bytes: u64,
    headroom_bytes: i128,
    baseline_bytes: Option<u64>,
    is_broken: bool,
    moment: MomentFigures,
    /// A sentence; null where the budget is kept.
    culprit: Option<String>,
    culprit_group: Option<CulpritFigures>,
}

impl RuleFigures {
    fn of(outcome: &Outcome, metric: Metric, trace: &Trace) -> Self {
        Self {
            rule: outcome.budget.to_string(),
            subject: outcome.budget.subject(metric),
            limit_bytes: outcome.limit_bytes,
            actual_bytes: outcome.actual_bytes,
            headroom_bytes: outcome.headroom(),
            baseline_bytes: outcome.baseline_bytes,
            is_broken: outcome.is_broken(),
            moment: MomentFigures::of(trace, &outcome.moment),
            culprit: outcome.culprit.as_ref().map(|culprit| culprit.text.clone()),
            culprit_group: outcome.culprit.as_ref().map(CulpritFigures::of),
        }
    }
}

#[derive(Debug, Serialize)]
struct MomentFigures {
    #[serde(flatten)]
    figure: PeakFigure,
    step: Option<u32>,
    phase: &'static str,
}

impl MomentFigures {
    fn of(trace: &Trace, moment: &Moment) -> Self {
        Self { figure: PeakFigure::of(trace, moment), step: moment.step, phase: moment.phase.name() }
    }
}

#[derive(Debug, Serialize)]
struct CulpritFigures {
    category: String,
    place: String,
    op: String,
    bytes: u64,
    baseline_bytes: Option<u64>,
}

impl CulpritFigures {
    fn of(culprit: &Culprit) -> Self {
        Self {
            category: culprit.category.clone(),
            place: culprit.place.clone(),
            op: culprit.op.clone(),
            bytes: culprit.bytes,
            baseline_bytes: culprit.baseline_bytes,
        }
    }
}

/// Groups and rest sum to `delta_bytes`.
#[derive(Debug, Serialize)]
struct DifferenceFigures {
    delta_bytes: i128,
    groups: Vec<GroupFigures>,
    rest_delta_bytes: i128,
}

#[derive(Debug, Serialize)]
struct GroupFigures {
    /// The values of the keys, joined.
    key: String,
    keys: BTreeMap<&'static str, String>,
    /// How many groups they are, which differ in numbers of their names alone.
    groups: u64,
    baseline_bytes: u64,
    bytes: u64,
    delta_bytes: i128,
}

impl DifferenceFigures {
    fn of(all: &Differences, keys: [GroupKey; 2]) -> Self {
        let row = |row: &AlikeGroups| GroupFigures {
            key: row.key.join(", "),
            keys: keys.iter().map(|key| key.name()).zip(row.key.iter().cloned()).collect(),
            groups: row.groups,
            baseline_bytes: row.before,
            bytes: row.now,
            delta_bytes: row.delta(),
        };
        let delta = |[before, now]: [u64; 2]| i128::from(now) - i128::from(before);
        Self {
            delta_bytes: delta(all.bytes),
            groups: all.rows.iter().map(row).collect(),
            rest_delta_bytes: delta(all.rest_bytes),
        }
    }
}
