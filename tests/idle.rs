//! Tests that memory kept by a program without need is found in a recording with uses, and that a careful program is
//! not blamed.

use std::ops::ControlFlow;
use std::path::PathBuf;

use highwater_analysis::explain::Remedy;
use highwater_analysis::peak::Query;
use highwater_analysis::{Explanation, Filter, GroupKey, Metric, Siblings, Source};
use highwater_engine::nn::{Init, Linear, Module};
use highwater_engine::optim::{Sgd, run_in_backward};
use highwater_engine::scenario::{self, DeviceChoice, Options};
use highwater_engine::{DType, Device, Error, Result, Rng, Tensor};
use highwater_recorder::{HistoryOptions, Level, Phase, record_memory_history, scope};
use highwater_snapshots::format::read_file;
use highwater_snapshots::text::event_text;
use highwater_snapshots::{Category, Trace};
use highwater_tests::{command, recording_turn};

fn explain(trace: &Trace) -> Explanation {
    let device = trace.main_device();
    let (keys, filter) = ([GroupKey::Category], Filter::default());
    let query = Query { keys: &keys, top: 5, filter: &filter, siblings: Siblings::Each };
    Explanation::of(&Source::in_memory(trace), device, Metric::Requested, &query, &mut |_| ControlFlow::Continue(()))
        .expect("it is in memory")
}

const ROWS: usize = 1024;
const CLASSES: usize = 1024;

/// Two steps of two layers and a loss, whose weights change within backward; the program lets go of the logits once it
/// has the loss, or holds them through backward.
fn train(holds_logits: bool) -> Trace {
    let _turn = recording_turn();
    scope::leave_steps();
    let device = Device::accounting(1 << 30);
    let options = HistoryOptions::in_memory().level(Level::Events).uses(true);
    let body = || -> Result<_> {
        let mut init = Init::new(&device, DType::F32, 0);
        let (layer, head) = (Linear::new(&mut init, [64, 1024])?, Linear::new(&mut init, [1024, CLASSES])?);
        let input = Tensor::randn([ROWS, 64], DType::F32, &device, &mut Rng::new(1))?;
        let targets = Tensor::from_slice(&[3_i64; ROWS], ROWS, &device)?;
        run_in_backward(&Sgd::default(), &[layer.parameters(), head.parameters()].concat())?;
        for step in 0..2 {
            scope::step(step);
            let forward = scope::phase(Phase::Forward);
            let logits = {
                let _scope = scope::scope("head");
                head.forward(&layer.forward(&input)?.relu()?)?
            };
            let loss = logits.cross_entropy(&targets, None)?;
            let held = holds_logits.then_some(logits);
            drop(forward);
            let _phase = scope::phase(Phase::Backward);
            loss.backward()?;
            drop(held);
        }
        // They outlive the recording: nobody knows whether they are used again.
        Ok((layer, head, input, targets))
    };
    let run = record_memory_history(options, || Ok(body())).expect("nothing else records");
    drop(run.value.expect("there is room"));
    run.trace.expect("wanted in memory")
}

#[test]
fn logits_that_a_program_holds_through_backward_are_found() {
    let (careful, careless) = (explain(&train(false)), explain(&train(true)));
    let bytes = |explanation: &Explanation| explanation.idle.as_ref().expect("uses were recorded").bytes();
    let logits = (ROWS * CLASSES * 4) as u64;
    assert!(bytes(&careful) * 100 < careful.peak.bytes, "{:?}", careful.idle);
    assert!(bytes(&careless) >= logits && bytes(&careless) * 100 < logits * 101, "{:?}", careless.idle);
    let idle = careless.idle.as_ref().expect("uses were recorded");
    assert_eq!(idle.breakdown.groups[0].bytes, logits);
    assert_eq!(idle.breakdown.groups[0].key[1], "head");
    // What is said to be left without them is what is left without them, or less by what the careful program holds.
    let left = idle.without.bytes;
    assert!(left <= careful.peak.bytes && careful.peak.bytes - left < careful.peak.bytes / 100, "{left}");
    let advised =
        |explanation: &Explanation| explanation.advice.iter().any(|one| one.remedy == Remedy::FreeAfterLastUse);
    assert!(advised(&careless) && !advised(&careful), "{:?}", careless.advice);
}

