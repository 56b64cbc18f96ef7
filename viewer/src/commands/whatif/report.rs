//! The report of `highwater whatif`.

use std::io;

use highwater_analysis::Metric;
use highwater_app::answers::prediction::{
    Changed, Concerned, Deviation, Figures, Prediction, Tried, suggested_capacity,
};
use highwater_app::answers::recomputation::Recomputation;
use highwater_app::figures::predicted::{self, LOWEST_ADDRESS, NO_BLOCK, compared, compared_table};
use highwater_app::files::destination::Destination;
use highwater_app::report::{Facts, Table, Value};
use highwater_snapshots::{Phase, Trace, format_bytes, format_exact_bytes};

use crate::commands::convert::write_to;
use crate::commands::next_command::quoted;
use crate::commands::whatif::WhatIfArguments;
use crate::commands::whatif::rerun::rerun;
use crate::input::on_device;
use crate::output::{Failure, Page, Report, peaks_value, problem_texts};

const MAX_CAUSES: usize = 6;

/// The report of `highwater whatif`.
#[derive(Debug)]
pub struct WhatIfReport<'a> {
    trace: &'a Trace,
    arguments: &'a WhatIfArguments,
    /// The prediction for the requested device, or of several for the one that fits least: one that does not fit, then
    /// one whose result is unknown, then the fullest.
    prediction: Prediction,
    others: Vec<Prediction>,
    /// The name and the size in bytes of the file that was written, if one was requested.
    written: Option<(String, u64)>,
}

impl<'a> WhatIfReport<'a> {
    /// Builds the report from a prediction for each device. Writes the changed recording if requested.
    pub(crate) fn of(
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
            return Err(Failure::Usage("the recording has no device, so there is nothing to replay".to_owned()));
        };
        let mut written = None;
        if let Some(out) = &arguments.out {
            let Some(changed) = &prediction.changed else {
                let text = "--out: nothing is changed, so there is nothing to write; use `highwater convert` to copy";
                return Err(Failure::Usage(text.to_owned()));
            };
            let destination = Destination::new(out, &arguments.source.file)?;
            let (_, bytes) = write_to(&destination, &changed.recording, None)?;
            written = Some((out.display().to_string(), bytes));
        }
        Ok(Self { trace, arguments, prediction, others, written })
    }

    fn assumptions(&self) -> Vec<&str> {
        let Prediction { unchanged, changed, .. } = &self.prediction;
        let all = changed.as_ref().map_or(&unchanged.assumptions, |changed| &changed.assumptions);
        all.iter().map(String::as_str).collect()
    }

    /// Returns the predictions for all requested devices, by ordinal.
    fn predictions(&self) -> impl Iterator<Item = &Prediction> {
        let mut all: Vec<&Prediction> = std::iter::once(&self.prediction).chain(&self.others).collect();
        all.sort_by_key(|one| one.device);
        all.into_iter()
    }

    fn print_unchanged(&self, page: &mut Page<'_>) -> io::Result<()> {
        page.headline(&format!("{}{}", self.on_device(&self.prediction), predicted::what_helps(&self.prediction)))?;
        page.line(&predicted::unchanged(&self.prediction))?;
        page.gap()?.table(&self.table())
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
        page.table(&self.table())?;
        page.gap()?.line(&predicted::settings_and_memory(changed))?;
        if let Some(oom) = &changed.oom {
            page.gap()?;
            for line in oom.report.lines() {
                page.warning(&format!("  {line}"))?;
            }
        }
        Ok(())
    }

    /// Returns the prefix `Device 1: ` if there are several devices.
    fn on_device(&self, prediction: &Prediction) -> String {
        if self.trace.device_ids().len() < 2 { String::new() } else { format!("Device {}: ", prediction.device.0) }
    }

    fn print_divergence(&self, page: &mut Page<'_>) -> io::Result<()> {
        let unchanged = &self.prediction.unchanged;
        if unchanged.takes_lowest_address {
            page.gap()?.line(LOWEST_ADDRESS)?;
        }
        let Some(deviation) = &unchanged.divergence else {
            return Ok(());
        };
        page.gap()?.warning(&predicted::deviation(deviation))?;
        for cause in unchanged.causes.iter().take(MAX_CAUSES) {
            page.warning(&format!("  possible cause: {cause}"))?;
        }
        if unchanged.causes.len() > MAX_CAUSES {
            page.warning(&format!("  … and {} more; --json lists them", unchanged.causes.len() - MAX_CAUSES))?;
        }
        Ok(())
    }

    fn hint(&self) -> String {
        let given = self.arguments.given();
        let failed = self.prediction.changed.as_ref().filter(|changed| changed.oom.is_some());
        if let Some(bytes) = failed.and_then(|changed| changed.suffices)
            && self.arguments.capacity.is_some()
        {
            let size = format_exact_bytes(bytes);
            let given = given.without("capacity");
            return given.next("whatif", &["--capacity", &size], "for a device that is large enough");
        }
        let is_open = self
            .prediction
            .changed
            .as_ref()
            .is_some_and(|changed| changed.ends_in_oom.is_some() || changed.doubt.is_some());
        if let Some(command) = self.rerun().filter(|_| is_open) {
            return format!("Next: {command}   to find out");
        }
        match (&self.written, &self.prediction.changed) {
            (Some((out, _)), _) => {
                let out = quoted(out);
                given.next("diff", &[out.as_str()], "for the differences")
            }
            (None, Some(_)) => {
                let what_for = "to write the changed recording to a file";
                given.next("whatif", &["--out", "changed.snap"], what_for)
            }
            (None, None) => match suggested_capacity(&self.prediction).filter(|_| !self.trace.is_state()) {
                Some(size) => {
                    let has_settings = self.trace.allocator(self.prediction.device).has_settings();
                    let settings = if has_settings { "--alloc-conf, " } else { "" };
                    let what_for = &format!("or {settings}--without, --scale: see --help");
                    given.next("whatif", &["--capacity", size], what_for)
                }
                None if self.trace.is_state() => given.next("peak", &[], "to see what is using memory"),
                None => given.next("explain", &[], "for the composition of the peak"),
            },
        }
    }
}

