//! The runs before and after each run of a device, as needed to classify blocks.

use super::phases::Run;
use highwater_snapshots::Phase;

/// Precomputed facts about a device's runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Outline {
    /// For each run, whether an optimizer runs later.
    pub(super) is_before_update: Vec<bool>,
    /// For each run, whether forward runs later.
    pub(super) is_before_forward: Vec<bool>,
    /// For each run, the index of the next forward, if neither backward nor an optimizer runs in between.
    pub(super) next_forward: Vec<Option<usize>>,
    /// For each run, whether an optimizer runs between the previous and the next forward, and backward after it.
    pub(super) is_fused: Vec<bool>,
    /// For each run, whether it is the last run of forward or backward; false for all runs if backward never runs.
    pub(super) is_last: Vec<bool>,
}

impl Outline {
    /// Computes these facts for `rows`, which must be all runs of a device, in one pass from the last to the first.
    pub(super) fn of(rows: &[Run]) -> Self {
        let mut outline = Self {
            is_before_update: vec![false; rows.len()],
            is_before_forward: vec![false; rows.len()],
            next_forward: vec![None; rows.len()],
            is_fused: Vec::with_capacity(rows.len()),
            is_last: vec![false; rows.len()],
        };
        let computes = |run: &Run| matches!(run.phase, Phase::Forward | Phase::Backward);
        if let Some(last) = rows.iter().rposition(computes) {
            outline.is_last[last] = has_backward(rows);
        }
        let (mut is_before_update, mut is_before_forward) = (false, false);
        let mut next_forward = None;
        for (position, run) in rows.iter().enumerate().rev() {
            outline.is_before_update[position] = is_before_update;
            outline.is_before_forward[position] = is_before_forward;
            outline.next_forward[position] = next_forward;
            is_before_update |= run.phase == Phase::Optimizer;
            is_before_forward |= run.phase == Phase::Forward;
            match run.phase {
                Phase::Forward => next_forward = Some(position),
                // These runs do not separate a block from the next forward.
                Phase::Setup | Phase::Other | Phase::ZeroGrad | Phase::Eval => {}
                Phase::Backward | Phase::Optimizer => next_forward = None,
            }
        }
        for between in rows.split_inclusive(|run| run.phase == Phase::Forward) {
            let optimizer = between.iter().position(|run| run.phase == Phase::Optimizer).unwrap_or(between.len());
            let is_fused = between[optimizer..].iter().any(|run| run.phase == Phase::Backward);
            outline.is_fused.extend(between.iter().map(|_| is_fused));
        }
        outline
    }
}

/// Whether backward is among `runs`.
pub(super) fn has_backward(runs: &[Run]) -> bool {
    runs.iter().any(|run| run.phase == Phase::Backward)
}
