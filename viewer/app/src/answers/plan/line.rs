//! The changes of a plan in order, each with its name and the resulting memory use.

use std::collections::BTreeMap;

use highwater_analysis::{LiveIndex, Metric, Moment, Series};
use highwater_snapshots::{Category, Phase, ScopePattern, Trace};

use super::change::{Class, Setup};
use super::step::{TrainingStep, Trial};

/// A change of a plan, and the memory use with it and all previous changes.
#[derive(Clone, Debug)]
pub struct PlanLine {
    /// The change as a noun phrase.
    pub change: String,
    /// The paths of recomputed modules; empty for other changes.
    pub scopes: Vec<String>,
    /// The cost class of this change.
    pub class: Class,
    /// The FLOPs and moved bytes that this change adds, as fractions of those of the unchanged step; `None` if that has
    /// none.
    pub shares: [Option<f64>; 2],
    /// The step with this and all previous changes, run on a device of the budget's size if the step fits, otherwise on
    /// a larger device.
    pub trial: Trial,
    /// The time that this change adds to a step in microseconds; negative if it saves time. `None` if times are not
    /// estimated.
    pub estimated_us: Option<i64>,
    /// The step of the peak of requested bytes; `None` outside of steps.
    pub step: Option<u32>,
    /// The phase of the peak of requested bytes; `None` if the recording has no phases.
    pub phase: Option<Phase>,
}

impl PlanLine {
    /// Runs or replays the step with the changes of `setup`, added one by one. The allocator may use `capacity` bytes.
    ///
    /// # Errors
    /// Returns the reason `step` cannot be run.
    pub fn all(step: &dyn TrainingStep, setup: &Setup, capacity: u64) -> Result<Vec<Self>, String> {
        let unchanged = step.trial(&Setup { recomputed: Some(Vec::new()), ..Setup::default() }, None)?;
        let base = unchanged.work;
        let (mut before, mut time_before) = (base, unchanged.estimated_ns);
        let mut lines = Vec::new();
        for (change, scopes, class, setup) in prefixes(setup) {
            let trial = Trial::within(step, &setup, capacity)?;
            let trace = step.recording(&setup)?;
            let series = Series::build(&trace, trace.main_device());
            let (_, event) = series.peak(&trace, Metric::Requested);
            let moment = Moment::at(&trace, &series, Metric::Requested, event);
            let shares = trial.work.beyond(before).shares(base);
            // Differences of rounded times, which add up to the rounded difference.
            let times = trial.estimated_ns.zip(time_before);
            let estimated_us = times.map(|(now, before)| micros(now) as i64 - micros(before) as i64);
            (before, time_before) = (trial.work, trial.estimated_ns);
            let (step, phase) = (moment.step, moment.known_phase());
            lines.push(Self { change, scopes, class, shares, trial, estimated_us, step, phase });
        }
        Ok(lines)
    }

    /// Formats the step and phase of the peak, such as `step 1, backward`; empty if unknown.
    pub fn step_and_phase(&self) -> String {
        let step = self.step.map(|step| format!("step {step}"));
        step.into_iter().chain(self.phase.map(|phase| phase.to_string())).collect::<Vec<_>>().join(", ")
    }
}

/// Converts nanoseconds to microseconds, rounded.
pub fn micros(nanoseconds: u64) -> u64 {
    nanoseconds.saturating_add(500) / 1000
}

/// Returns each change of `setup` in order: its name, recomputed modules and class, and the setup with this and all
/// previous changes.
pub fn prefixes(setup: &Setup) -> Vec<(String, Vec<String>, Class, Setup)> {
    let mut so_far = Setup { recomputed: Some(Vec::new()), ..Setup::default() };
    let mut all = Vec::new();
    for change in &setup.changes {
        so_far.changes.push(*change);
        all.push((change.name(), Vec::new(), change.class(), so_far.clone()));
    }
    if let Some(modules) = setup.recomputed.as_ref().filter(|modules| !modules.is_empty()) {
        so_far.recomputed = Some(modules.clone());
        all.push((recomputed(modules), modules.clone(), Class::Slower, so_far.clone()));
    }
    if let Some(settings) = &setup.settings {
        so_far.settings = Some(settings.clone());
        all.push((settings.clone(), Vec::new(), Class::Free, so_far));
    }
    all
}

/// Returns the recomputation of `modules` as a noun phrase.
pub fn recomputed(modules: &[String]) -> String {
    let patterns: Vec<String> = ScopePattern::joined(modules).iter().map(ToString::to_string).collect();
    format!("{} recomputed", patterns.join(" and "))
}

/// Returns the names of all changes, or `nothing changed` if there are none.
pub fn names(setup: &Setup) -> Vec<String> {
    let named: Vec<String> = prefixes(setup).into_iter().map(|(name, ..)| name).collect();
    if named.is_empty() { vec!["nothing changed".to_owned()] } else { named }
}

/// Returns all changes in one phrase, such as `a, b and c`.
pub fn name(setup: &Setup) -> String {
    match names(setup).as_slice() {
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    }
}

/// Returns the requested bytes of each category at the peak of the main device of `trace`, the largest first.
pub fn composition(trace: &Trace) -> Vec<(String, u64)> {
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

/// Returns the minimum number of ranks over which the optimizer state has to be sharded so that a peak of `requested`
/// bytes, composed of `parts`, fits into `capacity`, and the resulting peak. `None` if no number suffices, if one rank
/// is enough, or if there is no optimizer state.
pub fn sharded(parts: &[(String, u64)], requested: u64, capacity: u64) -> Option<(u64, u64)> {
    let state = parts.iter().find(|(name, _)| name == Category::OptimizerState.name())?.1;
    let rest = requested.saturating_sub(state);
    let room = capacity.checked_sub(rest).filter(|room| *room > 0)?;
    let ranks = state.div_ceil(room);
    (ranks > 1).then(|| (ranks, rest + state.div_ceil(ranks)))
}
