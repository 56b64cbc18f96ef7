//! The answer of `highwater simulate`: whether the program fits, what it needs, and how far that is exact.

use std::path::{Path, PathBuf};

use highwater_analysis::{GroupKey, Metric};
use highwater_app::figures::moment::{count_of, when};
use highwater_app::figures::requests::failure_text;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use super::accuracy::{Accuracy, Class, Values};
use super::found::{Called, Outcome, Recorded, Simulated};
use super::orders::Interval;
use crate::args::{GroupKeys, PeakArguments};
use crate::cli;
use crate::cli::output::outcome::Failure;
use crate::cli::output::page::Page;
use crate::cli::output::shell::shortened;
use crate::cli::output::table::{Column, Table, percent};

/// What a CUDA context takes of a device, and NCCL beside it, at most: a program that fits by less may not fit.
const OUTSIDE_BYTES: u64 = 1 << 30;

/// Lines of the program that are listed.
const MAX_LINES: usize = 8;

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
    accuracy: Accuracy,
}

impl<'a> Report<'a> {
    /// Computes it.
    pub(super) fn of(simulated: &'a Simulated) -> Self {
        Self { simulated, outcome: simulated.outcome(), accuracy: Accuracy::of(simulated) }
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
        let Interval { low, high } = self.accuracy.reserved;
        let unknown = main.noted.unknown_workspaces.len() as u64;
        let (reserved, limit) = if unknown > 0 {
            let functions = count_of(unknown, "function");
            let why = format!("a lower bound: the workspaces of {functions} are not known");
            (format!("at least {} reserved at the peak ({why})", format_bytes(low)), "at most ")
        } else if low < high {
            (format!("{} reserved at the peak", range(&self.accuracy.reserved)), "at least ")
        } else {
            (format!("{} reserved at the peak", format_bytes(high)), "")
        };
        match &self.outcome {
            Outcome::Fits => {
                let spare = gpu.memory_bytes.saturating_sub(self.simulated.reserve_bytes).saturating_sub(high);
                let close = if spare < OUTSIDE_BYTES && self.simulated.reserve_bytes == 0 {
                    ", which is less than what may lie outside of PyTorch's allocator"
                } else {
                    ""
                };
                format!("Fits {device}: {reserved}, {limit}{} to spare{close}.", format_bytes(spare))
            }
            Outcome::DoesNotFit => {
                let failed = main.failure().map(|failure| failure_text(&failure)).unwrap_or_default();
                format!("Does not fit {device}: {failed}.")
            }
            Outcome::Unknown(why) => {
                format!("Could not tell whether it fits {device}: {why}; up to there {reserved}.")
            }
        }
    }

    /// How far the figures are exact, as sentences.
    fn accuracy(&self) -> Vec<String> {
        let simulated = self.simulated;
        let Accuracy { class, values, orders, requested, .. } = &self.accuracy;
        let unknown = simulated.noted(|noted| &noted.unknown_workspaces);
        let reads = simulated.noted(|noted| &noted.reads);
        let autotuned = simulated.noted(|noted| &noted.autotuned);
        let mut lines = Vec::new();
        if *class == Class::Exact {
            lines.push("Exact: nothing that is not known has decided about memory.".to_owned());
        }
        if simulated.recorded.iter().any(|one| one.noted.is_stopped) {
            let steps = count_of(simulated.main().summary.steps, "step");
            lines.push(format!("Ended after {steps} (--steps 0 runs to the end): what comes later is not counted."));
        }
        if let (Outcome::Fits, Some(failure)) = (&self.outcome, simulated.main().failure()) {
            let failed = count_of(simulated.main().summary.oom_events, "request");
            lines
                .push(format!("{failed} failed, which the program has handled; the last: {}.", failure_text(&failure)));
        }
        if !autotuned.is_empty() {
            lines.push(
                "These lines try kernels and choose the fastest, by times that are not known: memory of the trials and of the \
                 chosen kernel may differ on a GPU:"
                    .to_owned(),
            );
            lines.extend(listed(&autotuned, |called| called.text.clone()));
        }
        if !unknown.is_empty() {
            lines
                .push("Of these functions, the sizes of workspaces are not known; they add to the figures:".to_owned());
            lines.extend(listed(&unknown, |called| called.name.clone()));
        }
        match values {
            Values::NotRead => {}
            Values::Untried => lines.push(
                "The program reads values of the device, which are zeros. The figures are exact if these lines decide about \
                 no memory (--bounds finds out):"
                    .to_owned(),
            ),
            Values::SameWithOnes => lines.push(
                "These lines read values of the device: with ones instead of zeros, the same is allocated:".to_owned(),
            ),
            Values::OtherWithOnes(line) => {
                let at = line.as_ref().map_or_else(String::new, |line| format!(", first after {}", place_of(line)));
                let peak = if requested.is_exact() {
                    "the peak is the same".to_owned()
                } else {
                    format!("{} are requested", range(requested))
                };
                lines.push(format!(
                    "What is allocated depends on values of the device{at}; with all of them zeros or ones, {peak}. Lines that \
                     read them:"
                ));
            }
            Values::OtherEnd(status) => lines.push(format!(
                "With ones instead of zeros for values of the device, the program ends with status {status}. Lines that read \
                 them:"
            )),
        }
        lines.extend(listed(&reads, |called| called.text.clone()));
        match orders {
            Some(Ok(orders)) if !orders.is_exact() => lines.push(format!(
                "The order in which the driver hands out addresses decides about some bytes: {} allocated, {} reserved.",
                range(&orders.allocated),
                range(&orders.reserved)
            )),
            Some(Err(why)) => {
                let what = "Allocated and reserved bytes under other orders of addresses are not known";
                lines.push(format!("{what}: {why}."));
            }
            Some(Ok(_)) | None => {}
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
            accuracy: self.accuracy.class,
            bounds: BoundFigures::of(&self.accuracy),
            ranks: simulated.recorded.iter().map(RankFigures::of).collect(),
            oom: main.failure().map(|failure| OomFigures {
                requested_bytes: failure.requested,
                device_free_bytes: failure.device_free,
                description: failure_text(&failure),
            }),
            steps: main.summary.steps,
            stopped: simulated.recorded.iter().any(|one| one.noted.is_stopped),
            exit_status: simulated.status,
            not_included: NOT_INCLUDED,
            requested_is_lower_bound: !simulated.noted(|noted| &noted.unknown_workspaces).is_empty(),
            unknown_workspaces: simulated.noted(|noted| &noted.unknown_workspaces),
            missing: simulated.noted(|noted| &noted.missing),
            autotuned: simulated.noted(|noted| &noted.autotuned),
            depends_on_values: simulated.noted(|noted| &noted.reads),
            first_to_decide: match &self.accuracy.values {
                Values::OtherWithOnes(line) => line.as_deref().cloned(),
                _ => None,
            },
            same_with_ones: match self.accuracy.values {
                Values::NotRead | Values::Untried => None,
                Values::SameWithOnes => Some(true),
                Values::OtherWithOnes(_) | Values::OtherEnd(_) => Some(false),
            },
            uninitialized_host_bytes: simulated.recorded.iter().map(|one| one.noted.skipped_bytes).sum(),
            torch: fact("torch"),
            file: main.file.clone(),
        }
    }
}

