//! The answer of `highwater simulate`: whether the program fits, what it needs, and how far that is exact.

use std::path::{Path, PathBuf};

use highwater_analysis::{GroupKey, Metric};
use highwater_app::figures::moment::{count_of, when};
use highwater_app::figures::requests::failure_text;
use highwater_snapshots::units::format_bytes;
use serde::Serialize;

use super::found::{Called, Outcome, Recorded, Simulated};
use crate::args::{GroupKeys, PeakArguments};
use crate::cli;
use crate::cli::output::outcome::Failure;
use crate::cli::output::page::Page;
use crate::cli::output::table::{Column, Table, percent};

/// What a CUDA context takes of a device, and NCCL beside it, at most: a program that fits by less may not fit.
const OUTSIDE_BYTES: u64 = 1 << 30;

/// Lines of the program that are listed.
const MOST_LINES: usize = 8;

/// Groups of the peak that are listed.
const TOP: usize = 6;

/// What lies outside of the answer.
const NOT_INCLUDED: [&str; 3] = [
    "CUDA's context, and what libraries allocate themselves (about 0.5 to 1 GiB)",
    "buffers of NCCL",
    "memory that other processes use",
];

/// The answer.
pub(super) struct Report<'a> {
    simulated: &'a Simulated,
    outcome: Outcome,
}

impl<'a> Report<'a> {
    /// Computes it.
    pub(super) fn of(simulated: &'a Simulated) -> Self {
        Self { simulated, outcome: simulated.outcome() }
    }

    /// Prints it as text.
    pub(super) fn print(&self, page: &mut Page<'_>) -> Result<(), Failure> {
        let main = self.simulated.main();
        page.gap()?;
        page.headline(&self.verdict())?;
        for line in self.accuracy() {
            page.line(&line)?;
        }
        page.gap()?;
        page.table(&self.peaks())?;
        let mut peak = PeakArguments::of(shortened(&main.file));
        peak.by = GroupKeys(vec![GroupKey::Scope, GroupKey::Category]);
        peak.top = TOP;
        page.gap()?;
        cli::peak(&peak, page)?;
        Ok(())
    }

    fn verdict(&self) -> String {
        let main = self.simulated.main();
        let gpu = &self.simulated.gpu;
        let device = format!("{} ({})", gpu.name, format_bytes(gpu.memory_bytes));
        let reserved = peak_of(main, Metric::Reserved);
        match &self.outcome {
            Outcome::Fits => {
                let spare = gpu.memory_bytes.saturating_sub(self.simulated.reserve_bytes).saturating_sub(reserved);
                let close = if spare < OUTSIDE_BYTES && self.simulated.reserve_bytes == 0 {
                    ", which is less than what may lie outside of PyTorch's allocator"
                } else {
                    ""
                };
                let (reserved, spare) = (format_bytes(reserved), format_bytes(spare));
                format!("Fits {device}: {reserved} reserved at the peak, {spare} to spare{close}.")
            }
            Outcome::DoesNotFit => {
                let failed = main.failure().map(|failure| failure_text(&failure)).unwrap_or_default();
                format!("Does not fit {device}: {failed}.")
            }
            Outcome::Unknown(why) => {
                let so_far = format_bytes(reserved);
                format!("Could not tell whether it fits {device}: {why}; up to there {so_far} were reserved.")
            }
        }
    }

    /// How far the figures are exact, as sentences.
    fn accuracy(&self) -> Vec<String> {
        let simulated = self.simulated;
        let unknown = simulated.noted(|noted| &noted.unknown_workspaces);
        let reads = simulated.noted(|noted| &noted.reads);
        let mut lines = Vec::new();
        if unknown.is_empty() {
            lines.push("Requested bytes are exact for this run of the program.".to_owned());
        } else {
            lines.push(
                "Requested bytes are a lower bound: the sizes of these functions' workspaces are not known:".to_owned(),
            );
            lines.extend(listed(&unknown, |called| called.name.clone()));
        }
        if !reads.is_empty() {
            let what =
                "Values of the device are zeros. What is allocated may depend on them if these lines decide about it:";
            lines.push(what.to_owned());
            lines.extend(listed(&reads, |called| called.text.clone()));
        }
        let skipped: u64 = simulated.recorded.iter().map(|one| one.noted.skipped_bytes).sum();
        if skipped > 0 {
            let skipped = format_bytes(skipped);
            lines.push(format!("On the host, {skipped} were left uninitialized (--keep-init initializes them)."));
        }
        lines.push(format!("Not included: {}.", NOT_INCLUDED.join("; ")));
        lines
    }

    /// The peaks of each process.
    fn peaks(&self) -> Table {
        let is_several = self.simulated.recorded.len() > 1;
        let mut columns = vec![Column::text(if is_several { "rank" } else { "total" })];
        columns.extend(is_several.then(|| Column::text("total")));
        columns.extend([Column::number("peak"), Column::number("of device"), Column::text("when")]);
        let mut table = Table::new(columns);
        for (number, one) in self.simulated.recorded.iter().enumerate() {
            let rank = one.trace.header.rank.map_or_else(|| number.to_string(), |rank| rank.to_string());
            let wanted = [Metric::Requested, Metric::Allocated, Metric::Reserved];
            for moment in one.summary.peaks.iter().filter(|moment| wanted.contains(&moment.metric)) {
                let mut row: Vec<String> = is_several.then(|| rank.clone()).into_iter().collect();
                row.extend([
                    moment.metric.name().to_owned(),
                    format_bytes(moment.bytes),
                    percent(moment.bytes, self.simulated.gpu.memory_bytes),
                    when(moment),
                ]);
                table.push(row);
            }
        }
        table
    }

