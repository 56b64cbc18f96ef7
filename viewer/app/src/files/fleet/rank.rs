//! The summary of a rank's recording, which remains when its trace is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;

use highwater_analysis::summary::summarize_devices;
use highwater_analysis::{DeviceSummary, Metric, Moment, Source, Totals};
use highwater_snapshots::trace::Trust;
use highwater_snapshots::{DeviceId, Header, Result};
use serde::{Deserialize, Serialize};

use crate::answers::request_failure::RequestFailure;

/// The source of a rank's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The recording's header contains the rank.
    Recorded,
    /// The number is a part of the file's name.
    FileName,
    /// The number is arbitrary and only orders recordings; the file's name identifies the rank.
    Order,
}

impl Origin {
    /// Returns the source's name in JSON objects; `None` for an arbitrary number.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Recorded => Some("header"),
            Self::FileName => Some("name"),
            Self::Order => None,
        }
    }
}

/// The summary of one recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rank {
    /// The path of the recording.
    pub path: PathBuf,
    /// The path relative to the given folder, or the file name.
    pub name: String,
    /// The rank's number in the run.
    pub rank: u32,
    /// The source of the rank's number.
    pub origin: Origin,
    /// The recording's header, without additional attributes.
    pub header: Header,
    /// Number of events in the recording.
    pub events: u64,
    /// The limits of the recording's accuracy.
    pub trust: Trust,
    /// The limits of the recording's accuracy as sentences, for the user.
    pub trust_sentences: Vec<String>,
    /// The first 20 problems found while reading.
    pub problems: Vec<String>,
    /// Number of problems found while reading, including those beyond the stored ones.
    pub problem_count: usize,
    /// The last request that failed on the default device; `None` if none failed.
    pub failure: Option<RequestFailure>,
    /// The devices, by ordinal; at least one.
    pub devices: Vec<DeviceLook>,
    /// The index of the default device.
    pub main: usize,
}

/// The summary of one device of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceLook {
    /// The device's peaks, its totals at the end, and its event counts.
    pub summary: DeviceSummary,
    /// The totals before the first event.
    pub baseline: Totals,
    /// Sampled curves of the totals over the recording, in the order of [`Metric::ALL`].
    pub curves: [Vec<u64>; Metric::ALL.len()],
}

const MAX_PROBLEMS: usize = 20;

const SAMPLES: usize = 64;

impl Rank {
    /// Summarizes the recording in `path`. A rank that is unknown is 0 until [`number`] assigns one.
    ///
    /// # Errors
    /// Fails if the recording cannot be read.
    pub(super) fn of(path: PathBuf, name: String, source: &Source<'_>) -> Result<Self> {
        let trace = source.facts();
        let mut ids = trace.device_ids();
        if ids.is_empty() {
            ids.push(DeviceId::default());
        }
        let main = trace.main_device();
        let header = Header { facts: Vec::new(), ..trace.header.clone() };
        let summaries = summarize_devices(source, &ids, &mut |_| ControlFlow::Continue(()))?;
        // An unfinished recording may also end within a section, which is no further problem.
        let problems = trace.problems.iter().filter(|problem| !problem.is_cut || !trace.trust.unfinished);
        let devices = summaries.into_iter().map(|summary| DeviceLook::of(source, summary));
        Ok(Self {
            path,
            name,
            rank: header.rank.unwrap_or_default(),
            origin: if header.rank.is_some() { Origin::Recorded } else { Origin::Order },
            header,
            events: source.count_events(),
            trust: trace.trust.clone(),
            trust_sentences: trace.trust_sentences(),
            problems: problems.clone().take(MAX_PROBLEMS).map(ToString::to_string).collect(),
            problem_count: problems.count(),
            failure: RequestFailure::last(source, main)?,
            main: ids.iter().position(|device| *device == main).unwrap_or(0),
            devices: devices.collect::<Result<_>>()?,
        })
    }

    /// Returns the rank's name in sentences, such as `rank 3`, or the file's name if the rank is unknown.
    pub fn label(&self) -> String {
        self.number().map_or_else(|| self.name.clone(), |rank| format!("rank {rank}"))
    }

    /// Returns the number of the rank; `None` if it is unknown.
    pub fn number(&self) -> Option<u32> {
        (self.origin != Origin::Order).then_some(self.rank)
    }

    /// Returns the default device.
    pub fn main(&self) -> &DeviceLook {
        &self.devices[self.main]
    }

    /// Returns the moment of the maximum of `metric` on the default device.
    pub fn peak(&self, metric: Metric) -> Moment {
        self.main().peak(metric)
    }

    /// Returns whether the recording has no limits of accuracy.
    pub fn is_complete(&self) -> bool {
        self.trust_sentences.is_empty() && self.problem_count == 0
    }
}

impl DeviceLook {
    fn of(source: &Source<'_>, summary: DeviceSummary) -> Result<Self> {
        let device = summary.device;
        let mut curves: [Vec<u64>; Metric::ALL.len()] = Default::default();
        for (curve, metric) in curves.iter_mut().zip(Metric::ALL) {
            *curve = source.samples(device, metric, SAMPLES)?;
        }
        let baseline = source.window_at(None)?.totals(device);
        Ok(Self { summary, baseline, curves })
    }

