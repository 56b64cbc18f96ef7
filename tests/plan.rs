//! Tests that the linear program of a recording gives the peak of every set of recomputed modules, and that its
//! solution is the cheapest.

use highwater_analysis::plan::{Candidate, Program, model};
use highwater_analysis::recompute::modules;
use highwater_analysis::{Metric, Series};
use highwater_engine::scenario::Checkpoint;
use highwater_snapshots::Trace;
use highwater_snapshots::scope_pattern::ScopePattern;
use highwater_tests::recording_turn;

use crate::recompute::record;

fn peak(trace: &Trace) -> u64 {
    Series::build(trace, trace.main_device()).peak(trace, Metric::Requested).0
}

/// The modules of a recording whose paths match `pattern`, each at the same cost, and their program.
fn program(trace: &Trace, pattern: &str) -> (Vec<String>, Program) {
    let pattern: ScopePattern = pattern.parse().expect("a pattern");
    let chosen = modules(trace).into_iter().filter(|(_, path)| pattern.matches(path));
    let (candidates, paths): (Vec<Candidate>, Vec<String>) =
        chosen.map(|(scope, path)| (Candidate { scope, cost: 1 }, path)).unzip();
    (paths, model(trace, trace.main_device(), &candidates))
}

fn recomputing(text: &str, paths: &[&String]) -> u64 {
    let scopes = paths.iter().map(|path| path.parse().expect("a path")).collect();
    peak(&record(text, |options| options.checkpoint = Checkpoint { scopes, ..Checkpoint::default() }))
}

fn sets(count: usize) -> impl Iterator<Item = Vec<u32>> {
    (0..1_u32 << count).map(move |set| (0..count as u32).filter(|choice| set >> choice & 1 == 1).collect())
}

#[test]
fn the_program_gives_the_peak_of_every_set_of_blocks() {
    let _turn = recording_turn();
    for text in ["gpt2 --batch 32 --fused --layers 4", "falcon-7b --batch 4 --optimizer-in-backward --layers 3"] {
        let (paths, program) = program(&record(text, |options| options.uses = true), "h.*");
        for set in sets(paths.len()) {
            let chosen: Vec<&String> = set.iter().map(|choice| &paths[*choice as usize]).collect();
            assert_eq!(program.peak(&set), recomputing(text, &chosen), "{text} {chosen:?}");
        }
    }
}

#[test]
fn the_solution_is_the_smallest_set_that_fits_and_the_minimum_the_lowest_peak() {
    let _turn = recording_turn();
    let text = "gpt2 --batch 32 --fused --layers 6";
    let (paths, program) = program(&record(text, |options| options.uses = true), "h.*");
    let real: Vec<(usize, u64)> = sets(paths.len()).map(|set| (set.len(), program.peak(&set))).collect();
    let lowest = real.iter().map(|(_, peak)| *peak).min().expect("some sets");
    assert_eq!(program.minimum().peak, lowest);
    let highest = program.peak(&[]);
    for part in 0..=20 {
        let budget = lowest + (highest - lowest) / 20 * part;
        let least = real.iter().filter(|(_, peak)| *peak <= budget).map(|(count, _)| *count).min();
        let (solution, is_complete) = program.solve(budget);
        let solution = solution.expect("the lowest fits");
        assert!(is_complete && solution.is_optimal);
        assert_eq!((Some(solution.chosen.len()), solution.cost), (least, solution.chosen.len() as u64), "{budget}");
        if part % 5 == 0 {
            let chosen: Vec<&String> = solution.chosen.iter().map(|choice| &paths[*choice as usize]).collect();
            assert_eq!(recomputing(text, &chosen), solution.peak, "{budget}");
        }
    }
    assert_eq!(program.solve(lowest - 1), (None, true));
}

/// The figures were computed by another program, by running all 4,096 sets.
#[test]
fn the_lowest_peak_of_gpt2_leaves_out_the_last_block() {
    let _turn = recording_turn();
    let trace = record("gpt2 --batch 32 --fused", |options| options.uses = true);
    let (paths, program) = program(&trace, "h.*");
    let minimum = program.minimum();
    assert_eq!((minimum.peak, minimum.is_optimal), (4_295_895_044, true));
    let all: Vec<u32> = (0..paths.len() as u32).collect();
    assert_eq!(program.peak(&all), 4_368_206_852);
    let (solution, _) = program.solve(8 << 30);
    let solution = solution.expect("it fits");
    assert_eq!((solution.chosen.len(), solution.is_optimal), (7, true));
}
