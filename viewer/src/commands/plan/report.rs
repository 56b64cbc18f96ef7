//! The report of `highwater plan`: the cheapest changes that fit, their costs, and the lines of code that apply them.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use highwater_app::answers::plan::{Allowance, Code, Plan, PlanLine, Proof, Reach, Search, Trial, micros, name, names};
use highwater_app::figures::planned::{
    Budget, NOT_OPTIMAL, answer, changes_table, costs, duration, large_enough, least, less_work, proven, sharding,
    shares,
};
use highwater_app::report::{Column, Facts, Table, Value};
use highwater_snapshots::{format_bytes, format_count};

use crate::commands::plan::Maximize;
use crate::gpu::Roofline;
use crate::output::{Page, Report};

#[derive(Debug)]
pub(crate) struct PlanReport {
    pub budget: Budget,
    pub search: Search,
    /// The changes of the cheapest plan, one after the other.
    pub lines: Vec<PlanLine>,
    /// The composition of the smallest peak, if nothing fits.
    pub at_minimum: Vec<(String, u64)>,
    pub proof: Proof,
    /// The command that records the step with the plan.
    pub command: Option<String>,
    pub code: Code,
    pub assumptions: Vec<String>,
    pub warnings: Vec<String>,
    /// The plans that additional changes would make possible, if nothing fits.
    pub possible: Vec<(Allowance, Plan)>,
    /// The source of the estimated times, if there are any.
    pub roofline: Option<Roofline>,
    /// The dimension that was maximized, and the size found.
    pub maximized: Option<(Maximize, usize)>,
    /// The result of simulating the program with the plan.
    pub proven: Option<Proven>,
}

/// The result of simulating the program with the plan on a device whose size is the budget.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    /// Whether the program fits; `None` if it ended for another reason.
    pub fits: Option<bool>,
    /// The peaks of requested, allocated and reserved bytes.
    pub peaks: [u64; 3],
    /// Whether all peaks are as predicted by the plan.
    pub as_predicted: bool,
    /// Lines that read unknown values computed on the device. The figures are exact if no memory depends on these
    /// values.
    pub depends_on_values: Vec<String>,
    /// The reason the program does not fit, or the reason this is unknown.
    pub why: Option<String>,
    pub file: PathBuf,
}

impl Proven {
    fn facts(&self) -> Facts<'_> {
        let [requested, allocated, reserved] = self.peaks;
        Facts::new([
            ("fits", self.fits.into()),
            ("requested_bytes", requested.into()),
            ("allocated_bytes", allocated.into()),
            ("reserved_bytes", reserved.into()),
            ("as_predicted", self.as_predicted.into()),
            ("depends_on_values", self.depends_on_values.clone().into()),
            ("why", self.why.as_deref().into()),
            ("file", self.file.as_path().into()),
        ])
    }
}

impl PlanReport {
    /// Returns whether some plan fits, as [`Search::fits`] does, unless the program did not fit with the plan.
    pub(crate) fn fits(&self) -> Option<bool> {
        self.unproven().map_or_else(|| self.search.fits(), |proven| proven.fits)
    }

    /// Returns the simulated result with the plan, if the program did not fit or its fit could not be determined.
    fn unproven(&self) -> Option<&Proven> {
        self.proven.as_ref().filter(|proven| proven.fits != Some(true))
    }

    /// Returns the additional work of a plan, weighted as in the ranking of plans.
    fn work_share(&self, plan: &Plan) -> f64 {
        plan.cost as f64 / self.search.base.units().max(1) as f64
    }

