//! The recordings of the program's processes, and the conclusions from them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_analysis::{DeviceSummary, Metric, Source};
use highwater_app::answers::prediction::Figures;
use highwater_app::answers::replays::Replayer;
use highwater_app::answers::request_failure::RequestFailure;
use highwater_snapshots::alloc_rules::AddressOrder;
use highwater_snapshots::trace::SIMULATION;
use highwater_snapshots::{DeviceId, Trace};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::gpu::Gpu;
use crate::input::read;
use crate::output::Failure;

/// A function that was called, or a value that was read, and the line of the program that did so.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Called {
    /// The name of the function. For a read value, its size.
    pub(super) name: String,
    /// The file; `None` if no line of the program was running.
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) function: Option<String>,
    pub(super) text: String,
    pub(super) count: u64,
}

/// The Python package's notes about the simulation, as JSON in the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Noted {
    /// Number of bytes on the host that were left uninitialized.
    pub(super) skipped_bytes: u64,
    /// The line that waits indefinitely for a value.
    pub(super) endless: Option<String>,
    /// Whether the program was ended because the requested steps were complete.
    pub(super) is_stopped: bool,
    /// Whether the process continued after every failed request.
    pub(super) outlives_failures: bool,
    /// Number of optimizers that the program created but that have not taken a step.
    pub(super) waiting_optimizers: u32,
    /// Functions that are not simulated.
    pub(super) missing: Vec<Called>,
    /// Devices that were used but do not exist.
    pub(super) missing_devices: Vec<Called>,
    /// Lines that choose kernels by measuring their time.
    pub(super) autotuned: Vec<Called>,
    /// Functions whose workspace size on a GPU is unknown.
    pub(super) unknown_workspaces: Vec<Called>,
    /// Values of the device that were read as zeros.
    pub(super) reads: Vec<Called>,
    /// The reads in order: the number of allocations before each, and its index in `reads`.
    pub(super) read_order: Vec<(u64, usize)>,
}

#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) file: PathBuf,
    pub(super) trace: Arc<Trace>,
    pub(super) summary: DeviceSummary,
    pub(super) noted: Noted,
    /// The totals with other orders of addresses, or the reason that they are unknown. `None` if a request failed,
    /// because the program may have continued differently after it.
    pub(super) orders: Option<Result<Orders, String>>,
}

impl Recorded {
    /// Returns the peak of a total; 0 if it was not measured.
    pub(super) fn peak(&self, metric: Metric) -> u64 {
        self.summary.peak(metric).map_or(0, |moment| moment.bytes)
    }

    /// Returns the last failed request, if any. The program handled earlier ones.
    pub(super) fn failure(&self) -> Option<RequestFailure> {
        RequestFailure::all(&self.trace, self.summary.device).next_back()
    }
}

/// A run of the program in which unknown values are ones.
#[derive(Debug)]
pub(super) struct WithOnes {
    /// The recordings of the processes, in the order of [`Simulated::recorded`].
    pub(super) traces: Vec<Trace>,
    pub(super) status: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Fits,
    DoesNotFit,
    /// Contains the reason that it is unknown whether the program fits.
    Unknown(String),
}

#[derive(Debug)]
pub(crate) struct Simulated {
    pub(super) gpu: Gpu,
    /// One recording per process that used the device, by rank.
    pub(super) recorded: Vec<Recorded>,
    pub(super) status: u8,
    /// Memory that was reserved for uses outside of PyTorch's allocator.
    pub(super) reserve_bytes: u64,
    /// Whether small tensors were computed on the host.
    pub(super) has_values: bool,
    /// The run with ones; `None` unless it was requested and unknown values were read.
    pub(super) with_ones: Option<WithOnes>,
}

impl Simulated {
    /// Returns the recording that determines the result: of the process that ran out of memory, or otherwise of the
    /// process with the highest peak.
    pub(super) fn main(&self) -> &Recorded {
        let peak =
            |one: &&Recorded| (one.summary.oom_events > 0, one.summary.peaks.iter().map(|moment| moment.bytes).max());
        self.recorded.iter().max_by_key(peak).expect("there is no recording")
    }

    pub(crate) fn trace(&self) -> &Arc<Trace> {
        &self.main().trace
    }

    pub(crate) fn file(&self) -> &Path {
        &self.main().file
    }

    /// Returns the peak of a total in the recording that determines the result.
    pub(crate) fn peak(&self, metric: Metric) -> u64 {
        self.main().peak(metric)
    }

    /// Returns the source lines that read unknown values computed on the device, such as `train.py:12`.
    pub(crate) fn lines_that_read(&self) -> Vec<String> {
        let reads = self.noted(|noted| &noted.reads);
        let line = |read: &Called| Some(format!("{}:{}", read.file.as_deref()?, read.line?));
        reads.iter().filter_map(line).collect()
    }

