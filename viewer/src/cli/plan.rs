//! The report of `highwater plan`: the cheapest changes that fit, what each costs, and the lines that apply them.

use std::io;

use highwater_app::answers::plan::{
    Allowance, Code, Plan, PlanLine, Proof, Reach, Search, Setup, TrainingStep, Trial, composition, micros, name, names,
};
use highwater_app::figures::planned::{
    Budget, NOT_OPTIMAL, answer, assumptions, changes_table, costs, duration, large_enough, least, less_work, proven,
    sharding, shares,
};
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

pub use super::plan_figures::Proven;
use super::plan_figures::{AlternativeFigures, MinimumFigures, PeaksFigures, PlanFigures, SearchedFigures};
use crate::args::Maximize;
use crate::cli::output::page::Page;
use crate::cli::output::table::{Column, Table};
use crate::gpu::Roofline;

/// The report, as text and as JSON.
#[derive(Debug)]
pub struct PlanReport {
    budget: Budget,
    search: Search,
    lines: Vec<PlanLine>,
    at_minimum: Vec<(String, u64)>,
    proof: Proof,
    /// The command that records the step with the plan.
    command: Option<String>,
    /// What applies the plan.
    code: Code,
    assumptions: Vec<String>,
    warnings: Vec<String>,
    possible: Vec<(Allowance, Plan)>,
    /// What times are estimated from.
    roofline: Option<Roofline>,
    /// The size that was made as large as possible.
    maximized: Option<(Maximize, usize)>,
    /// The program with the plan, simulated once more.
    proven: Option<Proven>,
}

/// What a report needs beside the search.
#[derive(Debug)]
pub struct PlanContext {
    /// The budget.
    pub budget: Budget,
    /// The command that records the step with the plan.
    pub command: Option<String>,
    /// What applies the plan.
    pub code: Code,
    /// What limits the answer.
    pub warnings: Vec<String>,
    /// If nothing fits, the plans that further changes would make possible.
    pub possible: Vec<(Allowance, Plan)>,
    /// What times are estimated from, if they are.
    pub roofline: Option<Roofline>,
}

impl PlanReport {
    /// Builds the report: runs `step` once more for each change of the plan.
    ///
    /// # Errors
    ///
    /// Returns why the step cannot be run.
    pub fn of(step: &dyn TrainingStep, search: Search, context: PlanContext) -> Result<Self, String> {
        let PlanContext { budget, command, code, warnings, possible, roofline } = context;
        let proof = step.proof();
        let best = search.best().map(|plan| plan.setup.clone());
        let all = |setup: &Setup| PlanLine::all(step, setup, budget.capacity());
        let lines = best.as_ref().map(all).transpose()?.unwrap_or_default();
        let assumptions = assumptions(step, best.as_ref());
        let mut at_minimum = Vec::new();
        if search.plans.is_empty() {
            at_minimum = composition(&step.recording(&search.minimum.setup)?);
        }
        Ok(Self {
            budget,
            search,
            lines,
            at_minimum,
            proof,
            command,
            code,
            assumptions,
            warnings,
            possible,
            roofline,
            maximized: None,
            proven: None,
        })
    }

    /// Says that `size` is the largest with which some plan fits.
    pub fn maximized(self, which: Maximize, size: usize) -> Self {
        Self { maximized: Some((which, size)), ..self }
    }

    /// Adds what came of the program with the plan.
    pub fn proven(self, proven: Option<Proven>) -> Self {
        Self { proven, ..self }
    }

    /// Returns whether some plan fits, as [`Search::fits`] does, and as the program with it did.
    pub fn fits(&self) -> Option<bool> {
        self.unproven().map_or_else(|| self.search.fits(), |proven| proven.fits)
    }

    /// Returns what came of the program with the plan, if it did not fit or could not be told to.
    fn unproven(&self) -> Option<&Proven> {
        self.proven.as_ref().filter(|proven| proven.fits != Some(true))
    }

