//! The explanation of a peak, with savings computed by replays added to its advice.

use highwater_analysis::explain::{Reach, Remedy};
use highwater_analysis::final_oom::final_oom_on;
use highwater_analysis::peak::Query;
use highwater_analysis::{Advice, Explanation, Metric, Moment, Source, Watch};
use highwater_snapshots::{DeviceId, Error, format_bytes};

use super::plan::AdvicePeaks;
use super::prediction::Change;
use super::replays::predict;

/// Explains the peak of `metric` on `device`. Unless the recording is too long for memory, advice on allocator settings
/// includes the result of a replay, and for requested bytes, advice on recomputation and a fused optimizer includes the
/// predicted peak; settings and a fused optimizer that save nothing are omitted.
///
/// # Errors
/// Fails like [`Explanation::of`].
pub fn explain(
    source: &Source<'_>,
    device: DeviceId,
    metric: Metric,
    query: &Query<'_>,
    watch: Watch<'_>,
) -> Result<Explanation, Error> {
    let mut explanation = Explanation::of(source, device, metric, query, watch)?;
    let source = match source.resident() {
        Err(Error::TooLong { .. }) => {
            for (text, settings) in explanation.advice.iter_mut().filter_map(|one| Some((&mut one.text, one.settings?)))
            {
                text.push_str(&format!(" {settings} may reduce this; not tested: the recording is too long."));
            }
            return Ok(explanation);
        }
        source => source?,
    };
    explanation.advice.retain_mut(|advice| is_worth_it(&source, device, advice));
    let is_changed = |advice: &Advice| matches!(advice.remedy, Remedy::Checkpoint | Remedy::FusedOptimizer);
    if metric == Metric::Requested && explanation.advice.iter().any(is_changed) {
        let peaks = AdvicePeaks::of(source.facts(), device);
        let [peak, reserved] = [Metric::Requested, Metric::Reserved].map(|metric| source.peak(device, metric));
        let (peak, reserved) = (peak?.bytes, reserved?.bytes);
        // A fused optimizer of PyTorch keeps a counter for each parameter, which may be more than the temporaries.
        let is_worse = peaks.fused.is_some_and(|fused| fused.requested >= peak);
        explanation.advice.retain(|advice| advice.remedy != Remedy::FusedOptimizer || !is_worse);
        explanation.advice.iter_mut().for_each(|advice| add_peaks(advice, &peaks, [peak, reserved]));
        Advice::sort(&mut explanation.advice, peak);
    }
    Ok(explanation)
}

/// Adds the result of recomputation or of a fused optimizer to `advice` on it. `requested` and `reserved` are the peaks
/// as recorded.
fn add_peaks(advice: &mut Advice, peaks: &AdvicePeaks, [requested, reserved]: [u64; 2]) {
    let text = match advice.remedy {
        Remedy::Checkpoint => {
            advice.peak_with = peaks.least_of_modules().filter(|left| *left < requested);
            peaks.of_modules(requested)
        }
        Remedy::FusedOptimizer => peaks.fused.map(|fused| {
            let [now, before] = [fused.reserved, reserved].map(format_bytes);
            format!("With a fused optimizer, {now} is reserved, {before} before (replayed).")
        }),
        _ => None,
    };
    if let Some(text) = text {
        advice.text.push(' ');
        advice.text.push_str(&text);
    }
}

/// Adds the result of a replay with the settings of `advice`. Returns false only if the replay saves nothing.
fn is_worth_it(source: &Source<'_>, device: DeviceId, advice: &mut Advice) -> bool {
    let Some(settings) = advice.settings else { return true };
    match reserved_with(source, device, settings) {
        Ok(([before, after], reach)) if after < before => {
            advice.text.push_str(&format!(
                " With {settings} {} is {}, {} less (replayed).",
                reach.the_peak(" of reserved memory"),
                format_bytes(after),
                format_bytes(before - after)
            ));
            true
        }
        Ok(_) => false,
        Err(why) => {
            advice.text.push_str(&format!(" {settings} may reduce this; not tested: {why}."));
            true
        }
    }
}

/// Returns the peak of reserved bytes as recorded and with `settings`, computed as in `highwater whatif`, and the part
/// of the run that these figures cover.
fn reserved_with(source: &Source<'_>, device: DeviceId, settings: &str) -> Result<([u64; 2], Reach), String> {
    let change = Change { device, alloc_conf: Some(settings.to_owned()), ..Change::default() };
    let prediction = predict(source, &change).map_err(|why| why.to_string())?;
    let trace = source.facts();
    let changed = prediction.changed.as_ref().ok_or("nothing was changed")?;
    match (&prediction.unchanged.divergence, &changed.oom) {
        (Some(deviation), _) => Err(format!("a replay differs from the recording from event {} on", deviation.event)),
        // The request that failed in the recording still fails, so nothing is saved.
        (None, Some(oom)) if prediction.ends_in_oom == Some(oom.event) => {
            Ok(([prediction.measured.peak_bytes(Metric::Reserved); 2], Reach::UpToFailure))
        }
        (None, Some(oom)) => Err(format!("a replay with them runs out of memory at event {}", oom.event)),
        (None, None) => {
            let [before, after] =
                [&prediction.measured, &changed.figures].map(|one| one.summary.peak(Metric::Reserved));
            let event = |peak: Option<&Moment>| peak.and_then(|peak| peak.event);
            let recorded = event(after).and_then(|event| changed.source.get(event.index()?).copied());
            let moments = [event(before), recorded].map(|event| event.map(|event| trace.number(event)));
            let failed = final_oom_on(trace, device).map(|event| trace.number(event));
            let reach = match Reach::of(failed, moments) {
                Reach::Whole if changed.doubt.is_some() => Reach::Recorded,
                reach => reach,
            };
            Ok(([before, after].map(|peak| peak.map_or(0, |peak| peak.bytes)), reach))
        }
    }
}
