//! Searches for the cheapest changes with which a training step fits a budget.
//!
//! Each combination of changes has a linear program, which gives the requested bytes for each set of recomputed
//! modules. Whether a device is large enough is decided by a trial on a device of that size, since rounding,
//! fragmentation and cached segments are not linear. Sets are tried in order of cost, so the first one that fits is the
//! cheapest.

use std::cmp::Reverse;

use highwater_analysis::plan::Solution;

use super::change::{Allowance, Change, Class, Forbidden, Setup};
use super::step::{Model, Reach, TrainingStep, Trial, Work};

/// Settings that usually need less reserved memory for the same blocks.
const EXPANDABLE: &str = "expandable_segments:True";
const MAX_PLANS: usize = 12;
/// Maximum number of sets of modules that are tried in order of cost.
const MAX_SETS: usize = 64;
/// Number of coarse steps in requested bytes, between the last set tried and the lowest peak.
const COARSE_STEPS: u128 = 16;
/// The search for a cheaper set stops when its limit is known to within the budget divided by this number.
const RESOLUTION: u64 = 1024;
/// Resolution of the smallest device size in bytes.
const STEP: u64 = 2 << 20;

/// A set of changes with which the step fits, and its memory use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The changes of the plan.
    pub setup: Setup,
    /// The class of the most costly change.
    pub class: Class,
    /// The additional work compared with the step without changes and recomputation, in [units](super::Work::units).
    /// [`search`] counts no work of changes that are not slower.
    pub cost: u64,
    /// The penalty that ranks the plan after others of its class, see
    /// [`Model::penalties`](super::Model::penalties).
    pub penalty: u64,
    /// The run on a device with the budget's size.
    pub trial: Trial,
}

/// The lowest memory use that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minimum {
    /// The changes of this result.
    pub setup: Setup,
    /// The peak of requested bytes.
    pub requested: u64,
    /// The size in bytes of the smallest device on which a run with these changes succeeded. Searched only if there are
    /// no plans; `None` otherwise, or if no size suffices.
    pub device_bytes: Option<u64>,
    /// Whether it is certain that no set of modules has a lower peak.
    pub is_exact: bool,
}

/// The budget and constraints of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Bytes that the allocator may reserve.
    pub capacity: u64,
    /// Changes that need permission and are permitted.
    pub allowed: Vec<Allowance>,
    /// Changes that plans must not contain, because the program cannot make them.
    pub forbidden: Vec<Forbidden>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The step without changes, run on a device of the budget's size if the step fits, otherwise on a larger device.
    pub as_is: Trial,
    /// The work of the step without any changes or recomputation.
    pub base: Work,
    /// Whether the step fits without changes.
    pub fits_as_is: bool,
    /// Plans that fit, cheapest first. Each needs less memory than the previous ones.
    pub plans: Vec<Plan>,
    /// The lowest memory use among the combinations that were tried.
    pub minimum: Minimum,
    /// Number of combinations of changes that were tried.
    pub combinations: usize,
    /// Number of times that the step was run or replayed.
    pub trials: usize,
    /// Whether there is certainly no cheaper plan in these combinations; false if a search reached its work limit.
    pub is_optimal: bool,
    /// The part of the run covered by trials.
    pub reach: Reach,
}

impl Search {
    /// Returns whether the step fits, unchanged or with a plan; `None` if the step fits in the trials, but these do not
    /// cover the whole run.
    pub fn fits(&self) -> Option<bool> {
        match (self.plans.is_empty() && !self.fits_as_is, &self.reach) {
            (true, _) => Some(false),
            (false, Reach::End) => Some(true),
            (false, Reach::FailedRequest | Reach::Recorded(_)) => None,
        }
    }

    /// Returns the recommended plan: the cheapest one. `None` if there is none, or if the step fits unchanged with no
    /// more work.
    pub fn best(&self) -> Option<&Plan> {
        let work = self.as_is.work.beyond(self.base).units();
        self.plans.first().filter(|plan| !self.fits_as_is || plan.cost < work)
    }
}

