//! Warnings about a plan that is based on a recording.

use highwater_analysis::final_oom::final_oom;
use highwater_analysis::{Evidence, Leaks, Source};
use highwater_snapshots::{DeviceId, Trace, format_bytes};

pub(super) const NO_MODULES: &str = "No module can be recomputed, since the recording has no module paths";
/// Advice added to [`NO_MODULES`], unless the recorder records modules.
pub(super) const NAME_MODULES: &str =
    ": record with `highwater.record_memory_history` in Python, or with scopes in Rust";

/// Prefix of sentences that explain how figures were computed and are not warnings.
pub const NOTE: &str = "Note: ";

/// Returns the warnings and notes about a plan for `device` of `trace`, one sentence each.
pub fn warnings(trace: &Trace, device: DeviceId) -> Vec<String> {
    let mut warnings: Vec<String> = trace.trust.limits().into_iter().map(|text| format!("Trust: {text}.")).collect();
    warnings.extend(trace.problems.iter().map(|problem| format!("Problem: {problem}")));
    let routine = trace.routine_sentences();
    warnings.extend((!routine.is_empty()).then(|| format!("{NOTE}{}.", routine.join("; "))));
    warnings.extend(trace.header.notes().map(|note| format!("{NOTE}{note}.")));
    if trace.device_ids().len() > 1 {
        let most = if device == trace.main_device() { ", which needs the most memory of several" } else { "" };
        warnings.push(format!("The plan is for device {}{most}.", device.0));
    }
    if final_oom(trace).is_some() {
        warnings.push(
            "The recording ends in an out-of-memory error, so a plan is proven only up to it: the step may need more."
                .to_owned(),
        );
    }
    let leaks = Leaks::of_all_steps(&Source::in_memory(trace), device);
    if let Some(leak) = leaks.as_ref().and_then(|leaks| leaks.lines.first()) {
        let kept = format_bytes(leak.bytes_per_step);
        warnings
            .push(format!("The program leaks memory, so more steps need more: {} leaks {kept} per step.", leak.line));
    }
    if let Some(why) = Evidence::shortfall(trace, device) {
        warnings.push(format!("Peaks with recomputed modules are estimates: {why}."));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;

    #[test]
    fn a_plan_for_a_recording_that_leaks_says_that_more_steps_need_more() {
        let steps = |kept: bool| {
            let step = |step: u32| {
                let free = if kept { String::new() } else { format!("free k{step}\n") };
                format!("step {step}\nphase forward\nalloc k{step} 4096 #cache @net < remember\n{free}")
            };
            trace_from_text(&(0..6).map(step).collect::<String>()).unwrap()
        };
        let leaks = |kept: bool| warnings(&steps(kept), DeviceId(0)).into_iter().find(|text| text.contains("leaks"));
        let expected = "The program leaks memory, so more steps need more: remember leaks 4 KiB per step.";
        assert_eq!((leaks(true).as_deref(), leaks(false)), (Some(expected), None));
    }
}