impl Report for WhatIfReport<'_> {
    fn facts(&self) -> Facts<'_> {
        let Prediction { device, measured, recorded_conf, unchanged, changed, tried, .. } = &self.prediction;
        let changed = changed.as_ref();
        let peaks = |trace: &Trace, figures: &Figures| peaks_value(&trace.header, &figures.summary);
        let concerned = |at: usize| changed.map(|changed| concerned_value(changed.concerned[at]));
        let devices: Vec<Value> = self.predictions().filter_map(device_value).collect();
        Facts::new([
            ("device", device.0.into()),
            ("recorded_alloc_conf", recorded_conf.as_str().into()),
            ("measured", peaks(self.trace, measured).into()),
            ("replayed", peaks(self.trace, &unchanged.figures).into()),
            ("divergence", unchanged.divergence.as_ref().map(deviation_value).into()),
            ("takes_lowest_address", unchanged.takes_lowest_address.into()),
            ("causes", unchanged.causes.clone().into()),
            ("changed", changed.map(|changed| peaks(changed.recording.facts(), &changed.figures)).into()),
            ("alloc_conf", changed.map(|changed| changed.alloc_conf.as_str()).into()),
            ("capacity_bytes", changed.and_then(|changed| changed.capacity).into()),
            // Whether everything fits; null if nothing was changed, or if the recording ends too early.
            ("fits", changed.and_then(Changed::fits).into()),
            // Why the run may need more memory than the recording shows.
            ("unconfirmed_because", changed.and_then(|changed| Some(changed.doubt?.text(self.trace))).into()),
            // A device with less memory is not enough; null unless the recording ends in an out-of-memory error.
            ("lower_bound_bytes", changed.and_then(lower_bound).into()),
            // One for each requested device.
            ("devices", devices.into()),
            ("oom", changed.and_then(oom_value).into()),
            ("rescued_events", changed.map(|changed| changed.rescued.clone()).unwrap_or_default().into()),
            ("removed", concerned(0).into()),
            ("shortened", concerned(1).into()),
            ("scaled", concerned(2).into()),
            ("recomputed", changed.and_then(|changed| changed.recomputation.as_ref()).map(recomputed_value).into()),
            (
                "fragmentation",
                Value::Map(vec![
                    ("measured", unused_value(measured).into()),
                    ("changed", changed.map(|changed| unused_value(&changed.figures)).into()),
                ])
                .into(),
            ),
            ("tried", tried.iter().map(tried_value).collect::<Vec<_>>().into()),
            ("assumptions", self.assumptions().into()),
            ("file", self.written.as_ref().map(|(file, _)| file.as_str()).into()),
            ("problems", problem_texts(self.trace).into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        match &self.prediction.changed {
            Some(changed) => {
                compared_table(compared(&self.prediction.measured, &changed.figures), changed.oom.is_some())
            }
            None => predicted::tried_table(&self.prediction),
        }
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
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
            page.gap()?.line(&format!("Wrote {file} ({}).", format_bytes(*bytes)))?;
        }
        page.gap()?.hint(&self.hint())
    }
}

