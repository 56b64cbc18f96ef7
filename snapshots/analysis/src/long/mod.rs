//! Answers about recordings that are too long to be held in memory, from windows of them that are read one after the
//! other. The answers are those that the whole recording would give, with events numbered over all of it.

mod peaks;
mod failed_requests;
mod devices;
mod frontier;
mod spans;
mod between;
mod leaks;
mod growth;
mod explain;
mod steps;

use std::ops::{ControlFlow, Range};

use highwater_snapshots::format::Windows;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Error, Result};
use rayon::prelude::*;

use super::live::LiveIndex;
use super::metric::Metric;
use super::peak::{Moment, Peak, Query};
use super::phases::{StageRow, append_rows, elsewhere, peak_of, phase_rows, stage_rows};
use super::series::Series;

pub use devices::summarize;
pub use explain::{WindowedExplanation, explain};
pub use failed_requests::{failed_requests, final_oom, find_failed_request, has_failed_requests};
pub(crate) use growth::History;
pub use growth::{OfDevices, growth};
pub use peaks::peak;
pub(crate) use spans::spans_of;
pub use steps::{FoundStep, SoughtStep, find_step};

/// A recording, to be read part by part.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The recording.
    pub windows: &'a Windows,
    /// The events of a part, at most, and twice those of the shortest, where checkpoints allow it.
    pub events: u64,
}

impl<'a> Parts<'a> {
    /// Parts of the length that checkpoints usually have.
    pub fn of(windows: &'a Windows) -> Self {
        Self { windows, events: 1 << 21 }
    }

    /// The ranges of events, each beginning at a checkpoint if possible.
    fn ranges(&self) -> Vec<Range<u64>> {
        let most = self.events.max(1);
        let checkpoints = self.windows.checkpoints().into_iter().chain([self.windows.events()]);
        let (mut ranges, mut start): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        for end in checkpoints {
            while end - start > most {
                ranges.push(start..start + most);
                start += most;
            }
            if end - start >= most / 2 || end == self.windows.events() && end > start {
                ranges.push(start..end);
                start = end;
            }
        }
        ranges
    }
}

/// Reports the number of events done so far, and can stop the work.
pub type Watch<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// Reads the recording in windows, several at a time, and passes what `map` makes of each to `take`, in order.
///
/// # Errors
///
/// Fails if a window cannot be read, or with [`Error::Cancelled`] if `watch` breaks.
pub fn each_part<T: Send>(
    parts: Parts<'_>,
    map: impl Fn(Trace) -> T + Sync,
    mut take: impl FnMut(T),
    watch: Watch<'_>,
) -> Result<()> {
    let take = |part| {
        take(part);
        Ok(())
    };
    try_each_part(parts, |trace| Ok(map(trace)), take, watch)
}

/// The same, where `map` and `take` may fail.
///
/// # Errors
///
/// As [`each_part`], and as `map` and `take`.
pub fn try_each_part<T: Send>(
    parts: Parts<'_>,
    map: impl Fn(Trace) -> Result<T> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
    watch: Watch<'_>,
) -> Result<()> {
    let windows = parts.windows;
    for batch in parts.ranges().chunks(rayon::current_num_threads()) {
        let part = |range: &Range<u64>| windows.window(range.clone()).and_then(&map);
        let mapped: Vec<Result<T>> = batch.par_iter().map(part).collect();
        for part in mapped {
            take(part?)?;
        }
        let done = batch.last().map_or(0, |range| range.end);
        if watch(done).is_break() {
            return Err(Error::Cancelled);
        }
    }
    Ok(())
}

/// The steps and phases of a recording, as a device sees them; `prepare` may change each window first.
///
/// # Errors
///
/// As [`each_part`], and if events are too many to be numbered.
pub fn stages(
    parts: Parts<'_>,
    device: DeviceId,
    metric: Metric,
    prepare: impl Fn(&mut Trace) + Sync,
    watch: Watch<'_>,
) -> Result<Vec<StageRow>> {
    check_count(parts.windows)?;
    let mut rows = Vec::new();
    let map = |mut trace: Trace| {
        prepare(&mut trace);
        stage_rows(&trace, device, metric)
    };
    each_part(parts, map, |more| append_rows(&mut rows, more), watch)?;
    Ok(rows)
}

/// Fails if the recording has more events than can be numbered.
fn check_count(windows: &Windows) -> Result<()> {
    if windows.events() >= u64::from(u32::MAX) {
        return Err(Error::Encode { what: "the recording has more than 2^32 events".to_owned() });
    }
    Ok(())
}

/// A moment, and the window of the event that leads to it.
#[derive(Debug)]
pub struct WindowedMoment {
    /// The moment; its event is numbered over the whole recording.
    pub moment: Moment,
    /// The window of its event alone; if it is before the first event, one without events.
    pub window: Trace,
}

impl WindowedMoment {
    /// The moment after event `event` of the recording, or before the first.
    ///
    /// # Errors
    ///
    /// Fails if the window cannot be read.
    pub fn at(windows: &Windows, device: DeviceId, metric: Metric, event: Option<u64>) -> Result<Self> {
        check_count(windows)?;
        let window = windows.window(event.map_or(0..0, |event| event..event + 1))?;
        if event.is_some() && window.events.is_empty() {
            let what = format!("its summaries name event {}, which is not there", event.unwrap_or(0));
            return Err(Error::Damaged { offset: 0, what });
        }
        let series = Series::build(&window, device);
        let local = Moment::at(&window, &series, metric, event.map(|_| EventId(0)));
        let event = event.map(|event| EventId::from_index(event as usize));
        Ok(Self { moment: Moment { event, events_before: 0, ..local }, window })
    }

    /// The moment of the peak of the total that `rows` are about, as [`Moment::peak`] chooses it.
    ///
    /// # Errors
    ///
    /// Fails if the window cannot be read.
    pub fn peak(windows: &Windows, device: DeviceId, metric: Metric, rows: &[StageRow]) -> Result<Self> {
        Self::at(windows, device, metric, peak_of(rows).map(|(event, _)| event))
    }

    /// Breaks down the memory at the moment.
    pub fn breakdown(&self, query: &Query<'_>) -> Peak {
        let series = Series::build(&self.window, self.moment.device);
        let live = LiveIndex::build(&self.window, self.moment.device);
        let event = self.moment.event.map(|_| EventId(0));
        let peak = Peak::at(&self.window, &live, &series, Moment { event, ..self.moment }, query);
        Peak { moment: self.moment, ..peak }
    }

    /// The other phases that reach the same peak, as [`reached_elsewhere`](super::phases::reached_elsewhere) has them,
    /// but without times.
    pub fn elsewhere(&self, rows: Vec<StageRow>) -> Vec<Moment> {
        elsewhere(&phase_rows(rows), &self.moment)
    }
}
