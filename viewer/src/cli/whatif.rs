//! The report of `highwater whatif`.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::Metric;
use highwater_app::answers::prediction::{Changed, Concerned, Failed, Figures, Prediction, suggested_capacity};
use highwater_app::answers::recomputation::Recomputation;
use highwater_app::figures::moment::PeakFigure;
use highwater_app::figures::predicted::{self, Compared, LOWEST_ADDRESS, NO_BLOCK, compared, difference};
use highwater_app::files::destination::Destination;
use highwater_snapshots::units::{format_bytes, format_exact_bytes};
use highwater_snapshots::{Phase, Trace};
use serde::Serialize;

use super::convert::write_to;
use super::peaks::peak_figures;
use crate::args::WhatIfArguments;
use crate::cli::input::devices::on_device;
use crate::cli::output::caveats::problem_texts;
use crate::cli::output::outcome::Failure;
use crate::cli::output::page::Page;
use crate::cli::output::rerun::rerun;
use crate::cli::output::shell::{next_with, quoted};
use crate::cli::output::table::{Column, Table};

/// Maximum number of causes that are listed.
const TOLD: usize = 6;

/// The report, as text and as JSON.
#[derive(Debug)]
pub struct WhatIfReport<'a> {
    trace: &'a Trace,
    arguments: &'a WhatIfArguments,
    /// The prediction of the main device; with several, the first that does not fit.
    prediction: Prediction,
    /// The predictions for the other requested devices.
    others: Vec<Prediction>,
    /// The written file, if one was requested.
    written: Option<(String, u64)>,
}

impl<'a> WhatIfReport<'a> {
    /// Builds the report from a prediction for each device; writes the changed recording if requested.
    pub fn of(
        trace: &'a Trace,
        arguments: &'a WhatIfArguments,
        mut predictions: Vec<Prediction>,
    ) -> Result<Self, Failure> {
        // A device that does not fit comes first, then one with an unknown result, then the fullest.
        predictions.sort_by_key(|one| {
            let fits = one.changed.as_ref().map(Changed::fits);
            let rank = [Some(Some(false)), Some(None), Some(Some(true)), None].iter().position(|known| *known == fits);
            (rank, std::cmp::Reverse(one.measured.peak_bytes(Metric::Reserved)), one.device)
        });
        let others = predictions.split_off(1.min(predictions.len()));
        let Some(prediction) = predictions.pop() else {
            return Err(Failure::Usage("the recording has no device".to_owned()));
        };
        let mut written = None;
        if let Some(out) = &arguments.out {
            let Some(changed) = &prediction.changed else {
                let text = "--out: nothing is changed, so there is nothing to write; `highwater convert` copies";
                return Err(Failure::Usage(text.to_owned()));
            };
            let destination = Destination::new(out, &arguments.source.file)?;
            let (_, bytes) = write_to(&destination, &changed.recording)?;
            written = Some((out.display().to_string(), bytes));
        }
        Ok(Self { trace, arguments, prediction, others, written })
    }

    /// Returns the JSON object.
    pub fn figures(&self) -> impl Serialize {
        let Prediction { device, measured, recorded_conf, unchanged, changed, tried, .. } = &self.prediction;
        let peaks = |trace: &Trace, figures: &Figures| peak_figures(trace, &figures.summary);
        WhatIfFigures {
            device: device.0,
            recorded_alloc_conf: recorded_conf.clone(),
            measured: peaks(self.trace, measured),
            replayed: peaks(self.trace, &unchanged.figures),
            divergence: unchanged.divergence.as_ref().map(|deviation| DivergenceFigures {
                event: deviation.event,
                what: deviation.text.clone(),
                largest_difference_bytes: deviation.largest_bytes,
                blocks_placed_elsewhere: deviation.placed_elsewhere,
            }),
            takes_lowest_address: unchanged.takes_lowest_address,
            causes: unchanged.causes.clone(),
            changed: changed.as_ref().map(|changed| peaks(changed.recording.facts(), &changed.figures)),
            alloc_conf: changed.as_ref().map(|changed| changed.alloc_conf.clone()),
            capacity_bytes: changed.as_ref().and_then(|changed| changed.capacity),
            fits: changed.as_ref().and_then(Changed::fits),
            lower_bound_bytes: changed.as_ref().and_then(lower_bound),
            devices: self.predictions().filter_map(DeviceFigures::of).collect(),
            oom: changed.as_ref().and_then(|changed| Some(OomFigures::of(changed.oom.as_ref()?, changed))),
            rescued_events: changed.as_ref().map(|changed| changed.rescued.clone()).unwrap_or_default(),
            removed: changed.as_ref().map(|changed| changed.concerned[0].into()),
            shortened: changed.as_ref().map(|changed| changed.concerned[1].into()),
            scaled: changed.as_ref().map(|changed| changed.concerned[2].into()),
            recomputed: changed.as_ref().and_then(|changed| {
                let recomputation = changed.recomputation.as_ref()?;
                let Recomputation { modules, calls, evidence, .. } = *recomputation;
                Some(RecomputedFigures { modules, calls, evidence: evidence.name() })
            }),
            fragmentation: FragmentationFigures {
                measured: UnusedFigures::of(measured),
                changed: changed.as_ref().map(|changed| UnusedFigures::of(&changed.figures)),
            },
            tried: tried
                .iter()
                .map(|one| TriedFigures {
                    alloc_conf: one.alloc_conf.clone(),
                    peak_allocated_bytes: one.figures.peak_bytes(Metric::Allocated),
                    peak_reserved_bytes: one.figures.peak_bytes(Metric::Reserved),
                    unused_bytes: one.figures.reserved_beyond_active(),
                    oom_event: one.oom,
                })
                .collect(),
            assumptions: self.assumptions().into_iter().map(str::to_owned).collect(),
            file: self.written.as_ref().map(|(file, _)| file.clone()),
            problems: problem_texts(self.trace),
        }
    }