    /// Returns the JSON object.
    pub fn figures(&self) -> impl Serialize + '_ {
        let Search { as_is, plans, minimum, combinations, trials, is_optimal, reach, .. } = &self.search;
        PlanFigures {
            budget_bytes: self.budget.bytes,
            reserve_bytes: self.budget.reserve,
            fits: self.fits(),
            fits_as_is: self.search.fits_as_is && *reach == Reach::End,
            reach: reach.name(),
            unconfirmed_because: reach.doubt(),
            gets_past_failure: (*reach == Reach::FailedRequest).then_some(!plans.is_empty()),
            proof: match self.proof {
                _ if self.proven.is_some() => "simulated",
                Proof::Rerun(_) => "rerun",
                Proof::Replayed => "replayed",
            },
            proven: self.proven.as_ref(),
            command: self.command.as_deref(),
            lines: &self.code.lines,
            environment: self.code.environment.iter().cloned().collect(),
            gpu: self.roofline.map(|roofline| roofline.rates.gpu),
            estimated_step_us: self.step_time()[1],
            work_share: plans.first().map(|plan| self.work_share(plan)),
            before: PeaksFigures::of(as_is),
            after: plans.first().map(|plan| PeaksFigures::of(&plan.trial)),
            plan: changes_table(&self.lines, self.proof, false),
            alternatives: plans.iter().skip(1).map(|plan| self.alternative(plan)).collect(),
            minimum: MinimumFigures {
                bytes: minimum.requested,
                changes: names(&minimum.setup),
                scopes: minimum.setup.recomputed.clone().unwrap_or_default(),
                settings: minimum.setup.settings.as_deref(),
                device_bytes: minimum.device_bytes.map(|bytes| bytes.saturating_add(self.budget.reserve)),
                is_exact: minimum.is_exact,
            },
            maximized: self.maximized.filter(|_| !plans.is_empty()).map(|(_, size)| size),
            spare_bytes: plans.first().map(|plan| self.budget.capacity().saturating_sub(plan.trial.reserved)),
            searched: SearchedFigures { combinations: *combinations, trials: *trials, is_optimal: *is_optimal },
            assumptions: &self.assumptions,
            warnings: &self.warnings,
        }
    }

    /// The additional work of a plan, weighted as plans are ranked.
    fn work_share(&self, plan: &Plan) -> f64 {
        plan.cost as f64 / self.search.base.units().max(1) as f64
    }

    fn alternative(&self, plan: &Plan) -> AlternativeFigures {
        let Plan { setup, class, trial, .. } = plan;
        AlternativeFigures {
            changes: names(setup),
            scopes: setup.recomputed.clone().unwrap_or_default(),
            class: *class,
            work_share: self.work_share(plan),
            flops_share: shares(&self.search, plan)[0],
            peak_bytes: trial.requested,
            reserved_bytes: trial.reserved,
        }
    }

    /// The estimated time of a step in microseconds: as it is, and with the plan.
    fn step_time(&self) -> [Option<u64>; 2] {
        let as_is = self.search.as_is.estimated_ns.map(micros);
        let with_plan = self.search.best().and_then(|plan| plan.trial.estimated_ns).map(micros);
        [as_is, with_plan.or(as_is)]
    }

    /// Prints the report as text.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        if let Some((which, size)) = self.maximized.filter(|_| !self.search.plans.is_empty()) {
            page.headline(&format!("The largest {} that fits is {}.", which.name(), format_count(size as u64)))?;
        }
        if let Some(proven) = self.unproven() {
            page.headline(&simulated_again(proven, self.budget))?;
            page.gap()?;
            page.line("What the replay of the recording has predicted:")?;
        }
        match self.search.plans.first() {
            _ if self.search.fits_as_is => self.print_fit(page)?,
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
            page.broken(0, &text).iter().try_for_each(|line| page.warning(line))?;
        }
        let parts =
            [("Set in the environment:", self.code.environment_words()), ("To apply it:", self.code.lines.clone())];
        for (title, lines) in parts.into_iter().filter(|(_, lines)| !lines.is_empty()) {
            page.gap()?;
            page.line(title)?;
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

    /// Prints the answer, which leads unless the program has shown otherwise.
    fn lead(&self, page: &mut Page<'_>, text: &str) -> io::Result<()> {
        if self.unproven().is_some() { page.line(text) } else { page.headline(text) }
    }

    fn print_fit(&self, page: &mut Page<'_>) -> io::Result<()> {
        self.lead(page, &answer(&self.search, self.budget))?;
        less_work(&self.search).map_or(Ok(()), |text| page.line(&text))
    }

    fn print_plan(&self, plan: &Plan, page: &mut Page<'_>) -> io::Result<()> {
        let Search { plans, is_optimal, reach, .. } = &self.search;
        self.lead(page, &answer(&self.search, self.budget))?;
        page.gap()?;
        page.report(&changes_table(&self.lines, self.proof, self.roofline.is_some()))?;
        page.line(&proven(self.proof, reach, plan, self.budget))?;
        if !is_optimal {
            page.warning(NOT_OPTIMAL)?;
        }
        if plans.len() > 1 {
            page.gap()?;
            let mut table = Table::new(vec![
                Column::text("other plans").wrapped(),
                Column::text("costs"),
                Column::number("requested"),
                Column::number("reserved"),
            ]);
            for other in &plans[1..] {
                let Trial { requested, reserved, .. } = other.trial;
                let costs = costs(self.proof, other.class, shares(&self.search, other));
                table.push(vec![name(&other.setup), costs, format_bytes(requested), format_bytes(reserved)]);
            }
            page.table(&table)?;
        }
        page.gap()?;
        page.line(&least(&self.search))
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
        let mut table = Table::new(vec![Column::text("its peak consists of"), Column::number("requested")]);
        for (name, bytes) in &self.at_minimum {
            table.push(vec![name.clone(), format_bytes(*bytes)]);
        }
        page.table(&table)
    }
}

/// Words what came of the program with the plan.
fn simulated_again(proven: &Proven, budget: Budget) -> String {
    let Proven { requested_bytes, reserved_bytes, .. } = *proven;
    let device = format_bytes(budget.bytes);
    let [requested, reserved] = [requested_bytes, reserved_bytes].map(format_bytes);
    let condition = match proven.depends_on_values.as_slice() {
        [] => String::new(),
        _ if proven.as_predicted => String::new(),
        [line, ..] => format!(" This may depend on values of the device, which {line} reads and which are zeros here."),
    };
    if let Some(why) = &proven.why {
        let result = if proven.fits == Some(false) { "does not fit" } else { "is not proven to fit" };
        return format!(
            "The plan {result} {device}: when the program was simulated again with its changes, {why}; up to there \
             {reserved} were reserved.{condition}"
        );
    }
    let as_predicted = if proven.as_predicted { "as predicted" } else { "not exactly as predicted" };
    format!(
        "The program was simulated again with this, on a device of {device}: it fits, with {requested} requested and \
         {reserved} reserved, {as_predicted}.{condition}"
    )
}