/// Lines of the program, with what is called there.
fn listed(all: &[Called], what: impl Fn(&Called) -> String) -> Vec<String> {
    // What reads alike is one line.
    let mut counts: Vec<(String, u64)> = Vec::new();
    for called in all {
        let line = format!("  {}  {}", place_of(called), what(called));
        match counts.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += called.count,
            None => counts.push((line, called.count)),
        }
    }
    let line = |(line, count): &(String, u64)| format!("{line}  ({})", count_of(*count, "time"));
    let mut lines: Vec<String> = counts.iter().take(MAX_LINES).map(line).collect();
    if counts.len() > MAX_LINES {
        lines.push(format!("  … and {} more", counts.len() - MAX_LINES));
    }
    lines
}

/// An interval as text.
fn range(of: &Interval) -> String {
    let [low, high] = [of.low, of.high].map(format_bytes);
    if low == high && !of.is_exact() {
        return format!("{} to {} bytes", format_count(of.low), format_count(of.high));
    }
    format!("{low} to {high}")
}

/// The line of the program.
fn place_of(called: &Called) -> String {
    match (&called.file, called.line) {
        (Some(file), Some(line)) => format!("{}:{line}", shortened(Path::new(file)).display()),
        _ => "a line of another thread, such as in backward".to_owned(),
    }
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
    accuracy: Class,
    /// Between what the peaks are.
    bounds: BoundFigures,
    ranks: Vec<RankFigures>,
    oom: Option<OomFigures>,
    steps: u64,
    /// Whether the program was ended after these steps.
    stopped: bool,
    exit_status: u8,
    not_included: [&'static str; 3],
    requested_is_lower_bound: bool,
    unknown_workspaces: Vec<Called>,
    missing: Vec<Called>,
    /// Lines in which kernels are chosen by the time that they take.
    autotuned: Vec<Called>,
    depends_on_values: Vec<Called>,
    /// The line after which the first other request is made if values are ones.
    first_to_decide: Option<Called>,
    /// Whether the same is allocated if values are ones; null unless that was tried.
    same_with_ones: Option<bool>,
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
            requested: recorded.peak(Metric::Requested),
            allocated: recorded.peak(Metric::Allocated),
            active: recorded.peak(Metric::Active),
            reserved: recorded.peak(Metric::Reserved),
        }
    }
}

#[derive(Debug, Serialize)]
struct BoundFigures {
    requested: Interval,
    allocated: Interval,
    active: Interval,
    reserved: Interval,
}

impl BoundFigures {
    fn of(accuracy: &Accuracy) -> Self {
        let Accuracy { requested, allocated, active, reserved, .. } = *accuracy;
        Self { requested, allocated, active, reserved }
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
