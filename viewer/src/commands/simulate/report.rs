//! The report of `highwater simulate`: whether the program fits, its peaks, and their accuracy.

use std::io;
use std::path::Path;

use highwater_analysis::{Metric, Moment};
use highwater_app::answers::request_failure::RequestFailure;
use highwater_app::figures::moment::when;
use highwater_app::figures::requests::failure_text;
use highwater_app::report::{Column, Facts, Rows, Table, Value, percent};
use highwater_snapshots::{count_of, format_bytes, format_count};

use super::accuracy::{Accuracy, Class, Values};
use super::found::{BOUNDED, Called, Interval, Outcome, Recorded, Simulated};
use crate::commands::next_command::shortened;
use crate::output::{Page, Report};

/// Maximum memory of a device that a CUDA context and NCCL use together, in bytes. A program that fits with less room
/// may not fit on a GPU.
const OUTSIDE_BYTES: u64 = 1 << 30;

const MAX_LINES: usize = 8;

const NOT_INCLUDED: [&str; 3] = [
    "the CUDA context and memory that libraries allocate themselves (about 0.5 to 1 GiB)",
    "buffers of NCCL",
    "memory that other processes use",
];

pub(super) struct SimulateReport<'a> {
    simulated: &'a Simulated,
    outcome: Outcome,
    accuracy: Accuracy,
}

impl<'a> SimulateReport<'a> {
    pub(super) fn of(simulated: &'a Simulated) -> Self {
        Self { simulated, outcome: simulated.outcome(), accuracy: Accuracy::of(simulated) }
    }