    /// Returns the moment of the maximum of `metric`. If the metric was never sampled, returns a moment of 0 bytes
    /// before the first event.
    pub(crate) fn peak(&self, metric: Metric) -> Moment {
        let unsampled = || Moment { metric, bytes: 0, event: None, time_ns: None, ..self.summary.peaks[0] };
        self.summary.peak(metric).copied().unwrap_or_else(unsampled)
    }
}

/// Assigns ranks to recordings whose header has none. Uses the rank in the file name, unless another recording has the
/// same rank. A number without the word `rank` is used only if all such names differ only in that number, as `r0.snap`
/// and `r1.snap` do. Other recordings are numbered in order.
pub(super) fn number(ranks: &mut [Rank]) {
    let from_name: Vec<Option<u32>> = {
        let names: Vec<&str> =
            ranks.iter().filter(|rank| rank.origin != Origin::Recorded).map(|rank| rank.name.as_str()).collect();
        let numbered: Vec<Option<(String, u32)>> = names.iter().map(|name| last_number(name)).collect();
        let mut patterns: Vec<&str> = numbered.iter().flatten().map(|(pattern, _)| pattern.as_str()).collect();
        patterns.dedup();
        let is_series = names.len() > 1 && numbered.iter().all(Option::is_some) && patterns.len() == 1;
        let number = |(name, numbered): (&&str, &Option<(String, u32)>)| {
            after_rank(name).or_else(|| numbered.as_ref().filter(|_| is_series).map(|(_, number)| *number))
        };
        names.iter().zip(&numbered).map(number).collect()
    };
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    let recorded = ranks.iter().filter_map(Rank::number);
    recorded.chain(from_name.iter().flatten().copied()).for_each(|number| *counts.entry(number).or_default() += 1);
    let unnumbered = ranks.iter_mut().filter(|rank| rank.origin != Origin::Recorded);
    for (rank, number) in unnumbered.zip(from_name) {
        if let Some(number) = number.filter(|number| counts.get(number) == Some(&1)) {
            (rank.rank, rank.origin) = (number, Origin::FileName);
        }
    }
    let taken: BTreeSet<u32> = ranks.iter().filter_map(Rank::number).collect();
    let mut free = (0..).filter(|number| !taken.contains(number));
    for rank in ranks.iter_mut().filter(|rank| rank.origin == Origin::Order) {
        rank.rank = free.next().unwrap_or_default();
    }
}

fn after_rank(path: &str) -> Option<u32> {
    let path = path.to_ascii_lowercase();
    let numbers = path
        .match_indices("rank")
        .filter_map(|(at, word)| leading_number(path[at + word.len()..].trim_start_matches(['_', '-', '.', '=', ' '])));
    numbers.last()
}

/// Returns the last number in a file name without extensions such as `.pickle.gz`, and the path with `#` in its place.
fn last_number(path: &str) -> Option<(String, u32)> {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    // Text after a dot is a file extension if it begins with a letter: `step.10.snap` has the number 10.
    let mut stem = name;
    while let Some((before, ending)) = stem.rsplit_once('.')
        && ending.starts_with(|c: char| c.is_ascii_alphabetic())
    {
        stem = before;
    }
    let last = stem.rfind(|c: char| c.is_ascii_digit())?;
    let before = stem[..=last].trim_end_matches(|c: char| c.is_ascii_digit());
    let number = leading_number(&stem[before.len()..])?;
    let start = path.len() - name.len();
    Some((format!("{}#{}", &path[..start + before.len()], &path[start + last + 1..]), number))
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{after_rank, last_number};

    #[test]
    fn the_rank_is_read_from_the_files_name() {
        for (name, rank) in [
            ("rank10.pickle", Some(10)),
            ("snapshot_rank_3.pickle", Some(3)),
            ("rank_7/step500.snap", Some(7)),
            ("step500.rank=4.pickle.gz", Some(4)),
            ("Rank-0.PICKLE", Some(0)),
            ("falcon40.snap", None),
            ("rank.snap", None),
            ("rank99999999999.snap", None),
            ("", None),
        ] {
            assert_eq!(after_rank(name), rank, "{name}");
        }
    }

    #[test]
    fn the_last_number_of_a_name_and_what_is_around_it_are_found() {
        for (name, expected) in [
            ("r2.snap", Some(("r#.snap", 2))),
            ("run2/host-12.json", Some(("run2/host-#.json", 12))),
            ("step.10.snap", Some(("step.#.snap", 10))),
            ("mem_2024.pickle2", Some(("mem_#.pickle2", 2024))),
            ("größe5é.snap", Some(("größe#é.snap", 5))),
            ("snapshot.pickle", None),
            ("99999999999.snap", None),
            ("", None),
        ] {
            assert_eq!(last_number(name), expected.map(|(pattern, number)| (pattern.to_owned(), number)), "{name}");
        }
    }
}
