//! The report of `highwater check`: a recording compared with its budgets.

use std::io;

use highwater_analysis::budget::{Budget, Checked, Outcome, check, culprit_keys};
use highwater_analysis::diff::Asked;
use highwater_analysis::peak::Query;
use highwater_analysis::{Diff, DiffGroup, Doubt, Filter, GroupKey, Metric, Siblings, bytes_of};
use highwater_app::answers::plan::AdvicePeaks;
use highwater_app::figures::moment::{moment_value, when};
use highwater_app::report::{Column, Fact, Facts, Rows, Table, Value, code};
use highwater_snapshots::{Category, DeviceId, Error, EventKind, Trace, count_of, format_bytes, format_signed_bytes};

use super::budgets::Budgets;
use super::devices::{culprit_value, device_of_baseline, difference_value, measured_devices};
use crate::args::FilesAndOptions;
use crate::commands::check::CheckArguments;
use crate::input::{Input, covered_phrase, on_device, phrase};
use crate::output::{Failure, Page, Report, Status, caveats, problem_texts, sum_names, trust};

/// The report of `highwater check`.
#[derive(Debug)]
pub struct CheckReport<'a> {
    pub(super) arguments: &'a CheckArguments,
    pub(super) budgets: &'a Budgets,
    input: &'a Input,
    /// The recording, or an empty window of it.
    pub(super) trace: &'a Trace,
    failed_requests: u64,
    pub(super) devices: Vec<DeviceId>,
    /// The result of each budget on each device that has the limited quantity, device by device.
    pub(super) outcomes: Vec<Outcome>,
    /// Budgets that cannot be measured on a device, although they can on others. Each has the reason.
    unmeasured: Vec<(DeviceId, String)>,
    /// The difference between the peaks of the recording and of the baseline, for each device that both have.
    pub(super) differences: Vec<(DeviceId, Diff)>,
    /// The reasons for which budgets that are met may not be confirmed.
    doubts: Vec<Doubt>,
    /// Devices on which a category's budget is met, but would not be with the blocks of unknown category at the peak:
    /// the device, the bytes of those blocks, and the peak.
    unknown: Vec<(DeviceId, u64, u64)>,
    /// The grouping keys: category, and module or source line.
    pub(super) keys: [GroupKey; 2],
    baseline: Option<&'a Trace>,
}

impl<'a> CheckReport<'a> {
    /// Measures every selected device of a recording and, if there is one, of the baseline.
    ///
    /// # Errors
    /// Fails if no selected device has the total or the samples that a budget needs, if the baseline lacks a device, or
    /// if a recording cannot be read.
    pub fn of(
        input: &'a Input,
        baseline: Option<&'a Input>,
        budgets: &'a Budgets,
        arguments: &'a CheckArguments,
    ) -> Result<Self, Failure> {
        let trace = input.facts();
        let [category, place, _] = culprit_keys(trace);
        let devices = measured_devices(input, arguments.device, budgets.metric)?;
        let mut report = Self {
            arguments,
            budgets,
            input,
            trace,
            failed_requests: devices.iter().map(|device| input.source.count(*device, EventKind::Oom)).sum(),
            outcomes: Vec::new(),
            unmeasured: Vec::new(),
            differences: Vec::new(),
            doubts: input.ask(|source, _| Doubt::of(source, &devices))?,
            devices,
            unknown: Vec::new(),
            keys: [category, place],
            baseline: baseline.map(Input::facts),
        };
        let mut refused: Vec<Vec<(DeviceId, String)>> = vec![Vec::new(); budgets.rows.len()];
        let mut is_measured = vec![false; budgets.rows.len()];
        for device in report.devices.clone() {
            for (row, outcome) in report.measure(device, baseline)?.into_iter().enumerate() {
                match outcome {
                    Ok(outcome) => {
                        is_measured[row] = true;
                        report.outcomes.push(outcome);
                    }
                    Err(why) => refused[row].push((device, why)),
                }
            }
        }
        for (refused, is_measured) in refused.into_iter().zip(is_measured) {
            match refused.first() {
                Some((_, why)) if !is_measured => return Err(Failure::Usage(why.clone())),
                _ => report.unmeasured.extend(refused),
            }
        }
        Ok(report)
    }

