//! Sentences and figures about a plan, for the command line and the app.

use highwater_snapshots::units::{format_bytes, format_count, format_required_bytes};

use super::moment::count_of;
use crate::answers::plan::{Class, Minimum, Plan, Proof, Reach, Search, Setup, TrainingStep, Trial, name, sharded};

/// Printed if a search for modules ended at its limit.
pub const NOT_OPTIMAL: &str = "The search for modules ended at its limit: a cheaper set may exist.";

/// A budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The device's memory, in bytes.
    pub bytes: u64,
    /// The part of it for what lives outside the allocator, in bytes.
    pub reserve: u64,
}

impl Budget {
    /// Returns what the allocator may reserve, in bytes.
    pub fn capacity(self) -> u64 {
        self.bytes.saturating_sub(self.reserve)
    }

    /// Formats the budget: `24 GiB less 600 MiB`.
    pub fn text(self) -> String {
        match self.reserve {
            0 => format_required_bytes(self.bytes),
            reserve => format!("{} less {}", format_required_bytes(self.bytes), format_bytes(reserve)),
        }
    }
}

/// Returns that `bytes` of a budget are in use outside the allocator, as a sentence; `None` if nothing is.
pub fn counted_outside(bytes: u64) -> Option<String> {
    let used = format_bytes(bytes);
    (bytes > 0).then(|| format!("Of the budget, others use {used} according to the recording's samples."))
}

/// Returns the answer, as a sentence.
pub fn answer(search: &Search, budget: Budget) -> String {
    match search.plans.first() {
        _ if search.fits_as_is => fits_as_is(search, budget),
        Some(plan) => fits(&plan.setup, &plan.trial, search, budget),
        None => does_not_fit(search, budget),
    }
}

fn fits_as_is(search: &Search, budget: Budget) -> String {
    let Trial { requested, reserved, .. } = search.as_is;
    let [requested, reserved, free] =
        [requested, reserved, budget.capacity().saturating_sub(reserved)].map(format_bytes);
    let budget = budget.text();
    match search.reach {
        Reach::End => {
            format!(
                "Fits in {budget} as it is: {requested} requested and {reserved} reserved at the peak, {free} free."
            )
        }
        Reach::FailedRequest => format!(
            "Gets past the request that failed in {budget} as it is; the step may need more. Up to there: {requested} \
             requested and {reserved} reserved at the peak, {free} free."
        ),
    }
}

/// Returns that the step fits with `setup`, as a sentence; as far as `search` can tell.
pub fn fits(setup: &Setup, trial: &Trial, search: &Search, budget: Budget) -> String {
    let [requested, before] = [trial.requested, search.as_is.requested].map(format_bytes);
    let (budget, name) = (budget.text(), name(setup));
    match search.reach {
        Reach::End => format!("Fits in {budget} with {name}: {requested} requested at the peak, {before} before."),
        Reach::FailedRequest => format!(
            "Gets past the request that failed in {budget} with {name}; the step may need more. Up to there: {requested} \
             requested at the peak, {before} before."
        ),
    }
}

fn does_not_fit(search: &Search, budget: Budget) -> String {
    let minimum = &search.minimum;
    let at_least = if minimum.is_exact { "the least" } else { "the least that was found" };
    format!(
        "Does not fit in {}: {at_least} is {} ({} bytes) requested at the peak{}, with {}.",
        budget.text(),
        format_bytes(minimum.requested),
        format_count(minimum.requested),
        up_to(search.reach),
        name(&minimum.setup)
    )
}

/// Returns what figures cover, as an addition to a sentence.
pub fn up_to(reach: Reach) -> &'static str {
    match reach {
        Reach::End => "",
        Reach::FailedRequest => " up to the request that failed",
    }
}

/// Returns that a step that fits would also fit with less work; `None` if it would not.
pub fn less_work(search: &Search) -> Option<String> {
    let plan = search.best().filter(|_| search.fits_as_is)?;
    let also = if search.reach == Reach::End { "It would also fit" } else { "It would also get there" };
    Some(format!("{also} with less work: {}.", name(&plan.setup)))
}

