//! The report of `highwater plan`: the cheapest changes that fit, what each costs, and the lines that apply them.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::{LiveIndex, Metric, Moment, Series};
use highwater_app::answers::plan::{Allowance, Class, Plan, Search, Setup, TrainingStep, Trial};
use highwater_app::figures::moment::count_of;
use highwater_snapshots::units::{format_bytes, format_count, format_required_bytes};
use highwater_snapshots::{Category, Trace};
use serde::Serialize;

use super::plan_figures::{
    AlternativeFigures, LineFigures, MinimumFigures, PeaksFigures, PlanFigures, SearchedFigures,
};
use super::plan_line::{PlanLine, join, names, prefixes};
use crate::args::Maximize;
use crate::cli::output::page::Page;
use crate::cli::output::table::{Column, Table};
use crate::gpu::Roofline;

/// How a plan is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The step was run on a device of the budget, so many times.
    Rerun(u32),
    /// The changed recording was replayed through the allocator of such a device.
    Replayed,
}

/// The report, as text and as JSON.
#[derive(Debug)]
pub struct PlanReport {
    budget: u64,
    reserve: u64,
    search: Search,
    lines: Vec<PlanLine>,
    at_minimum: Vec<(String, u64)>,
    proof: Proof,
    /// The command that records the step with the plan.
    command: Option<String>,
    /// The lines to paste.
    paste: Vec<String>,
    assumptions: Vec<String>,
    warnings: Vec<String>,
    possible: Vec<(Allowance, Plan)>,
    /// What times are estimated from.
    roofline: Option<Roofline>,
    /// The size that was made as large as possible.
    maximized: Option<(Maximize, usize)>,
}

