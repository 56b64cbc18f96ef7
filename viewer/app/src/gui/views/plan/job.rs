//! Computes plans on a background thread: searches for a plan within the budget, and replays the recording with the
//! selected changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use highwater_analysis::{Evidence, Metric};
use highwater_snapshots::{DeviceId, Trace};

use crate::Recording;
use crate::answers::plan::{
    Allowance, Change, Changed, Code, Forbidden, Model, PlanLine, Proof, Query, Reach, Recorded, RerunOf, Search,
    Setup, TrainingStep, Trial, composition, record_words, search,
};
use crate::figures::planned::{Budget, assumptions};
use crate::gui::views::predicted::PredictedRun;
use crate::gui::views::view::OfDevice;
use crate::gui::widgets::Cancel;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) of: OfDevice,
    pub(super) budget: Budget,
    /// The changes selected by the user; `None` for those of the best plan.
    pub(super) chosen: Option<Setup>,
}

pub(super) type Outcome = Result<Planned, String>;

#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) found: Arc<Found>,
    pub(super) chosen: Arc<Chosen>,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) search: Search,
    /// The composition of the lowest peak; empty if a plan fits.
    pub(super) at_minimum: Vec<(String, u64)>,
    /// The additional share of the step's FLOPs if a module is recomputed, by module path.
    pub(super) shares: HashMap<String, f64>,
    pub(super) warnings: Vec<String>,
    /// The method by which the plans were verified: running the step, or replays.
    pub(super) proof: Proof,
    /// Whether the command line can run the step again although this app cannot.
    pub(super) can_rerun: bool,
}

impl Found {
    /// The initially selected changes: those of the best plan, or of the plan with the lowest peak if none fits.
    pub(super) fn setup(&self) -> Setup {
        let nothing = Setup { recomputed: Some(Vec::new()), ..Setup::default() };
        match self.search.best() {
            Some(plan) => plan.setup.clone(),
            None if self.search.fits_as_is => nothing,
            None => self.search.minimum.setup.clone(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) setup: Setup,
    /// The changes of the plan in order, each with the memory use of the step with it and the changes before it.
    pub(super) lines: Vec<PlanLine>,
    /// The run on a device with the budget's size if it fits, otherwise on a larger one.
    pub(super) trial: Trial,
    pub(super) run: Arc<PredictedRun>,
    /// The lines of code that apply the changes.
    pub(super) code: Code,
    pub(super) assumptions: Vec<String>,
}

#[derive(Default)]
pub(super) struct Planner {
    rerun: Option<RerunOf>,
    /// Counts the replays of the current answer.
    replays: Arc<AtomicUsize>,
    step: Option<(OfDevice, Box<dyn TrainingStep + Send>)>,
    found: Option<(Budget, Arc<Found>)>,
}

impl Clone for Planner {
    /// Creates a planner with the same functions, and with an empty cache.
    fn clone(&self) -> Self {
        Self::new(self.rerun, &self.replays)
    }
}

impl Planner {
    pub(super) fn new(rerun: Option<RerunOf>, replays: &Arc<AtomicUsize>) -> Self {
        Self { rerun, replays: Arc::clone(replays), ..Self::default() }
    }

    /// Searches plans for `key`; `None` if cancelled, or if the recording was closed.
    pub(super) fn answer(&mut self, key: &Key, cancel: &Cancel) -> Option<Outcome> {
        let recording = key.of.recording.get()?;
        self.replays.store(0, Ordering::Relaxed);
        let outcome = self.planned(&recording, key, cancel);
        (!cancel.is_cancelled()).then_some(outcome)
    }

    fn planned(&mut self, recording: &Arc<Recording>, key: &Key, cancel: &Cancel) -> Outcome {
        let trace = &recording.trace;
        let index = recording.devices.get(key.of.device).ok_or("the recording has no such device")?;
        if index.peak(trace, Metric::Requested).bytes == 0 {
            return Err("the recording has no allocations on this device".to_owned());
        }
        let device = index.device;
        if self.step.as_ref().is_none_or(|(of, _)| *of != key.of) {
            let rerun = self.rerun.filter(|_| device == trace.main_device()).and_then(|rerun| rerun(trace));
            let step: Box<dyn TrainingStep + Send> = match rerun {
                Some(step) => step?,
                None => Box::new(Recorded::new(Arc::clone(trace), device, &[])?),
            };
            (self.step, self.found) = (Some((key.of.clone(), step)), None);
        }
        let Some((_, step)) = &self.step else { return Err("the recording cannot be replayed".to_owned()) };
        let step = Watched { step: &**step, replays: &self.replays, cancel };
        let known = self.found.as_ref().filter(|(budget, _)| *budget == key.budget);
        let found = match known {
            Some((_, found)) => Arc::clone(found),
            None => Arc::new(found_in(trace, &step, key.budget)?),
        };
        self.found = Some((key.budget, Arc::clone(&found)));
        let setup = key.chosen.clone().unwrap_or_else(|| found.setup());
        let chosen = Arc::new(step.chosen(setup, key.budget)?);
        Ok(Planned { found, chosen })
    }
}

fn found_in(trace: &Trace, step: &Watched<'_>, budget: Budget) -> Result<Found, String> {
    let query = Query { capacity: budget.capacity(), ..Query::default() };
    let search = search(step, &query)?;
    let at_minimum =
        if search.plans.is_empty() { composition(&step.recording(&search.minimum.setup)?) } else { Vec::new() };
    let setups = search.plans.iter().map(|plan| &plan.setup).chain([&search.minimum.setup]);
    let modules = setups.flat_map(|setup| setup.recomputed.iter().flatten());
    let shares = modules.filter_map(|path| Some((path.clone(), step.share_of(path)?))).collect();
    let (warnings, proof) = (step.warnings(&search.as_is), step.proof());
    let can_rerun = proof == Proof::Replayed && record_words(trace).is_some();
    Ok(Found { search, at_minimum, shares, warnings, proof, can_rerun })
}

/// A step whose replays are counted, and that fails once its query is cancelled.
struct Watched<'a> {
    step: &'a dyn TrainingStep,
    replays: &'a AtomicUsize,
    cancel: &'a Cancel,
}

impl Watched<'_> {
    fn go_on(&self) -> Result<(), String> {
        self.replays.fetch_add(1, Ordering::Relaxed);
        if self.cancel.is_cancelled() { Err("cancelled".to_owned()) } else { Ok(()) }
    }