    fn verdict(&self) -> String {
        let main = self.simulated.main();
        let gpu = &self.simulated.gpu;
        let device = format!("{} ({})", gpu.name, format_bytes(gpu.memory_bytes));
        let reserved = self.accuracy.bounds(Metric::Reserved);
        let Interval { low, high } = reserved;
        let unknown = main.noted.unknown_workspaces.len() as u64;
        let (reserved, limit) = if unknown > 0 {
            let functions = count_of(unknown, "function");
            let why = format!("a lower bound: the workspaces of {functions} are unknown");
            (format!("at least {} reserved at the peak ({why})", format_bytes(low)), "at most ")
        } else if low < high {
            (format!("{} reserved at the peak", range(&reserved)), "at least ")
        } else {
            (format!("{} reserved at the peak", format_bytes(high)), "")
        };
        match &self.outcome {
            Outcome::Fits => {
                let spare = gpu.memory_bytes.saturating_sub(self.simulated.reserve_bytes).saturating_sub(high);
                let close = if spare < OUTSIDE_BYTES && self.simulated.reserve_bytes == 0 {
                    ", which may not be enough for memory outside PyTorch's allocator"
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
                format!("Could not determine whether it fits {device}: {why}. Before that: {reserved}.")
            }
        }
    }

    fn accuracy(&self) -> Vec<String> {
        let simulated = self.simulated;
        let Accuracy { class, values, orders, .. } = &self.accuracy;
        let requested = self.accuracy.bounds(Metric::Requested);
        let unknown = simulated.noted(|noted| &noted.unknown_workspaces);
        let reads = simulated.noted(|noted| &noted.reads);
        let autotuned = simulated.noted(|noted| &noted.autotuned);
        let mut lines = Vec::new();
        if *class == Class::Exact {
            lines.push("Exact: memory did not depend on anything unknown.".to_owned());
        }
        if simulated.recorded.iter().any(|one| one.noted.is_stopped) {
            let steps = count_of(simulated.main().summary.steps, "step");
            lines.push(format!("Ended after {steps} (--steps 0 runs to the end): later steps are not counted."));
        }
        if let (Outcome::Fits, Some(failure)) = (&self.outcome, simulated.main().failure()) {
            let failed = count_of(simulated.main().summary.oom_events, "request");
            lines.push(format!("The program handled {failed} that failed; the last: {}.", failure_text(&failure)));
        }
        if !autotuned.is_empty() {
            lines.push(
                "These lines try kernels and choose the fastest, but times are unknown here: memory of the trials and \
                 of the chosen kernel may differ on a GPU:"
                    .to_owned(),
            );
            lines.extend(listed(&autotuned, |called| called.text.clone()));
        }
        if !unknown.is_empty() {
            lines.push("The figures lack the workspaces of these functions, whose sizes are unknown:".to_owned());
            lines.extend(listed(&unknown, |called| called.name.clone()));
        }
        match values {
            Values::NotRead => {}
            Values::Untried => lines.push(
                "The program reads values computed on the device, which are zeros here. The figures are exact if \
                 memory does not depend on these lines (--bounds checks that):"
                    .to_owned(),
            ),
            Values::SameWithOnes => lines.push(
                "These lines read values computed on the device; with ones instead of zeros, memory is the same:"
                    .to_owned(),
            ),
            Values::OtherWithOnes(line) => {
                let at = line.as_ref().map_or_else(String::new, |line| format!(", first after {}", place_of(line)));
                let peak = if requested.is_exact() {
                    "the peak is the same".to_owned()
                } else {
                    format!("{} are requested", range(&requested))
                };
                lines.push(format!(
                    "Allocations depend on values computed on the device{at}; with all of them zeros or ones, {peak}. \
                     Lines that read them:"
                ));
            }
            Values::OtherEnd(status) => lines.push(format!(
                "With ones instead of zeros for values computed on the device, the program ends with status {status}. \
                 Lines that read them:"
            )),
        }
        lines.extend(listed(&reads, |called| called.text.clone()));
        match orders {
            Some(Ok(orders)) if !orders.is_exact() => lines.push(format!(
                "Some bytes depend on the order in which the driver returns addresses: {} allocated, {} reserved.",
                range(&orders.peaks[Metric::Allocated as usize]),
                range(&orders.peaks[Metric::Reserved as usize])
            )),
            Some(Err(why)) => {
                let what = "Allocated and reserved bytes under other orders of addresses are unknown";
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
}

impl<'a> Report for SimulateReport<'a> {
    fn facts(&self) -> Facts<'_> {
        let simulated = self.simulated;
        let gpu = &simulated.gpu;
        let main = simulated.main();
        let fact =
            |name: &str| main.trace.header.facts.iter().find(|(of, _)| of == name).map(|(_, text)| text.as_str());
        let (fits, unknown) = match &self.outcome {
            Outcome::Fits => (Some(true), None),
            Outcome::DoesNotFit => (Some(false), None),
            Outcome::Unknown(why) => (None, Some(why.as_str())),
        };
        let bounds = |metric: Metric| (metric.name(), Value::of(self.accuracy.bounds(metric)).into());
        let first_to_decide = match &self.accuracy.values {
            Values::OtherWithOnes(line) => line.as_deref(),
            _ => None,
        };
        let same_with_ones = match self.accuracy.values {
            Values::NotRead | Values::Untried => None,
            Values::SameWithOnes => Some(true),
            Values::OtherWithOnes(_) | Values::OtherEnd(_) => Some(false),
        };
        let unknown_workspaces = simulated.noted(|noted| &noted.unknown_workspaces);
        let skipped: u64 = simulated.recorded.iter().map(|one| one.noted.skipped_bytes).sum();
        Facts::new([
            ("fits", fits.into()),
            ("unknown", unknown.into()),
            ("gpu", gpu.name.into()),
            ("compute_capability", format!("{}.{}", gpu.capability.0, gpu.capability.1).into()),
            ("capacity_bytes", gpu.memory_bytes.into()),
            ("reserve_bytes", simulated.reserve_bytes.into()),
            ("peaks", peaks_value(main).into()),
            ("accuracy", Value::of(self.accuracy.class).into()),
            ("bounds", Value::Map(BOUNDED.map(bounds).into()).into()),
            ("ranks", simulated.recorded.iter().map(rank_value).collect::<Vec<_>>().into()),
            ("oom", main.failure().as_ref().map(failure_value).into()),
            ("steps", main.summary.steps.into()),
            // Whether the program was ended after these steps.
            ("stopped", simulated.recorded.iter().any(|one| one.noted.is_stopped).into()),
            ("exit_status", simulated.status.into()),
            ("not_included", NOT_INCLUDED.to_vec().into()),
            ("requested_is_lower_bound", (!unknown_workspaces.is_empty()).into()),
            ("unknown_workspaces", called(&unknown_workspaces).into()),
            ("missing", called(&simulated.noted(|noted| &noted.missing)).into()),
            // Lines in which kernels are chosen by the time that they take.
            ("autotuned", called(&simulated.noted(|noted| &noted.autotuned)).into()),
            ("depends_on_values", called(&simulated.noted(|noted| &noted.reads)).into()),
            // The line of the last read before the first allocation that differs if values are ones.
            ("first_to_decide", first_to_decide.map(called_value).into()),
            // Whether the same is allocated and the program ends alike if values are ones; null unless that was tried.
            ("same_with_ones", same_with_ones.into()),
            ("uninitialized_host_bytes", skipped.into()),
            ("torch", fact("torch").into()),
            ("file", main.file.as_path().into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let wanted = [Metric::Requested, Metric::Allocated, Metric::Reserved];
        let rank = |(number, one): (usize, &Recorded)| {
            one.trace.header.rank.map_or_else(|| number.to_string(), |rank| rank.to_string())
        };
        let of_process = |(number, one): (usize, &'a Recorded)| {
            let peaks = one.summary.peaks.iter().filter(|moment| wanted.contains(&moment.metric));
            peaks.map(move |moment| (rank((number, one)), *moment))
        };
        let rows: Rows<(String, Moment)> = self.simulated.recorded.iter().enumerate().flat_map(of_process).collect();
        let memory = self.simulated.gpu.memory_bytes;
        let is_several = self.simulated.recorded.len() > 1;
        let mut columns = vec![Column::text("total", "total", rows.of(|(_, moment)| moment.metric.name()))];
        if is_several {
            columns.insert(0, Column::text("rank", "rank", rows.of(|(rank, _)| rank.clone())));
        }
        columns.extend([
            Column::bytes("peak_bytes", "peak", rows.of(|(_, moment)| moment.bytes)),
            Column::shown_alone("of device", true, rows.of(move |(_, moment)| percent(moment.bytes, memory))),
            Column::shown_alone("when", false, rows.of(|(_, moment)| when(moment))),
        ]);
        Table::new(rows.count(), columns)
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        page.gap()?.headline(&self.verdict())?;
        self.accuracy().iter().try_for_each(|line| page.line(line))?;
        page.gap()?.table(&self.table())
    }
}

/// Formats the lines of the program, each with `what` and the number of times, at most [`MAX_LINES`].
fn listed(all: &[Called], what: impl Fn(&Called) -> String) -> Vec<String> {
    // Equal lines are listed once.
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

/// Formats an interval, in exact bytes if both ends would otherwise look alike.
fn range(of: &Interval) -> String {
    let [low, high] = [of.low, of.high].map(format_bytes);
    if low == high && !of.is_exact() {
        return format!("{} to {} bytes", format_count(of.low), format_count(of.high));
    }
    format!("{low} to {high}")
}

fn place_of(called: &Called) -> String {
    match (&called.file, called.line) {
        (Some(file), Some(line)) => format!("{}:{line}", shortened(Path::new(file)).display()),
        _ => "a line of another thread, such as in backward".to_owned(),
    }
}

fn peaks_value(recorded: &Recorded) -> Value {
    Value::Map(BOUNDED.map(|metric| (metric.name(), recorded.peak(metric).into())).into())
}

fn rank_value(recorded: &Recorded) -> Value {
    Value::Map(vec![
        ("rank", recorded.trace.header.rank.into()),
        ("pid", recorded.trace.header.pid.into()),
        ("device", recorded.summary.device.0.into()),
        ("peaks", peaks_value(recorded).into()),
        ("file", recorded.file.as_path().into()),
    ])
}

fn failure_value(failure: &RequestFailure) -> Value {
    Value::Map(vec![
        ("requested_bytes", failure.requested.into()),
        ("device_free_bytes", failure.device_free.into()),
        ("description", failure_text(failure).into()),
    ])
}

fn called(all: &[Called]) -> Vec<Value> {
    all.iter().map(called_value).collect()
}

fn called_value(called: &Called) -> Value {
    Value::Map(vec![
        ("name", called.name.clone().into()),
        ("file", called.file.clone().into()),
        ("line", called.line.into()),
        ("function", called.function.clone().into()),
        ("text", called.text.clone().into()),
        ("count", called.count.into()),
    ])
}
