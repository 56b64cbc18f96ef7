//! Tests of the recording of a small run.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_analysis::verify;
use highwater_recorder::snapshots::Trace;
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::ids::EventId;
use highwater_recorder::snapshots::trace::{Block, HEAP_DEVICE};
use highwater_recorder::{Category, HistoryOptions, Phase, WhenBehind, record_memory_history};

use crate::nerf::{ENCODED, JOINED_BEFORE};
use crate::training::Sizes;
use crate::{arguments, train};

/// The options of a run of 2,048 points in four chunks.
const SIZES: Sizes = Sizes { image: 8, samples: 32, width: 32, layers: 6, chunk: 512, steps: 3, checkpoint: false };
const POINTS: u64 = 8 * 8 * 32;
const FLOAT: u64 = size_of::<f32>() as u64;

/// A process has one recorder, so tests that record take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recorded run: its losses and its recording.
fn recorded(sizes: Sizes, file: &Path) -> (Vec<f32>, Trace) {
    let _turn = turn();
    let options = HistoryOptions { when_behind: WhenBehind::Wait, ..HistoryOptions::to_file(file) };
    let run = record_memory_history(options, || Ok(train(sizes)?)).expect("the run is recorded");
    assert!(run.problem.is_none(), "{:?}", run.problem);
    assert_eq!(run.counts.events_lost, 0);
    (run.value, read_file(file).expect("the file opens"))
}

fn in_folder<T>(body: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().expect("a folder for the test");
    body(folder.path())
}

/// The last event of a phase of step `step`.
fn end_of(trace: &Trace, step: u32, phase: Phase) -> EventId {
    let spans = trace.spans.rows().iter().rev();
    let mut of_phase = spans.filter(|span| span.step == Some(step) && span.phase == phase);
    EventId(of_phase.next().expect("the phase is there").end.0 - 1)
}

fn blocks(trace: &Trace) -> impl Iterator<Item = Block> {
    trace.blocks.ids().map(|id| trace.blocks.get(id))
}

/// The bytes of the blocks that are live after event `at` and that `wanted` selects.
fn live_bytes(trace: &Trace, at: EventId, wanted: impl Fn(&Block) -> bool) -> u64 {
    blocks(trace).filter(|block| block.is_live_after(at) && wanted(block)).map(|block| block.requested).sum()
}

/// The bytes of the graph that the layers alone must keep: each product, sum and result, and what goes into the first
/// and into the one where the points join in again.
fn kept_by_layers() -> u64 {
    let (width, layers) = (SIZES.width as u64, SIZES.layers as u64);
    let encoded = ENCODED as u64;
    POINTS * FLOAT * (3 * layers * width + encoded + width + encoded)
}

#[test]
fn a_run_of_candle_is_recorded_whole_by_step_phase_module_operation_and_category() {
    let (losses, trace) = in_folder(|folder| recorded(SIZES, &folder.join("candle.snap")));
    assert_eq!(losses.len(), 3);
    assert!(losses[2] < losses[0], "the loss falls: {losses:?}");

    assert_eq!(verify::verify_trace(&trace), []);
    assert_eq!((trace.trust.events_lost, trace.trust.unmatched_frees, trace.trust.repeated_allocs), (0, 0, 0));
    assert_eq!(trace.main_device(), HEAP_DEVICE);
    assert_eq!(trace.spans.steps(), [0, 1, 2]);
    for step in 0..3 {
        for phase in [Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::ZeroGrad] {
            end_of(&trace, step, phase);
        }
    }

    let forward = end_of(&trace, 1, Phase::Forward);
    let activations: Vec<Block> =
        blocks(&trace).filter(|block| block.is_live_after(forward) && block.category == Category::Activation).collect();
    assert!(activations.iter().map(|block| block.requested).sum::<u64>() >= kept_by_layers());
    for block in &activations {
        assert!(block.op.is_some(), "every tensor comes from an operation: {block:?}");
        assert!(block.stack.is_some());
    }
    let results = |name: &str, path: &str| {
        let is_asked =
            |block: &&Block| trace.tables.op_name(block.op) == name && trace.tables.scope_path(block.scope) == path;
        activations.iter().filter(is_asked).map(|block| block.requested).sum::<u64>()
    };
    let width = SIZES.width as u64;
    for layer in 0..SIZES.layers {
        for name in ["broadcast_add", "relu"] {
            let path = format!("network.layers.{layer}");
            assert_eq!(results(name, &path), POINTS * FLOAT * width, "{name} of {path}, kept to the byte");
        }
    }
    let joined = format!("network.layers.{JOINED_BEFORE}");
    assert_eq!(results("cat", &joined), POINTS * FLOAT * (width + ENCODED as u64));

    let setup = end_of(&trace, 2, Phase::ZeroGrad);
    let weights = ENCODED + 4 * SIZES.width + (SIZES.width + ENCODED);
    let of_parameters = live_bytes(&trace, setup, |block| block.category == Category::Parameter);
    // Biases and the head are below the heap's smallest block.
    assert_eq!(of_parameters, FLOAT * width * weights as u64);
    let of_state = live_bytes(&trace, setup, |block| block.category == Category::OptimizerState);
    assert_eq!(of_state, 2 * of_parameters);
}