    fn measure(
        &mut self,
        device: DeviceId,
        baseline: Option<&'a Input>,
    ) -> Result<Vec<Result<Outcome, String>>, Failure> {
        let (input, metric) = (self.input, self.budgets.metric);
        let other_device = match baseline {
            Some(baseline) => device_of_baseline(baseline, input.facts(), device, self.budgets)?,
            None => None,
        };
        let checked = |input: &'a Input, device| {
            input.ask(|source, watch| Checked::of(source, device, metric, &self.budgets.rows, watch))
        };
        let own = checked(input, device)?;
        let other = baseline.zip(other_device).map(|(baseline, device)| checked(baseline, device)).transpose()?;
        let unreadable = |why: Error| input.unreadable(why);
        let peak = own.peak(metric).map_err(unreadable)?;
        if let Some(other) = &other {
            let filter = Filter::default();
            let query = Query { keys: &self.keys, top: usize::MAX, filter: &filter, siblings: Siblings::Merged };
            let before = other.peak(metric).map_err(unreadable)?;
            let diff = other
                .at(&before, |a, moment_a| own.at(&peak, |b, moment_b| Diff::of([a, b], [moment_a, moment_b], &query)));
            let mut diff = diff.and_then(|diff| diff).map_err(unreadable)?;
            diff.list_changed(self.arguments.top);
            self.differences.push((device, diff));
        }
        let outcomes = check(&own, other.as_ref(), &self.budgets.rows).map_err(unreadable)?;
        let has_room = |outcome: &Outcome| match outcome.budget {
            Budget::Category(category, limit) if category != Category::Unknown => {
                limit - outcome.actual_bytes.min(limit)
            }
            _ => u64::MAX,
        };
        let unknown = own.at(&peak, |Asked { trace, live, .. }, moment| {
            let at_peak = live.before_position(trace, metric, moment.position());
            let of_unknown = at_peak.iter().filter(|id| trace.blocks.category[id.0 as usize] == Category::Unknown);
            of_unknown.map(|id| bytes_of(trace, metric, *id)).sum::<u64>()
        });
        let unknown = unknown.map_err(unreadable)?;
        if outcomes.iter().flatten().any(|outcome| !outcome.is_broken() && unknown > has_room(outcome)) {
            self.unknown.push((device, unknown, peak.bytes));
        }
        Ok(outcomes)
    }

    /// Returns the effect of recomputing modules, if that lowers an exceeded peak of requested bytes; `None` also if
    /// the recording is not in memory.
    fn advice(&self, outcome: &Outcome) -> Option<String> {
        let is_peak = matches!(outcome.budget, Budget::Peak(_) | Budget::Growth(_));
        if !is_peak || self.budgets.metric != Metric::Requested || !outcome.is_broken() {
            return None;
        }
        let source = self.input.source.resident().ok()?;
        let peaks = AdvicePeaks::of(source.facts(), outcome.moment.device);
        if peaks.lowers(outcome.actual_bytes) { peaks.of_modules(outcome.actual_bytes) } else { None }
    }

    /// Returns whether all budgets are met and can be confirmed.
    pub(crate) fn has_passed(&self) -> bool {
        self.broken().next().is_none() && self.undecided().next().is_none()
    }

    /// Returns the outcomes of budgets that are not exceeded, but cannot be confirmed because the recording is
    /// incomplete.
    pub(super) fn undecided(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| self.doubt(outcome).is_some())
    }

    fn doubt(&self, outcome: &Outcome) -> Option<Doubt> {
        self.doubts.iter().copied().find(|doubt| !outcome.is_broken() && outcome.is_concerned_by(*doubt))
    }

    /// Returns the reason as a sentence without its full stop, with the device if there are several.
    fn doubt_text(&self, outcome: &Outcome) -> Option<String> {
        let on = |doubt: Doubt| Some(format!(" on {}", phrase(self.trace, &[doubt.device()?])?));
        self.doubt(outcome).map(|doubt| doubt.text(self.trace) + &on(doubt).unwrap_or_default())
    }

    /// Returns status 1 if a budget is exceeded or cannot be confirmed, otherwise 0.
    pub fn status(&self) -> Status {
        if self.has_passed() { Status::Fine } else { Status::Broken }
    }

    pub(super) fn broken(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.is_broken())
    }

    /// Returns the difference from the baseline, for each device that differs.
    pub(super) fn listed_differences(&self) -> impl Iterator<Item = &(DeviceId, Diff)> {
        self.differences.iter().filter(|(_, diff)| !diff.groups.is_empty())
    }

    pub(super) fn verdict(&self) -> String {
        let named = |devices: &[DeviceId]| {
            covered_phrase(self.trace, devices).map_or_else(String::new, |phrase| format!(" on {phrase}"))
        };
        let mut broken: Vec<DeviceId> = self.broken().map(|outcome| outcome.moment.device).collect();
        broken.dedup();
        let budgets = count_of(self.budgets.rows.len() as u64, "budget");
        let mut why: Vec<String> = self.undecided().filter_map(|outcome| self.doubt_text(outcome)).collect();
        why.dedup();
        if broken.is_empty() && !why.is_empty() {
            let is_undecided = |budget: &&Budget| self.undecided().any(|outcome| outcome.budget == **budget);
            let count = self.budgets.rows.iter().filter(is_undecided).count();
            return format!("Failed: {}, so {count} of {budgets} cannot be confirmed.", why.join("; "));
        }
        if broken.is_empty() {
            let until = if self.failed_requests > 0 { ", up to the request that failed" } else { "" };
            if !self.unmeasured.is_empty() {
                return format!("Passed: {}{until}.", self.met_by_devices());
            }
            return format!("Passed: {budgets} met{}{until}.", named(&self.devices));
        }
        let is_broken = |budget: &&Budget| self.broken().any(|outcome| outcome.budget == **budget);
        let count = self.budgets.rows.iter().filter(is_broken).count();
        format!("Failed: {count} of {budgets} exceeded{}.", named(&broken))
    }

    /// Lists the budgets that are met, each with its devices, such as `max-reserved on all 3 devices; max-step-growth
    /// on devices 0, 2 of 3`. Budgets that are met on the same devices share an entry.
    fn met_by_devices(&self) -> String {
        let mut parts: Vec<(Vec<String>, Vec<DeviceId>)> = Vec::new();
        for budget in &self.budgets.rows {
            let met = self.outcomes.iter().filter(|outcome| outcome.budget == *budget);
            let devices: Vec<DeviceId> = met.map(|outcome| outcome.moment.device).collect();
            match parts.iter_mut().find(|(_, others)| *others == devices) {
                Some((budgets, _)) => budgets.push(budget.to_string()),
                None => parts.push((vec![budget.to_string()], devices)),
            }
        }
        let part = |(budgets, devices): &(Vec<String>, Vec<DeviceId>)| {
            format!("{} on {}", budgets.join(", "), phrase(self.trace, devices).unwrap_or_default())
        };
        parts.iter().map(part).collect::<Vec<_>>().join("; ")
    }

    /// Returns a warning if only one of the recording and the baseline was made on a simulated GPU.
    fn baseline_caveat(&self) -> Option<String> {
        self.baseline.and_then(|baseline| caveats::simulated_beside(self.trace, baseline))
    }

    /// Returns the limits of the verdict: failed requests, another kind of baseline, and blocks of unknown category.
    pub(super) fn warnings(&self) -> Vec<String> {
        let unknown = self.unknown.iter().map(|(device, bytes, peak)| {
            let (on, size, whole) = (on_device(self.trace, *device), format_bytes(*bytes), format_bytes(*peak));
            format!("{on}{size} of the peak, {whole}, are of unknown category: they count for no category's budget.")
        });
        caveats::out_of_memory(self.failed_requests).into_iter().chain(self.baseline_caveat()).chain(unknown).collect()
    }

    pub(super) fn mark(&self, outcome: &Outcome) -> &'static str {
        match () {
            () if outcome.is_broken() => "exceeded",
            () if self.doubt(outcome).is_some() => "unconfirmed",
            () => "met",
        }
    }

    /// Returns the name of the outcome's device and a comma; empty if the recording has only one device.
    pub(super) fn device_prefix(&self, outcome: &Outcome) -> String {
        phrase(self.trace, &[outcome.moment.device]).map_or_else(String::new, |phrase| format!("{phrase}, "))
    }

    pub(super) fn has_devices(&self) -> bool {
        self.devices.len() > 1
    }

    /// Returns the default device if it was measured, otherwise the first measured device.
    fn default_device(&self) -> DeviceId {
        let main = self.trace.main_device();
        if self.devices.contains(&main) { main } else { self.devices.first().copied().unwrap_or(main) }
    }

    /// Prints one line per budget that is exceeded or cannot be confirmed, which GitHub Actions shows as an error
    /// message.
    pub fn print_github(&self, page: &mut Page<'_>) -> io::Result<()> {
        for outcome in self.broken() {
            let culprit = outcome.culprit.as_ref().map_or(String::new(), |culprit| format!(": {}", culprit.text));
            let text = format!(
                "{}{} is {}, the limit {}{culprit}",
                on_device(self.trace, outcome.moment.device),
                outcome.budget.subject(self.budgets.metric),
                format_bytes(outcome.actual_bytes),
                format_bytes(outcome.limit_bytes)
            );
            page.line(&github_error(&outcome.budget.to_string(), &text))?;
        }
        self.undecided().try_for_each(|outcome| {
            page.line(&github_error(&outcome.budget.to_string(), &format!("not confirmed: {}", self.verdict())))
        })
    }

    fn rules<'t>(&'t self, outcomes: &mut dyn Iterator<Item = &'t Outcome>) -> Table<'t> {
        let rows: Rows<&Outcome> = outcomes.collect();
        let baseline = |one: &&Outcome| one.baseline_bytes.map_or_else(|| "-".to_owned(), format_bytes);
        let metric = self.budgets.metric;
        let moment = |one: &&Outcome| moment_value(&self.trace.header, &one.moment);
        let group = |one: &&Outcome| one.culprit.as_ref().map(culprit_value);
        let culprit = |one: &&Outcome| one.culprit.as_ref().map(|culprit| culprit.text.clone());
        let strong =
            |one: &&Outcome| Some(self.mark(one)).filter(|mark| *mark != "met").map(|mark| format!("**{mark}**"));
        let device = Column::number("device", "device", rows.of(|one| one.moment.device.0));
        let before = Column::bytes("baseline_bytes", "baseline", rows.of(|one| one.baseline_bytes));
        let columns = [
            Column::text("mark", "", rows.of(|one| self.mark(one))).in_tables().in_markdown(rows.of(strong)),
            Column::text("rule", "", rows.of(|one| one.budget.to_string())).in_files(),
            if self.has_devices() { device } else { device.in_files() },
            Column::shown_alone("rule", false, rows.of(|one| one.budget.to_string()))
                .in_markdown(rows.of(|one| Some(format!("`{}`", one.budget)))),
            Column::text("subject", "what", rows.of(move |one| one.budget.subject(metric))).wrapped(),
            Column::bytes("limit_bytes", "limit", rows.of(|one| one.limit_bytes)),
            Column::bytes("actual_bytes", "actual", rows.of(|one| one.actual_bytes)),
            Column::difference("headroom_bytes", "headroom", rows.of(|one| one.headroom()))
                .shown(rows.of(|one| headroom(one))),
            if self.baseline.is_some() { before.shown(rows.of(baseline)) } else { before.in_files() },
            Column::text("is_broken", "", rows.of(|one| one.is_broken())).in_files(),
            // Null if the budget is exceeded, or can be confirmed.
            Column::text("unconfirmed_because", "", rows.of(|one| self.doubt_text(one))).in_files(),
            Column::nested("moment", rows.of(moment)),
            // A sentence; null if the budget is met.
            Column::text("culprit", "", rows.of(culprit)).in_files(),
            Column::nested("culprit_group", rows.of(group)),
            // The effect of recomputing modules; null unless an exceeded peak is lowered by it.
            Column::text("advice", "", rows.of(|one| self.advice(one))).in_files(),
        ];
        Table::new(rows.count(), columns)
    }

    /// Returns a table of the groups that differ, the sum of the unlisted groups, and the total. `place` is the title
    /// of the second key.
    pub(super) fn differences_table<'t>(&'t self, diff: &'t Diff, place: &'static str) -> Table<'t> {
        let rows = &diff.groups;
        let sums = sum_names(diff.rest_groups);
        let count = rows.len() + sums.len();
        let bytes = move |row: usize| match rows.get(row) {
            Some(group) => group.bytes,
            None if row + 1 < count => diff.rest_bytes,
            None => diff.bytes,
        };
        let names = move |row: usize| match rows.get(row) {
            Some(group) => named(group),
            None => vec![sums[row - rows.len()].clone()],
        };
        let others = names.clone();
        let in_code = move |at: usize| {
            move |row: usize| Some(named(rows.get(row)?).get(at).map_or_else(String::new, |name| code(name)))
        };
        let place = Column::text(self.keys[1].name(), place, move |row| others(row).get(1).cloned());
        let place = place.in_markdown(in_code(1));
        let columns = [
            Column::text(self.keys[0].name(), self.keys[0].name(), move |row| names(row).swap_remove(0))
                .in_markdown(in_code(0)),
            if self.keys[1] == GroupKey::Scope { place.cut() } else { place.source_lines() },
            Column::bytes("baseline_bytes", "baseline", move |row| bytes(row)[0]),
            Column::bytes("bytes", "now", move |row| bytes(row)[1]),
            Column::difference("delta_bytes", "difference", move |row| {
                i128::from(bytes(row)[1]) - i128::from(bytes(row)[0])
            }),
        ];
        Table::new(count, columns)
    }

    fn hint(&self) -> String {
        let file = self.arguments.source.file.as_path();
        let place = if self.keys[1] == GroupKey::Scope { "scope,op" } else { "frame" };
        // With several devices, the one on which a budget is exceeded.
        let broken = self.broken().next().filter(|_| self.trace.device_ids().len() > 1);
        let given = self.arguments.given(self.budgets.metric);
        let given = given.on_device(broken.map(|outcome| outcome.moment.device.0));
        if self.broken().next().is_none()
            && let Some(doubt) = self.undecided().find_map(|outcome| self.doubt(outcome))
        {
            let (command, what_for) = match doubt {
                Doubt::OutOfMemory(_) => ("oom", "for the cause of the failure, and possible fixes"),
                _ => ("info", "for the contents of the recording"),
            };
            return FilesAndOptions::of(file).next(command, &[], what_for);
        }
        match (&self.budgets.baseline, self.has_passed()) {
            (Some(baseline), _) => {
                let what_for = "for all differences from the baseline";
                given.about(&[baseline, file]).next("diff", &["--by", place], what_for)
            }
            (None, false) if self.broken().any(|outcome| matches!(outcome.budget, Budget::StepGrowth(_))) => {
                given.next("growth", &[], "for the memory kept from step to step")
            }
            (None, false) if self.broken().any(|outcome| matches!(outcome.budget, Budget::ReservedGrowth(_))) => {
                let options = ["--metric", "reserved"];
                given.without("metric").next("growth", &options, "for the segments that are kept")
            }
            (None, false) => given.next("explain", &[], "for ways to lower the peak"),
            (None, true) => given.next("peak", &["--by", place], "to see what is using memory at the peak"),
        }
    }
}