/// What a few operations use, as text, without sizes: the blocks by their order.
fn uses(device: &Device, other: &Device) -> Vec<String> {
    let _turn = recording_turn();
    let options = HistoryOptions::in_memory().level(Level::Events).uses(true);
    let body = || -> Result<()> {
        let first = Tensor::from_slice(&[1.0_f32, 2.0], 2, device)?;
        let square = first.mul(&first)?;
        let sum = square.sum()?;
        let _moved = first.to_device(other)?;
        let empty = Tensor::ones(0, DType::F32, device)?;
        let _none = empty.mul(&empty)?;
        match sum.item() {
            Ok(_) | Err(Error::NoValues { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    };
    let run = record_memory_history(options, || Ok(body())).expect("nothing else records");
    run.value.expect("there is room");
    let trace = run.trace.expect("wanted in memory");
    assert_eq!(trace.trust.unmatched_uses, 0);
    let events = trace.events.ids().map(|id| event_text(&trace, id));
    let words = |line: String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    events.filter(|line| line.starts_with("alloc") || line.starts_with("used")).map(words).collect()
}

#[test]
fn a_primitive_reports_each_block_once_and_copies_and_reads_of_the_host_report_theirs() {
    let accounting = || Device::accounting(1 << 30);
    let expected = [
        "alloc b0", "used b0", "alloc b1", "used b1", "used b0", "alloc b2", "used b2", "used b1", "alloc b3",
        "used b0", "used b3", "used b2",
    ];
    assert_eq!(uses(&accounting(), &accounting()), expected, "what is summed into is not filled before");
    assert_eq!(uses(&Device::cpu(), &Device::cpu()), uses(&accounting(), &accounting()));
}

fn recorded(words: &str, file: &str) -> Trace {
    let (name, options) = command::parse(words).expect("the words are right");
    let options = Options { steps: 2, device: DeviceChoice::Meta, uses: true, ..options };
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    let turn = recording_turn();
    scenario::record(&name, &options, &path).expect("the scenario runs");
    drop(turn);
    read_file(&path).expect("the recording opens")
}

#[test]
fn a_chain_of_products_holds_nearly_nothing_that_is_not_used_again() {
    let explained = explain(&recorded("matmul-chain", "idle_chain.snap"));
    let idle = explained.idle.expect("uses were recorded");
    assert!(idle.bytes() * 50 < explained.peak.bytes, "{} of {}", idle.bytes(), explained.peak.bytes);
    assert!((explained.peak.bytes - idle.without.bytes) * 50 < explained.peak.bytes, "{:?}", idle.without);
}

#[test]
fn whatever_the_engine_allocates_it_uses_and_not_after_it_gave_it_back() {
    for words in [
        "mlp --optimizer adamw",
        "vit-small --checkpoint",
        "vit-small --optimizer-in-backward --no-recompute",
        "gpt2 --layers 1 --batch 1 --seq 16 --fused",
        "llama-3-8b --layers 1 --seq 8 --lora 2",
        "fcn --batch 1 --image 32 --width 1 --padding 1",
        "tiny-nerf --width 16 --image 3 --samples 4 --chunk 20",
        "rnn --seq 3 --batch 5 --width 8",
        "frozen-branch --width 9 --layers 3 --batch 4",
    ] {
        let trace = recorded(words, "idle_uses.snap");
        assert_eq!(trace.trust.unmatched_uses, 0, "{words}");
        for id in trace.blocks.ids() {
            let block = trace.blocks.get(id);
            let (op, scope) = (trace.tables.op_name(block.op), trace.tables.scope_path(block.scope));
            let was_used = block.last_use.is_some() && block.last_use < block.free_requested;
            assert!(was_used || block.category == Category::Workspace, "{words}: {op} in {scope}, {block:?}");
        }
    }
}
