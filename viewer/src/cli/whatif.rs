//! What-if: how the answer of `highwater whatif` reads.

use std::collections::BTreeMap;
use std::io;

use highwater_snapshots::Trace;
use highwater_snapshots::analysis::Metric;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use super::caveats::problem_texts;
use super::convert::write_to;
use super::destination::Destination;
use super::moment::{PeakFigure, count_of, when};
use super::outcome::Failure;
use super::page::Page;
use super::peaks::peak_figures;
use super::shell::{next_command, quoted};
use super::table::{Column, Table};
use crate::args::WhatIfArguments;
use crate::prediction::{Changed, Concerned, Failed, Figures, Prediction};

/// Assumptions and causes that are told one by one.
const TOLD: usize = 6;

/// The answer, for people and programs.
#[derive(Debug)]
pub struct WhatIfReport<'a> {
    trace: &'a Trace,
    arguments: &'a WhatIfArguments,
    prediction: Prediction,
    /// What was written, if anything was asked for.
    written: Option<(String, u64)>,
}

impl<'a> WhatIfReport<'a> {
    /// The answer; writes the changed recording where that is asked for.
    pub fn of(trace: &'a Trace, arguments: &'a WhatIfArguments, prediction: Prediction) -> Result<Self, Failure> {
        let mut written = None;
        if let Some(out) = &arguments.out {
            let Some(changed) = &prediction.changed else {
                let text = "--out: nothing is changed, so there is nothing to write; `highwater convert` copies";
                return Err(Failure::Usage(text.to_owned()));
            };
            let destination = Destination::new(out, &arguments.source.file)?;
            let (_, bytes) = write_to(&destination, &changed.trace)?;
            written = Some((out.display().to_string(), bytes));
        }
        Ok(Self { trace, arguments, prediction, written })
    }

