//! A recording that is checked: in memory, or read in parts.

use std::cell::OnceCell;

use highwater_snapshots::format::Windows;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Result};

use super::Budget;
use super::largest::{LargestByCategory, first_step};
use crate::diff::Asked;
use crate::filter::Filter;
use crate::growth::{Growth, GrowthQuery, NoWindow, StepRange, StepWindow};
use crate::live::LiveIndex;
use crate::long::{History, Parts, Watch, WindowedMoment, each_part, peak, spans_of};
use crate::matches::Matches;
use crate::metric::Metric;
use crate::peak::Moment;
use crate::phases::{PhaseRow, StageRow, append_rows, phase_rows, phases, stage_rows};
use crate::series::Series;

/// One device of a recording, and the total to measure. Caches what several budgets need.
#[derive(Debug)]
pub struct Checked<'a> {
    source: Source<'a>,
    metric: Metric,
    phases: OnceCell<Vec<PhaseRow>>,
    categories: OnceCell<LargestByCategory>,
}

#[derive(Debug)]
enum Source<'a> {
    Memory(Asked<'a>),
    Parts(Box<InParts<'a>>),
}

/// What is known of a recording that is read in parts.
#[derive(Debug)]
struct InParts<'a> {
    windows: &'a Windows,
    device: DeviceId,
    history: History,
    /// The steps and segments, if the growth of reserved memory is limited.
    reserved: History,
    /// Whether the recording has blocks of a known category.
    has_categories: bool,
}

impl<'a> Checked<'a> {
    /// Measures `metric` of a recording in memory.
    pub fn in_memory(asked: Asked<'a>, metric: Metric) -> Self {
        Self { source: Source::Memory(asked), metric, phases: OnceCell::new(), categories: OnceCell::new() }
    }

