//! What the program's processes recorded, and what follows from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use highwater_analysis::summary::{DeviceSummary, summarize};
use highwater_app::answers::request_failure::RequestFailure;
use highwater_snapshots::Trace;
use highwater_snapshots::trace::SIMULATION;
use serde::{Deserialize, Serialize};

use crate::cli::input::recording::read;
use crate::cli::output::outcome::Failure;
use crate::gpu::Gpu;

/// A function that was called, or a value that was read, at a line of the program.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Called {
    /// The function; of values, how large they are.
    pub(super) name: String,
    /// The line, unless none of the program was running.
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) function: Option<String>,
    /// The text of the line.
    pub(super) text: String,
    /// How many times.
    pub(super) count: u64,
}

/// What the Python package noted about the simulation, as JSON in the recording.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Noted {
    /// Bytes of the host that were not initialized.
    pub(super) skipped_bytes: u64,
    /// The line that waits for a value for ever.
    pub(super) endless: Option<String>,
    /// Functions that are not simulated.
    pub(super) missing: Vec<Called>,
    /// Functions whose workspace on a GPU is not known.
    pub(super) unknown_workspaces: Vec<Called>,
    /// Values of the device that were read: zeros.
    pub(super) reads: Vec<Called>,
}

/// The recording of a process.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) file: PathBuf,
    pub(super) trace: Trace,
    pub(super) summary: DeviceSummary,
    pub(super) noted: Noted,
}

impl Recorded {
    /// The first request that failed.
    pub(super) fn failure(&self) -> Option<RequestFailure> {
        RequestFailure::all(&self.trace, self.summary.device).next()
    }
}

/// Whether the program fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Fits,
    DoesNotFit,
    /// It cannot be told, for this reason.
    Unknown(String),
}

/// A program that was run.
#[derive(Debug)]
pub(super) struct Simulated {
    pub(super) gpu: Gpu,
    /// One recording of each process that used the device, by rank.
    pub(super) recorded: Vec<Recorded>,
    /// The program's exit status.
    pub(super) status: u8,
    /// Memory that was kept free for what lies outside of PyTorch's allocator.
    pub(super) reserve_bytes: u64,
}

impl Simulated {
    /// The recording that decides: of the process that ran out of memory, else of that with the highest peak.
    pub(super) fn main(&self) -> &Recorded {
        let peak =
            |one: &&Recorded| (one.summary.oom_events > 0, one.summary.peaks.iter().map(|moment| moment.bytes).max());
        self.recorded.iter().max_by_key(peak).expect("there is a recording")
    }

    /// All functions or lines of a kind, of all processes.
    pub(super) fn noted(&self, of_kind: impl Fn(&Noted) -> &[Called]) -> Vec<Called> {
        let mut all: BTreeMap<(Option<String>, Option<u32>, String), Called> = BTreeMap::new();
        for called in self.recorded.iter().flat_map(|one| of_kind(&one.noted)) {
            let key = (called.file.clone(), called.line, called.name.clone());
            let known = all.entry(key).or_insert_with(|| Called { count: 0, ..called.clone() });
            known.count += called.count;
        }
        all.into_values().collect()
    }

    /// Whether the program fits, as far as it ran.
    pub(super) fn outcome(&self) -> Outcome {
        if let Some(called) = self.noted(|noted| &noted.missing).first() {
            return Outcome::Unknown(format!("{} is not simulated", called.name));
        }
        if let Some(line) = self.recorded.iter().find_map(|one| one.noted.endless.as_ref()) {
            return Outcome::Unknown(format!("{line} waits for a value of the device, all of which are zeros"));
        }
        let has_failed = self.recorded.iter().any(|one| one.summary.oom_events > 0);
        match (has_failed, self.status) {
            (true, 1..) => Outcome::DoesNotFit,
            (false, status @ 1..) => Outcome::Unknown(format!("the program ended with status {status}")),
            // A program that handles a failed allocation, such as by a smaller batch, fits.
            (_, 0) if self.recorded.iter().all(|one| one.summary.allocs == 0) => {
                Outcome::Unknown("the program has allocated nothing on the device".to_owned())
            }
            (_, 0) => Outcome::Fits,
        }
    }
}

/// Reads the recordings in a folder, and moves them to `out`, or beside it if there are several.
///
/// # Errors
///
/// Fails if a recording cannot be read or moved.
pub(super) fn read_all(folder: &Path, out: &Path) -> Result<Vec<Recorded>, Failure> {
    let cannot = |why: &dyn std::fmt::Display| Failure::Record(format!("cannot read what was recorded: {why}"));
    let entries = std::fs::read_dir(folder).map_err(|why| cannot(&why))?;
    // Of a process that went on after a failed allocation, its last recording has that too.
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
    let mut recorded = Vec::new();
    for (process, path) in of_process {
        let trace = read(&path)?.trace;
        recorded.push((trace.header.rank, process, path, trace));
    }
    recorded.sort_by_key(|(rank, process, ..)| (*rank, process.clone()));
    let is_alone = recorded.len() == 1;
    let mut moved = Vec::new();
    for (rank, process, path, trace) in recorded {
        let which = rank.map_or_else(|| format!("pid{process}"), |rank| format!("rank{rank}"));
        let file = if is_alone { out.to_owned() } else { beside(out, &which) };
        let cannot_write = |why: std::io::Error| Failure::Write(format!("{}: {why}", file.display()));
        std::fs::copy(&path, &file).map_err(cannot_write)?;
        let fact = trace.header.facts.iter().find(|(name, _)| name == SIMULATION);
        let noted = fact.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default();
        let main = trace.main_device();
        let Some(summary) = summarize(&trace).into_iter().find(|summary| summary.device == main) else { continue };
        moved.push(Recorded { file, trace, summary, noted });
    }
    Ok(moved)
}

/// The file of one of several processes: `train.rank3.snap`.
fn beside(out: &Path, which: &str) -> PathBuf {
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let extension = out.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    out.with_file_name(format!("{stem}.{which}{extension}"))
}
