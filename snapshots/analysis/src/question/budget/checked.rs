//! A device of a checked recording, with the data that its budgets need.

use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Result};

use super::Budget;
use super::largest::{LargestByCategory, first_step};
use crate::grouping::filter::Filter;
use crate::grouping::matches::Matches;
use crate::metric::Metric;
use crate::question::diff::Asked;
use crate::question::growth::{Growth, GrowthQuery, History, NoWindow, StepRange, StepWindow, Steps};
use crate::question::peak::Moment;
use crate::question::phases::{PhaseRow, StageRow, append_rows, phases, stage_rows};
use crate::question::source::{Source, Watch};

/// One device of a recording, and the total to check.
#[derive(Debug)]
pub struct Checked<'a> {
    pub(super) source: &'a Source<'a>,
    device: DeviceId,
    pub(super) metric: Metric,
    /// The phases of the device; empty unless a budget limits a phase.
    pub(super) phases: Vec<PhaseRow>,
    /// The largest totals of the categories; all zero unless a budget limits a category and `metric` is a sum over
    /// blocks.
    pub(super) categories: LargestByCategory,
    history: History,
    /// The steps and segments; empty unless a budget limits the growth of reserved memory.
    reserved: History,
    /// Whether the recording has blocks of a known category, or no blocks at all; also true if `categories` is not
    /// measured.
    pub(super) has_categories: bool,
}

impl<'a> Checked<'a> {
    /// Measures `metric` on `device`. Peaks need only summaries; for `budgets` of phases, categories and growth per
    /// step, the whole recording is read.
    ///
    /// # Errors
    /// Fails like [`Source::each_window`].
    pub fn of(
        source: &'a Source<'a>,
        device: DeviceId,
        metric: Metric,
        budgets: &[Budget],
        watch: Watch<'_>,
    ) -> Result<Self> {
        let any = |is_one: fn(&Budget) -> bool| budgets.iter().any(is_one);
        let limits_phases = any(|budget| matches!(budget, Budget::Phase(..)));
        let limits_categories = any(|budget| matches!(budget, Budget::Category(..))) && metric.is_of_blocks();
        let limits_growth = any(|budget| matches!(budget, Budget::StepGrowth(_)));
        let limits_reserved =
            any(|budget| matches!(budget, Budget::ReservedGrowth(_))) || limits_growth && metric == Metric::Reserved;
        let (mut rows, mut history, mut reserved): (Vec<StageRow>, History, History) = Default::default();
        if limits_phases || limits_categories || limits_growth || limits_reserved {
            let of_blocks = if metric.is_of_blocks() { metric } else { Metric::Requested };
            let map = |trace: &Trace| {
                let matches = Matches::of(trace, &Filter::default());
                let history = |metric| History::of(trace, device, metric, (&matches, &[]));
                let reserved = if limits_reserved { history(Metric::Reserved) } else { History::default() };
                let rows = if limits_phases { stage_rows(trace, device, metric) } else { Vec::new() };
                (history(of_blocks), reserved, rows)
            };
            let take = |(part, of_segments, more): (History, History, Vec<StageRow>)| {
                history.append(part);
                reserved.append(of_segments);
                append_rows(&mut rows, more);
            };
            source.each_window(map, take, watch)?;
        }
        let mut categories = LargestByCategory::default();
        let (mut is_any_known, mut is_empty) = (false, true);
        if limits_categories {
            let (_, after_first_step) = first_step(&history.spans);
            let map = |trace: &Trace| {
                let is_known = trace.blocks.category.iter().any(|known| *known != Category::Unknown);
                let largest = LargestByCategory::of(trace, device, metric, after_first_step);
                (largest, is_known, trace.blocks.is_empty())
            };
            let take = |(part, is_known, part_is_empty): (LargestByCategory, bool, bool)| {
                categories.append(&part, after_first_step);
                is_any_known |= is_known;
                is_empty &= part_is_empty;
            };
            source.each_window(map, take, watch)?;
        }
        let phases = if limits_phases { phases(source.facts(), device, metric, rows) } else { Vec::new() };
        let has_categories = is_any_known || is_empty;
        Ok(Self { source, device, metric, phases, categories, history, reserved, has_categories })
    }

    /// Returns the point at which `metric` is largest.
    ///
    /// # Errors
    /// Fails if a window cannot be read.
    pub fn peak(&self, metric: Metric) -> Result<Moment> {
        self.source.peak(self.device, metric)
    }

    /// The state after event `event`, or before the first one if `None`.
    pub(super) fn moment(&self, event: Option<u64>) -> Result<Moment> {
        self.source.moment(self.device, self.metric, event)
    }

    /// Calls `then` with a window that contains `moment`, and with `moment` relative to that window.
    ///
    /// # Errors
    /// Fails if a window cannot be read.
    pub fn at<T>(&self, moment: &Moment, then: impl FnOnce(Asked<'_>, Moment) -> T) -> Result<T> {
        let window = self.source.window_at(moment.number())?;
        let index = window.index(self.device);
        let asked = Asked { trace: &window.trace, series: &index.series, live: &index.live };
        Ok(then(asked, Moment { event: window.last(), events_before: window.trace.start.events, ..*moment }))
    }

    /// Returns the first step of the device; `None` if there is none, or if no budget required reading the whole
    /// recording.
    pub(super) fn first_step(&self) -> Option<u32> {
        first_step(&self.history.spans).0
    }

    pub(super) fn step_window(&self) -> Result<Result<StepWindow, NoWindow>> {
        let steps = Steps::of(self.source, self.device, &self.history.spans)?;
        Ok(StepWindow::among(steps, StepRange::default()))
    }

    /// `query` must have no filter.
    pub(super) fn growth(&self, window: StepWindow, query: &GrowthQuery<'_>) -> Result<Growth> {
        let history = if query.metric == Metric::Reserved { &self.reserved } else { &self.history };
        history.growth(self.source, self.device, window, query)
    }
}
