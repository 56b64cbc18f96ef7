//! Sentences and figures about a replay, for the command line and the app.

use highwater_analysis::{Metric, Moment};
use highwater_snapshots::{count_of, format_bytes, format_count, format_required_bytes, format_signed_bytes};

use super::moment::{at_event, count_with};
use crate::answers::prediction::{Changed, Concerned, Deviation, Figures, Prediction, Tried};
use crate::answers::recomputation::Recomputation;
use crate::report::{Column, Rows, Table};

/// A sentence printed if no block matches the conditions.
pub const NO_BLOCK: &str = "No block matches the conditions: nothing is changed.";

/// A sentence printed if the replay uses the tie-break rule of older versions.
pub const LOWEST_ADDRESS: &str = "Among free ranges of equal size, the replay takes the one at the lowest address (as PyTorch up to about version 2.6), \
     because this reproduces the recorded addresses.";

const MAX_OTHERS: usize = 2;

/// Names the settings that help: those that let the last failed request succeed, or otherwise those that lower the peak
/// of reserved memory.
pub fn what_helps(prediction: &Prediction) -> String {
    let Prediction { measured, unchanged, tried, .. } = prediction;
    if is_of_state(measured) {
        return "No settings are tried: the recording is a state without events, so there is nothing to replay."
            .to_owned();
    }
    if tried.is_empty() {
        return "No settings are tried: the allocator of the recording has none.".to_owned();
    }
    let name = |one: &&Tried| if one.alloc_conf.is_empty() { "default".to_owned() } else { one.alloc_conf.clone() };
    let always_fails = measured.summary.oom_events > 0 && tried.iter().all(|one| one.oom.is_some());
    if always_fails || tried.iter().any(|one| one.gets_past_failure) {
        let mut past: Vec<&Tried> = tried.iter().filter(|one| one.gets_past_failure).collect();
        past.sort_by_key(|one| one.figures.peak_bytes(Metric::Reserved));
        let Some((best, others)) = past.split_first() else {
            return "None of the tried settings gets past the failed request.".to_owned();
        };
        let reserved = format_bytes(best.figures.peak_bytes(Metric::Reserved));
        let others: Vec<String> = others.iter().map(name).collect();
        let so_do = if others.is_empty() { String::new() } else { format!("; so do {}", others.join(", ")) };
        return format!("{} gets past the failed request, with {reserved} reserved{so_do}.", name(best));
    }
    let [recorded, replayed] = [measured, &unchanged.figures].map(|one| one.peak_bytes(Metric::Reserved));
    // A recording without segments has no reserved memory.
    let recorded = if recorded == 0 { replayed } else { recorded };
    let reserved = |one: &&Tried| one.figures.peak_bytes(Metric::Reserved);
    let mut lower: Vec<&Tried> = tried.iter().filter(|one| one.oom.is_none()).collect();
    lower.retain(|one| reserved(one) < recorded.min(replayed));
    lower.sort_by_key(reserved);
    let Some((best, others)) = lower.split_first() else {
        return format!("None of the tried settings lowers the peak of reserved memory, {}.", format_bytes(recorded));
    };
    let less = format_bytes(recorded - reserved(best));
    let other = |one: &&Tried| format!("; {} by {}", name(one), format_bytes(recorded - reserved(one)));
    let also: String = others.iter().take(MAX_OTHERS).map(other).collect();
    format!(
        "{} lowers the peak of reserved memory by {less}, from {} to {}{also}.",
        name(best),
        format_bytes(recorded),
        format_bytes(reserved(best)),
    )
}

/// Returns whether figures are for a recording without events.
pub(crate) fn is_of_state(figures: &Figures) -> bool {
    figures.summary.peaks.iter().any(|peak| peak.is_state)
}

/// Returns the result of a replay without changes, as a sentence.
pub fn unchanged(prediction: &Prediction) -> String {
    let Prediction { measured, recorded_conf, unchanged, .. } = prediction;
    let conf = if recorded_conf.is_empty() { "the default settings" } else { recorded_conf.as_str() };
    if is_of_state(measured) {
        return format!("The state was recorded with {conf}.");
    }
    let events = count_of(measured.summary.events, "event");
    if unchanged.divergence.is_none() {
        let text = "the replay reproduces the recorded segments and places every block at its recorded address";
        format!("With {conf}, {text}: {events} replayed.")
    } else {
        format!("With {conf}, the replay of {events} does not reproduce the recorded segments.")
    }
}