    fn assumptions(&self) -> Vec<&str> {
        let Prediction { unchanged, changed, .. } = &self.prediction;
        let all = changed.as_ref().map_or(&unchanged.assumptions, |changed| &changed.assumptions);
        all.iter().map(String::as_str).collect()
    }

    /// The predictions for all requested devices, by number.
    fn predictions(&self) -> impl Iterator<Item = &Prediction> {
        let mut all: Vec<&Prediction> = std::iter::once(&self.prediction).chain(&self.others).collect();
        all.sort_by_key(|one| one.device);
        all.into_iter()
    }

    /// Prints the report as text.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        match &self.prediction.changed {
            Some(changed) => self.print_changed(changed, page)?,
            None => self.print_unchanged(page)?,
        }
        let assumptions = self.assumptions();
        if !assumptions.is_empty() {
            page.gap()?;
        }
        for text in assumptions {
            page.warning(&format!("Assumed: {text}."))?;
        }
        self.print_divergence(page)?;
        if let Some((file, bytes)) = &self.written {
            page.gap()?;
            page.line(&format!("Wrote {file} ({}).", format_bytes(*bytes)))?;
        }
        page.gap()?;
        page.hint(&self.hint())
    }

    fn print_unchanged(&self, page: &mut Page<'_>) -> io::Result<()> {
        page.headline(&format!("{}{}", self.on_device(&self.prediction), predicted::what_helps(&self.prediction)))?;
        page.line(&predicted::unchanged(&self.prediction))?;
        page.gap()?;
        // Settings are never shortened, since users copy them.
        let mut table = Table::new(vec![
            Column::text("settings").lines(),
            Column::number("peak allocated"),
            Column::number("peak reserved"),
            Column::number("difference"),
            Column::number("reserved − active").optional(),
            Column::text("result"),
        ]);
        let before = self.prediction.measured.peak_bytes(Metric::Reserved);
        for one in predicted::tried(&self.prediction) {
            let reserved = one.figures.peak_bytes(Metric::Reserved);
            table.push(vec![
                one.name.replace(',', ",\n"),
                format_bytes(one.figures.peak_bytes(Metric::Allocated)),
                format_bytes(reserved),
                difference(before, reserved),
                format_bytes(one.figures.reserved_beyond_active()),
                one.end,
            ]);
        }
        page.table(&table)
    }

    fn print_changed(&self, changed: &Changed, page: &mut Page<'_>) -> io::Result<()> {
        let WhatIfArguments { capacity, without, until_last_use, scale, zero, .. } = self.arguments;
        let words = self.arguments.change_in_words();
        let verdict = |one: &Prediction, changed: &Changed| {
            let text = predicted::verdict(one, changed, &words, capacity.is_some());
            format!("{}{text}", self.on_device(one))
        };
        page.headline(&verdict(&self.prediction, changed))?;
        for one in &self.others {
            if let Some(changed) = &one.changed {
                page.line(&verdict(one, changed))?;
            }
        }
        let concerned = predicted::concerned(changed);
        for sentence in &concerned {
            page.line(sentence)?;
        }
        let asks_for_blocks = !(without.is_empty() && until_last_use.is_empty() && scale.is_empty()) || zero.is_some();
        if asks_for_blocks && concerned.is_empty() {
            page.warning(NO_BLOCK)?;
        }
        page.gap()?;
        let on = on_device(self.trace, self.prediction.device);
        if !on.is_empty() {
            page.line(on.trim_end())?;
        }
        page.table(&self.table(&changed.figures, changed.oom.is_some()))?;
        page.gap()?;
        page.line(&predicted::settings_and_memory(changed))?;
        if let Some(oom) = &changed.oom {
            page.gap()?;
            for line in oom.report.lines() {
                page.warning(&format!("  {line}"))?;
            }
        }
        Ok(())
    }

    /// Returns `Device 1: ` if there are several devices.
    fn on_device(&self, prediction: &Prediction) -> String {
        if self.trace.device_ids().len() < 2 { String::new() } else { format!("Device {}: ", prediction.device.0) }
    }

    /// Returns the peaks as recorded and with the change as a table; if a request `failed`, those before it.
    fn table(&self, changed: &Figures, failed: bool) -> Table {
        let mut columns = vec![Column::text("peak of"), Column::number("recorded")];
        if failed {
            columns.push(Column::number("until it failed"));
        } else {
            columns.extend([Column::number("what if"), Column::number("difference")]);
        }
        columns.push(Column::text("new peak in").optional());
        let mut table = Table::new(columns);
        for Compared { name, bytes: [before, after], peak } in compared(&self.prediction.measured, changed) {
            let place = peak.map_or_else(String::new, |moment| {
                let step = moment.step.map(|step| format!("step {step}"));
                let phase = moment.known_phase().map(|phase| phase.to_string());
                step.into_iter().chain(phase).collect::<Vec<_>>().join(", ")
            });
            let mut row = vec![name, format_bytes(before), format_bytes(after)];
            // Memory that a failed replay did not reach is not a saving.
            row.extend((!failed).then(|| difference(before, after)));
            row.push(place);
            table.push(row);
        }
        table
    }

    fn print_divergence(&self, page: &mut Page<'_>) -> io::Result<()> {
        let unchanged = &self.prediction.unchanged;
        if unchanged.takes_lowest_address {
            page.gap()?;
            page.line(LOWEST_ADDRESS)?;
        }
        let Some(deviation) = &unchanged.divergence else {
            return Ok(());
        };
        page.gap()?;
        page.warning(&predicted::deviation(deviation))?;
        for cause in unchanged.causes.iter().take(TOLD) {
            page.warning(&format!("  perhaps since {cause}"))?;
        }
        if unchanged.causes.len() > TOLD {
            page.warning(&format!("  … and {} more; --json lists them", unchanged.causes.len() - TOLD))?;
        }
        Ok(())
    }

    fn hint(&self) -> String {
        let (files, given) = ([self.arguments.source.file.as_path()], self.arguments.given());
        let failed = self.prediction.changed.as_ref().filter(|changed| changed.oom.is_some());
        if let Some(bytes) = failed.and_then(|changed| changed.suffices)
            && self.arguments.capacity.is_some()
        {
            let size = format_exact_bytes(bytes);
            let given = given.without("capacity");
            return next_with(&["whatif"], &files, &["--capacity", &size], &given, "for a device that is large enough");
        }
        let is_open = self.prediction.changed.as_ref().is_some_and(|changed| changed.ends_in_oom.is_some());
        if let Some(command) = self.rerun().filter(|_| is_open) {
            return format!("Next: {command}   to find out");
        }
        match (&self.written, &self.prediction.changed) {
            (Some((out, _)), _) => {
                let out = quoted(out);
                next_with(&["diff"], &files, &[out.as_str()], &given, "for what makes the difference")
            }
            (None, Some(_)) => {
                let what_for = "to write the changed recording, to look at it and compare";
                next_with(&["whatif"], &files, &["--out", "changed.snap"], &given, what_for)
            }
            (None, None) => match suggested_capacity(&self.prediction) {
                Some(size) => {
                    let what_for = "or --alloc-conf, --without, --scale: see --help";
                    next_with(&["whatif"], &files, &["--capacity", size], &given, what_for)
                }
                None => next_with(&["explain"], &files, &[], &given, "for what the peak is made of"),
            },
        }
    }
}

