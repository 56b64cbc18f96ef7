//! The limits of a report's accuracy, as figures and as sentences.

use std::io;

use highwater_analysis::owners::is_of_program;
use highwater_analysis::unmatched_skips;
use highwater_app::report::Value;
use highwater_snapshots::trace::Trust;
use highwater_snapshots::{Trace, count_of, format_count};
use serde::Serialize;

use crate::output::page::Page;

#[derive(Debug, Serialize)]
struct TrustFigures<'a> {
    complete: bool,
    #[serde(flatten)]
    facts: &'a Trust,
    /// Whether steps or phases come from annotations guessed from stacks.
    phases_guessed: bool,
    /// Uses of blocks that were not live, which are counted only during reading.
    unmatched_uses: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<&'a str>,
}

pub(crate) fn trust(trace: &Trace) -> Value {
    Value::of(TrustFigures {
        complete: trace.is_complete(),
        facts: &trace.trust,
        phases_guessed: trace.phases_are_guessed(),
        unmatched_uses: trace.trust.unmatched_uses,
        notes: trace.header.notes().collect(),
    })
}

pub(crate) fn problem_texts(trace: &Trace) -> Vec<String> {
    trace.problems.iter().map(ToString::to_string).collect()
}

/// Prints a warning before the report if the recording (called `name` among several) is truncated, could not be read in
/// full, or has inconsistent totals.
pub(crate) fn lead(trace: &Trace, name: &str, page: &mut Page<'_>) -> io::Result<()> {
    let of = if name.is_empty() { String::new() } else { format!("{name}: ") };
    for problem in trace.problems.iter().filter(|problem| problem.is_of_sums) {
        page.warning(&format!("{of}Contradictory recording: {problem}."))?;
    }
    if !trace.is_partial() {
        return Ok(());
    }
    let count = trace.event_count();
    let events = if count == 0 { "no event".to_owned() } else { count_of(count, "event") };
    let unread: Vec<_> = trace.problems.iter().filter(|problem| problem.offset.is_some()).collect();
    if trace.lacks_index_only() {
        let all = match count {
            0 => "all was".to_owned(),
            1 => "its only event was".to_owned(),
            _ => format!("all {events} were"),
        };
        return page.warning(&format!(
            "{of}Incomplete file: {all} read; only the index at its end is missing or damaged, which \
             `highwater convert FILE NEW.snap` rewrites."
        ));
    }
    let why = match unread.as_slice() {
        [] => "it was cut off, or is still being written".to_owned(),
        [problem] => problem.to_string(),
        [problem, more @ ..] => format!("{problem}, and {}", count_of(more.len() as u64, "more problem")),
    };
    page.warning(&format!("{of}Incomplete recording: {events} could be read: {why}."))
}

/// Returns a warning that `failed` requests failed, and that peaks and advice are valid only up to that point; `None`
/// if none failed.
pub(crate) fn out_of_memory(failed: u64) -> Option<String> {
    let requests = count_of(failed, "request");
    (failed > 0).then(|| {
        format!("Out of memory: {requests} failed, so the run may need more than was recorded; see `highwater oom`.")
    })
}

/// The name of the fact that describes the simulated GPU.
const SIMULATED: &str = "simulated";

/// Returns a sentence if two compared recordings were made on different kinds of GPUs: one simulated and one real, or
/// two different simulated GPUs; otherwise `None`.
pub(crate) fn simulated_beside(trace: &Trace, baseline: &Trace) -> Option<String> {
    let gpu = |of: &Trace| of.header.facts.iter().find(|(name, _)| name == SIMULATED).map(|(_, gpu)| gpu.clone());
    let (own, other) = (gpu(trace), gpu(baseline));
    let place =
        |gpu: Option<String>| gpu.map_or_else(|| "a real device".to_owned(), |gpu| format!("a simulated {gpu}"));
    let because = match (&own, &other) {
        (Some(_), Some(_)) => "PyTorch chooses kernels depending on the GPU",
        _ => "in a simulation the sizes of some workspaces are unknown, and values computed on the device are zeros",
    };
    (own != other).then(|| {
        let (own, other) = (place(own), place(other));
        format!(
            "The baseline was recorded on {other}, this recording on {own}: {because}, which may explain a difference."
        )
    })
}

/// Maximum number of problems printed by commands other than `verify`.
const MAX_PROBLEMS: usize = 5;