#[test]
fn what_candle_made_in_forward_lives_on_through_backward_and_so_do_gradients_that_nobody_asked_for() {
    let (_, trace) = in_folder(|folder| recorded(SIZES, &folder.join("candle.snap")));
    let (forward, backward) = (end_of(&trace, 2, Phase::Forward), end_of(&trace, 2, Phase::Backward));
    let is_of_step = |block: &Block| trace.spans.at(block.alloc).is_some_and(|span| span.step == Some(2));
    let made = |at: EventId, phase: Phase, category: Category| {
        let is_asked = |block: &Block| {
            let born = trace.spans.at(block.alloc);
            is_of_step(block) && block.category == category && born.is_some_and(|span| span.phase == phase)
        };
        live_bytes(&trace, at, is_asked)
    };
    let kept = made(forward, Phase::Forward, Category::Activation);
    assert_eq!(made(backward, Phase::Forward, Category::Activation), kept, "backward frees nothing of the graph");
    let of_parameters = live_bytes(&trace, backward, |block| block.category == Category::Parameter);
    assert_eq!(made(backward, Phase::Backward, Category::Gradient), of_parameters);
    // The encoded points are no parameter; yet backward gives their gradient, and that holds the two that it is the sum
    // of, and the one that came into the first layer.
    let of_points = POINTS * FLOAT * ENCODED as u64;
    let into_layer = POINTS * FLOAT * SIZES.width as u64;
    assert!(made(backward, Phase::Backward, Category::Temporary) >= 3 * of_points + into_layer);
    let step = end_of(&trace, 2, Phase::ZeroGrad);
    assert!(live_bytes(&trace, step, is_of_step) < kept / 10, "when loss and gradients are dropped, all goes");
}

#[test]
fn chunks_that_run_again_in_backward_give_the_same_losses_from_less_memory() {
    let ((whole, large), (parts, small)) = in_folder(|folder| {
        let again = Sizes { checkpoint: true, ..SIZES };
        (recorded(SIZES, &folder.join("whole.snap")), recorded(again, &folder.join("parts.snap")))
    });
    for (whole, part) in whole.iter().zip(&parts) {
        assert!((whole - part).abs() <= 1e-5 * whole.abs(), "{whole:?} and {parts:?}");
    }
    let peak = |trace: &Trace| {
        let at = end_of(trace, 2, Phase::Forward);
        // The memory of other threads has no category.
        live_bytes(trace, at, |block| block.category != Category::Unknown)
    };
    assert!(2 * peak(&small) < peak(&large), "{} and {}", peak(&small), peak(&large));
    assert_eq!(verify::verify_trace(&small), []);
}

#[test]
fn sizes_are_given_by_name_and_what_is_no_size_is_refused() {
    let given = |text: &str| arguments(text.split_whitespace().map(str::to_owned));
    let (sizes, file) =
        given("--image 100 --samples 64 --chunk 65536 --out other.snap --checkpoint").expect("well formed");
    assert_eq!((sizes.image, sizes.samples, sizes.chunk, sizes.checkpoint), (100, 64, 65_536, true));
    assert_eq!(file, Path::new("other.snap"));
    for wrong in ["--image", "--image 0", "--image many", "--size 3"] {
        let why = given(wrong).expect_err(wrong);
        assert!(why.contains(wrong.split(' ').next().unwrap_or(wrong)), "{why}");
    }
}