impl Report for CheckReport<'_> {
    fn facts(&self) -> Facts<'_> {
        let unmeasured = self.unmeasured.iter();
        let unmeasured =
            unmeasured.map(|(device, why)| Facts::new([("device", device.0.into()), ("why", why.as_str().into())]));
        let difference = |(device, all): &(DeviceId, Diff)| difference_value(*device, all, self.keys);
        let of_default = self.differences.iter().find(|(device, _)| *device == self.default_device());
        let devices: Vec<u16> = self.devices.iter().map(|device| device.0).collect();
        Facts::new([
            ("passed", self.has_passed().into()),
            ("broken", self.rules(&mut self.broken()).into()),
            // Budgets that are not exceeded, but cannot be confirmed.
            ("undecided", self.rules(&mut self.undecided()).into()),
            ("rules", self.table().into()),
            ("file", self.arguments.source.file.as_path().into()),
            ("baseline", self.budgets.baseline.as_deref().into()),
            ("device", self.default_device().0.into()),
            ("devices", devices.into()),
            // Budgets that cannot be measured on a device, while they can on others.
            ("unmeasured", unmeasured.collect::<Vec<_>>().into()),
            ("metric", Value::of(self.budgets.metric).into()),
            // Of the default device.
            ("differences", of_default.map(difference).into()),
            ("differences_by_device", self.differences.iter().map(difference).collect::<Vec<_>>().into()),
            ("oom", caveats::out_of_memory(self.failed_requests).into()),
            ("baseline_caveat", Fact::or_absent(self.baseline_caveat())),
            ("trust", trust(self.trace).into()),
            ("problems", problem_texts(self.trace).into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        self.rules(&mut self.outcomes.iter())
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        page.headline(&self.verdict())?;
        page.gap()?.table(&self.table())?;
        for outcome in self.broken() {
            page.gap()?;
            let over = format_bytes(outcome.actual_bytes - outcome.limit_bytes);
            let place = self.device_prefix(outcome);
            page.line(&format!("{}: {over} over the limit, {place}{}.", outcome.budget, when(&outcome.moment)))?;
            if let Some(culprit) = &outcome.culprit {
                page.line(&format!("  {}.", culprit.text))?;
            }
            if let Some(text) = self.advice(outcome) {
                page.line(&format!("  {text}"))?;
            }
        }
        for (device, differences) in self.listed_differences() {
            page.gap()?;
            let on_device = on_device(self.trace, *device);
            page.line(&format!("{on_device}Differences from the baseline at the peak:"))?;
            page.table(&self.differences_table(differences, self.keys[1].name()))?;
        }
        let of_device = |(device, why): &(DeviceId, String)| format!("Not measured on device {}: {why}.", device.0);
        for warning in self.unmeasured.iter().map(of_device).chain(self.warnings()) {
            page.gap()?.warning(&warning)?;
        }
        caveats::print(self.trace, page)?;
        if let Some(baseline) = self.baseline {
            caveats::print_of(baseline, "the baseline", page)?;
        }
        page.gap()?.hint(&self.hint())
    }
}

fn github_error(rule: &str, text: &str) -> String {
    let escaped = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    format!("::error title=highwater check {rule}::{escaped}")
}

/// A row that combines identical modules includes their number.
fn named(row: &DiffGroup) -> Vec<String> {
    let mut names = row.key.clone();
    if let (Some(last), 2..) = (names.last_mut(), row.members.len()) {
        *last = format!("{last} ({} alike)", row.members.len());
    }
    names
}

/// Formats the headroom, such as `820 MiB`, or `−412 MiB` if the budget is exceeded.
fn headroom(outcome: &Outcome) -> String {
    format_signed_bytes(outcome.headroom()).trim_start_matches('+').to_owned()
}
