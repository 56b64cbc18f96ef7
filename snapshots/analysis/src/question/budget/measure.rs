//! Measures the value that a budget limits, and the moment at which it is reached.

use super::Budget;
use super::checked::Checked;
use crate::grouping::filter::Filter;
use crate::metric::Metric;
use crate::question::peak::Moment;
use crate::question::phases::PhaseRow;
use highwater_snapshots::{Category, Phase, Result};

/// A measured value, the point at which it is reached, and the blocks that it counts.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    pub(super) moment: Moment,
    /// The filter for the counted blocks.
    pub(super) filter: Filter,
}

/// A measured value, or the reason it cannot be measured.
pub(super) type Measurement<T> = std::result::Result<T, String>;

impl Checked<'_> {
    /// Measures the value that `budget` limits; for growth over the baseline, this is the peak.
    pub(super) fn measure(&self, budget: &Budget) -> Result<Measurement<Measured>> {
        let peak = |metric| {
            let moment = self.peak(metric)?;
            Ok(Ok(Measured { bytes: moment.bytes, moment, filter: Filter::default() }))
        };
        match budget {
            Budget::Peak(_) | Budget::Growth(_) | Budget::StepGrowth(_) => peak(self.metric),
            Budget::Reserved(_) | Budget::ReservedGrowth(_) => peak(Metric::Reserved),
            Budget::Category(category, _) => self.category(*category),
            Budget::Phase(phase, _) => self.phase(*phase),
        }
    }

    fn category(&self, category: Category) -> Result<Measurement<Measured>> {
        if !self.metric.is_of_blocks() {
            return Ok(Err(format!("{} is not a sum over blocks, so it has no categories", self.metric)));
        }
        if !self.has_categories && category != Category::Unknown {
            return Ok(Err("the recording has no categories; use --categories guess to infer them".to_owned()));
        }
        let largest = self.categories.get(category);
        let mut moment = self.moment(largest.event)?;
        // As for the recording's peak, a later step replaces the first if it reaches the same value in the same phase.
        let first = self.first_step();
        if moment.step.is_some() && moment.step == first && largest.event.is_some() && largest.again.is_some() {
            let again = self.moment(largest.again)?;
            if again.step != first && again.phase == moment.phase {
                moment = again;
            }
        }
        let filter = format!("category={category}").parse();
        Ok(filter.map(|filter| Measured { bytes: largest.bytes, moment, filter }))
    }

    fn phase(&self, phase: Phase) -> Result<Measurement<Measured>> {
        let rows = &self.phases;
        let mut most: Option<&PhaseRow> = None;
        for row in rows.iter().filter(|row| row.phase == phase) {
            if most.is_none_or(|most| row.peak_bytes > most.peak_bytes) {
                most = Some(row);
            }
        }
        let Some(row) = most else {
            let mut known: Vec<Phase> = rows.iter().map(|row| row.phase).collect();
            known.sort_unstable();
            known.dedup();
            let known: Vec<&str> = known.into_iter().map(Phase::name).collect();
            return Ok(Err(format!("the recording has no such phase; it has {}", known.join(", "))));
        };
        // As for the recording's peak, a later step replaces the first if it reaches exactly the same value.
        let first = self.first_step();
        let repeats = |other: &&PhaseRow| {
            other.phase == phase
                && other.first > row.first
                && other.step != first
                && other.peak_bytes == row.peak_bytes
                && other.peak_event.is_some()
        };
        let repeated = row.step.filter(|step| Some(*step) == first).and_then(|_| rows.iter().find(repeats));
        let row = repeated.unwrap_or(row);
        // If the start is never exceeded, the state before the phase is the largest.
        let event = row.peak_event.or_else(|| row.first.checked_sub(1));
        let moment = Moment { step: row.step, phase, ..self.moment(event)? };
        Ok(Ok(Measured { bytes: row.peak_bytes, moment, filter: Filter::default() }))
    }
}