/// Returns the result of `change` as a sentence, which states whether the program fits a device of another size.
pub fn verdict(prediction: &Prediction, changed: &Changed, change: &str, changes_capacity: bool) -> String {
    let change = as_condition(change);
    if let Some(oom) = &changed.oom {
        return format!(
            "Does not fit {change}: {} requested {}, with {} in live blocks and {} reserved. {}",
            format_bytes(oom.requested),
            at_event(oom.event, oom.step, oom.phase),
            format_bytes(oom.allocated),
            format_bytes(oom.reserved),
            large_enough(prediction, changed),
        );
    }
    let peaks = peaks_text(prediction, changed);
    if changed.fits().is_none() {
        if let (Some(doubt), None, true) = (changed.doubt, changed.ends_in_oom, changed.rescued.is_empty()) {
            let why = doubt.text(changed.recording.facts());
            return format!(
                "All recorded requests succeed {change}, but more may be needed: {why}. As far as recorded: {peaks}."
            );
        }
        let (known, unknown) = match (changed.rescued.is_empty(), changed.ends_in_oom.is_some()) {
            (true, _) => {
                ("All recorded requests succeed", "the recording ends in an out-of-memory error of another device")
            }
            (false, true) => ("Gets past the recorded failure", "later events were not recorded"),
            (false, false) => {
                ("Gets past the recorded failures", "without them the program would have continued differently")
            }
        };
        return format!("{known} {change}; {unknown}. {} Up to there: {peaks}.", lower_bound(changed));
    }
    let fits = if changes_capacity { "Fits. " } else { "Runs to the end of the recording. " };
    format!("{fits}{}{}: {peaks}.", change[..1].to_uppercase(), &change[1..])
}

/// Formats a change as a condition, such as `with 24 GiB of memory` or `without category=gradient`.
pub fn as_condition(change: &str) -> String {
    if change.starts_with("without ") { change.to_owned() } else { format!("with {change}") }
}

/// Returns a device size on which the replay succeeds, as a sentence.
fn large_enough(prediction: &Prediction, changed: &Changed) -> String {
    match (changed.suffices, changed.ends_in_oom) {
        (_, Some(_)) => lower_bound(changed),
        (Some(bytes), None) if changed.doubt.is_some() => {
            format!("A device of {} is enough for every recorded request.", format_required_bytes(bytes))
        }
        (Some(bytes), None) => {
            let is_recorded = bytes == prediction.measured.peak_bytes(Metric::Reserved);
            let from = if is_recorded { ", the recorded peak of reserved memory," } else { "" };
            format!("A device of {}{from} is large enough.", format_required_bytes(bytes))
        }
        (None, None) => "No device is large enough.".to_owned(),
    }
}

/// Returns a lower bound of the required memory, for a recording that ends in an out-of-memory error, as a sentence.
fn lower_bound(changed: &Changed) -> String {
    match changed.suffices {
        Some(bytes) => {
            format!("It needs at least {}, which gets past the failure in a replay.", format_required_bytes(bytes))
        }
        None => format!("Its live blocks alone need {}.", format_required_bytes(changed.live_bytes)),
    }
}

/// Formats the peaks with the change and as recorded: those of reserved memory, or of allocated memory if only these
/// differ.
fn peaks_text(prediction: &Prediction, changed: &Changed) -> String {
    let [reserved, allocated] = [Metric::Reserved, Metric::Allocated]
        .map(|metric| [&prediction.measured, &changed.figures].map(|one| one.peak_bytes(metric)));
    let text = |name: &str, [before, after]: [u64; 2]| {
        let recorded = if before == after {
            "as recorded".to_owned()
        } else {
            format!("{} as recorded ({})", format_bytes(before), difference(before, after))
        };
        format!("{} {name} at the peak, {recorded}", format_bytes(after))
    };
    if reserved[0] != reserved[1] || allocated[0] == allocated[1] {
        return text("reserved", reserved);
    }
    let start = prediction.measured.summary.peak(Metric::Reserved).is_some_and(|peak| peak.event.is_none());
    let from = if start { ": its segments were reserved before the recording" } else { "" };
    format!("{}; reserved memory stays at {}{from}", text("allocated", allocated), format_bytes(reserved[1]))
}

