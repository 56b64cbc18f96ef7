//! Checks a recording against memory budgets, and finds the causes of exceeded budgets.

mod allowance;
mod largest;
mod checked;
mod measure;
mod entries;
mod culprit;

use std::fmt;

use super::doubt::Doubt;
use super::growth::{FirstStep, Growth, GrowthQuery};
use super::peak::Moment;
use crate::metric::Metric;
use highwater_snapshots::{Category, Phase, Result};

pub use allowance::Allowance;
pub use checked::Checked;
pub use culprit::Culprit;
pub use entries::culprit_keys;

use culprit::{at_moment, grown, of_segments, of_steps};
use measure::{Measured, Measurement};

/// A memory budget. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Limits the peak of the recording.
    Peak(u64),
    /// Limits the peak of `reserved`.
    Reserved(u64),
    /// Limits the peak of one category over the whole recording.
    Category(Category, u64),
    /// Limits the peak within one phase, over all steps.
    Phase(Phase, u64),
    /// The amount by which the peak may exceed the peak of the baseline.
    Growth(Allowance),
    /// Limits the average growth per step.
    StepGrowth(u64),
    /// Limits the average growth of reserved memory per step.
    ReservedGrowth(u64),
}

/// Formats the name as on the command line, such as `max-peak`, `max activation` or `max-phase backward`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peak(_) => f.write_str("max-peak"),
            Self::Reserved(_) => f.write_str("max-reserved"),
            Self::Category(category, _) => write!(f, "max {category}"),
            Self::Phase(phase, _) => write!(f, "max-phase {phase}"),
            Self::Growth(_) => f.write_str("max-growth"),
            Self::StepGrowth(_) => f.write_str("max-step-growth"),
            Self::ReservedGrowth(_) => f.write_str("max-reserved-growth"),
        }
    }
}

impl Budget {
    /// Describes the value that is limited, such as `peak of reserved`.
    pub fn subject(&self, metric: Metric) -> String {
        let total = metric.name().replace('_', " ");
        match self {
            Self::Peak(_) => format!("peak of {total}"),
            Self::Reserved(_) => "peak of reserved".to_owned(),
            Self::Category(category, _) => format!("peak of {}", category.name().replace('_', " ")),
            Self::Phase(phase, _) => format!("peak of {total} in {phase}"),
            Self::Growth(allowance) => format!("peak of {total}, at most {allowance} above the baseline"),
            Self::StepGrowth(_) => format!("growth of {total} per step"),
            Self::ReservedGrowth(_) => "growth of reserved memory per step".to_owned(),
        }
    }
}

/// The result of checking a budget. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The budget that was checked.
    pub budget: Budget,
    /// The limit; for growth over the baseline, the baseline's peak plus the allowance.
    pub limit_bytes: u64,
    /// The measured value.
    pub actual_bytes: u64,
    /// The value of the baseline; `None` without a baseline, or if the baseline does not permit a measurement.
    pub baseline_bytes: Option<u64>,
    /// The point at which the value was reached. For growth per step, the end of the window.
    pub moment: Moment,
    /// The cause; `None` if the budget is met, or if no cause is found.
    pub culprit: Option<Culprit>,
}

impl Outcome {
    /// Whether the limit is exceeded.
    pub fn is_broken(&self) -> bool {
        self.actual_bytes > self.limit_bytes
    }

    /// Returns whether `doubt` makes it uncertain that the budget is met. Growth per step does not depend on the end of
    /// the run.
    pub fn is_concerned_by(&self, doubt: Doubt) -> bool {
        let is_until_end = !matches!(self.budget, Budget::StepGrowth(_) | Budget::ReservedGrowth(_));
        match doubt {
            Doubt::NoEvents | Doubt::Unregistered(_) => true,
            Doubt::NoMemory(device) => self.moment.device == device,
            Doubt::OutOfMemory(device) => is_until_end && self.moment.device == device,
            Doubt::CutOff | Doubt::Damaged | Doubt::EventsLost(_) | Doubt::Excerpt => is_until_end,
        }
    }

    /// Returns the difference from the limit; negative if the limit is exceeded.
    pub fn headroom(&self) -> i128 {
        i128::from(self.limit_bytes) - i128::from(self.actual_bytes)
    }
}