    /// Measures `metric` of `device` in a recording that is read in parts. Peaks are known from its summaries; for
    /// `budgets` of phases, categories and growth per step, all of it is read.
    ///
    /// # Errors
    ///
    /// Fails if a window cannot be read, or with [`Error::Cancelled`](highwater_snapshots::Error::Cancelled) if `watch`
    /// breaks.
    pub fn in_parts(
        parts: Parts<'a>,
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
            let map = |trace: Trace| {
                let matches = Matches::of(&trace, &Filter::default());
                let history = |metric| History::of(&trace, device, metric, &matches);
                let reserved = if limits_reserved { history(Metric::Reserved) } else { History::default() };
                let rows = if limits_phases { stage_rows(&trace, device, metric) } else { Vec::new() };
                (history(of_blocks), reserved, rows)
            };
            let take = |(part, of_segments, more): (History, History, Vec<StageRow>)| {
                history.append(part);
                reserved.append(of_segments);
                append_rows(&mut rows, more);
            };
            each_part(parts, map, take, watch)?;
        }
        let mut categories = LargestByCategory::default();
        let (mut is_any_known, mut is_empty) = (false, true);
        if limits_categories {
            let (_, after_first_step) = first_step(&history.spans);
            let map = |trace: Trace| {
                let is_known = trace.blocks.category.iter().any(|known| *known != Category::Unknown);
                let largest = LargestByCategory::of(&trace, device, metric, after_first_step);
                (largest, is_known, trace.blocks.is_empty())
            };
            let take = |(part, is_known, part_is_empty): (LargestByCategory, bool, bool)| {
                categories.append(&part, after_first_step);
                is_any_known |= is_known;
                is_empty &= part_is_empty;
            };
            each_part(parts, map, take, watch)?;
        }
        let has_categories = is_any_known || is_empty;
        let source = InParts { windows: parts.windows, device, history, reserved, has_categories };
        Ok(Self {
            source: Source::Parts(Box::new(source)),
            metric,
            phases: OnceCell::from(phase_rows(rows)),
            categories: OnceCell::from(categories),
        })
    }

    /// The total that is measured.
    pub(super) fn metric(&self) -> Metric {
        self.metric
    }

    /// The recording's tables and facts, with its events only if it is in memory.
    pub(super) fn facts(&self) -> &Trace {
        match &self.source {
            Source::Memory(asked) => asked.trace,
            Source::Parts(parts) => parts.windows.base(),
        }
    }

    /// Whether the recording has blocks of a known category, or no blocks.
    pub(super) fn has_categories(&self) -> bool {
        match &self.source {
            Source::Memory(Asked { trace, .. }) => {
                trace.blocks.is_empty() || trace.blocks.category.iter().any(|known| *known != Category::Unknown)
            }
            Source::Parts(parts) => parts.has_categories,
        }
    }

    /// The moment at which `metric` is largest.
    ///
    /// # Errors
    ///
    /// Fails if a window cannot be read.
    pub fn peak(&self, metric: Metric) -> Result<Moment> {
        match &self.source {
            Source::Memory(asked) => Ok(Moment::peak(asked.trace, asked.series, metric)),
            Source::Parts(parts) => peak(parts.windows, parts.device, metric),
        }
    }

    /// The moment after event `event`, or before the first.
    pub(super) fn moment(&self, event: Option<u64>) -> Result<Moment> {
        match &self.source {
            Source::Memory(asked) => {
                let event = event.map(|event| EventId::from_index(event as usize));
                Ok(Moment::at(asked.trace, asked.series, self.metric, event))
            }
            Source::Parts(parts) => Ok(WindowedMoment::at(parts.windows, parts.device, self.metric, event)?.moment),
        }
    }

    /// Calls `then` with a recording in memory that has `moment`, and with the moment in it.
    ///
    /// # Errors
    ///
    /// Fails if a window cannot be read.
    pub fn at<T>(&self, moment: &Moment, then: impl FnOnce(Asked<'_>, Moment) -> T) -> Result<T> {
        match &self.source {
            Source::Memory(asked) => Ok(then(*asked, *moment)),
            Source::Parts(parts) => {
                let trace = &WindowedMoment::at(parts.windows, parts.device, moment.metric, moment.number())?.window;
                let (series, live) = (Series::build(trace, parts.device), LiveIndex::build(trace, parts.device));
                let event = moment.event.map(|_| EventId(0));
                let local = Moment { event, events_before: trace.start.events, ..*moment };
                Ok(then(Asked { trace, series: &series, live: &live }, local))
            }
        }
    }

    /// The phases of the device.
    pub(super) fn phases(&self) -> &[PhaseRow] {
        self.phases.get_or_init(|| match &self.source {
            Source::Memory(asked) => phases(asked.trace, asked.series.device(), self.metric),
            Source::Parts(_) => Vec::new(),
        })
    }

    /// The first step of the device.
    pub(super) fn first_step(&self) -> Option<u32> {
        match &self.source {
            Source::Memory(asked) => first_step(&spans_of(asked.trace, asked.series.device())).0,
            Source::Parts(parts) => first_step(&parts.history.spans).0,
        }
    }

    /// The largest totals of the categories.
    pub(super) fn categories(&self) -> &LargestByCategory {
        self.categories.get_or_init(|| match &self.source {
            Source::Memory(Asked { trace, series, .. }) => {
                let (_, after_first_step) = first_step(&spans_of(trace, series.device()));
                LargestByCategory::of(trace, series.device(), self.metric, after_first_step)
            }
            Source::Parts(_) => LargestByCategory::default(),
        })
    }

    /// The steps over which growth is measured.
    pub(super) fn step_window(&self) -> Result<Result<StepWindow, NoWindow>> {
        let range = StepRange::default();
        match &self.source {
            Source::Memory(asked) => Ok(StepWindow::of(asked.trace, asked.series.device(), range)),
            Source::Parts(parts) => {
                let (steps, facts) = parts.history.steps(parts.windows, parts.device)?;
                Ok(StepWindow::among(steps, &facts, range))
            }
        }
    }

    /// Measures the growth over `window`; the query is of all blocks.
    pub(super) fn growth(&self, window: StepWindow, query: &GrowthQuery<'_>) -> Result<Growth> {
        match &self.source {
            Source::Memory(asked) => Ok(Growth::of(asked.trace, (asked.series, asked.live), window, query)),
            Source::Parts(parts) => {
                let history = if query.metric == Metric::Reserved { &parts.reserved } else { &parts.history };
                history.growth(parts.windows, parts.device, window, query)
            }
        }
    }
}