/// Prints the limits of the accuracy and the problems of the file, if there are any.
pub(crate) fn print(trace: &Trace, page: &mut Page<'_>) -> io::Result<()> {
    print_of(trace, "", page)
}

/// Prints the limits and problems of one of several recordings, called `name`.
pub(crate) fn print_of(trace: &Trace, name: &str, page: &mut Page<'_>) -> io::Result<()> {
    let (bare, unmatched) = (bare_stacks(trace), unmatched_skips(&trace.tables));
    // Contradictions are in the first lines.
    let others: Vec<_> = trace.problems.iter().filter(|problem| !problem.is_of_sums).collect();
    if trace.is_complete()
        && others.is_empty()
        && trace.header.notes().next().is_none()
        && bare.is_none()
        && unmatched.is_empty()
    {
        return Ok(());
    }
    let of = if name.is_empty() { String::new() } else { format!(" of {name}") };
    page.gap()?;
    for sentence in trace.trust.limits() {
        page.warning(&format!("Trust{of}: {sentence}."))?;
    }
    for problem in others.iter().take(MAX_PROBLEMS) {
        page.warning(&format!("Problem{of}: {problem}"))?;
    }
    if others.len() > MAX_PROBLEMS {
        let more = others.len() - MAX_PROBLEMS;
        page.warning(&format!("Problem{of}: … and {more} more; `highwater verify` lists them"))?;
    }
    let routine = trace.routine_sentences();
    if !routine.is_empty() {
        page.hint(&format!("Note{of}: {}.", routine.join("; ")))?;
    }
    for note in trace.header.notes() {
        page.hint(&format!("Note{of}: {note}."))?;
    }
    for pattern in unmatched {
        page.warning(&format!("Note{of}: --skip {pattern} matches no line of any stack."))?;
    }
    if let Some(sentence) = bare {
        page.hint(&sentence)?;
    }
    Ok(())
}

/// Returns a note if most frames, or all frames of one of the program's own binaries, are addresses without symbols.
fn bare_stacks(trace: &Trace) -> Option<String> {
    let mut of_modules: Vec<(u64, u64)> = vec![(0, 0); trace.tables.modules.len()];
    for frame in &trace.tables.frames {
        if let Some((all, bare)) = frame.module.index().and_then(|module| of_modules.get_mut(module)) {
            (*all, *bare) = (*all + 1, *bare + u64::from(frame.line_count == 0));
        }
    }
    let (frames, bare) = of_modules.iter().fold((0, 0), |(all, bare), of| (all + of.0, bare + of.1));
    let is_bare_program = of_modules
        .iter()
        .zip(&trace.tables.modules)
        .any(|((all, bare), module)| *all > 0 && bare == all && is_of_program(trace.tables.string(module.path)));
    (is_bare_program || bare > frames / 2).then(|| {
        let counts = [bare, frames].map(format_count);
        format!(
            "Stacks: {} of {} frames are bare addresses; `highwater symbolize FILE` finds their functions and lines.",
            counts[0], counts[1]
        )
    })
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::tables::{Frame, Module, SourceLine};
    use highwater_snapshots::trace::TraceParts;
    use highwater_snapshots::{ModuleId, StringId};

    use super::*;

    #[test]
    fn a_program_of_which_only_libraries_have_lines_has_bare_addresses() {
        let module = |path| Module { path: StringId(path), build_id: vec![1], load_bias: 0 };
        let found = |frames: &[(u32, u32)]| {
            let frames = frames.iter().map(|&(module, line_count)| Frame {
                module: ModuleId(module),
                address: 1,
                first_line: 0,
                line_count,
            });
            bare_stacks(&Trace::default().edited(|TraceParts { tables, .. }| {
                tables.strings = ["/home/me/train", "/usr/lib/libc.so.6", "main"].map(str::to_owned).to_vec();
                tables.modules = vec![module(0), module(1)];
                tables.lines = vec![SourceLine { function: StringId(2), file: StringId(2), line: 1 }];
                tables.frames = frames.collect();
            }))
        };
        let bare = found(&[(0, 0), (1, 1), (1, 1)]);
        assert!(bare.is_some_and(|text| text.starts_with("Stacks: 1 of 3 frames are bare addresses")));
        assert_eq!(found(&[(0, 0), (1, 1), (1, 1), (0, 1)]), None, "the program has lines");
        assert_eq!(found(&[(0, 1), (1, 0)]), None, "a library of the system");
    }
}