/// Returns how `plan` is proven, as a sentence.
pub fn proven(proof: Proof, reach: Reach, plan: &Plan, budget: Budget) -> String {
    let device = format_required_bytes(budget.capacity());
    let retries = match plan.trial.retries {
        0 => "no cached memory had to be released".to_owned(),
        1 => "all cached memory was released once, which takes time".to_owned(),
        times => format!("all cached memory was released {}, which takes time", count_of(times, "time")),
    };
    match proof {
        Proof::Rerun(steps) => format!(
            "Proven: run again with these changes on a device of {device}, {}; {retries}.",
            count_of(u64::from(steps), "step")
        ),
        Proof::Replayed => {
            let what = match reach {
                Reach::End => "the recording succeeds",
                Reach::FailedRequest => "every recorded request succeeds",
            };
            format!("Replayed: with these changes, {what} on a device of {device}; {retries}.")
        }
    }
}

/// Returns the least memory that can be reached, as a sentence.
pub fn least(search: &Search) -> String {
    let Minimum { requested, setup, .. } = &search.minimum;
    let up_to = up_to(search.reach);
    format!("Lowest peak found: {} requested{up_to}, with {}.", format_bytes(*requested), name(setup))
}

/// Returns a device that is large enough for the least memory, as a sentence; `None` if there is none.
pub fn large_enough(search: &Search, budget: Budget) -> Option<String> {
    let size = format_required_bytes(search.minimum.device_bytes?.saturating_add(budget.reserve));
    Some(match search.reach {
        Reach::End => format!("With these changes it runs on a device of {size}, reserved memory included."),
        Reach::FailedRequest => {
            format!(
                "With these changes a device of {size}, reserved memory included, gets past the request that failed."
            )
        }
    })
}

/// Returns over how many ranks the optimizer state would have to be sharded, as a sentence; `None` if no number would do.
/// `parts` are those of the least peak.
pub fn sharding(parts: &[(String, u64)], minimum: &Minimum, budget: Budget) -> Option<String> {
    let (ranks, bytes) = sharded(parts, minimum.requested, budget.capacity())?;
    let bytes = format_bytes(bytes);
    Some(format!("With the optimizer state sharded over {ranks} ranks (ZeRO-1) it would request about {bytes}."))
}

/// Returns the additional work of `plan`, as shares of the unchanged step's FLOPs and moved bytes.
pub fn shares(search: &Search, plan: &Plan) -> [Option<f64>; 2] {
    plan.trial.work.beyond(search.base).shares(search.base)
}

/// Returns what a change of `class` costs, with the additional shares of FLOPs and moved bytes.
pub fn costs(proof: Proof, class: Class, [flops, moved]: [Option<f64>; 2]) -> String {
    let more = |share: Option<f64>| share.filter(|share| *share >= 0.0005).map(|share| percent(proof, share));
    let work =
        more(flops).map(|text| format!("{text} FLOPs")).or(more(moved).map(|text| format!("{text} memory traffic")));
    match (class, work) {
        (Class::Free, _) => "nothing".to_owned(),
        (Class::Slower, Some(work)) => work,
        (Class::LessPrecise | Class::OtherTraining, Some(work)) => format!("{}, {work}", class.about()),
        (_, _) => class.about().to_owned(),
    }
}

fn percent(proof: Proof, share: f64) -> String {
    let about = if proof == Proof::Replayed { "about " } else { "" };
    format!("{about}+{:.1} %", share * 100.0)
}

/// Returns what the plan `setup` of `step` assumes, a clause each; nothing of changes without a plan.
pub fn assumptions(step: &dyn TrainingStep, setup: Option<&Setup>) -> Vec<String> {
    let changes = setup.iter().flat_map(|setup| &setup.changes);
    let mut all: Vec<String> = changes.filter_map(|change| change.assumption()).map(str::to_owned).collect();
    all.extend(step.assumptions(setup.unwrap_or(&Setup::default())));
    if let Some(evidence) = step.evidence() {
        all.push(evidence.assumption().to_owned());
    }
    all
}