    pub(crate) fn reads_unknown_values(&self) -> bool {
        self.recorded.iter().any(|one| !one.noted.reads.is_empty())
    }

    /// All functions or lines of a kind, merged over all processes.
    pub(super) fn noted(&self, of_kind: impl Fn(&Noted) -> &[Called]) -> Vec<Called> {
        let mut all: BTreeMap<(Option<String>, Option<u32>, String), Called> = BTreeMap::new();
        for called in self.recorded.iter().flat_map(|one| of_kind(&one.noted)) {
            let key = (called.file.clone(), called.line, called.name.clone());
            let known = all.entry(key).or_insert_with(|| Called { count: 0, ..called.clone() });
            known.count += called.count;
        }
        all.into_values().collect()
    }

    fn orders(&self) -> impl Iterator<Item = &Orders> {
        self.recorded.iter().filter_map(|one| one.orders.as_ref()?.as_ref().ok())
    }

    fn fails_with_ones(&self) -> bool {
        let mut traces = self.with_ones.iter().flat_map(|other| &other.traces);
        traces.any(|trace| RequestFailure::all(trace, trace.main_device()).next().is_some())
    }

    /// Whether the program fits, according to the part that ran.
    pub(crate) fn outcome(&self) -> Outcome {
        if let Some(called) = self.noted(|noted| &noted.missing).first() {
            return Outcome::Unknown(format!("{} is not simulated", called.name));
        }
        if let Some(line) = self.recorded.iter().find_map(|one| one.noted.endless.as_ref()) {
            return Outcome::Unknown(format!("{line} waits for a value computed on the device, which stays zero"));
        }
        let mut failed = self.recorded.iter().filter(|one| one.summary.oom_events > 0).peekable();
        let has_failed = failed.peek().is_some();
        match (has_failed, self.status) {
            (true, status @ 1..) if failed.all(|one| one.noted.outlives_failures) => {
                Outcome::Unknown(format!("the program ended with status {status} after handling a failed request"))
            }
            (true, 1..) => Outcome::DoesNotFit,
            (false, status @ 1..) => {
                if let Some(Called { name: device, .. }) = self.noted(|noted| &noted.missing_devices).last() {
                    let hint = "--ranks N simulates as many devices as ranks, up to 8";
                    return Outcome::Unknown(format!(
                        "the program used device {device}, which does not exist ({hint})"
                    ));
                }
                let hint = if self.reads_unknown_values() && !self.has_values {
                    " after reading values of device tensors, which are zeros here (--values computes small ones)"
                } else {
                    ""
                };
                Outcome::Unknown(format!("the program ended with status {status}{hint}"))
            }
            (_, 0) if self.recorded.iter().any(|one| one.noted.waiting_optimizers > 0) => Outcome::Unknown(
                "an optimizer of the program has not made a step yet (--steps N simulates more)".to_owned(),
            ),
            // A program that handles a failed allocation, such as by a smaller batch, fits.
            (_, 0) if self.recorded.iter().all(|one| one.summary.allocs == 0) => {
                Outcome::Unknown("the program has allocated nothing on the device".to_owned())
            }
            (false, 0) if self.orders().any(|orders| orders.may_fail) => {
                let why = "a request fails if the driver returns addresses in another order (--addresses)";
                Outcome::Unknown(why.to_owned())
            }
            (false, 0) if self.fails_with_ones() => {
                let why = "it runs out of memory if unknown values are ones (--bounds)";
                Outcome::Unknown(why.to_owned())
            }
            (_, 0) => Outcome::Fits,
        }
    }
}

/// A recording in a folder: the process, the file, the trace and the notes.
type Found = (String, PathBuf, Trace, Noted);

fn find(folder: &Path) -> Result<Vec<Found>, Failure> {
    let cannot = |why: &dyn std::fmt::Display| Failure::Record(format!("cannot read what was recorded: {why}"));
    let entries = std::fs::read_dir(folder).map_err(|why| cannot(&why))?;
    // Of several recordings of a process, as after a failed allocation, the one with the shortest name was written last
    // and contains the others.
    let mut of_process: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort_by_key(|path| (path.file_name().map(|name| name.len()), path.clone()));
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let process = name.split('.').next().unwrap_or_default().to_owned();
        if !name.starts_with('.') {
            of_process.entry(process).or_insert(path);
        }
    }
    let mut found = Vec::new();
    for (process, path) in of_process {
        let trace = read(&path)?.trace;
        let fact = trace.header.facts.iter().find(|(name, _)| name == SIMULATION);
        let noted = fact.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default();
        found.push((process, path, trace, noted));
    }
    // A process that only asks for the device's properties, as workers of PyTorch's compiler do, is not a rank.
    let says_nothing = |(_, _, trace, noted): &Found| {
        // It has no failed requests to outlive.
        let nothing = Noted { outlives_failures: noted.outlives_failures, ..Noted::default() };
        trace.event_count() == 0 && *noted == nothing
    };
    if !found.iter().all(says_nothing) {
        found.retain(|one| !says_nothing(one));
    }
    found.sort_by_key(|(process, _, trace, _)| (trace.header.rank, process.clone()));
    Ok(found)
}