/// What a report needs beside the search.
#[derive(Debug)]
pub struct PlanContext {
    /// The budget in bytes.
    pub budget: u64,
    /// The part of it for what lives outside the allocator.
    pub reserve: u64,
    /// How plans are proven.
    pub proof: Proof,
    /// The command that records the step with the plan.
    pub command: Option<String>,
    /// The lines to paste.
    pub paste: Vec<String>,
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
        let PlanContext { budget, reserve, proof, command, paste, warnings, possible, roofline } = context;
        let mut lines: Vec<PlanLine> = Vec::new();
        let mut assumptions = Vec::new();
        if let Some(plan) = search.best() {
            let unchanged = step.trial(&Setup { recomputed: Some(Vec::new()), ..Setup::default() }, None)?;
            let base = unchanged.work;
            let (mut before, mut time_before) = (base, unchanged.estimated_ns);
            for (change, scopes, class, setup) in prefixes(&plan.setup) {
                let trial = step.trial(&setup, None)?;
                let trace = step.recording(&setup)?;
                let series = Series::build(&trace, trace.main_device());
                let (_, event) = series.peak(&trace, Metric::Requested);
                let moment = Moment::at(&trace, &series, Metric::Requested, event);
                let more = trial.work.beyond(before);
                let shares = more.shares(base);
                before = trial.work;
                let time = trial.estimated_ns;
                let estimated_us =
                    time.zip(time_before).map(|(now, before)| micros(now) as i64 - micros(before) as i64);
                time_before = time;
                let (step, phase) = (moment.step, moment.known_phase());
                lines.push(PlanLine { change, scopes, class, shares, trial, estimated_us, step, phase });
            }
            let said = plan.setup.changes.iter().filter_map(|change| change.assumption());
            assumptions.extend(said.map(str::to_owned));
        }
        let mut at_minimum = Vec::new();
        if search.plans.is_empty() {
            at_minimum = composition(&step.recording(&search.minimum.setup)?);
        }
        if proof == Proof::Replayed {
            let predicted = "recomputation is predicted from the recording: requested bytes are those of the program in \
                             backward, and an estimate in forward";
            let order = "the program may free blocks of forward in another order than the replay and so reserve more: \
                         keep a margin, for example of a fifth of the budget with --reserve";
            assumptions.extend([predicted, order].map(str::to_owned));
        }
        Ok(Self {
            budget,
            reserve,
            search,
            lines,
            at_minimum,
            proof,
            command,
            paste,
            assumptions,
            warnings,
            possible,
            roofline,
            maximized: None,
        })
    }

    /// Says that `size` is the largest with which some plan fits.
    pub fn maximized(self, which: Maximize, size: usize) -> Self {
        Self { maximized: Some((which, size)), ..self }
    }

    /// Returns whether some plan fits.
    pub fn fits(&self) -> bool {
        !self.search.plans.is_empty()
    }

    /// Returns the JSON object.
    pub fn figures(&self) -> impl Serialize + '_ {
        let Search { as_is, plans, minimum, combinations, trials, is_optimal, .. } = &self.search;
        PlanFigures {
            budget_bytes: self.budget,
            reserve_bytes: self.reserve,
            fits: self.fits(),
            fits_as_is: self.search.fits_as_is,
            proof: match self.proof {
                Proof::Rerun(_) => "rerun",
                Proof::Replayed => "replayed",
            },
            command: self.command.as_deref(),
            lines: &self.paste,
            gpu: self.roofline.map(|roofline| roofline.gpu.name),
            estimated_step_us: self.step_time()[1],
            before: PeaksFigures::of(as_is),
            after: plans.first().map(|plan| PeaksFigures::of(&plan.trial)),
            plan: self.lines.iter().map(LineFigures::of).collect(),
            alternatives: plans.iter().skip(1).map(|plan| self.alternative(plan)).collect(),
            minimum: MinimumFigures {
                bytes: minimum.requested,
                changes: names(&minimum.setup),
                device_bytes: minimum.device_bytes.map(|bytes| bytes.saturating_add(self.reserve)),
                is_exact: minimum.is_exact,
            },
            maximized: self.maximized.filter(|_| self.fits()).map(|(_, size)| size),
            spare_bytes: plans.first().map(|plan| self.capacity().saturating_sub(plan.trial.reserved)),
            searched: SearchedFigures { combinations: *combinations, trials: *trials, is_optimal: *is_optimal },
            assumptions: &self.assumptions,
            warnings: &self.warnings,
        }
    }

    fn alternative(&self, plan: &Plan) -> AlternativeFigures {
        let Plan { setup, class, trial, .. } = plan;
        AlternativeFigures {
            changes: names(setup),
            scopes: setup.recomputed.clone().unwrap_or_default(),
            class: *class,
            flops_share: self.shares(plan)[0],
            peak_bytes: trial.requested,
            reserved_bytes: trial.reserved,
        }
    }

    fn shares(&self, plan: &Plan) -> [Option<f64>; 2] {
        plan.trial.work.beyond(self.search.base).shares(self.search.base)
    }

    /// The estimated time of a step in microseconds: as it is, and with the plan.
    fn step_time(&self) -> [Option<u64>; 2] {
        let as_is = self.search.as_is.estimated_ns.map(micros);
        let with_plan = self.search.best().and_then(|plan| plan.trial.estimated_ns).map(micros);
        [as_is, with_plan.or(as_is)]
    }

    /// What the allocator may reserve.
    fn capacity(&self) -> u64 {
        self.budget.saturating_sub(self.reserve)
    }

    fn budget_text(&self) -> String {
        match self.reserve {
            0 => format_required_bytes(self.budget),
            reserve => format!("{} less {}", format_required_bytes(self.budget), format_bytes(reserve)),
        }
    }

    /// Prints the report as text.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        if let Some((which, size)) = self.maximized.filter(|_| self.fits()) {
            page.headline(&format!("The largest {} that fits is {}.", which.name(), format_count(size as u64)))?;
        }
        match self.search.plans.first() {
            _ if self.search.fits_as_is => self.print_fit(page)?,
            Some(plan) => self.print_plan(plan, page)?,
            None => self.print_nothing(page)?,
        }
        if let (Some(roofline), [Some(before), Some(now)]) = (self.roofline, self.step_time()) {
            let (name, with) = (roofline.gpu.name, if roofline.tf32 { "in" } else { "without" });
            let before = if before == now { String::new() } else { format!(", {} before", duration(before)) };
            page.line(&format!(
                "Estimated, {name}: a step takes at least {}{before}, with each operation at the peak rate or bandwidth and \
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
        if !self.paste.is_empty() {
            page.gap()?;
            page.line("To apply it:")?;
            for line in &self.paste {
                page.line(&format!("  {line}"))?;
            }
        }
        page.gap()?;
        match &self.command {
            Some(command) => page.hint(&format!("Next: {command}   to record the step with the plan")),
            None if !self.paste.is_empty() => {
                page.hint("Next: apply it, record the step again, and compare the two with `highwater diff`")
            }
            None => Ok(()),
        }
    }

    fn print_fit(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Trial { requested, reserved, .. } = self.search.as_is;
        let spare = self.capacity().saturating_sub(reserved);
        page.headline(&format!(
            "Fits in {} as it is: {} requested and {} reserved at the peak, {} free.",
            self.budget_text(),
            format_bytes(requested),
            format_bytes(reserved),
            format_bytes(spare)
        ))?;
        let Some(plan) = self.search.best() else { return Ok(()) };
        page.line(&format!("It would also fit with less work: {}.", join(&names(&plan.setup))))
    }

    fn print_plan(&self, plan: &Plan, page: &mut Page<'_>) -> io::Result<()> {
        let Search { as_is, plans, minimum, is_optimal, .. } = &self.search;
        page.headline(&format!(
            "Fits in {} with {}: {} requested at the peak, {} before.",
            self.budget_text(),
            join(&names(&plan.setup)),
            format_bytes(plan.trial.requested),
            format_bytes(as_is.requested)
        ))?;
        page.gap()?;
        let mut columns = vec![Column::text("change").wrapped(), Column::text("costs")];
        columns.extend(self.roofline.map(|_| Column::number("estimated")));
        columns.extend([
            Column::number("requested then"),
            Column::number("reserved"),
            Column::text("peak in").optional(),
        ]);
        let mut table = Table::new(columns);
        for line in &self.lines {
            let place = line.step.map(|step| format!("step {step}"));
            let place =
                place.into_iter().chain(line.phase.map(|phase| phase.to_string())).collect::<Vec<_>>().join(", ");
            let Trial { requested, reserved, .. } = line.trial;
            let mut row = vec![line.change.clone(), self.costs(line.class, line.shares)];
            row.extend(self.roofline.map(|_| line.estimated_us.map(difference).unwrap_or_default()));
            row.extend([format_bytes(requested), format_bytes(reserved), place]);
            table.push(row);
        }
        page.table(&table)?;
        let retries = match plan.trial.retries {
            0 => "no cached memory had to be released".to_owned(),
            times => format!("all cached memory was released {}, which takes time", count_of(times, "time")),
        };
        let device = format_required_bytes(self.capacity());
        page.line(&match self.proof {
            Proof::Rerun(steps) => format!(
                "Proven: run again with these changes on a device of {device}, {}; {retries}.",
                count_of(u64::from(steps), "step")
            ),
            Proof::Replayed => {
                format!("Replayed: with these changes, the recording succeeds on a device of {device}.")
            }
        })?;
        if !is_optimal {
            page.warning("The search for modules ended at its limit: a cheaper set may exist.")?;
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
                let costs = self.costs(other.class, self.shares(other));
                table.push(vec![join(&names(&other.setup)), costs, format_bytes(requested), format_bytes(reserved)]);
            }
            page.table(&table)?;
        }
        page.gap()?;
        page.line(&format!(
            "Least of what was tried: {} requested, with {}.",
            format_bytes(minimum.requested),
            join(&names(&minimum.setup))
        ))
    }

    fn print_nothing(&self, page: &mut Page<'_>) -> io::Result<()> {
        let minimum = &self.search.minimum;
        let at_least = if minimum.is_exact { "the least" } else { "the least that was found" };
        page.headline(&format!(
            "Does not fit in {}: {at_least} is {} ({} bytes) requested at the peak, with {}.",
            self.budget_text(),
            format_bytes(minimum.requested),
            format_count(minimum.requested),
            join(&names(&minimum.setup))
        ))?;
        if let Some(bytes) = minimum.device_bytes {
            let size = format_required_bytes(bytes.saturating_add(self.reserve));
            page.line(&format!("With these changes it runs on a device of {size}."))?;
        }
        for (allowance, plan) in &self.possible {
            let [name, requested] = [allowance.name().to_owned(), format_bytes(plan.trial.requested)];
            page.line(&format!(
                "With --allow {name} it would fit: {}, {requested} requested.",
                join(&names(&plan.setup))
            ))?;
        }
        if let Some((ranks, bytes)) = self.sharded() {
            let bytes = format_bytes(bytes);
            page.line(&format!(
                "With the optimizer state sharded over {ranks} ranks (ZeRO-1) it would request about {bytes}."
            ))?;
        }
        page.gap()?;
        let mut table = Table::new(vec![Column::text("its peak consists of"), Column::number("requested")]);
        for (name, bytes) in &self.at_minimum {
            table.push(vec![name.clone(), format_bytes(*bytes)]);
        }
        page.table(&table)
    }

    /// Returns how many ranks would have to shard the optimizer state such that the least memory fits, and that memory
    /// then; `None` if no number would do.
    fn sharded(&self) -> Option<(u64, u64)> {
        let state = self.at_minimum.iter().find(|(name, _)| name == Category::OptimizerState.name())?.1;
        let rest = self.search.minimum.requested.saturating_sub(state);
        let room = self.capacity().checked_sub(rest).filter(|room| *room > 0)?;
        let ranks = state.div_ceil(room);
        (ranks > 1).then(|| (ranks, rest + state.div_ceil(ranks)))
    }

    fn costs(&self, class: Class, [flops, moved]: [Option<f64>; 2]) -> String {
        let more = |share: Option<f64>| share.filter(|share| *share >= 0.0005).map(|share| self.percent(share));
        let work = more(flops)
            .map(|text| format!("{text} FLOPs"))
            .or(more(moved).map(|text| format!("{text} memory traffic")));
        match (class, work) {
            (Class::Free, _) => "nothing".to_owned(),
            (Class::Slower, Some(work)) => work,
            (Class::LessPrecise | Class::OtherTraining, Some(work)) => format!("{}, {work}", class.about()),
            (_, _) => class.about().to_owned(),
        }
    }

    fn percent(&self, share: f64) -> String {
        let about = if self.proof == Proof::Replayed { "about " } else { "" };
        format!("{about}+{:.1} %", share * 100.0)
    }
}

/// Returns microseconds, rounded.
fn micros(nanoseconds: u64) -> u64 {
    nanoseconds.saturating_add(500) / 1000
}

/// Formats microseconds.
fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..100_000 => format!("{:.1} ms", micros as f64 / 1e3),
        100_000..10_000_000 => format!("{:.0} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// Formats an estimated difference in microseconds.
fn difference(micros: i64) -> String {
    let sign = if micros < 0 { '−' } else { '+' };
    format!("about {sign}{}", duration(micros.unsigned_abs()))
}

/// Returns the requested bytes of each category at the peak, the largest first.
fn composition(trace: &Trace) -> Vec<(String, u64)> {
    let series = Series::build(trace, trace.main_device());
    let Some(event) = series.peak(trace, Metric::Requested).1 else { return Vec::new() };
    let live = LiveIndex::build(trace, trace.main_device()).after(trace, Metric::Requested, event);
    let mut bytes: BTreeMap<&'static str, u64> = BTreeMap::new();
    for block in live {
        let row = block.0 as usize;
        *bytes.entry(trace.blocks.category[row].name()).or_default() += trace.blocks.requested[row];
    }
    let mut all: Vec<(String, u64)> = bytes.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    all
}
