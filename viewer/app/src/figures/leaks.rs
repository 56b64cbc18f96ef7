//! Sentences about leaks, for the command line and the app.

use highwater_analysis::{Between, Growth, Leak, StepWindow};
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::{count_of, format_bytes};

use super::moment::count_with;

const SHOWN_LEAKS: usize = 5;

/// Returns a sentence for each of the largest `leaks` over `window`, and one for the others.
pub fn leak_texts(leaks: &[Leak], window: &StepWindow) -> Vec<String> {
    let unit = window.between.unit();
    let all = count_of(window.steps.len() as u64, unit);
    let steps = |leak: &Leak| match leak.steps < window.steps.len() {
        true => format!("{} of {all} ({} to {})", leak.steps, window.from(), window.to()),
        false => format!("{all} ({} to {})", window.from(), window.to()),
    };
    let leak = |(line, row): (String, usize)| match leaks.get(row).filter(|_| row < SHOWN_LEAKS) {
        Some(leak) => format!("{line}: {} from {} is still live.", format_bytes(leak.kept.bytes), steps(leak)),
        None => format!("{line}."),
    };
    leak_lines(leaks, unit).into_iter().zip(0..).map(leak).collect()
}

/// Returns the sentence for several steps or bursts without a leak.
pub fn no_leak_text(between: Between) -> &'static str {
    match between {
        Between::Steps => "No leak: no source line leaves memory live after every step.",
        Between::Idle => "No leak: no source line leaves memory live after every burst.",
    }
}

/// Lists the largest `leaks` with their bytes per step, and the sum of the others, as sentences without full stops.
/// `unit` is the name of a step.
pub fn leak_lines(leaks: &[Leak], unit: &str) -> Vec<String> {
    let names = unique_suffixes(&leaks.iter().map(|leak| leak.line.as_str()).collect::<Vec<_>>());
    let leak = |(leak, name): (&Leak, String)| format!("{name} leaks {} a {unit}", format_bytes(leak.bytes_per_step));
    let mut lines: Vec<String> = leaks.iter().zip(names).take(SHOWN_LEAKS).map(leak).collect();
    if leaks.len() > SHOWN_LEAKS {
        let more = count_with((leaks.len() - SHOWN_LEAKS) as u64, "more line", ["leaks", "leak"]);
        let bytes: u64 = leaks[SHOWN_LEAKS..].iter().map(|leak| leak.bytes_per_step).sum();
        lines.push(format!("{more} {} a {unit}", format_bytes(bytes)));
    }
    lines
}

/// Describes by how much and why reserved memory grows while live memory does not, as a predicate without subject and
/// full stop. `None` if reserved memory does not grow in this way, or the growth is unknown.
pub fn reserved_growth(live: &Growth, reserved: &Growth) -> Option<String> {
    if live.net() > 0 || reserved.net() <= 0 || reserved.step_count() == 1 || !live.window.is_whole() {
        return None;
    }
    let cause = reserved.causes.first().map_or_else(String::new, |cause| format!(": {}", cause.text()));
    let when = match reserved.step_count() {
        0 => "in the recording".to_owned(),
        _ => {
            let unit = reserved.window.between.unit();
            format!("in these {unit}s, {} a {unit} on average", format_bytes(reserved.bytes_per_step()))
        }
    };
    let bytes = format_bytes(u64::try_from(reserved.net()).unwrap_or(u64::MAX));
    Some(format!("grows by {bytes} {when}{cause}"))
}
