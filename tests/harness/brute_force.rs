//! Runs a training step with every set of its modules recomputed, and compares the linear program and its solutions.

use highwater_analysis::plan::{Candidate, Program, candidates_of, model};
use highwater_engine::backend::cost;
use highwater_engine::scenario::{self, Checkpoint, Options, Session};
use highwater_snapshots::Trace;
use highwater_snapshots::scope_pattern::ScopePattern;
use rayon::prelude::*;

use crate::command;

/// Budgets that are tried for one kind of costs, at most.
const MAX_BUDGETS: usize = 64;

/// The peak of requested bytes of a run, and the floating-point operations of its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The peak of requested bytes.
    pub peak: u64,
    /// Floating-point operations of the last step.
    pub flops: u64,
}

/// What was compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Number of sets that were run.
    pub subsets: usize,
    /// Number of different peaks among them.
    pub peaks: usize,
    /// Number of budgets that were solved.
    pub budgets: usize,
    /// The smallest and the largest predicted peak, as a part of the real one.
    pub predicted: [f64; 2],
    /// What differs from the runs.
    pub differences: Vec<String>,
}

/// Compares all sets of the modules that match `patterns` in two steps of a scenario: `text` is the command, without
/// steps. Nothing else in the process may record meanwhile.
///
/// # Panics
///
/// Panics if the command or a pattern is invalid, or if there are more than 20 modules.
pub fn compare_scenario(text: &str, patterns: &[&str]) -> Comparison {
    let (name, options) = command::parse(text).expect("a command");
    let options = Options { steps: 2, ..options };
    let trace = scenario::trace(&name, &Options { uses: true, ..options.clone() }).expect("the scenario runs");
    compare(&trace, patterns, |paths| {
        let scopes = paths.iter().map(|path| path.parse().expect("a path")).collect();
        let checkpoint = Checkpoint { scopes, ..Checkpoint::default() };
        let mut session = Session::start(&name, &Options { checkpoint, ..options.clone() }).expect("a session");
        session.step_unseen().expect("memory is enough");
        let (result, costs) = cost::count(|| session.step_unseen());
        result.expect("memory is enough");
        Ran { peak: session.device().allocator().stats().requested_bytes.all.peak, flops: costs.total().flops }
    })
}

/// Compares the program of `trace`, the recording of a step without recomputation, with runs of the same step. `run`
/// runs it with the modules at these paths recomputed. The modules are those that match one of `patterns`.
///
/// # Panics
///
/// Panics if a pattern is invalid or matches no module, or if there are more than 20 modules.
pub fn compare(trace: &Trace, patterns: &[&str], run: impl Fn(&[&str]) -> Ran + Sync) -> Comparison {
    let patterns: Vec<ScopePattern> = patterns.iter().map(|pattern| pattern.parse().expect("a pattern")).collect();
    let found = candidates_of(trace, &patterns).expect("some modules");
    assert!(found.len() <= 20, "{} modules have too many subsets", found.len());
    let program = |cost: &dyn Fn(usize) -> u64| {
        let candidates =
            found.iter().enumerate().map(|(index, (scope, _))| Candidate { scope: *scope, cost: cost(index) });
        model(trace, trace.main_device(), &candidates.collect::<Vec<_>>())
    };
    let equal = program(&|_| 1);
    let is_allowed = |set: &Vec<u32>| {
        !set.iter().any(|one| equal.choices[*one as usize].excludes.iter().any(|other| set.contains(other)))
    };
    let sets: Vec<Vec<u32>> = sets(found.len()).filter(is_allowed).collect();
    let paths = |set: &[u32]| -> Vec<&str> { set.iter().map(|choice| found[*choice as usize].1.as_str()).collect() };
    let real: Vec<Ran> = sets.par_iter().map(|set| run(&paths(set))).collect();

    let mut comparison = Comparison { subsets: sets.len(), predicted: [1.0; 2], ..Comparison::default() };
    for (set, ran) in sets.iter().zip(&real) {
        let predicted = equal.peak(set);
        let part = predicted as f64 / ran.peak as f64;
        comparison.predicted = [comparison.predicted[0].min(part), comparison.predicted[1].max(part)];
        if predicted != ran.peak {
            let names = paths(set).join(" ");
            comparison.differences.push(format!("{names}: predicted {predicted}, but {} when run", ran.peak));
        }
    }
    let flops = |set: &[u32]| sets.iter().position(|other| other == set).map(|index| real[index].flops);
    let plain = flops(&[]).unwrap_or(0);
    let more: Vec<u64> = (0..found.len() as u32).map(|one| flops(&[one]).unwrap_or(0).saturating_sub(plain)).collect();
    for (set, ran) in sets.iter().zip(&real) {
        let sum = plain + set.iter().map(|one| more[*one as usize]).sum::<u64>();
        if sum != ran.flops {
            let names = paths(set).join(" ");
            comparison.differences.push(format!("{names}: {sum} FLOPs as a sum, but {} when run", ran.flops));
        }
    }
    let weighted = program(&|index| more[index].max(1));
    for (program, cost) in
        [(&equal, vec![1; found.len()]), (&weighted, more.iter().map(|cost| *cost.max(&1)).collect())]
    {
        let cost_of = |set: &Vec<u32>| set.iter().map(|one| cost[*one as usize]).sum::<u64>();
        let runs: Vec<(Vec<u32>, u64, u64)> =
            sets.iter().zip(&real).map(|(set, ran)| (set.clone(), ran.peak, cost_of(set))).collect();
        comparison.solve(program, &runs);
    }
    comparison
}

/// All subsets of `count` choices.
fn sets(count: usize) -> impl Iterator<Item = Vec<u32>> {
    (0..1_u32 << count).map(move |set| (0..count as u32).filter(|choice| set >> choice & 1 == 1).collect())
}

impl Comparison {
    /// Solves `program` for budgets at and right below real peaks; `runs` are all sets with their peaks and costs.
    fn solve(&mut self, program: &Program, runs: &[(Vec<u32>, u64, u64)]) {
        let mut peaks: Vec<u64> = runs.iter().map(|(_, peak, _)| *peak).collect();
        peaks.sort_unstable();
        peaks.dedup();
        self.peaks = peaks.len();
        let lowest = peaks[0];
        let minimum = program.minimum();
        if !minimum.is_optimal || minimum.peak != lowest {
            self.differences.push(format!("minimum {} instead of {lowest}", minimum.peak));
        }
        let every = peaks.len().div_ceil(MAX_BUDGETS / 2);
        let budgets = peaks.iter().step_by(every).flat_map(|peak| [peak - 1, *peak]);
        for budget in budgets {
            self.budgets += 1;
            let least = runs.iter().filter(|(_, peak, _)| *peak <= budget).map(|(.., cost)| *cost).min();
            for (solution, is_complete) in [program.solve(budget), program.cheapest(budget)] {
                let found = solution.as_ref().map(|solution| solution.cost);
                let real = solution.as_ref().and_then(|one| runs.iter().find(|(set, ..)| *set == one.chosen));
                let fits = solution.is_none() || real.is_some_and(|(_, peak, _)| *peak <= budget);
                if !is_complete || found != least || !fits {
                    let text = format!("{budget} bytes: cost {found:?}, but {least:?} when all are run; fits: {fits}");
                    self.differences.push(text);
                }
            }
        }
    }
}
