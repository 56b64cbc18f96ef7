//! Rank: what is kept of one recording among many, once its trace is let go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use highwater_analysis::summary::{self, DeviceSummary};
use highwater_analysis::{Metric, Moment, Series, Totals};
use highwater_snapshots::trace::{Header, Trust};
use highwater_snapshots::{DeviceId, Trace};

/// Where a rank's number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The recording's header.
    Recorded,
    /// The file's name: the number after its last `rank`, else its last number.
    FileName,
    /// Nowhere: the number only keeps recordings in order, and the file's name stands for the rank.
    Order,
}

impl Origin {
    /// As figures name it.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Recorded => Some("header"),
            Self::FileName => Some("name"),
            Self::Order => None,
        }
    }
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
            origin: if header.rank.is_some() { Origin::Recorded } else { Origin::Order },
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

    /// What sentences call it: `rank 3`, or the file's name where its rank is not known.
    pub fn label(&self) -> String {
        self.number().map_or_else(|| self.name.clone(), |rank| format!("rank {rank}"))
    }

    /// Its rank, if that is known.
    pub fn number(&self) -> Option<u32> {
        (self.origin != Origin::Order).then_some(self.rank)
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
            has_phase: false,
        })
    }
}

/// Numbers the recordings whose header has no rank: by their file names, unless two would have the same rank by these, or
/// one that a header has; else by the smallest free numbers, in their order.
pub(super) fn number(ranks: &mut [Rank]) {
    let mut named: BTreeMap<u32, usize> = BTreeMap::new();
    for rank in ranks.iter() {
        let number = if rank.origin == Origin::Recorded { Some(rank.rank) } else { rank_in(&rank.name) };
        number.into_iter().for_each(|number| *named.entry(number).or_default() += 1);
    }
    for rank in ranks.iter_mut().filter(|rank| rank.origin != Origin::Recorded) {
        if let Some(number) = rank_in(&rank.name).filter(|number| named.get(number) == Some(&1)) {
            (rank.rank, rank.origin) = (number, Origin::FileName);
        }
    }
    let taken: BTreeSet<u32> = ranks.iter().filter_map(Rank::number).collect();
    let mut free = (0..).filter(|number| !taken.contains(number));
    for rank in ranks.iter_mut().filter(|rank| rank.origin == Origin::Order) {
        rank.rank = free.next().unwrap_or_default();
    }
}

/// The rank that a file's path says: the number after the last `rank` in it, else the last number of the file's name, its
/// endings such as `.pickle.gz` aside.
fn rank_in(path: &str) -> Option<u32> {
    let path = path.to_ascii_lowercase();
    let after_rank = path.match_indices("rank").filter_map(|(at, word)| {
        let rest = path[at + word.len()..].trim_start_matches(['_', '-', '.', '=', ' ']);
        leading_number(rest)
    });
    after_rank.last().or_else(|| {
        let name = path.rsplit(['/', '\\']).next().unwrap_or(&path);
        // What follows a dot is an ending where it begins with a letter: `step.10.snap` has the number 10.
        let mut stem = name;
        while let Some((before, ending)) = stem.rsplit_once('.')
            && ending.starts_with(|c: char| c.is_ascii_alphabetic())
        {
            stem = before;
        }
        let last = stem.rfind(|c: char| c.is_ascii_digit())?;
        let before = stem[..=last].trim_end_matches(|c: char| c.is_ascii_digit());
        leading_number(&stem[before.len()..])
    })
}

/// The number that `text` begins with.
fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::rank_in;

    #[test]
    fn the_rank_is_read_from_the_files_name() {
        for (name, rank) in [
            ("rank10.pickle", Some(10)),
            ("snapshot_rank_3.pickle", Some(3)),
            ("r2.snap", Some(2)),
            ("rank_7/step500.snap", Some(7)),
            ("step500.rank=4.pickle.gz", Some(4)),
            ("run2/host-12.json", Some(12)),
            ("step.10.snap", Some(10)),
            ("mem_2024.pickle2", Some(2024)),
            ("größe5é.snap", Some(5)),
            ("Rank-0.PICKLE", Some(0)),
            ("snapshot.pickle", None),
            ("rank.snap", None),
            ("rank99999999999.snap", None),
            ("", None),
        ] {
            assert_eq!(rank_in(name), rank, "{name}");
        }
    }
}