/// Searches for the cheapest plan in each combination of changes.
///
/// # Errors
/// Returns the reason the step cannot be run or predicted.
pub fn search(step: &dyn TrainingStep, query: &Query) -> Result<Search, String> {
    let can_recompute = !query.forbidden.contains(&Forbidden::Recompute);
    let mut bench = Bench { step, query, trials: 0, is_optimal: true };
    let as_is = bench.trial(&Setup::default(), None)?;
    let fitting = bench.fitting(&Setup::default())?.filter(|(setup, _)| setup.settings.is_none());
    let fits_as_is = fitting.is_some();
    let as_is = fitting.map_or(as_is, |(_, trial)| trial);
    let nothing = Setup { recomputed: Some(Vec::new()), ..Setup::default() };
    let base = bench.trial(&nothing, None)?;
    let mut combinations = step.combinations(&query.allowed, &query.forbidden);
    combinations.sort_by_key(|changes| class_of(changes));
    let (mut plans, mut minimum, mut count): (Vec<Plan>, Option<(Lowest, Setup)>, usize) = (Vec::new(), None, 0);
    for changes in combinations {
        let class = class_of(&changes);
        if plans.iter().any(|plan| plan.class < class) {
            break;
        }
        let plain = bench.trial(&Setup { changes: changes.clone(), ..nothing.clone() }, None)?;
        if !changes.is_empty() && (plain.requested, plain.reserved) == (base.requested, base.reserved) {
            continue;
        }
        count += 1;
        // Plans that are not slower are not ranked by work, which includes launches hidden behind other work.
        let cost = if class <= Class::SameSpeed { 0 } else { plain.work.beyond(base.work).units() };
        let mut model = step.model(&changes)?;
        if !can_recompute {
            model.program.choices.clear();
        }
        let solution = model.program.minimum();
        let setup = setup_of(&changes, &model, &solution);
        let penalty = model.penalty(setup.recomputed.iter().flatten());
        let lowest = Lowest {
            peak: solution.peak,
            class,
            cost: cost.saturating_add(solution.cost.saturating_sub(penalty)),
            is_exact: solution.is_optimal,
        };
        if minimum.as_ref().is_none_or(|(least, _)| lowest < *least) {
            minimum = Some((lowest, setup.clone()));
        }
        if let Some(plan) = bench.cheapest(&changes, cost, &model)? {
            let lower = bench.fitting(&setup)?.filter(|(_, trial)| trial.requested < plan.trial.requested);
            let other = lower.map(|(setup, trial)| Plan {
                class: class.max(Class::Slower),
                cost: lowest.cost,
                penalty,
                setup,
                trial,
            });
            plans.push(plan);
            plans.extend(other);
        }
    }
    let (lowest, mut setup) = minimum.ok_or("the step has nothing to change")?;
    // If the prediction of a set is an estimate, its trial decides, and a plan may have a lower peak.
    let mut requested = bench.trial(&setup, None)?.requested;
    let is_exact = lowest.is_exact && requested == lowest.peak;
    if let Some(plan) = plans.iter().min_by_key(|plan| plan.trial.requested)
        && plan.trial.requested < requested
    {
        (requested, setup) = (plan.trial.requested, plan.setup.clone());
    }
    let mut device_bytes = None;
    if plans.is_empty()
        && let Some((bytes, settings)) = bench.smallest_device(&setup)?
    {
        device_bytes = Some(bytes);
        setup.settings = settings;
    }
    let minimum = Minimum { requested, setup, device_bytes, is_exact };
    let Bench { trials, is_optimal, .. } = bench;
    Ok(Search {
        as_is,
        base: base.work,
        fits_as_is,
        plans: undominated(plans),
        minimum,
        combinations: count,
        trials,
        is_optimal,
        reach: step.reach(),
    })
}

/// Returns a plan that uses the change `allowance`, from the first combination that fits, in order of class; `None` if
/// none fits.
///
/// # Errors
/// Returns the reason the step cannot be run or predicted.
pub fn plan_with(step: &dyn TrainingStep, query: &Query, allowance: Allowance) -> Result<Option<Plan>, String> {
    let mut bench = Bench { step, query, trials: 0, is_optimal: true };
    let nothing = Setup { recomputed: Some(Vec::new()), ..Setup::default() };
    let base = bench.trial(&nothing, None)?;
    let allowed: Vec<Allowance> = query.allowed.iter().copied().chain([allowance]).collect();
    let mut combinations = step.combinations(&allowed, &query.forbidden);
    combinations.retain(|changes| changes.iter().any(|change| change.allowance() == Some(allowance)));
    combinations.sort_by_key(|changes| class_of(changes));
    for changes in combinations {
        let plain = bench.trial(&Setup { changes: changes.clone(), ..nothing.clone() }, None)?;
        let mut model = step.model(&changes)?;
        if query.forbidden.contains(&Forbidden::Recompute) {
            model.program.choices.clear();
        }
        let cost = plain.work.beyond(base.work).units();
        if let Some(plan) = bench.cheapest(&changes, cost, &model)? {
            return Ok(Some(plan));
        }
    }
    Ok(None)
}