    /// Returns the JSON object.
    pub(super) fn figures(&self) -> Figures {
        let simulated = self.simulated;
        let gpu = &simulated.gpu;
        let main = simulated.main();
        let fact = |name: &str| main.trace.header.facts.iter().find(|(of, _)| of == name).map(|(_, text)| text.clone());
        Figures {
            fits: match &self.outcome {
                Outcome::Fits => Some(true),
                Outcome::DoesNotFit => Some(false),
                Outcome::Unknown(_) => None,
            },
            unknown: match &self.outcome {
                Outcome::Unknown(why) => Some(why.clone()),
                _ => None,
            },
            gpu: gpu.name,
            compute_capability: format!("{}.{}", gpu.capability.0, gpu.capability.1),
            capacity_bytes: gpu.memory_bytes,
            reserve_bytes: simulated.reserve_bytes,
            peaks: PeakFigures::of(main),
            ranks: simulated.recorded.iter().map(RankFigures::of).collect(),
            oom: main.failure().map(|failure| OomFigures {
                requested_bytes: failure.requested,
                device_free_bytes: failure.device_free,
                description: failure_text(&failure),
            }),
            steps: main.summary.steps,
            exit_status: simulated.status,
            not_included: NOT_INCLUDED,
            requested_is_lower_bound: !simulated.noted(|noted| &noted.unknown_workspaces).is_empty(),
            unknown_workspaces: simulated.noted(|noted| &noted.unknown_workspaces),
            missing: simulated.noted(|noted| &noted.missing),
            depends_on_values: simulated.noted(|noted| &noted.reads),
            uninitialized_host_bytes: simulated.recorded.iter().map(|one| one.noted.skipped_bytes).sum(),
            torch: fact("torch"),
            file: main.file.clone(),
        }
    }
}

fn peak_of(recorded: &Recorded, metric: Metric) -> u64 {
    recorded.summary.peaks.iter().find(|moment| moment.metric == metric).map_or(0, |moment| moment.bytes)
}

/// Lines of the program, with what is called there.
fn listed(all: &[Called], what: impl Fn(&Called) -> String) -> Vec<String> {
    let line = |called: &Called| {
        let place = match (&called.file, called.line) {
            (Some(file), Some(line)) => format!("{}:{line}", shortened(Path::new(file)).display()),
            _ => "within backward".to_owned(),
        };
        format!("  {place}  {}  ({})", what(called), count_of(called.count, "time"))
    };
    let mut lines: Vec<String> = all.iter().take(MOST_LINES).map(line).collect();
    if all.len() > MOST_LINES {
        lines.push(format!("  … and {} more", all.len() - MOST_LINES));
    }
    lines
}

/// The path from the current folder, if the file lies in it.
fn shortened(file: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let inner = here.as_deref().and_then(|here| file.strip_prefix(here).ok());
    inner.unwrap_or(file).to_owned()
}

/// The JSON object of `highwater simulate --json`.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    fits: Option<bool>,
    unknown: Option<String>,
    gpu: &'static str,
    compute_capability: String,
    capacity_bytes: u64,
    reserve_bytes: u64,
    peaks: PeakFigures,
    ranks: Vec<RankFigures>,
    oom: Option<OomFigures>,
    steps: u64,
    exit_status: u8,
    not_included: [&'static str; 3],
    requested_is_lower_bound: bool,
    unknown_workspaces: Vec<Called>,
    missing: Vec<Called>,
    depends_on_values: Vec<Called>,
    uninitialized_host_bytes: u64,
    torch: Option<String>,
    file: PathBuf,
}

#[derive(Debug, Serialize)]
struct PeakFigures {
    requested: u64,
    allocated: u64,
    active: u64,
    reserved: u64,
}

impl PeakFigures {
    fn of(recorded: &Recorded) -> Self {
        Self {
            requested: peak_of(recorded, Metric::Requested),
            allocated: peak_of(recorded, Metric::Allocated),
            active: peak_of(recorded, Metric::Active),
            reserved: peak_of(recorded, Metric::Reserved),
        }
    }
}

#[derive(Debug, Serialize)]
struct RankFigures {
    rank: Option<u32>,
    pid: u32,
    device: u16,
    peaks: PeakFigures,
    file: PathBuf,
}

impl RankFigures {
    fn of(recorded: &Recorded) -> Self {
        Self {
            rank: recorded.trace.header.rank,
            pid: recorded.trace.header.pid,
            device: recorded.summary.device.0,
            peaks: PeakFigures::of(recorded),
            file: recorded.file.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
struct OomFigures {
    requested_bytes: u64,
    device_free_bytes: u64,
    description: String,
}
