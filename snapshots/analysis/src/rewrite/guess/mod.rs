//! Guesses the categories, phases and steps that a recording lacks from call stacks and lifetimes, marked as guesses.
//!
//! PyTorch's snapshots contain neither the categories of blocks nor phases. [`roles`] classifies stacks. [`phases`]
//! contains the rules for the phases of a device, [`merge`](mod@merge) those for the whole program, and [`categories`]
//! those for blocks. [`user_rules`] reads user-defined rules, which take precedence. Recorded values are never changed.

mod patterns;
pub mod roles;
mod recorded;
pub mod phases;
pub mod merge;
mod outline;
pub mod categories;
pub mod user_rules;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod inference_tests;
#[cfg(test)]
mod phase_tests;

pub use categories::RULES;
pub use user_rules::Rules;

use std::collections::HashMap;

use self::categories::Guesser;
use self::merge::{Stretch, merge, step_ends};
use self::phases::Runs;
use self::recorded::has_recorded_phases;
use self::roles::{Role, Roles};
use crate::index::final_oom::final_oom;
use highwater_snapshots::ids::{DeviceId, EventId, StringId};
use highwater_snapshots::tables::Tables;
use highwater_snapshots::trace::{Annotation, Trace};
use highwater_snapshots::{Category, Phase};

/// The name of the range in which an inference engine measures the memory of its model.
const PROFILING_RUN: &str = "profiling run";
const GRAPH_CAPTURE: &str = "graph capture";

/// Assigns categories to blocks without one by `rules`, and adds missing phases and steps as guessed annotations.
///
/// Without user-defined rules, only recordings of PyTorch are changed, since other recorders record categories
/// themselves. Repeated calls change only what new rules decide. O(events + blocks + stacks).
#[must_use]
pub fn guess(mut trace: Trace, rules: &Rules) -> Trace {
    if rules.is_builtin_alone() && !is_by_pytorch(&trace) {
        return trace;
    }
    let roles = Roles::of(&trace.tables);
    let mut runs = Vec::new();
    if rules.uses_builtin() && roles.has_classified() {
        trace = without_guesses(trace);
        runs = Runs::of(&trace, &roles);
        trace = annotated(trace, &runs);
    }
    let own = rules.own_categories(&trace);
    let builtin = match rules.uses_builtin() {
        true => Guesser::new(&trace, &roles, &runs).categories(),
        false => vec![Category::Unknown; trace.blocks.len()],
    };
    let recorded = trace.blocks.category.iter().copied();
    let guessed: Vec<Category> = recorded
        .zip(own.into_iter().zip(builtin))
        .map(|(recorded, (own, builtin))| if recorded == Category::Unknown { own.unwrap_or(builtin) } else { recorded })
        .collect();
    trace.edited(|trace| {
        trace.trust.categories_guessed |= guessed != trace.blocks.category;
        trace.blocks.category = guessed;
    })
}

/// Whether the recording is an imported snapshot of PyTorch.
pub(crate) fn is_by_pytorch(trace: &Trace) -> bool {
    trace.header.recorder.starts_with("PyTorch")
}

/// Drops earlier guesses, so that they are not mistaken for recorded values.
fn without_guesses(trace: Trace) -> Trace {
    match trace.annotations.iter().any(|annotation| annotation.is_guessed) {
        true => trace.edited(|trace| trace.annotations.retain(|annotation| !annotation.is_guessed)),
        false => trace,
    }
}

/// Adds the phases and steps of the program if the recording has none, and the ranges in which an inference engine
/// prepares its model.
fn annotated(trace: Trace, runs: &[Runs]) -> Trace {
    let device = trace.main_device();
    let end = EventId::from_index(trace.events.len());
    let stretches = merge(runs, device, final_oom(&trace).map_or(end, |failed| EventId(failed.0 + 1)));
    let mut ranges: Vec<(String, Stretch)> = Vec::new();
    // Steps of which only the end is known, from the optimizer, are replaced: stacks also show where they begin.
    if !trace.spans.names_steps() {
        ranges.extend(steps(&stretches, device, end));
    }
    if !has_recorded_phases(&trace) {
        let is_known = |first: EventId, phase: Phase| trace.spans.at(first).is_some_and(|span| span.phase == phase);
        let phases = stretches.iter().filter(|stretch| stretch.phase != Phase::Other);
        let phases = phases.filter(|stretch| stretch.first < stretch.end && !is_known(stretch.first, stretch.phase));
        ranges.extend(phases.map(|stretch| (stretch.phase.name().to_owned(), *stretch)));
    }
    for (device, runs) in (0..).map(DeviceId).zip(runs) {
        ranges.extend(runs.prepared().iter().map(|(role, stretch)| {
            let name = if *role == Role::GraphCapture { GRAPH_CAPTURE } else { PROFILING_RUN };
            (name.to_owned(), Stretch { phase: Phase::Eval, first: stretch.start, end: stretch.end, device })
        }));
    }
    if ranges.is_empty() {
        return trace;
    }
    trace.edited(|trace| {
        let names = intern_all(&mut trace.tables, ranges.iter().map(|(name, ..)| name.as_str()));
        for ((_, Stretch { first, end, device, .. }), name) in ranges.into_iter().zip(names) {
            let (start_ns, end_ns) = (trace.events.time_of(first), trace.events.time_of(EventId(end.0 - 1)));
            let annotation = Annotation { name, device, start_ns, end_ns, first, end, is_guessed: true };
            trace.annotations.push(annotation);
        }
    })
}

/// Returns the steps of `device`. Each ends with its optimizer; events after the last one are a step if a phase runs in
/// them.
fn steps(stretches: &[Stretch], device: DeviceId, end: EventId) -> Vec<(String, Stretch)> {
    let ends = step_ends(stretches);
    let begun = stretches.iter().find(|stretch| stretch.phase != Phase::Other);
    let (Some(begun), Some(&last)) = (begun, ends.last()) else {
        return Vec::new();
    };
    let is_phase = |phase: Phase| matches!(phase, Phase::Forward | Phase::Backward);
    let has_more = stretches.iter().any(|one| one.first >= last && one.first < one.end && is_phase(one.phase));
    let mut first = begun.first;
    let mut steps = Vec::new();
    for end in ends.into_iter().chain(has_more.then_some(end)) {
        if first < end {
            let name = format!("step {}", steps.len());
            steps.push((name, Stretch { phase: Phase::Other, first, end, device }));
            first = end;
        }
    }
    steps
}

/// Returns the rows of `names` in the trace's strings, and adds missing ones.
fn intern_all<'a>(tables: &mut Tables, names: impl Iterator<Item = &'a str>) -> Vec<StringId> {
    let names: Vec<&str> = names.collect();
    let mut known: HashMap<&str, Option<StringId>> = names.iter().map(|&name| (name, None)).collect();
    for (row, text) in tables.strings.iter().enumerate() {
        if let Some(id) = known.get_mut(text.as_str()) {
            *id = id.or(Some(StringId::from_index(row)));
        }
    }
    let strings = &mut tables.strings;
    let mut added = |name: &str| {
        strings.push(name.to_owned());
        StringId::from_index(strings.len() - 1)
    };
    names.iter().map(|&name| *known.entry(name).or_default().get_or_insert_with(|| added(name))).collect()
}