/// The lowest peak of a combination and its cost, ordered by peak, then by cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lowest {
    peak: u64,
    class: Class,
    cost: u64,
    is_exact: bool,
}

fn class_of(changes: &[Change]) -> Class {
    changes.iter().map(|change| change.class()).max().unwrap_or(Class::Free)
}

fn setup_of(changes: &[Change], model: &Model, solution: &Solution) -> Setup {
    let modules = solution.chosen.iter().filter_map(|choice| model.modules.get(*choice as usize));
    Setup { changes: changes.to_vec(), recomputed: Some(modules.cloned().collect()), settings: None }
}

/// Sorts `plans` by cost, and removes those that need at least as much memory as a cheaper one.
fn undominated(mut plans: Vec<Plan>) -> Vec<Plan> {
    plans.sort_by_key(|plan| {
        let assumptions = plan.setup.changes.iter().filter(|change| change.assumption().is_some()).count();
        (plan.class, plan.penalty, plan.cost, assumptions, plan.setup.size(), plan.trial.requested)
    });
    let mut least = u64::MAX;
    plans.retain(|plan| {
        let is_lower = plan.trial.requested < least;
        least = least.min(plan.trial.requested);
        is_lower
    });
    plans.truncate(MAX_PLANS);
    plans
}

/// Modules to recompute so that the step fits; the setup, with other allocator settings if needed; and its trial.
type Fitting = (Solution, Setup, Trial);

struct Bench<'a> {
    step: &'a dyn TrainingStep,
    query: &'a Query,
    trials: usize,
    is_optimal: bool,
}

