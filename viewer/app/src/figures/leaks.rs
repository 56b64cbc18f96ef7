//! Sentences about leaks.

use highwater_analysis::growth::{Leak, StepWindow};
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::units::format_bytes;

use super::moment::count_of;

/// Maximum number of leaks listed for each device.
const SHOWN_LEAKS: usize = 5;

/// Returns a sentence for each of the largest `leaks` found over `window`, and one for all others.
pub fn leak_texts(leaks: &[Leak], window: &StepWindow) -> Vec<String> {
    let all = count_of(window.steps.len() as u64, "step");
    let steps = |leak: &Leak| match leak.steps < window.steps.len() {
        true => format!("{} of {all} ({} to {})", leak.steps, window.from(), window.to()),
        false => format!("{all} ({} to {})", window.from(), window.to()),
    };
    let leak = |(line, row): (String, usize)| match leaks.get(row).filter(|_| row < SHOWN_LEAKS) {
        Some(leak) => format!("{line}: {} from {} is still live.", format_bytes(leak.kept.bytes), steps(leak)),
        None => format!("{line}."),
    };
    leak_lines(leaks).into_iter().zip(0..).map(leak).collect()
}

/// Names each of the largest `leaks` with its bytes, and sums up all others, as sentences without their ends.
pub fn leak_lines(leaks: &[Leak]) -> Vec<String> {
    let names = unique_suffixes(&leaks.iter().map(|leak| leak.line.as_str()).collect::<Vec<_>>());
    let leak = |(leak, name): (&Leak, String)| format!("{name} leaks {} a step", format_bytes(leak.bytes_per_step));
    let mut lines: Vec<String> = leaks.iter().zip(names).take(SHOWN_LEAKS).map(leak).collect();
    if leaks.len() > SHOWN_LEAKS {
        let more = count_of((leaks.len() - SHOWN_LEAKS) as u64, "more line");
        let bytes: u64 = leaks[SHOWN_LEAKS..].iter().map(|leak| leak.bytes_per_step).sum();
        lines.push(format!("{more} leak {} a step", format_bytes(bytes)));
    }
    lines
}
