//! Computes the peaks with recomputed modules and with a fused optimizer, for advice.

use std::sync::Arc;

use highwater_analysis::Evidence;
use highwater_analysis::plan::{Candidate, Program, candidates_of, model};
use highwater_snapshots::{DeviceId, ScopePattern, Trace, format_bytes};

use super::change::{Change, Setup};
use super::recorded::Recorded;
use super::step::{TrainingStep, Trial};

/// Maximum number of events of a recording that is replayed. For longer recordings, the peak of requested bytes comes
/// from the linear program of the recomputed modules, which gives the same result in a single pass over the events.
const MAX_EVENTS: usize = 100_000;
/// Work limit of each search for the lowest peak, so that advice takes no longer than the rest of an explanation.
const MAX_WORK: u64 = 200_000;

/// The peaks of requested bytes that remain with the changes that advice suggests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdvicePeaks {
    /// The repeated blocks of the model, outermost only, and the peak if all are recomputed; `None` if there are none.
    pub all: Option<(Vec<String>, u64)>,
    /// The set of repeated blocks, nested ones included, with the lowest peak found, and that peak; `None` if there are
    /// none.
    pub lowest: Option<(Vec<String>, u64)>,
    /// The peak with a fused optimizer instead of one with temporaries, and without recomputation; `None` if there are
    /// no temporaries to avoid, or without replays.
    pub fused: Option<Trial>,
    /// The peak with a fused optimizer and the recomputed modules that then give the lowest peak; `None` if `fused` is.
    pub both: Option<u64>,
    /// Whether the figures come from replays.
    pub is_replayed: bool,
    /// Whether the peaks are estimates, because neither uses of blocks nor enough references to them were recorded.
    pub is_estimate: bool,
    /// The reason that the recorded references are insufficient; `None` if they suffice or there are none.
    pub shortfall: Option<String>,
}

impl AdvicePeaks {
    /// Computes the peaks with recomputed blocks of `device` in `trace`, and with a fused optimizer.
    ///
    /// Returns no peaks for a recording without events, since neither phases nor lifetimes are known.
    pub fn of(trace: &Trace, device: DeviceId) -> Self {
        if trace.is_state() {
            return Self::default();
        }
        let replayed = (trace.events.len() <= MAX_EVENTS).then(|| Self::replayed(trace, device)).flatten();
        replayed.unwrap_or_else(|| Self::predicted(trace, device))
    }

    /// Computes the peaks by replaying changed recordings; `None` if the device cannot be replayed.
    fn replayed(trace: &Trace, device: DeviceId) -> Option<Self> {
        let step = Recorded::new(Arc::new(trace.clone()), device, &[]).ok()?;
        let trial = |changes: &[Change], modules: &[String]| {
            let setup = Setup { changes: changes.to_vec(), recomputed: Some(modules.to_vec()), settings: None };
            step.trial(&setup, None).ok()
        };
        let lowest = |changes: &[Change]| {
            let model = step.model(changes).ok()?;
            let modules = named(&model.modules, &model.program.minimum_within(MAX_WORK).chosen);
            let peak = trial(changes, &modules)?.requested;
            Some((modules, peak))
        };
        let plain = step.model(&[]).ok()?;
        let outermost = named(&plain.modules, &outermost(&plain.program));
        let fused = step.can_fuse().then(|| trial(&[Change::Fused], &[])).flatten();
        Some(Self {
            all: if outermost.is_empty() { None } else { trial(&[], &outermost).map(|all| (outermost, all.requested)) },
            lowest: if plain.modules.is_empty() { None } else { lowest(&[]) },
            both: fused.and_then(|_| lowest(&[Change::Fused])).map(|(_, peak)| peak),
            fused,
            is_replayed: true,
            is_estimate: step.evidence() == Some(Evidence::Lifetimes),
            shortfall: Evidence::shortfall(trace, device),
        })
    }

    /// Computes the peaks from the linear program of the recomputed modules alone.
    fn predicted(trace: &Trace, device: DeviceId) -> Self {
        let Ok(found) = candidates_of(trace, &[]) else { return Self::default() };
        if found.is_empty() {
            return Self::default();
        }
        let (candidates, paths): (Vec<Candidate>, Vec<String>) =
            found.into_iter().map(|(scope, path)| (Candidate { scope, cost: 1 }, path)).unzip();
        let program = model(trace, device, &candidates);
        let (all, lowest) = (outermost(&program), program.minimum_within(MAX_WORK));
        Self {
            all: Some((named(&paths, &all), program.peak(&all))),
            lowest: Some((named(&paths, &lowest.chosen), lowest.peak)),
            ..Self::default()
        }
    }

    /// Returns whether recomputing modules lowers the recorded `peak`.
    pub fn lowers(&self, peak: u64) -> bool {
        self.least_of_modules().is_some_and(|reached| reached < peak)
    }

    /// Returns the lowest peak with recomputed modules; `None` if there are no modules.
    pub(crate) fn least_of_modules(&self) -> Option<u64> {
        self.all.iter().chain(&self.lowest).map(|(_, reached)| *reached).min()
    }

    /// Returns the effect of recomputing modules, compared with a peak of `peak` requested bytes, as a sentence; `None`
    /// if there are no modules.
    pub fn of_modules(&self, peak: u64) -> Option<String> {
        let (modules, all) = self.all.as_ref()?;
        let (count, names) = (modules.len(), patterns(modules));
        let mut text = if *all < peak {
            format!("Recomputing all {count} modules {names} lowers the peak to {}", format_bytes(*all))
        } else {
            format!("Recomputing all {count} modules {names} does not lower the peak ({})", format_bytes(*all))
        };
        if let Some((best, lowest)) = self.lowest.as_ref().filter(|(_, lowest)| lowest < all && *lowest < peak) {
            text.push_str(&format!(", recomputing only {} to {}", patterns(best), format_bytes(*lowest)));
        }
        let least = self.lowest.as_ref().map_or(*all, |(_, lowest)| (*lowest).min(*all));
        if let Some(both) = self.both.filter(|both| *both < least) {
            text.push_str(&format!("; with a fused optimizer as well, the lowest is {}", format_bytes(both)));
        }
        let how = match (self.is_replayed, self.is_estimate, &self.shortfall) {
            (true, false, _) => "replayed".to_owned(),
            (true, true, None) => "replayed, an estimate without recorded uses or references".to_owned(),
            (true, true, Some(why)) => format!("replayed, an estimate, since {why}"),
            (false, ..) => "predicted".to_owned(),
        };
        Some(format!("{text} ({how})."))
    }
}

/// Returns all modules of `program` except those nested within another one.
fn outermost(program: &Program) -> Vec<u32> {
    let mut chosen: Vec<u32> = Vec::new();
    for choice in 0..program.choices.len() as u32 {
        // Modules are in the order of their scopes, in which outer ones come first.
        if !program.choices[choice as usize].excludes.iter().any(|other| chosen.contains(other)) {
            chosen.push(choice);
        }
    }
    chosen
}

fn named(modules: &[String], chosen: &[u32]) -> Vec<String> {
    chosen.iter().filter_map(|choice| modules.get(*choice as usize).cloned()).collect()
}

fn patterns(modules: &[String]) -> String {
    ScopePattern::joined(modules).iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}