impl WhatIfReport<'_> {
    /// Returns the command that made the recording, with the change as an additional option. `None` unless the command
    /// is `highwater record` and supports the change.
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

/// Returns a lower bound of the memory that a device needs, if the recording does not show how much would suffice.
fn lower_bound(changed: &Changed) -> Option<u64> {
    changed.ends_in_oom.map(|_| changed.suffices.unwrap_or(changed.live_bytes))
}

fn device_value(prediction: &Prediction) -> Option<Value> {
    let changed = prediction.changed.as_ref()?;
    Some(Value::Map(vec![
        ("device", prediction.device.0.into()),
        ("fits", changed.fits().into()),
        ("lower_bound_bytes", lower_bound(changed).into()),
        ("peak_reserved_bytes", changed.figures.peak_bytes(Metric::Reserved).into()),
        ("oom", oom_value(changed).into()),
    ]))
}

fn oom_value(changed: &Changed) -> Option<Value> {
    let oom = changed.oom.as_ref()?;
    Some(Value::Map(vec![
        ("event", oom.event.into()),
        ("step", oom.step.into()),
        ("phase", oom.phase.map(Phase::name).into()),
        ("requested_bytes", oom.requested.into()),
        ("reserved_bytes", oom.reserved.into()),
        ("allocated_bytes", oom.allocated.into()),
        ("suffices_bytes", changed.suffices.filter(|_| changed.ends_in_oom.is_none()).into()),
        ("description", oom.report.clone().into()),
    ]))
}

fn deviation_value(deviation: &Deviation) -> Value {
    Value::Map(vec![
        ("event", deviation.event.into()),
        ("what", deviation.text.clone().into()),
        ("largest_difference_bytes", deviation.largest_bytes.into()),
        ("blocks_placed_elsewhere", deviation.placed_elsewhere.into()),
    ])
}

fn recomputed_value(Recomputation { modules, calls, evidence, .. }: &Recomputation) -> Value {
    Value::Map(vec![("modules", (*modules).into()), ("calls", (*calls).into()), ("evidence", evidence.name().into())])
}

fn concerned_value(Concerned { blocks, bytes }: Concerned) -> Value {
    Value::Map(vec![("blocks", blocks.into()), ("bytes", bytes.into())])
}

/// The peaks of two totals, and their difference.
fn unused_value(figures: &Figures) -> Value {
    Value::Map(vec![
        ("reserved_bytes", figures.peak_bytes(Metric::Reserved).into()),
        ("active_bytes", figures.peak_bytes(Metric::Active).into()),
        ("unused_bytes", figures.reserved_beyond_active().into()),
    ])
}

fn tried_value(tried: &Tried) -> Value {
    Value::Map(vec![
        ("alloc_conf", tried.alloc_conf.clone().into()),
        ("peak_allocated_bytes", tried.figures.peak_bytes(Metric::Allocated).into()),
        ("peak_reserved_bytes", tried.figures.peak_bytes(Metric::Reserved).into()),
        ("unused_bytes", tried.figures.reserved_beyond_active().into()),
        ("oom_event", tried.oom.into()),
    ])
}