    /// The answer for programs.
    pub fn figures(&self) -> impl Serialize {
        let Prediction { device, measured, recorded_conf, unchanged, changed, tried } = &self.prediction;
        let peaks = |trace: &Trace, figures: &Figures| peak_figures(trace, &figures.summary);
        WhatIfFigures {
            device: device.0,
            recorded_alloc_conf: recorded_conf.clone(),
            measured: peaks(self.trace, measured),
            replayed: peaks(self.trace, &unchanged.figures),
            divergence: unchanged.divergence.as_ref().map(|deviation| DivergenceFigures {
                event: deviation.event.0,
                what: deviation.text.clone(),
                largest_difference_bytes: deviation.largest_bytes,
                blocks_placed_elsewhere: deviation.placed_elsewhere,
            }),
            takes_lowest_address: unchanged.takes_lowest_address,
            causes: unchanged.causes.clone(),
            changed: changed.as_ref().map(|changed| peaks(&changed.trace, &changed.figures)),
            alloc_conf: changed.as_ref().map(|changed| changed.alloc_conf.clone()),
            capacity_bytes: changed.as_ref().and_then(|changed| changed.capacity),
            oom: changed.as_ref().and_then(|changed| changed.oom.as_ref()).map(OomFigures::of),
            rescued_events: changed
                .as_ref()
                .map(|changed| changed.rescued.iter().map(|event| event.0).collect())
                .unwrap_or_default(),
            removed: changed.as_ref().map(|changed| changed.concerned[0].into()),
            shortened: changed.as_ref().map(|changed| changed.concerned[1].into()),
            scaled: changed.as_ref().map(|changed| changed.concerned[2].into()),
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
                    oom_event: one.oom.map(|event| event.0),
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

    /// The answer in words.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        match &self.prediction.changed {
            Some(changed) => self.print_changed(changed, page)?,
            None => self.print_unchanged(page)?,
        }
        let assumptions = self.assumptions();
        if !assumptions.is_empty() {
            page.gap()?;
        }
        for text in assumptions.iter().take(TOLD) {
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
        let Prediction { measured, recorded_conf, unchanged, tried, .. } = &self.prediction;
        let conf = if recorded_conf.is_empty() { "the default settings" } else { recorded_conf.as_str() };
        let events = count_of(measured.summary.events, "event");
        if unchanged.divergence.is_none() {
            let text = "the allocator, asked again, makes the recorded segments and puts every block where it lay";
            page.headline(&format!("With {conf}, {text}: {events} replayed."))?;
        } else {
            page.headline(&format!("With {conf}, the replay of {events} does not come to the recorded segments."))?;
        }
        page.gap()?;
        let mut table = Table::new(vec![
            Column::text("settings").giving_way(),
            Column::number("allocated"),
            Column::number("reserved"),
            Column::number("beyond active"),
            Column::number("difference"),
            Column::text(""),
        ]);
        let reserved = measured.peak_bytes(Metric::Reserved);
        let mut row = |name: &str, figures: &Figures, end: String| {
            table.push(vec![
                name.to_owned(),
                format_bytes(figures.peak_bytes(Metric::Allocated)),
                format_bytes(figures.peak_bytes(Metric::Reserved)),
                format_bytes(figures.reserved_beyond_active()),
                difference(reserved, figures.peak_bytes(Metric::Reserved)),
                end,
            ]);
        };
        row(
            if recorded_conf.is_empty() { "as recorded (default)" } else { "as recorded" },
            measured,
            failures(measured),
        );
        if unchanged.divergence.is_some() {
            row("the same, replayed", &unchanged.figures, String::new());
        }
        for one in tried {
            let end = one.oom.map_or_else(String::new, |event| {
                format!("out of memory at event {}", format_count(u64::from(event.0)))
            });
            row(if one.alloc_conf.is_empty() { "default" } else { &one.alloc_conf }, &one.figures, end);
        }
        page.table(&table)
    }

    fn print_changed(&self, changed: &Changed, page: &mut Page<'_>) -> io::Result<()> {
        page.headline(&self.verdict(changed))?;
        let [removed, shortened, scaled] = changed.concerned;
        let told = [(removed, "are left out"), (shortened, "end with their last use"), (scaled, "have another size")];
        for (Concerned { blocks, bytes }, what) in told.into_iter().filter(|(one, _)| one.blocks > 0) {
            page.line(&format!("{} of {} {what}.", count_of(blocks, "block"), format_bytes(bytes)))?;
        }
        let asks_for_blocks = !(self.arguments.without.is_empty()
            && self.arguments.until_last_use.is_empty()
            && self.arguments.scale.is_empty());
        if asks_for_blocks && changed.concerned.iter().all(|one| one.blocks == 0) {
            page.warning("No block meets the conditions: nothing is changed.")?;
        }
        page.gap()?;
        page.table(&self.table(&changed.figures))?;
        page.gap()?;
        let settings = if changed.alloc_conf.is_empty() { "the default ones" } else { &changed.alloc_conf };
        page.line(&format!("Allocator settings: {settings}. Memory: {}.", changed.capacity_from))?;
        if let Some(oom) = &changed.oom {
            page.gap()?;
            for line in oom.report.lines() {
                page.warning(&format!("  {line}"))?;
            }
        }
        Ok(())
    }

    fn verdict(&self, changed: &Changed) -> String {
        let change = self.arguments.change_in_words();
        if let Some(oom) = &changed.oom {
            return format!(
                "Does not fit with {change}: {} asked for {}, with {} of {} in blocks. {} would do.",
                format_bytes(oom.requested),
                when(Some(oom.event), oom.step, oom.phase),
                format_bytes(oom.allocated),
                format_bytes(oom.reserved),
                format_bytes(oom.suffices),
            );
        }
        let [before, after] = [&self.prediction.measured, &changed.figures].map(|one| one.peak_bytes(Metric::Reserved));
        let fits = if self.arguments.capacity.is_some() { "It fits. " } else { "" };
        let rescued = match changed.rescued.len() {
            0 => String::new(),
            1 => " The request that failed is met.".to_owned(),
            more => format!(" {} requests that failed are met.", format_count(more as u64)),
        };
        format!(
            "{fits}With {change}: {} reserved at the peak, {} before ({}).{rescued}",
            format_bytes(after),
            format_bytes(before),
            difference(before, after)
        )
    }

    fn table(&self, changed: &Figures) -> Table {
        let measured = &self.prediction.measured;
        let mut table = Table::new(vec![
            Column::text("peak of"),
            Column::number("recorded"),
            Column::number("what if"),
            Column::number("difference"),
            Column::text("where it is then"),
        ]);
        for metric in [Metric::Requested, Metric::Allocated, Metric::Active, Metric::Reserved] {
            let [before, after] = [measured.peak_bytes(metric), changed.peak_bytes(metric)];
            let place = changed.peak(metric).map_or_else(String::new, |moment| {
                let step = moment.step.map_or_else(String::new, |step| format!("step {step}, "));
                format!("{step}{}", moment.phase)
            });
            let cells =
                [metric.name().to_owned(), format_bytes(before), format_bytes(after), difference(before, after)];
            table.push(cells.into_iter().chain([place]).collect());
        }
        let [before, after] = [measured.reserved_beyond_active(), changed.reserved_beyond_active()];
        let cells =
            ["reserved beyond active".to_owned(), format_bytes(before), format_bytes(after), difference(before, after)];
        table.push(cells.to_vec());
        table
    }

    fn print_divergence(&self, page: &mut Page<'_>) -> io::Result<()> {
        let unchanged = &self.prediction.unchanged;
        if unchanged.takes_lowest_address {
            page.gap()?;
            page.line(
                "Of free ranges of equal size the lowest address is taken, as PyTorch did until version 2.6 or so: with \
                 that rule the replay follows the recording.",
            )?;
        }
        let Some(deviation) = &unchanged.divergence else {
            return Ok(());
        };
        page.gap()?;
        page.warning(&format!(
            "Differs: with nothing changed, the replay leaves the recording at event {}: {}. Reserved bytes differ by at \
             most {}, {} elsewhere.",
            format_count(u64::from(deviation.event.0)),
            deviation.text,
            format_bytes(deviation.largest_bytes),
            count_of(deviation.placed_elsewhere, "block")
        ))?;
        for cause in unchanged.causes.iter().take(TOLD) {
            page.warning(&format!("  perhaps since {cause}"))?;
        }
        Ok(())
    }

    fn hint(&self) -> String {
        let file = &self.arguments.source.file;
        match (&self.written, &self.prediction.changed) {
            (Some((out, _)), _) => {
                let out = quoted(out);
                next_command(&["diff"], file, &[out.as_str()], "for what makes the difference")
            }
            (None, Some(_)) => {
                let what_for = "with the same change, to look at it and compare";
                next_command(&["whatif"], file, &["…", "--out", "changed.snap"], what_for)
            }
            (None, None) => {
                let options = ["--capacity", "24GiB"];
                next_command(&["whatif"], file, &options, "or --alloc-conf, --without, --scale: see --help")
            }
        }
    }
}

/// What a recording says of failed requests.
fn failures(figures: &Figures) -> String {
    match figures.summary.oom_events {
        0 => String::new(),
        count => format!("{} failed", count_of(count, "request")),
    }
}

/// `+1.25 GiB`, `-3 MiB`, `none`.
fn difference(before: u64, after: u64) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Less => format!("-{}", format_bytes(before - after)),
        std::cmp::Ordering::Equal => "none".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", format_bytes(after - before)),
    }
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
    oom: Option<OomFigures>,
    rescued_events: Vec<u32>,
    removed: Option<ConcernedFigures>,
    shortened: Option<ConcernedFigures>,
    scaled: Option<ConcernedFigures>,
    fragmentation: FragmentationFigures,
    tried: Vec<TriedFigures>,
    assumptions: Vec<String>,
    file: Option<String>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct DivergenceFigures {
    event: u32,
    what: String,
    largest_difference_bytes: u64,
    blocks_placed_elsewhere: u64,
}

#[derive(Debug, Serialize)]
struct OomFigures {
    event: u32,
    step: Option<u32>,
    phase: &'static str,
    requested_bytes: u64,
    reserved_bytes: u64,
    allocated_bytes: u64,
    suffices_bytes: u64,
    description: String,
}

impl OomFigures {
    fn of(oom: &Failed) -> Self {
        Self {
            event: oom.event.0,
            step: oom.step,
            phase: oom.phase.name(),
            requested_bytes: oom.requested,
            reserved_bytes: oom.reserved,
            allocated_bytes: oom.allocated,
            suffices_bytes: oom.suffices,
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

/// The peaks, and how far one lies above the other.
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
    oom_event: Option<u32>,
}