    fn alternatives(&self) -> Table<'_> {
        let plans = self.search.plans.get(1..).unwrap_or_default();
        let costs = |row: usize| costs(self.proof, plans[row].class, shares(&self.search, &plans[row]));
        let columns = [
            Column::text("changes", "other plans", |row| names(&plans[row].setup))
                .shown(|row| name(&plans[row].setup))
                .wrapped(),
            Column::text("scopes", "", |row| plans[row].setup.recomputed.clone().unwrap_or_default()).in_files(),
            Column::text("class", "costs", |row| Value::of(plans[row].class)).shown(costs),
            Column::number("work_share", "", |row| self.work_share(&plans[row])).in_files(),
            Column::number("flops_share", "", |row| shares(&self.search, &plans[row])[0]).in_files(),
            Column::bytes("reserved_bytes", "reserved", |row| plans[row].trial.reserved),
            Column::bytes("peak_bytes", "requested", |row| plans[row].trial.requested),
        ];
        Table::new(plans.len(), columns)
    }

    /// The estimated time of a step in microseconds: unchanged, and with the plan.
    fn step_time(&self) -> [Option<u64>; 2] {
        let as_is = self.search.as_is.estimated_ns.map(micros);
        let with_plan = self.search.best().and_then(|plan| plan.trial.estimated_ns).map(micros);
        [as_is, with_plan.or(as_is)]
    }

    /// Prints the plan's result as the headline, unless the simulation of the program contradicts it.
    fn lead(&self, page: &mut Page<'_>, text: &str) -> io::Result<()> {
        if self.unproven().is_some() { page.line(text) } else { page.headline(text) }
    }

    fn print_plan(&self, plan: &Plan, page: &mut Page<'_>) -> io::Result<()> {
        let Search { plans, is_optimal, reach, .. } = &self.search;
        self.lead(page, &answer(&self.search, self.budget))?;
        page.gap()?.table(&self.table())?;
        page.line(&proven(self.proof, reach, plan, self.budget))?;
        if !is_optimal {
            page.warning(NOT_OPTIMAL)?;
        }
        if plans.len() > 1 {
            page.gap()?.table(&self.alternatives())?;
        }
        page.gap()?.line(&least(&self.search))
    }

    fn print_nothing(&self, page: &mut Page<'_>) -> io::Result<()> {
        let minimum = &self.search.minimum;
        page.headline(&answer(&self.search, self.budget))?;
        if let Some(text) = large_enough(&self.search, self.budget) {
            page.line(&text)?;
        }
        for (allowance, plan) in &self.possible {
            let [allowance, requested] = [allowance.name().to_owned(), format_bytes(plan.trial.requested)];
            page.line(&format!(
                "With --allow {allowance} it would fit: {}, {requested} requested.",
                name(&plan.setup)
            ))?;
        }
        if let Some(text) = sharding(&self.at_minimum, minimum, self.budget) {
            page.line(&text)?;
        }
        page.gap()?;
        let parts = &self.at_minimum;
        let columns = [
            Column::text("part", "its peak consists of", |row| parts[row].0.as_str()),
            Column::bytes("bytes", "requested", |row| parts[row].1),
        ];
        page.table(&Table::new(parts.len(), columns))
    }
}

