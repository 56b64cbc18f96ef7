//! Tests that recomputing modules in a recording predicts the memory of a run in which they are recomputed.

use highwater_analysis::recompute::{Members, apply, effects};
use highwater_analysis::{Metric, Series};
use highwater_engine::scenario::{self, Checkpoint, Options};
use highwater_snapshots::format::read_file;
use highwater_snapshots::scope_pattern::ScopePattern;
use highwater_snapshots::{Phase, Trace};
use highwater_tests::{command, recording_turn};

const PHASES: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Optimizer];

/// Commands, and the modules that are recomputed.
const RUNS: [(&str, &str); 14] = [
    ("gpt2 --batch 32 --fused", "h.*"),
    ("gpt2 --batch 32 --fused", "h.{0-6}"),
    ("gpt2 --batch 32 --fused", "h.11"),
    ("gpt2 --fused", "h.*.mlp"),
    ("gpt2 --fused", "h.{1-9}.attn"),
    ("gpt2 --no-recompute --batch 4", "h.*"),
    ("vit-l-16 --batch 32 --fused --layers 6", "encoder.layers.*"),
    ("vit-l-16 --batch 8 --layers 4", "encoder.layers.{0,2}.mlp"),
    ("falcon-7b --fused --layers 4", "h.*"),
    ("falcon-7b --batch 4 --optimizer-in-backward --layers 4", "h.{0-2}"),
    ("falcon-7b --lora 16 --batch 4 --layers 4", "h.*"),
    ("llama-3-8b --variant full --batch 4 --seq 4096 --fused --layers 4", "layers.*"),
    ("llama-3-8b --batch 4 --seq 2048 --layers 4", "layers.*"),
    ("llama-3-8b --variant full --fused --layers 4", "layers.*.mlp"),
];

/// Records two steps of the scenario with the options in `text`, and with those that `change` sets.
pub(crate) fn record(text: &str, change: impl FnOnce(&mut Options)) -> Trace {
    let (name, mut options) = command::parse(text).expect("a command");
    options.steps = 2;
    change(&mut options);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.snap");
    scenario::record(&name, &options, &file).expect("the scenario runs");
    read_file(&file).expect("the recording opens")
}

/// The largest requested bytes of each phase.
fn peaks(trace: &Trace) -> [u64; 3] {
    let series = Series::build(trace, trace.main_device());
    PHASES.map(|phase| {
        let spans = trace.spans.rows().iter().filter(|span| span.phase == phase);
        let found = spans
            .filter_map(|span| series.largest(trace, Metric::Requested, span.first.0 as usize..span.end.0 as usize));
        found.map(|(bytes, _)| bytes).max().unwrap_or(0)
    })
}

fn recomputing(text: &str, pattern: &ScopePattern) -> Trace {
    let checkpoint = Checkpoint { scopes: vec![pattern.clone()], ..Checkpoint::default() };
    record(text, |options| options.checkpoint = checkpoint)
}

fn predicted(trace: &Trace, pattern: &ScopePattern) -> Trace {
    let device = trace.main_device();
    let members = Members::matching(trace, std::slice::from_ref(pattern));
    let found = effects(trace, device, &members);
    assert!(!found.is_empty(), "{pattern} saves something");
    apply(trace, device, &found).trace
}

#[test]
fn with_recorded_uses_every_peak_is_predicted_to_the_byte() {
    let _turn = recording_turn();
    for (text, pattern) in RUNS {
        let pattern: ScopePattern = pattern.parse().expect("a pattern");
        let plain = record(text, |options| options.uses = true);
        let changed = predicted(&plain, &pattern);
        assert_eq!((&changed.trust, changed.problems.len()), (&plain.trust, 0), "{text} {pattern}");
        let real = recomputing(text, &pattern);
        assert_ne!(peaks(&plain), peaks(&real), "{text} {pattern}");
        assert_eq!(peaks(&changed), peaks(&real), "{text} {pattern}");
    }
}

#[test]
fn without_uses_no_phase_is_predicted_lower_but_for_gradients_of_biases() {
    let _turn = recording_turn();
    for (text, pattern) in RUNS {
        let pattern: ScopePattern = pattern.parse().expect("a pattern");
        let guess = peaks(&predicted(&record(text, |_| {}), &pattern));
        let real = peaks(&recomputing(text, &pattern));
        for (guess, real) in guess.into_iter().zip(real) {
            // The gradient of a bias does not need saved activations; without uses, the prediction cannot know that.
            assert!(guess + (16 << 10) >= real, "{text} {pattern}: {guess} and {real}");
            assert!(guess * 100 <= real * 110, "{text} {pattern}: {guess} and {real}");
        }
    }
}
