//! Measures the value that a budget limits, and its moment.

use std::cell::OnceCell;

use super::Budget;
use crate::between::bytes_of;
use crate::device_spans::device_steps;
use crate::diff::Asked;
use crate::filter::Filter;
use crate::metric::Metric;
use crate::peak::Moment;
use crate::phases::{PhaseRow, phases};
use crate::replay::{Effect, baseline_effects, effects};
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Phase};

/// A measured value, its moment, and its blocks.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    pub(super) moment: Moment,
    /// Selects the blocks that count.
    pub(super) filter: Filter,
}

/// A recording to measure. Caches what several budgets need.
pub(super) struct Measure<'a> {
    pub(super) asked: Asked<'a>,
    metric: Metric,
    phases: OnceCell<Vec<PhaseRow>>,
    categories: OnceCell<[Largest; Category::ALL.len()]>,
}

/// The largest total of a category, and the first event that reaches it; `None` for the state before the first.
#[derive(Clone, Copy, Debug, Default)]
struct Largest {
    bytes: u64,
    event: Option<EventId>,
    /// The first event after the first step that reaches the same value.
    again: Option<EventId>,
}

impl<'a> Measure<'a> {
    pub(super) fn new(asked: Asked<'a>, metric: Metric) -> Self {
        Self { asked, metric, phases: OnceCell::new(), categories: OnceCell::new() }
    }

    /// Measures the value that `budget` limits; for growth, the peak.
    pub(super) fn of(&self, budget: &Budget) -> Result<Measured, String> {
        let peak = |metric| {
            let moment = Moment::peak(self.asked.trace, self.asked.series, metric);
            Measured { bytes: moment.bytes, moment, filter: Filter::default() }
        };
        match budget {
            Budget::Peak(_) | Budget::Growth(_) | Budget::StepGrowth(_) => Ok(peak(self.metric)),
            Budget::Reserved(_) => Ok(peak(Metric::Reserved)),
            Budget::Category(category, _) => self.category(*category),
            Budget::Phase(phase, _) => self.phase(*phase),
        }
    }

    fn category(&self, category: Category) -> Result<Measured, String> {
        let Asked { trace, series, .. } = self.asked;
        if !self.metric.is_of_blocks() {
            return Err(format!("{} is not a sum over blocks, so it has no categories", self.metric));
        }
        let says_none = trace.blocks.category.iter().all(|known| *known == Category::Unknown);
        if says_none && category != Category::Unknown && !trace.blocks.is_empty() {
            return Err("the recording has no categories; infer them with --categories guess".to_owned());
        }
        let all = self.categories.get_or_init(|| largest_of_categories(trace, series.device(), self.metric));
        let Largest { bytes, event, again } = all[category as usize];
        // As for the recording's peak, a later step replaces the first if it reaches the same value in the same phase.
        let first = device_steps(trace, series.device()).first().copied();
        let span = |event: Option<EventId>| event.and_then(|event| trace.spans.at(event));
        let is_repeated = span(event).zip(span(again)).is_some_and(|(span, again)| {
            span.step.is_some() && span.step == first && again.step != first && again.phase == span.phase
        });
        let event = if is_repeated { again } else { event };
        let filter = format!("category={category}").parse()?;
        Ok(Measured { bytes, moment: Moment::at(trace, series, self.metric, event), filter })
    }

    fn phase(&self, phase: Phase) -> Result<Measured, String> {
        let Asked { trace, series, .. } = self.asked;
        let rows = self.phases.get_or_init(|| phases(trace, series.device(), self.metric));
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
            return Err(format!("the recording has no such phase; it has {}", known.join(", ")));
        };
        // As for the recording's peak, a later step replaces the first if it reaches exactly the same value.
        let first = device_steps(trace, series.device()).first().copied();
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
        let event = row.peak_event.or_else(|| row.first.0.checked_sub(1).map(EventId));
        let moment = Moment { step: row.step, phase, ..Moment::at(trace, series, self.metric, event) };
        Ok(Measured { bytes: row.peak_bytes, moment, filter: Filter::default() })
    }
}

/// The largest total of each category over the whole recording.
fn largest_of_categories(trace: &Trace, device: DeviceId, metric: Metric) -> [Largest; Category::ALL.len()] {
    let mut held = [0_u64; Category::ALL.len()];
    let mut largest = [Largest::default(); Category::ALL.len()];
    let take = |held: &mut [u64; Category::ALL.len()], effect: Effect| {
        let (row, begins) = effect.of_block(metric)?;
        let category = trace.blocks.category[row] as usize;
        let bytes = bytes_of(trace, metric, BlockId(row as u32));
        held[category] = if begins { held[category] + bytes } else { held[category] - bytes };
        begins.then_some(category)
    };
    // A baseline block that waits for a stream is added and removed before the first event.
    baseline_effects(trace, device, |effect| {
        take(&mut held, effect);
    });
    for (largest, held) in largest.iter_mut().zip(held) {
        largest.bytes = held;
    }
    let first_step = device_steps(trace, device).first().and_then(|step| trace.spans.step_range(*step));
    let after_first_step = first_step.map_or(trace.events.len(), |range| range.end as usize);
    for index in 0..trace.events.len() {
        if trace.events.device[index] != device {
            continue;
        }
        let mut grown = None;
        effects(trace, index, |effect| grown = take(&mut held, effect).or(grown));
        let Some((held, largest)) = grown.map(|category| (held[category], &mut largest[category])) else { continue };
        if held > largest.bytes {
            *largest = Largest { bytes: held, event: Some(EventId::from_index(index)), again: None };
        } else if held == largest.bytes && largest.again.is_none() && index >= after_first_step {
            largest.again = Some(EventId::from_index(index));
        }
    }
    largest
}