impl WhatIfReport<'_> {
    /// Returns the command that made the recording, with the change: only if it is a run of `highwater record`, and the
    /// change is one of its options.
    fn rerun(&self) -> Option<String> {
        let WhatIfArguments { capacity, alloc_conf, without, until_last_use, scale, checkpoint, zero, .. } =
            self.arguments;
        let is_conf = alloc_conf.as_ref().is_none_or(|conf| !conf.trim().starts_with("default"));
        let is_of_blocks = !(without.is_empty() && until_last_use.is_empty() && scale.is_empty());
        if is_of_blocks || !checkpoint.is_empty() || zero.is_some() || !is_conf {
            return None;
        }
        rerun(&self.trace.header.program, *capacity, alloc_conf.as_deref())
    }
}

/// Returns a lower bound of the memory that a device needs, if the recording does not show how much is enough.
fn lower_bound(changed: &Changed) -> Option<u64> {
    changed.ends_in_oom.map(|_| changed.suffices.unwrap_or(changed.live_bytes))
}

type Peaks = BTreeMap<&'static str, Option<PeakFigure>>;

/// The object that `whatif --json` prints.
#[derive(Debug, Serialize)]
struct WhatIfFigures {
    device: u16,
    recorded_alloc_conf: String,
    measured: Peaks,
    replayed: Peaks,
    divergence: Option<DivergenceFigures>,
    takes_lowest_address: bool,
    causes: Vec<String>,
    changed: Option<Peaks>,
    alloc_conf: Option<String>,
    capacity_bytes: Option<u64>,
    /// Whether everything fits; null if nothing was changed, or if the recording ends too early.
    fits: Option<bool>,
    /// No smaller device is enough; only if the recording ends in an out-of-memory error.
    lower_bound_bytes: Option<u64>,
    /// One for each requested device.
    devices: Vec<DeviceFigures>,
    oom: Option<OomFigures>,
    rescued_events: Vec<u64>,
    removed: Option<ConcernedFigures>,
    shortened: Option<ConcernedFigures>,
    scaled: Option<ConcernedFigures>,
    recomputed: Option<RecomputedFigures>,
    fragmentation: FragmentationFigures,
    tried: Vec<TriedFigures>,
    assumptions: Vec<String>,
    file: Option<String>,
    problems: Vec<String>,
}