    fn chosen(&self, setup: Setup, budget: Budget) -> Result<Chosen, String> {
        let lines = PlanLine::all(self, &setup, budget.capacity())?;
        let within = self.trial(&setup, Some(budget.capacity()))?;
        let capacity = within.fits.then(|| budget.capacity());
        let trial = if within.fits { within } else { Trial { fits: false, ..self.trial(&setup, None)? } };
        let Changed { trace, source, failure } = self.changed(&setup, capacity)?;
        let run = Arc::new(PredictedRun::of(Arc::new(trace), source, self.device(), failure));
        let (code, assumptions) = (self.code(&setup)?, assumptions(self, Some(&setup)));
        Ok(Chosen { setup, lines, trial, run, code, assumptions })
    }
}

impl TrainingStep for Watched<'_> {
    fn combinations(&self, allowed: &[Allowance], forbidden: &[Forbidden]) -> Vec<Vec<Change>> {
        self.step.combinations(allowed, forbidden)
    }

    fn model(&self, changes: &[Change]) -> Result<Model, String> {
        self.go_on()?;
        self.step.model(changes)
    }

    fn trial(&self, setup: &Setup, capacity: Option<u64>) -> Result<Trial, String> {
        self.go_on()?;
        self.step.trial(setup, capacity)
    }

    fn recording(&self, setup: &Setup) -> Result<Trace, String> {
        self.go_on()?;
        self.step.recording(setup)
    }

    fn changed(&self, setup: &Setup, capacity: Option<u64>) -> Result<Changed, String> {
        self.go_on()?;
        self.step.changed(setup, capacity)
    }

    fn code(&self, setup: &Setup) -> Result<Code, String> {
        self.step.code(setup)
    }

    fn device(&self) -> DeviceId {
        self.step.device()
    }

    fn proof(&self) -> Proof {
        self.step.proof()
    }

    fn reach(&self) -> Reach {
        self.step.reach()
    }

    fn warnings(&self, as_is: &Trial) -> Vec<String> {
        self.step.warnings(as_is)
    }

    fn assumptions(&self, setup: &Setup) -> Vec<String> {
        self.step.assumptions(setup)
    }

    fn has_settings(&self) -> bool {
        self.step.has_settings()
    }

    fn share_of(&self, path: &str) -> Option<f64> {
        self.step.share_of(path)
    }

    fn is_quick(&self) -> bool {
        self.step.is_quick()
    }

    fn evidence(&self) -> Option<Evidence> {
        self.step.evidence()
    }
}
