//! The changes of a plan, one by one, with their names.

use highwater_app::answers::plan::{Class, Setup, Trial};
use highwater_snapshots::Phase;
use highwater_snapshots::scope_pattern::ScopePattern;

/// One change of the plan, and the memory once it and those before it are made.
#[derive(Debug)]
pub(super) struct PlanLine {
    pub(super) change: String,
    pub(super) scopes: Vec<String>,
    pub(super) class: Class,
    /// The additional share of the unchanged step's FLOPs and moved bytes.
    pub(super) shares: [Option<f64>; 2],
    pub(super) trial: Trial,
    /// The additional time of a step in microseconds, if times are estimated.
    pub(super) estimated_us: Option<i64>,
    pub(super) step: Option<u32>,
    pub(super) phase: Option<Phase>,
}

/// Returns the changes of `setup` in their order, each with its modules and class, and the setup up to it.
pub(super) fn prefixes(setup: &Setup) -> Vec<(String, Vec<String>, Class, Setup)> {
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

fn recomputed(modules: &[String]) -> String {
    let patterns: Vec<String> = ScopePattern::joined(modules).iter().map(ToString::to_string).collect();
    format!("{} recomputed", patterns.join(" and "))
}

/// Returns the names of all changes.
pub(super) fn names(setup: &Setup) -> Vec<String> {
    let named: Vec<String> = prefixes(setup).into_iter().map(|(name, ..)| name).collect();
    if named.is_empty() { vec!["nothing changed".to_owned()] } else { named }
}

pub(super) fn join(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    }
}