/// Reads the recordings in a folder, by rank.
///
/// # Errors
/// Fails if a recording cannot be read.
pub(super) fn read_traces(folder: &Path) -> Result<Vec<Trace>, Failure> {
    Ok(find(folder)?.into_iter().map(|(_, _, trace, _)| trace).collect())
}

/// Reads the recordings in a folder, by rank, and copies them to `out`; several recordings are copied to files next to
/// `out`. `capacity` is the memory for PyTorch's allocator, in bytes.
///
/// # Errors
/// Fails if a recording cannot be read or copied.
pub(super) fn read_all(folder: &Path, out: &Path, capacity: u64) -> Result<Vec<Recorded>, Failure> {
    let found = find(folder)?;
    let is_alone = found.len() == 1;
    let mut moved = Vec::new();
    for (process, path, trace, noted) in found {
        let which = trace.header.rank.map_or_else(|| format!("pid{process}"), |rank| format!("rank{rank}"));
        let file = if is_alone { out.to_owned() } else { beside(out, &which) };
        let cannot_write = |why: std::io::Error| Failure::Write(format!("{}: {why}", file.display()));
        std::fs::copy(&path, &file).map_err(cannot_write)?;
        let main = trace.main_device();
        let summary = DeviceSummary::of(&Source::in_memory(&trace), main, &mut |_| ControlFlow::Continue(()))
            .map_err(|source| Failure::Read { file: path.clone(), source })?;
        let trace = Arc::new(trace);
        let orders = (summary.oom_events == 0).then(|| Orders::of(&trace, main, capacity));
        moved.push(Recorded { file, trace, summary, noted, orders });
    }
    Ok(moved)
}

fn beside(out: &Path, which: &str) -> PathBuf {
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let extension = out.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    out.with_file_name(format!("{stem}.{which}{extension}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Interval {
    pub(super) low: u64,
    pub(super) high: u64,
}

impl Interval {
    pub(super) fn of(bytes: u64) -> Self {
        Self { low: bytes, high: bytes }
    }

    pub(super) fn with(self, bytes: u64) -> Self {
        Self { low: self.low.min(bytes), high: self.high.max(bytes) }
    }

    pub(super) fn is_exact(self) -> bool {
        self.low == self.high
    }
}

/// The totals with bounds, in the order of [`Metric::ALL`].
pub(super) const BOUNDED: [Metric; 4] = [Metric::Requested, Metric::Allocated, Metric::Active, Metric::Reserved];

/// The peaks of the recorded requests with every order of addresses, including the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orders {
    /// The peaks of the totals in [`BOUNDED`]; requested bytes are the same for all orders.
    pub(super) peaks: [Interval; BOUNDED.len()],
    /// Whether a request fails with another order.
    pub(super) may_fail: bool,
}

impl Orders {
    /// Returns whether the order of addresses makes no difference to the peaks.
    pub(super) fn is_exact(&self) -> bool {
        self.peaks.into_iter().all(Interval::is_exact)
    }

    /// Replays the requests on a device of `capacity` bytes.
    ///
    /// # Errors
    /// Returns the reason the requests cannot be replayed.
    pub(super) fn of(trace: &Arc<Trace>, device: DeviceId, capacity: u64) -> Result<Self, String> {
        let replayer = Replayer::of(trace, device)?;
        let recording = replayer.unchanged(Arc::clone(trace));
        let figures = |trace: &Trace| Figures::of(&Source::in_memory(trace), device).map_err(|why| why.to_string());
        let measured = figures(trace)?;
        let replays = AddressOrder::ALL
            .into_par_iter()
            .map(|(_, order)| {
                let replay = replayer.replay_in(&recording, order, capacity);
                Ok((figures(&replay.trace)?, replay.outcome.death.is_some()))
            })
            .collect::<Result<Vec<_>, String>>()?;
        let peaks = |metric: Metric| {
            let others = replays.iter().filter(|_| metric != Metric::Requested);
            let others = others.map(|(figures, _)| figures.peak_bytes(metric));
            others.fold(Interval::of(measured.peak_bytes(metric)), Interval::with)
        };
        let may_fail = measured.failure.is_none() && replays.iter().any(|(_, fails)| *fails);
        Ok(Self { peaks: BOUNDED.map(peaks), may_fail })
    }
}
