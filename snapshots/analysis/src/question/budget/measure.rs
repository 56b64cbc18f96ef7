//! Measures the value that a budget limits, and the moment at which this value is reached.

use super::Budget;
use super::checked::Checked;
use crate::grouping::filter::Filter;
use crate::metric::Metric;
use crate::question::peak::{Moment, counts_instead};
use crate::question::phases::PhaseRow;
use highwater_snapshots::{Category, Phase, Result};

#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    pub(super) moment: Moment,
    pub(super) filter: Filter,
}

/// A measured value, or the reason it cannot be measured.
pub(super) type Measurement<T> = std::result::Result<T, String>;

impl Checked<'_> {
    /// Measures the value that `budget` limits; for all kinds of growth, this is the peak.
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
        let mut moment = self.moment(largest.most.after)?;
        if largest.most.after.is_some() && largest.again.is_some() {
            let again = self.moment(largest.again)?;
            if counts_instead(moment.stage(), self.first_step(), again.stage()) {
                moment = again;
            }
        }
        let filter = format!("category={category}").parse();
        Ok(filter.map(|filter| Measured { bytes: largest.most.bytes, moment, filter }))
    }

    fn phase(&self, phase: Phase) -> Result<Measurement<Measured>> {
        let rows = &self.phases;
        // `max_by_key` returns the last maximum; the first one is wanted.
        let most = rows.iter().rev().filter(|row| row.phase == phase).max_by_key(|row| row.peak_bytes);
        let Some(row) = most else {
            let mut known: Vec<Phase> = rows.iter().map(|row| row.phase).collect();
            known.sort_unstable();
            known.dedup();
            let known: Vec<&str> = known.into_iter().map(Phase::name).collect();
            return Ok(Err(format!("the recording has no such phase; it has {}", known.join(", "))));
        };
        let first = self.first_step();
        let repeats = |other: &&PhaseRow| {
            let is_reached_later = other.first > row.first && other.peak_event.is_some();
            is_reached_later && other.peak_bytes == row.peak_bytes && counts_instead(row.stage(), first, other.stage())
        };
        let row = rows.iter().find(repeats).unwrap_or(row);
        // If the start is never exceeded, the state before the phase is the largest.
        let event = row.peak_event.or_else(|| row.first.checked_sub(1));
        let moment = Moment { step: row.step, phase, ..self.moment(event)? };
        Ok(Ok(Measured { bytes: row.peak_bytes, moment, filter: Filter::default() }))
    }
}