/// Returns sentences on the modules that are recomputed, and on the blocks that are omitted, freed earlier and scaled;
/// empty if there are none.
pub fn concerned(changed: &Changed) -> Vec<String> {
    let [removed, shortened, scaled] = changed.concerned;
    let sentences = [
        (removed, ["is left out", "are left out"], ""),
        (shortened, ["is freed after its last use", "are freed after their last use"], ""),
        (scaled, ["has another size", "have another size"], " as recorded"),
    ];
    let sentences = sentences.into_iter().filter(|(one, ..)| one.blocks > 0);
    let sentences = sentences.map(|(Concerned { blocks, bytes }, [one, more], recorded)| {
        let (what, in_all) = if blocks == 1 { (one, "") } else { (more, " in all") };
        format!("{} {what} ({}{in_all}{recorded}).", count_of(blocks, "allocation"), format_bytes(bytes))
    });
    changed.recomputation.as_ref().map(recomputed).into_iter().chain(sentences).collect()
}

fn recomputed(recomputation: &Recomputation) -> String {
    let modules = count_of(recomputation.modules as u64, "module");
    match recomputation.calls {
        0 => format!("Recomputing {modules} would save nothing: backward needs nothing that they allocate."),
        calls => format!("Recomputed in backward: {modules}, {}.", count_of(calls as u64, "call")),
    }
}

/// Formats the settings and the memory limit of a replay.
pub fn settings_and_memory(changed: &Changed) -> String {
    let settings = if changed.alloc_conf.is_empty() { "default" } else { &changed.alloc_conf };
    format!("Allocator settings: {settings}. Memory: {}.", changed.capacity_from)
}

/// Describes the first difference between a replay without changes and the recording.
pub fn deviation(deviation: &Deviation) -> String {
    format!(
        "Not exact: with nothing changed, the replay differs from the recording from event {} on: {}. Reserved bytes \
         differ by at most {}, and {} elsewhere.",
        format_count(deviation.event),
        deviation.text,
        format_bytes(deviation.largest_bytes),
        count_with(deviation.placed_elsewhere, "block", ["lies", "lie"])
    )
}

/// A figure as recorded and with the change.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The name of the figure.
    pub name: String,
    /// Bytes in the recording and with the change.
    pub bytes: [u64; 2],
    /// The peak with the change; its event is in the changed recording. `None` if the figure is not a peak.
    pub peak: Option<Moment>,
}

/// Returns the peaks of requested, allocated, active and reserved memory, and the reserved but unused bytes.
pub fn compared(measured: &Figures, changed: &Figures) -> Vec<Compared> {
    let metrics = [Metric::Requested, Metric::Allocated, Metric::Active, Metric::Reserved];
    let peaks = metrics.map(|metric| Compared {
        name: metric.name().to_owned(),
        bytes: [measured, changed].map(|one| one.peak_bytes(metric)),
        peak: changed.summary.peak(metric).copied(),
    });
    let unused = [measured, changed].map(Figures::reserved_beyond_active);
    let unused = Compared { name: "reserved − active".to_owned(), bytes: unused, peak: None };
    peaks.into_iter().chain([unused]).collect()
}

/// Returns a table of the peaks. If a request failed, these are the peaks before the failure.
pub fn compared_table(rows: Vec<Compared>, failed: bool) -> Table<'static> {
    let rows: Rows<Compared> = rows.into_iter().collect();
    let place = |one: &Compared| {
        let step = one.peak.and_then(|peak| peak.step).map(|step| format!("step {step}"));
        let phase = one.peak.and_then(|peak| peak.known_phase()).map(|phase| phase.to_string());
        step.into_iter().chain(phase).collect::<Vec<_>>().join(", ")
    };
    let changed = if failed { "until it failed" } else { "what if" };
    let difference = Column::shown_alone("difference", true, rows.of(|one| difference(one.bytes[0], one.bytes[1])));
    let columns = [
        Some(Column::text("figure", "peak of", rows.of(|one| one.name.clone()))),
        Some(Column::bytes("recorded_bytes", "recorded", rows.of(|one| one.bytes[0]))),
        Some(Column::bytes("changed_bytes", changed, rows.of(|one| one.bytes[1]))),
        // Memory that a failed replay did not reach is not a saving.
        Some(difference).filter(|_| !failed),
        Some(Column::text("new_peak", "new peak in", rows.of(place)).optional()),
    ];
    Table::new(rows.count(), columns.into_iter().flatten())
}