/// Measures each of `budgets` on a recording, and finds the cause of each exceeded budget: the group that grew most
/// compared with `baseline`, or if the value is not above the baseline's, the group that uses the most memory. For
/// growth per step, the cause is what the steps kept. Returns one result per budget; an inner error is the reason the
/// budget cannot be measured.
///
/// # Errors
/// Fails if a window of a recording that is read in parts cannot be read.
pub fn check(
    own: &Checked<'_>,
    baseline: Option<&Checked<'_>>,
    budgets: &[Budget],
) -> Result<Vec<Measurement<Outcome>>> {
    let one = |budget: &Budget| {
        let outcome = match budget {
            Budget::StepGrowth(_) | Budget::ReservedGrowth(_) => step_growth(own, baseline, *budget)?,
            budget => measured(own, baseline, *budget)?,
        };
        Ok(outcome.map_err(|why| format!("{budget}: {why}")))
    };
    budgets.iter().map(one).collect()
}

fn measured(own: &Checked<'_>, other: Option<&Checked<'_>>, budget: Budget) -> Result<Measurement<Outcome>> {
    let found = match own.measure(&budget)? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    // A value that the baseline lacks, such as a phase, is still measured.
    let before = other.map(|other| other.measure(&budget)).transpose()?.and_then(Measurement::ok);
    let limit_bytes = match (budget, &before) {
        (Budget::Growth(allowance), Some(before)) => before.bytes.saturating_add(allowance.of(before.bytes)),
        (Budget::Growth(_), None) => return Ok(Err("no baseline recording to compare with".to_owned())),
        (
            Budget::Peak(limit)
            | Budget::Reserved(limit)
            | Budget::Category(_, limit)
            | Budget::Phase(_, limit)
            | Budget::StepGrowth(limit)
            | Budget::ReservedGrowth(limit),
            _,
        ) => limit,
    };
    let culprit = if found.bytes > limit_bytes {
        let local = |measured: &Measured, moment| Measured { moment, ..measured.clone() };
        match other.zip(before.as_ref()).filter(|(_, before)| before.bytes < found.bytes) {
            Some((other, before)) => other.at(&before.moment, |a, moment_a| {
                own.at(&found.moment, |b, moment_b| {
                    grown(&budget, [a, b], [&local(before, moment_a), &local(&found, moment_b)])
                })
            })??,
            None => own.at(&found.moment, |asked, moment| at_moment(&budget, asked, &local(&found, moment)))?,
        }
    } else {
        None
    };
    Ok(Ok(Outcome {
        budget,
        limit_bytes,
        actual_bytes: found.bytes,
        baseline_bytes: before.map(|before| before.bytes),
        moment: found.moment,
        culprit,
    }))
}

fn step_growth(own: &Checked<'_>, baseline: Option<&Checked<'_>>, budget: Budget) -> Result<Measurement<Outcome>> {
    let (metric, limit) = match budget {
        Budget::ReservedGrowth(limit) => (Metric::Reserved, limit),
        Budget::StepGrowth(limit) => (own.metric, limit),
        _ => return Ok(Err("this budget does not limit growth per step".to_owned())),
    };
    if metric == Metric::DeviceUsed {
        return Ok(Err(format!("{metric} is not a sum over blocks, so its growth per step cannot be measured")));
    }
    let keys = culprit_keys(own.source.facts());
    let filter = crate::grouping::filter::Filter::default();
    let query = GrowthQuery { metric, keys: &keys, top: 1, filter: &filter };
    let growth_of = |checked: &Checked<'_>| -> Result<Measurement<Growth>> {
        let window = match checked.step_window()? {
            Ok(window) => window,
            Err(no) => return Ok(Err(no.why)),
        };
        if !window.is_whole() {
            return Ok(Err(window.reasons().join(" ").trim_end_matches('.').to_owned()));
        }
        if window.first == FirstStep::Only {
            let why = "the recording has only one whole step, and the first step allocates memory that later steps \
                       reuse: record more steps";
            return Ok(Err(why.to_owned()));
        }
        checked.growth(window, &query).map(Ok)
    };
    let growth = match growth_of(own)? {
        Ok(growth) => growth,
        Err(why) => return Ok(Err(why)),
    };
    let before = baseline.map(growth_of).transpose()?.and_then(Measurement::ok);
    let actual_bytes = growth.lasting_bytes_per_step();
    Ok(Ok(Outcome {
        budget,
        limit_bytes: limit,
        actual_bytes,
        baseline_bytes: before.map(|growth| growth.lasting_bytes_per_step()),
        moment: growth.end,
        culprit: match actual_bytes > limit {
            true if metric == Metric::Reserved => of_segments(&growth),
            true => of_steps(&growth, keys[1]),
            false => None,
        },
    }))
}

#[cfg(test)]
mod tests;
