//! The requested bytes of a recording as a linear function of the set of recomputed modules.

use std::collections::BTreeMap;

use highwater_snapshots::{BlockId, DeviceId, EventId, ScopeId, Trace};

use super::solve::{Choice, Program};
use crate::index::replay::Replay;
use crate::rewrite::recompute::{Effect, Members, Repeat, effects};

/// A module that can be recomputed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The module whose activations are recomputed.
    pub scope: ScopeId,
    /// The cost of recomputing the module in a step, in any unit; at least 1.
    pub cost: u64,
}

/// Returns the program for the requested bytes on `device`, whose choices are `candidates`, in order. Of nested
/// modules, at most one can be chosen.
pub fn model(trace: &Trace, device: DeviceId, candidates: &[Candidate]) -> Program {
    let totals = totals(trace, device);
    let mut changes: Vec<Changes> = candidates.iter().map(|_| Changes::default()).collect();
    for level in levels(trace, candidates) {
        let is_chosen = |scope| level.iter().any(|index| candidates[*index].scope == scope);
        let members = Members::of(trace, is_chosen);
        let index_of = |module: usize| {
            let scope = members.modules[module];
            level.iter().copied().find(|index| candidates[*index].scope == scope)
        };
        for effect in effects(trace, device, &members) {
            if let Some(index) = index_of(effect.module) {
                changes[index].add(trace, &effect);
            }
        }
    }
    let excludes = excludes(trace, candidates);
    rows(&totals, &failed_requests(trace, device), candidates, (&changes, excludes))
}

/// The states at which a request failed, each with the requested bytes that the request would have led to.
fn failed_requests(trace: &Trace, device: DeviceId) -> Vec<(u32, u64)> {
    let requested = |event: EventId| {
        let row = trace.events.subject[event.0 as usize];
        trace.ooms.get(row as usize).map(|oom| oom.requested)
    };
    trace.failed_requests_on(device).filter_map(|event| Some((event.0, requested(event)?))).collect()
}

/// Returns the requested bytes before each event, and after the last one.
fn totals(trace: &Trace, device: DeviceId) -> Vec<u64> {
    let mut replay = Replay::new(trace, device);
    let mut totals = Vec::with_capacity(trace.events.len() + 1);
    totals.push(replay.totals().requested);
    while replay.step().is_some() {
        totals.push(replay.totals().requested);
    }
    totals
}

/// Divides candidates into levels; no level contains nested modules.
fn levels(trace: &Trace, candidates: &[Candidate]) -> Vec<Vec<usize>> {
    let depth = |scope: ScopeId| trace.tables.scope_rows(scope).count();
    let mut levels: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        levels.entry(depth(candidate.scope)).or_default().push(index);
    }
    levels.into_values().collect()
}

/// For each candidate, the candidates that contain it or are inside it.
fn excludes(trace: &Trace, candidates: &[Candidate]) -> Vec<Vec<u32>> {
    let index_of: BTreeMap<ScopeId, u32> =
        candidates.iter().enumerate().map(|(index, candidate)| (candidate.scope, index as u32)).collect();
    let mut excludes = vec![Vec::new(); candidates.len()];
    for (index, candidate) in candidates.iter().enumerate() {
        let around = trace.tables.scope_rows(candidate.scope).map(|scope| scope.parent);
        for outer in around.filter_map(|scope| index_of.get(&scope).copied()) {
            excludes[index].push(outer);
            excludes[outer as usize].push(index as u32);
        }
    }
    excludes
}

/// The changes caused by recomputing one module in all of its calls.
#[derive(Clone, Debug, Default)]
struct Changes {
    /// The change in bytes from one state up to but not including another. State i precedes event i.
    spans: Vec<(u32, u32, i64)>,
    /// The states at which the module is recomputed, each with the most bytes that recomputation adds there.
    repeats: Vec<(u32, i64)>,
}

impl Changes {
    fn add(&mut self, trace: &Trace, effect: &Effect) {
        let end = trace.events.len() as u32 + 1;
        let bytes = |block: BlockId| trace.blocks.requested[block.0 as usize] as i64;
        let freed =
            |block: BlockId| trace.blocks.free_requested[block.0 as usize].index().map_or(end, |row| row as u32 + 1);
        let at = effect.at.index().map(|row| row as u32);
        for (block, event) in &effect.ends {
            // Allocated again at the recomputation, if there is one.
            self.spans.push((event.0 + 2, at.map_or(end, |at| at + 1).min(freed(*block)), -bytes(*block)));
        }
        let Some(at) = at else { return };
        let until = if effect.kept_until.is_some() { effect.kept_until.0 + 1 } else { at };
        for block in effect.kept.iter().filter(|block| freed(**block) <= until) {
            self.spans.push((freed(*block), until + 1, bytes(*block)));
        }
        for (block, event) in &effect.repeat_ends {
            self.spans.push((event.0 + 2, freed(*block), -bytes(*block)));
        }
        let (mut now, mut most) = (0, 0);
        for repeat in &effect.repeats {
            now += match repeat {
                Repeat::Alloc(block) => bytes(*block),
                Repeat::Free(block) => -bytes(*block),
            };
            most = most.max(now);
        }
        self.repeats.push((at, most));
    }
}