/// Settings, and the result of a replay with them.
#[derive(Clone, Debug)]
pub struct TriedSettings<'a> {
    /// The name of the settings in the table.
    pub name: &'a str,
    /// The settings that were tried; `None` for the recorded ones.
    pub asked: Option<&'a str>,
    /// The totals and peaks with these settings.
    pub figures: &'a Figures,
    /// The end of the replay: the request that fails, or a text that none does.
    pub end: String,
}

/// Returns the recorded settings, as recorded and, if the replay differs, as replayed, and the tried ones, each with
/// its result.
pub fn tried(prediction: &Prediction) -> Vec<TriedSettings<'_>> {
    let Prediction { measured, recorded_conf, unchanged, tried, .. } = prediction;
    let name = if recorded_conf.is_empty() { "as recorded (default)" } else { "as recorded" };
    let mut all = vec![TriedSettings { name, asked: None, figures: measured, end: ending(measured) }];
    if unchanged.divergence.is_some() {
        let (name, figures) = ("the same, replayed", &unchanged.figures);
        all.push(TriedSettings { name, asked: None, figures, end: ending(figures) });
    }
    all.extend(tried.iter().map(|Tried { asked, alloc_conf, figures, oom, gets_past_failure }| {
        let end = match oom {
            Some(event) => fails_at(*event),
            None if *gets_past_failure => "gets past the failure".to_owned(),
            None => RUNS_TO_THE_END.to_owned(),
        };
        let name = if alloc_conf.is_empty() { "default" } else { alloc_conf };
        TriedSettings { name, asked: Some(asked), figures, end }
    }));
    all
}

/// Returns a table of the recorded settings and the settings tried.
pub fn tried_table(prediction: &Prediction) -> Table<'_> {
    let rows: Rows<TriedSettings<'_>> = tried(prediction).into_iter().collect();
    let peak = |metric: Metric| rows.of(move |one| one.figures.peak_bytes(metric));
    let before = prediction.measured.peak_bytes(Metric::Reserved);
    let from_before = move |one: &TriedSettings<'_>| difference(before, one.figures.peak_bytes(Metric::Reserved));
    let columns = [
        // Settings are never shortened, since users copy them.
        Column::text("alloc_conf", "settings", rows.of(|one| one.name))
            .shown(rows.of(|one| one.name.replace(',', ",\n")))
            .lines(),
        Column::bytes("peak_allocated_bytes", "peak allocated", peak(Metric::Allocated)),
        Column::bytes("peak_reserved_bytes", "peak reserved", peak(Metric::Reserved)),
        Column::shown_alone("difference", true, rows.of(from_before)),
        Column::bytes("unused_bytes", "reserved − active", rows.of(|one| one.figures.reserved_beyond_active()))
            .optional(),
        Column::text("result", "result", rows.of(|one| one.end.clone())),
    ];
    Table::new(rows.count(), columns)
}

const RUNS_TO_THE_END: &str = "runs to the end";

/// Describes the end of a recording: whether a request fails in it.
fn ending(figures: &Figures) -> String {
    match (figures.failure, figures.summary.oom_events) {
        (None, _) if is_of_state(figures) => "not replayed".to_owned(),
        (None, _) => RUNS_TO_THE_END.to_owned(),
        (Some(event), 1) => fails_at(event),
        (Some(event), count) => format!("{}, {} in all", fails_at(event), count_of(count, "request")),
    }
}

fn fails_at(event: u64) -> String {
    format!("fails at event {}", format_count(event))
}

pub(crate) const NO_DIFFERENCE: &str = "none";

/// Formats a difference: `+1.25 GiB`, `−3 MiB`, `none`.
pub fn difference(before: u64, after: u64) -> String {
    if before == after { NO_DIFFERENCE.to_owned() } else { format_signed_bytes(i128::from(after) - i128::from(before)) }
}