impl Report for PlanReport {
    fn facts(&self) -> Facts<'_> {
        let Search { as_is, plans, minimum, combinations, trials, is_optimal, reach, .. } = &self.search;
        let proof = match self.proof {
            _ if self.proven.is_some() => "simulated",
            Proof::Rerun(_) => "rerun",
            Proof::Replayed => "replayed",
        };
        let environment: BTreeMap<String, String> = self.code.environment.iter().cloned().collect();
        let least = Facts::new([
            ("bytes", minimum.requested.into()),
            ("changes", names(&minimum.setup).into()),
            ("scopes", minimum.setup.recomputed.clone().unwrap_or_default().into()),
            ("settings", minimum.setup.settings.as_deref().into()),
            ("device_bytes", minimum.device_bytes.map(|bytes| bytes.saturating_add(self.budget.reserve)).into()),
            ("is_exact", minimum.is_exact.into()),
        ]);
        let searched = Facts::new([
            ("combinations", (*combinations).into()),
            ("trials", (*trials).into()),
            ("is_optimal", (*is_optimal).into()),
        ]);
        let spare = plans.first().map(|plan| self.budget.capacity().saturating_sub(plan.trial.reserved));
        Facts::new([
            ("budget_bytes", self.budget.bytes.into()),
            ("reserve_bytes", self.budget.reserve.into()),
            // Null if a plan fits as far as the figures go, but they do not go to the end of the run.
            ("fits", self.fits().into()),
            ("fits_as_is", (self.search.fits_as_is && *reach == Reach::End).into()),
            // How far the figures go: `end`, `failed_request`, or `recorded`.
            ("reach", reach.name().into()),
            // Why the run may need more memory than the recording shows.
            ("unconfirmed_because", reach.doubt().into()),
            // Whether every recorded request succeeds with the plan, if the figures go only so far; null otherwise.
            ("gets_past_failure", (*reach == Reach::FailedRequest).then_some(!plans.is_empty()).into()),
            ("proof", proof.into()),
            // The program with the plan, simulated once more on a device of the budget; null if no program was given.
            ("proven", self.proven.as_ref().map(Proven::facts).into()),
            ("command", self.command.as_deref().into()),
            // Lines of Python or Rust, to be pasted without changes.
            ("lines", self.code.lines.clone().into()),
            // Environment variables to set before the program starts.
            ("environment", Value::of(environment).into()),
            // The GPU that times are estimated for, if they are.
            ("gpu", self.roofline.map(|roofline| roofline.rates.gpu).into()),
            // The time of a step with the plan, or as it is if nothing is changed.
            ("estimated_step_us", self.step_time()[1].into()),
            // What plans are ranked by within a class, as a share of the step's work; null if nothing fits.
            ("work_share", plans.first().map(|plan| self.work_share(plan)).into()),
            ("before", peaks_value(as_is).into()),
            ("after", plans.first().map(|plan| peaks_value(&plan.trial)).into()),
            ("plan", self.table().into()),
            ("alternatives", self.alternatives().into()),
            ("minimum", least.into()),
            // The largest size that fits, if one was asked for.
            ("maximized", self.maximized.filter(|_| !plans.is_empty()).map(|(_, size)| size).into()),
            ("spare_bytes", spare.into()),
            ("searched", searched.into()),
            ("assumptions", self.assumptions.clone().into()),
            ("warnings", self.warnings.clone().into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        changes_table(&self.lines, self.proof, self.roofline.is_some())
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        if let Some((which, size)) = self.maximized.filter(|_| !self.search.plans.is_empty()) {
            page.headline(&format!("The largest {} that fits is {}.", which.name(), format_count(size as u64)))?;
        }
        if let Some(proven) = self.unproven() {
            page.headline(&simulated_again(proven, self.budget))?;
            page.gap()?.line("What the replay of the recording has predicted:")?;
        }
        match self.search.plans.first() {
            _ if self.search.fits_as_is => {
                self.lead(page, &answer(&self.search, self.budget))?;
                less_work(&self.search).map_or(Ok(()), |text| page.line(&text))?;
            }
            Some(plan) => self.print_plan(plan, page)?,
            None => self.print_nothing(page)?,
        }
        if let Some(proven) = self.proven.as_ref().filter(|proven| proven.fits == Some(true)) {
            page.line(&simulated_again(proven, self.budget))?;
        }
        if let (Some(roofline), [Some(before), Some(now)]) = (self.roofline, self.step_time()) {
            let (name, with) = (roofline.rates.gpu, if roofline.tf32 { "in" } else { "without" });
            let before = if before == now { String::new() } else { format!(", {} before", duration(before)) };
            page.line(&format!(
                "Estimated, {name}: a step takes about {}{before}, with each operation at the peak rate or bandwidth and \
                 f32 products {with} TF32.",
                duration(now)
            ))?;
        }
        if !(self.assumptions.is_empty() && self.warnings.is_empty()) {
            page.gap()?;
        }
        let assumptions = self.assumptions.iter().map(|text| format!("Assumed: {text}."));
        for text in assumptions.chain(self.warnings.iter().cloned()) {
            page.warning(&text)?;
        }
        let parts =
            [("Set in the environment:", self.code.environment_words()), ("To apply it:", self.code.lines.clone())];
        for (title, lines) in parts.into_iter().filter(|(_, lines)| !lines.is_empty()) {
            page.gap()?.line(title)?;
            lines.iter().try_for_each(|line| page.line(&format!("  {line}")))?;
        }
        page.gap()?;
        match &self.command {
            Some(command) => page.hint(&format!("Next: {command}   to record the step with the plan")),
            None if self.code != Code::default() => {
                page.hint("Next: apply it, record the step again, and compare the two with `highwater diff`")
            }
            None => Ok(()),
        }
    }
}

fn peaks_value(trial: &Trial) -> Value {
    Value::Map(vec![
        ("requested_bytes", trial.requested.into()),
        ("allocated_bytes", trial.allocated.into()),
        ("reserved_bytes", trial.reserved.into()),
        ("retries", trial.retries.into()),
    ])
}

fn simulated_again(proven: &Proven, budget: Budget) -> String {
    let device = format_bytes(budget.bytes);
    let [requested, _, reserved] = proven.peaks.map(format_bytes);
    let condition = match proven.depends_on_values.as_slice() {
        [] => String::new(),
        _ if proven.as_predicted => String::new(),
        [line, ..] => {
            format!(" This may depend on values computed on the device, which are zeros here; {line} reads them.")
        }
    };
    if let Some(why) = &proven.why {
        let result = if proven.fits == Some(false) { "does not fit" } else { "is not proven to fit" };
        return format!(
            "The plan {result} {device}: when the program was simulated again with its changes, {why}; until \
             then {reserved} were reserved.{condition}"
        );
    }
    let as_predicted = if proven.as_predicted { "as predicted" } else { "not exactly as predicted" };
    format!(
        "The program was simulated again with this, on a device of {device}: it fits, with {reserved} reserved and \
         {requested} requested, {as_predicted}.{condition}"
    )
}