/// Combines consecutive states between which nothing changes into rows, and merges rows with the same changes.
fn rows(
    totals: &[u64],
    failed: &[(u32, u64)],
    candidates: &[Candidate],
    (changes, excludes): (&[Changes], Vec<Vec<u32>>),
) -> Program {
    let end = totals.len() as u32;
    let spans = |one: &Changes| -> Vec<(u32, u32, i64)> {
        one.spans.iter().copied().filter(|(first, last, _)| first < last).collect()
    };
    let mut bounds: Vec<u32> = changes.iter().flat_map(spans).flat_map(|(first, last, _)| [first, last]).collect();
    bounds.extend([0, end]);
    bounds.retain(|bound| *bound <= end);
    bounds.sort_unstable();
    bounds.dedup();
    let most = |pair: &[u32]| totals[pair[0] as usize..pair[1] as usize].iter().copied().max().unwrap_or(0);
    let mut base: Vec<u64> = bounds.windows(2).map(most).collect();
    let row_of = |state: u32| bounds.partition_point(|bound| *bound <= state) - 1;
    let mut deltas: Vec<Vec<(u32, i64)>> = Vec::with_capacity(changes.len());
    for one in changes {
        let mut steps = vec![0_i64; base.len() + 1];
        for (first, last, bytes) in spans(one) {
            steps[row_of(first)] += bytes;
            steps[row_of(last.min(end) - 1) + 1] -= bytes;
        }
        let mut now = 0;
        let sums = steps.iter().enumerate().map(|(row, step)| {
            now += step;
            (row as u32, now)
        });
        deltas.push(sums.filter(|(_, bytes)| *bytes != 0).collect());
    }
    // Moments between two events: within a recomputation, and while a request is served that failed when recorded.
    let repeats = changes
        .iter()
        .enumerate()
        .flat_map(|(index, one)| one.repeats.iter().map(move |(state, most)| (*state, 0, Some((index, *most)))));
    let served = failed.iter().map(|(state, requested)| (*state, *requested, None));
    for (state, requested, repeated) in repeats.chain(served) {
        let (row, inside) = (row_of(state) as u32, base.len() as u32);
        base.push(totals[state as usize].saturating_add(requested));
        for (other, of_rows) in deltas.iter_mut().enumerate() {
            let found = of_rows.binary_search_by_key(&row, |(row, _)| *row);
            let own = repeated.filter(|(index, _)| *index == other).map_or(0, |(_, most)| most);
            let here = found.map_or(0, |place| of_rows[place].1) + own;
            if here != 0 {
                of_rows.push((inside, here));
            }
        }
    }
    let (base, deltas) = merged(&base, &deltas);
    let choices = candidates.iter().zip(deltas).zip(excludes);
    let choices =
        choices.map(|((candidate, deltas), excludes)| Choice { cost: candidate.cost.max(1), deltas, excludes });
    Program { choices: choices.collect(), base }
}

/// Merges rows that every choice changes equally, such as those of different steps, and keeps the largest.
fn merged(base: &[u64], deltas: &[Vec<(u32, i64)>]) -> (Vec<u64>, Vec<Vec<(u32, i64)>>) {
    let mut of_rows: Vec<Vec<(u32, i64)>> = vec![Vec::new(); base.len()];
    for (choice, deltas) in deltas.iter().enumerate() {
        for (row, bytes) in deltas {
            of_rows[*row as usize].push((choice as u32, *bytes));
        }
    }
    let mut merged: BTreeMap<Vec<(u32, i64)>, u64> = BTreeMap::new();
    for (changes, bytes) in of_rows.into_iter().zip(base) {
        let most = merged.entry(changes).or_default();
        *most = (*most).max(*bytes);
    }
    let mut of_choices = vec![Vec::new(); deltas.len()];
    for (row, changes) in merged.keys().enumerate() {
        for (choice, bytes) in changes {
            of_choices[*choice as usize].push((row as u32, *bytes));
        }
    }
    (merged.into_values().collect(), of_choices)
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;
    use crate::rewrite::recompute::{apply, modules};
    use crate::{Metric, Series};

    const STEP: &str = "
        baseline w 100 parameter
        step 0
        phase forward
        alloc x 10 temporary @stem
        alloc a1 50 activation @a
        alloc a2 7 temporary @a.inner
        free x
        free a2
        alloc a3 40 activation @a.inner
        alloc a4 20 activation @a
        alloc b1 30 activation @b
        alloc b2 20 temporary @b
        phase backward
        alloc g1 20 temporary @b
        free b1
        free a4
        free b2
        alloc g2 50 temporary @a.inner
        free a3
        alloc g3 50 temporary @a
        free a1
        free g1
        free g3
        free g2
    ";

    #[test]
    fn every_set_of_modules_has_the_peak_of_the_recording_in_which_it_is_recomputed() {
        let trace = trace_from_text(STEP).unwrap();
        let device = DeviceId(0);
        let candidates: Vec<Candidate> =
            modules(&trace).iter().map(|(scope, _)| Candidate { scope: *scope, cost: 2 }).collect();
        let program = model(&trace, device, &candidates);
        let mut tried = 0;
        for set in 0..1_u32 << candidates.len() {
            let chosen: Vec<u32> = (0..candidates.len() as u32).filter(|choice| set >> choice & 1 == 1).collect();
            let is_excluded =
                |one: &u32| program.choices[*one as usize].excludes.iter().any(|other| chosen.contains(other));
            if chosen.iter().any(is_excluded) {
                continue;
            }
            let members =
                Members::of(&trace, |scope| chosen.iter().any(|one| candidates[*one as usize].scope == scope));
            let changed = apply(&trace, device, &effects(&trace, device, &members)).trace;
            let real = Series::build(&changed, device).peak(&changed, Metric::Requested).0;
            assert_eq!(program.peak(&chosen), real, "{chosen:?}");
            tried += 1;
        }
        assert_eq!((candidates.len(), tried), (4, 12), "stem, a or a.inner or neither, b");
    }
}