impl Bench<'_> {
    fn trial(&mut self, setup: &Setup, capacity: Option<u64>) -> Result<Trial, String> {
        self.trials += 1;
        self.step.trial(setup, capacity)
    }

    fn can_change_settings(&self) -> bool {
        self.step.has_settings() && !self.query.forbidden.contains(&Forbidden::Settings)
    }

    /// Returns the cheapest modules to recompute in addition to `changes`, which cost `cost`; `None` if none fit.
    fn cheapest(&mut self, changes: &[Change], cost: u64, model: &Model) -> Result<Option<Plan>, String> {
        let Some((solution, setup, trial)) = self.cheapest_fitting(changes, model)? else { return Ok(None) };
        let (setup, trial, spared) = self.minimal(setup, trial, model)?;
        let recomputes = setup.recomputed.as_ref().is_some_and(|modules| !modules.is_empty());
        let class = if recomputes { Class::Slower } else { Class::Free };
        let chosen = solution.chosen.iter().filter_map(|choice| model.modules.get(*choice as usize));
        let work = solution.cost.saturating_sub(model.penalty(chosen));
        let cost = cost.saturating_add(work).saturating_sub(spared);
        let penalty = model.penalty(setup.recomputed.iter().flatten());
        Ok(Some(Plan { class: class.max(class_of(changes)), cost, penalty, setup, trial }))
    }

    /// Tries sets of modules in order of cost. If modules differ only slightly, there are too many sets: after some
    /// number of sets, coarse steps of the requested bytes find one that fits, and bisection finds a cheaper one.
    /// `None` if none was found.
    fn cheapest_fitting(&mut self, changes: &[Change], model: &Model) -> Result<Option<Fitting>, String> {
        let mut limit = self.query.capacity;
        for _ in 0..MAX_SETS {
            let (solution, is_complete) = model.program.cheapest(limit);
            self.is_optimal &= is_complete;
            let Some(solution) = solution else {
                if is_complete {
                    return Ok(None);
                }
                break;
            };
            if let Some((setup, trial)) = self.fitting(&setup_of(changes, model, &solution))? {
                return Ok(Some((solution, setup, trial)));
            }
            let Some(lower) = solution.peak.checked_sub(1) else { return Ok(None) };
            limit = lower;
            if !is_complete {
                break;
            }
        }
        self.is_optimal = false;
        let lowest = model.program.minimum();
        let range = limit.saturating_sub(lowest.peak);
        let (mut too_large, mut found) = (limit, None);
        for part in 1..=COARSE_STEPS {
            let lower = limit - (u128::from(range) * part / COARSE_STEPS) as u64;
            found = self.within(lower, changes, model)?.map(|fitting| (lower, fitting));
            if found.is_some() {
                break;
            }
            too_large = lower;
        }
        let Some((mut fits, mut best)) = found else {
            // The search for the lowest peak may have found a set that the searches for the cheapest have not.
            let fitting = self.fitting(&setup_of(changes, model, &lowest))?;
            return Ok(fitting.map(|(setup, trial)| (lowest, setup, trial)));
        };
        while too_large - fits > self.query.capacity / RESOLUTION {
            let middle = fits + (too_large - fits) / 2;
            match self.within(middle, changes, model)? {
                Some(cheaper) => (fits, best) = (middle, cheaper),
                None => too_large = middle,
            }
        }
        Ok(Some(best))
    }

    /// Returns the cheapest recomputation with requested bytes within `limit`; `None` if none was found or fits.
    fn within(&mut self, limit: u64, changes: &[Change], model: &Model) -> Result<Option<Fitting>, String> {
        let Some(solution) = model.program.cheapest(limit).0 else { return Ok(None) };
        let fitting = self.fitting(&setup_of(changes, model, &solution))?;
        Ok(fitting.map(|(setup, trial)| (solution, setup, trial)))
    }

    /// Removes the modules of `setup` without which the step still fits, most expensive first. This is possible because
    /// the requested bytes alone do not determine whether the device is large enough. Also returns the saved cost.
    fn minimal(&mut self, mut setup: Setup, mut trial: Trial, model: &Model) -> Result<(Setup, Trial, u64), String> {
        let cost_of = |path: &String| {
            let index = model.modules.iter().position(|module| module == path);
            index.and_then(|index| model.program.choices.get(index)).map_or(0, |choice| choice.cost)
        };
        let mut modules = setup.recomputed.clone().unwrap_or_default();
        modules.sort_by_key(|path| Reverse(cost_of(path)));
        let mut spared = 0;
        if !self.step.is_quick() {
            return Ok((setup, trial, spared));
        }
        for path in modules {
            let mut other = setup.clone();
            other.recomputed.iter_mut().for_each(|modules| modules.retain(|module| *module != path));
            let found = self.trial(&other, Some(self.query.capacity))?;
            if found.fits {
                (setup, trial) = (other, found);
                spared += cost_of(&path).saturating_sub(model.penalty([&path]));
            }
        }
        Ok((setup, trial, spared))
    }

    /// Returns `setup` and its trial. Uses the recorded settings, or others if only those fit or if they release cached
    /// memory less often. `None` if the step does not fit.
    fn fitting(&mut self, setup: &Setup) -> Result<Option<(Setup, Trial)>, String> {
        let as_is = self.trial(setup, Some(self.query.capacity))?;
        if as_is.fits && as_is.retries == 0 {
            return Ok(Some((setup.clone(), as_is)));
        }
        if !self.can_change_settings() {
            return Ok(as_is.fits.then(|| (setup.clone(), as_is)));
        }
        let expandable = Setup { settings: Some(EXPANDABLE.to_owned()), ..setup.clone() };
        let other = self.trial(&expandable, Some(self.query.capacity))?;
        let is_better = other.fits && (!as_is.fits || other.retries < as_is.retries);
        Ok(if is_better { Some((expandable, other)) } else { as_is.fits.then(|| (setup.clone(), as_is)) })
    }

    /// Returns the size of the smallest device on which `setup` runs, found by bisection, and the settings used; `None`
    /// if it runs on no device.
    fn smallest_device(&mut self, setup: &Setup) -> Result<Option<(u64, Option<String>)>, String> {
        let mut smallest: Option<(u64, Option<String>)> = None;
        let others = self.can_change_settings().then(|| Some(EXPANDABLE.to_owned()));
        for settings in [None].into_iter().chain(others) {
            let setup = Setup { settings, ..setup.clone() };
            let whole = self.trial(&setup, None)?;
            let mut low = whole.allocated.saturating_sub(1) / STEP;
            let mut high = whole.reserved.div_ceil(STEP);
            if !whole.fits || !self.trial(&setup, Some(high * STEP))?.fits {
                continue;
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if self.trial(&setup, Some(middle * STEP))?.fits { high = middle } else { low = middle }
            }
            if smallest.as_ref().is_none_or(|(bytes, _)| high * STEP < *bytes) {
                smallest = Some((high * STEP, setup.settings));
            }
        }
        Ok(smallest)
    }
}
