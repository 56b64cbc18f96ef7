//! Checks a recording against memory budgets and finds the cause if one is exceeded.

mod allowance;
mod measure;
mod entries;
mod alike;
mod culprit;

use std::fmt;

use super::diff::Asked;
use super::growth::{FirstStep, Growth, GrowthQuery, StepWindow};
use super::metric::Metric;
use super::peak::Moment;
use highwater_snapshots::{Category, Phase};

pub use alike::{AlikeGroups, Differences};
pub use allowance::Allowance;
pub use culprit::Culprit;
pub use entries::culprit_keys;

use culprit::{Circumstance, of_steps};
use measure::Measure;

/// A memory budget. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Limits the peak of the recording.
    Peak(u64),
    /// Limits the peak of `reserved`.
    Reserved(u64),
    /// Limits the peak of one category, over all moments.
    Category(Category, u64),
    /// Limits the peak within one phase, over all steps.
    Phase(Phase, u64),
    /// Limits by how much the peak may exceed a baseline's.
    Growth(Allowance),
    /// Limits the average growth per step over the steps that count.
    StepGrowth(u64),
}

/// Formats the name as on the command line: `max-peak`, `max activation`, `max-phase backward`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peak(_) => f.write_str("max-peak"),
            Self::Reserved(_) => f.write_str("max-reserved"),
            Self::Category(category, _) => write!(f, "max {category}"),
            Self::Phase(phase, _) => write!(f, "max-phase {phase}"),
            Self::Growth(_) => f.write_str("max-growth"),
            Self::StepGrowth(_) => f.write_str("max-step-growth"),
        }
    }
}

impl Budget {
    /// Describes the limited value.
    pub fn subject(&self, metric: Metric) -> String {
        let total = metric.name().replace('_', " ");
        match self {
            Self::Peak(_) => format!("peak of {total}"),
            Self::Reserved(_) => "peak of reserved".to_owned(),
            Self::Category(category, _) => format!("peak of {}", category.name().replace('_', " ")),
            Self::Phase(phase, _) => format!("peak of {total} in {phase}"),
            Self::Growth(allowance) => format!("peak of {total}, at most {allowance} above the baseline"),
            Self::StepGrowth(_) => format!("growth of {total} per step"),
        }
    }
}

/// The result of checking a budget. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The budget.
    pub budget: Budget,
    /// The limit; for growth, the baseline's peak plus the allowance.
    pub limit_bytes: u64,
    /// The measured value.
    pub actual_bytes: u64,
    /// The baseline's value, if there is a baseline that has it.
    pub baseline_bytes: Option<u64>,
    /// The moment of the value; for growth per step, the end of the window.
    pub moment: Moment,
    /// The cause; `None` if the budget is met.
    pub culprit: Option<Culprit>,
}

impl Outcome {
    /// Whether the limit is exceeded.
    pub fn is_broken(&self) -> bool {
        self.actual_bytes > self.limit_bytes
    }

    /// The difference to the limit; negative if it is exceeded.
    pub fn headroom(&self) -> i128 {
        i128::from(self.limit_bytes) - i128::from(self.actual_bytes)
    }
}

/// Measures each of `budgets` on a recording and finds the cause of each exceeded one: what grew most since `baseline`,
/// or without one what uses most. Returns one result per budget; an error is the reason why the budget cannot be
/// measured.
pub fn check(
    asked: Asked<'_>,
    baseline: Option<Asked<'_>>,
    metric: Metric,
    budgets: &[Budget],
) -> Vec<Result<Outcome, String>> {
    let (own, other) = (Measure::new(asked, metric), baseline.map(|asked| Measure::new(asked, metric)));
    let one = |budget: &Budget| match budget {
        Budget::StepGrowth(limit) => step_growth(asked, baseline, metric, *limit),
        budget => measured(&own, other.as_ref(), *budget),
    };
    budgets.iter().map(|budget| one(budget).map_err(|why| format!("{budget}: {why}"))).collect()
}

fn measured(own: &Measure<'_>, other: Option<&Measure<'_>>, budget: Budget) -> Result<Outcome, String> {
    let found = own.of(&budget)?;
    // A value that the baseline lacks, such as a phase, is still measured.
    let before = other.and_then(|other| other.of(&budget).ok());
    let limit_bytes = match (budget, &before) {
        (Budget::Growth(allowance), Some(before)) => before.bytes.saturating_add(allowance.of(before.bytes)),
        (Budget::Growth(_), None) => return Err("no baseline recording to compare with".to_owned()),
        (
            Budget::Peak(limit)
            | Budget::Reserved(limit)
            | Budget::Category(_, limit)
            | Budget::Phase(_, limit)
            | Budget::StepGrowth(limit),
            _,
        ) => limit,
    };
    let culprit = (found.bytes > limit_bytes).then(|| {
        let circumstance = Circumstance::of(&budget);
        let before = other.zip(before.as_ref()).filter(|(_, before)| before.bytes < found.bytes);
        match before {
            Some((other, before)) => circumstance.grown([other.asked, own.asked], [before, &found]),
            None => circumstance.held(own.asked, &found),
        }
    });
    Ok(Outcome {
        budget,
        limit_bytes,
        actual_bytes: found.bytes,
        baseline_bytes: before.map(|before| before.bytes),
        moment: found.moment,
        culprit: culprit.flatten(),
    })
}

fn step_growth(asked: Asked<'_>, baseline: Option<Asked<'_>>, metric: Metric, limit: u64) -> Result<Outcome, String> {
    if !metric.is_of_blocks() {
        return Err(format!("{metric} is not a sum over blocks, so its growth per step cannot be measured"));
    }
    let keys = culprit_keys(asked.trace);
    let filter = super::filter::Filter::default();
    let query = GrowthQuery { metric, keys: &keys, top: 1, filter: &filter };
    let growth_of = |asked: Asked<'_>| {
        let window = StepWindow::of(asked.trace, asked.series.device(), None, None)?;
        if !window.is_whole() {
            return Err(window.reasons().join(" ").trim_end_matches('.').to_owned());
        }
        if window.first == FirstStep::Only {
            let why = "the recording has one whole step, and a first step allocates what later steps reuse: record more steps";
            return Err(why.to_owned());
        }
        Ok::<_, String>(Growth::of(asked.trace, (asked.series, asked.live), window, &query))
    };
    let growth = growth_of(asked)?;
    let actual_bytes = growth.bytes_per_step();
    Ok(Outcome {
        budget: Budget::StepGrowth(limit),
        limit_bytes: limit,
        actual_bytes,
        baseline_bytes: baseline.and_then(|asked| growth_of(asked).ok()).map(|growth| growth.bytes_per_step()),
        moment: growth.end,
        culprit: if actual_bytes > limit { of_steps(&growth, keys[1]) } else { None },
    })
}

#[cfg(test)]
mod tests;