/// The result of the change on one device.
#[derive(Debug, Serialize)]
struct DeviceFigures {
    device: u16,
    fits: Option<bool>,
    lower_bound_bytes: Option<u64>,
    peak_reserved_bytes: u64,
    oom: Option<OomFigures>,
}

impl DeviceFigures {
    fn of(prediction: &Prediction) -> Option<Self> {
        let changed = prediction.changed.as_ref()?;
        Some(Self {
            device: prediction.device.0,
            fits: changed.fits(),
            lower_bound_bytes: lower_bound(changed),
            peak_reserved_bytes: changed.figures.peak_bytes(Metric::Reserved),
            oom: changed.oom.as_ref().map(|oom| OomFigures::of(oom, changed)),
        })
    }
}

#[derive(Debug, Serialize)]
struct DivergenceFigures {
    event: u64,
    what: String,
    largest_difference_bytes: u64,
    blocks_placed_elsewhere: u64,
}

#[derive(Debug, Serialize)]
struct OomFigures {
    event: u64,
    step: Option<u32>,
    phase: Option<&'static str>,
    requested_bytes: u64,
    reserved_bytes: u64,
    allocated_bytes: u64,
    suffices_bytes: Option<u64>,
    description: String,
}

impl OomFigures {
    fn of(oom: &Failed, changed: &Changed) -> Self {
        Self {
            event: oom.event,
            step: oom.step,
            phase: oom.phase.map(Phase::name),
            requested_bytes: oom.requested,
            reserved_bytes: oom.reserved,
            allocated_bytes: oom.allocated,
            suffices_bytes: changed.suffices.filter(|_| changed.ends_in_oom.is_none()),
            description: oom.report.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
struct ConcernedFigures {
    blocks: u64,
    bytes: u64,
}

impl From<Concerned> for ConcernedFigures {
    fn from(Concerned { blocks, bytes }: Concerned) -> Self {
        Self { blocks, bytes }
    }
}

#[derive(Debug, Serialize)]
struct FragmentationFigures {
    measured: UnusedFigures,
    changed: Option<UnusedFigures>,
}

/// The peaks of two totals, and their difference.
#[derive(Debug, Serialize)]
struct UnusedFigures {
    reserved_bytes: u64,
    active_bytes: u64,
    unused_bytes: u64,
}

impl UnusedFigures {
    fn of(figures: &Figures) -> Self {
        Self {
            reserved_bytes: figures.peak_bytes(Metric::Reserved),
            active_bytes: figures.peak_bytes(Metric::Active),
            unused_bytes: figures.reserved_beyond_active(),
        }
    }
}

#[derive(Debug, Serialize)]
struct TriedFigures {
    alloc_conf: String,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    unused_bytes: u64,
    oom_event: Option<u64>,
}

#[derive(Debug, Serialize)]
struct RecomputedFigures {
    modules: usize,
    calls: usize,
    evidence: &'static str,
}
