//! Rank: what is kept of one recording among many, once its trace is let go.

use std::collections::BTreeSet;
use std::path::PathBuf;

use highwater_snapshots::analysis::summary::{self, DeviceSummary};
use highwater_snapshots::analysis::{Metric, Moment, Series, Totals};
use highwater_snapshots::trace::{Header, Trust};
use highwater_snapshots::{DeviceId, Trace};

/// Where a rank's number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The recording says it.
    Recorded,
    /// It does not: recordings are numbered in the order of their names.
    ByName,
}

/// One recording, summed up.
#[derive(Clone, Debug)]
pub struct Rank {
    /// The file.
    pub path: PathBuf,
    /// Its path from the folder that it lies in.
    pub name: String,
    /// Its number among those that train together.
    pub rank: u32,
    /// Where that comes from.
    pub origin: Origin,
    /// Where the recording comes from, without the further facts.
    pub header: Header,
    /// The number of its events.
    pub events: usize,
    /// What its numbers rest on.
    pub trust: Trust,
    /// The same in words.
    pub trust_sentences: Vec<String>,
    /// What was found wrong while reading; the first twenty.
    pub problems: Vec<String>,
    /// How many problems there are.
    pub problem_count: usize,
    /// Its devices, by ordinal; at least one.
    pub devices: Vec<DeviceLook>,
    /// The row of the device that most people mean.
    pub main: usize,
}

/// One device of it.
#[derive(Clone, Debug)]
pub struct DeviceLook {
    /// What is known of it.
    pub summary: DeviceSummary,
    /// The totals before the first event.
    pub baseline: Totals,
    /// The totals over the recording, of each metric in order.
    pub curves: [Vec<u64>; Metric::ALL.len()],
}

/// Problems of one recording that are kept.
const MOST_PROBLEMS: usize = 20;

/// Samples of a curve.
const SAMPLES: usize = 64;

impl Rank {
    /// Sums `trace` up, which was read from `path`; a rank that it does not say is 0 until all are numbered.
    pub(super) fn of(path: PathBuf, name: String, trace: &Trace) -> Self {
        let mut ids = trace.device_ids();
        if ids.is_empty() {
            ids.push(DeviceId::default());
        }
        let main = trace.main_device();
        let header = Header { facts: Vec::new(), ..trace.header.clone() };
        Self {
            path,
            name,
            rank: header.rank.unwrap_or_default(),
            origin: if header.rank.is_some() { Origin::Recorded } else { Origin::ByName },
            header,
            events: trace.events.len(),
            trust: trace.trust.clone(),
            trust_sentences: trace.trust_sentences(),
            problems: trace.problems.iter().take(MOST_PROBLEMS).map(ToString::to_string).collect(),
            problem_count: trace.problems.len(),
            main: ids.iter().position(|device| *device == main).unwrap_or(0),
            devices: ids.into_iter().map(|device| DeviceLook::of(trace, device)).collect(),
        }
    }

    /// The device that most people mean.
    pub fn main(&self) -> &DeviceLook {
        &self.devices[self.main]
    }

    /// The moment at which `metric` is largest on its main device.
    pub fn peak(&self, metric: Metric) -> Moment {
        self.main().peak(metric)
    }

    /// Whether nothing limits trust in its numbers.
    pub fn is_complete(&self) -> bool {
        self.trust_sentences.is_empty() && self.problem_count == 0
    }
}

impl DeviceLook {
    fn of(trace: &Trace, device: DeviceId) -> Self {
        let series = Series::build(trace, device);
        let is_ours = |at: &DeviceId| *at == device;
        let first = trace.events.device.iter().position(is_ours).unwrap_or(0);
        let last = trace.events.device.iter().rposition(is_ours).map_or(0, |last| last + 1);
        let curves = Metric::ALL.map(|metric| series.samples(trace, metric, first..last + 1, SAMPLES));
        Self { summary: summary::of_device(trace, &series), baseline: series.baseline(), curves }
    }

    /// The moment at which `metric` is largest; of what was never sampled, 0 before the first event.
    pub fn peak(&self, metric: Metric) -> Moment {
        let known = self.summary.peaks.iter().find(|peak| peak.metric == metric).copied();
        known.unwrap_or(Moment {
            device: self.summary.device,
            metric,
            bytes: 0,
            event: None,
            time_ns: None,
            step: None,
            phase: highwater_snapshots::Phase::Setup,
        })
    }
}

/// Gives those that do not say their rank the smallest numbers that are free, in their order.
pub(super) fn number(ranks: &mut [Rank]) {
    let taken: BTreeSet<u32> =
        ranks.iter().filter(|rank| rank.origin == Origin::Recorded).map(|rank| rank.rank).collect();
    let mut free = (0..).filter(|number| !taken.contains(number));
    for rank in ranks.iter_mut().filter(|rank| rank.origin == Origin::ByName) {
        rank.rank = free.next().unwrap_or_default();
    }
}
