//! Tests of the scenarios' options that reduce memory: checkpointing by path, micro-batches, and 8-bit optimizer state.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_analysis::{Metric, Series};
use highwater_engine::backend::cost::count;
use highwater_engine::optim::Form;
use highwater_engine::scenario::{self, Checkpoint, DeviceChoice, OptimizerKind, Options, Report, Session, Sizes};
use highwater_recorder::snapshots::Trace;
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::trace::Subject;

/// The recorder is one for the whole program.
fn alone() -> MutexGuard<'static, ()> {
    static RECORDER: Mutex<()> = Mutex::new(());
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(name: &str, options: &Options) -> (Report, Trace) {
    let _alone = alone();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("less_memory.snap");
    let report = scenario::record(name, options, &path).expect("the scenario runs");
    (report, read_file(&path).expect("the recording opens"))
}

fn peak(name: &str, options: &Options) -> u64 {
    let trace = run(name, options).1;
    Series::build(&trace, trace.main_device()).peak(&trace, Metric::Requested).0
}

fn scopes(patterns: &[&str]) -> Checkpoint {
    Checkpoint { blocks: false, scopes: patterns.iter().map(|pattern| pattern.parse().unwrap()).collect() }
}

fn gpt2_of_32() -> Options {
    Options {
        steps: 2,
        form: Some(Form::Fused),
        sizes: Sizes { batch: Some(32), ..Sizes::default() },
        ..Options::default()
    }
}

/// The figures were computed by another program on the public API of the engine.
#[test]
fn checkpointed_blocks_count_by_their_position_and_not_only_by_their_number() {
    for (patterns, bytes) in [
        (&["h.{0-6}"][..], 7_909_248_004_u64),
        (&["h.{5-11}"], 8_908_540_932),
        (&["h.{0-5}", "h.{6-10}"], 4_295_895_044),
        (&["h.*"], 4_368_206_852),
        (&["h.11"], 14_356_941_828),
    ] {
        assert_eq!(peak("gpt2", &Options { checkpoint: scopes(patterns), ..gpt2_of_32() }), bytes, "{patterns:?}");
    }
    assert_eq!(peak("gpt2", &Options { checkpoint: Checkpoint::BLOCKS, ..gpt2_of_32() }), 4_368_206_852);
}

fn small_gpt2() -> Sizes {
    let [batch, seq, width, layers, vocab] = [8, 16, 64, 2, 96].map(Some);
    Sizes { batch, seq, width, layers, vocab, ..Sizes::default() }
}

#[test]
fn micro_batches_give_the_loss_and_the_gradients_of_the_whole_batch_for_less_memory() {
    let _alone = alone();
    for (name, sizes) in [("gpt2", small_gpt2()), ("vit-small", Sizes::default()), ("mlp", Sizes::default())] {
        let run = |count: Option<usize>| {
            let options = Options { device: DeviceChoice::Cpu, accumulate: count, sizes, ..Options::default() };
            let mut session = Session::start(name, &options).expect("it starts");
            let loss = session.step().expect("it trains").expect("the processor computes losses");
            let grads = session.gradients().expect("it trains").into_iter();
            let grads: Vec<f32> = grads.flat_map(|(_, grad)| grad.to_vec::<f32>().expect("values")).collect();
            (loss, grads)
        };
        let (loss, grads) = run(None);
        let (loss_of_parts, grads_of_parts) = run(Some(4));
        assert!((loss - loss_of_parts).abs() < 1e-5 * loss.abs(), "{name}: {loss} and {loss_of_parts}");
        let largest = grads.iter().fold(0.0_f32, |most, grad| most.max(grad.abs()));
        let off = grads.iter().zip(&grads_of_parts).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
        assert!(off < 1e-2 * largest, "{name}: {off} of {largest}");
    }
    drop(_alone);
    let of = |count| peak("gpt2", &Options { accumulate: count, form: Some(Form::Fused), ..Options::default() });
    assert!(of(Some(8)) < of(Some(2)) && of(Some(2)) < of(None));
}

#[test]
fn every_way_makes_the_same_events_on_every_device() {
    for options in [
        Options { accumulate: Some(4), ..Options::default() },
        Options { optimizer: Some(OptimizerKind::AdamW8bit), ..Options::default() },
        Options { optimizer: Some(OptimizerKind::AdamW8bit), optimizer_in_backward: true, ..Options::default() },
        Options { checkpoint: scopes(&["h.*.mlp", "h.0.attn"]), ..Options::default() },
    ] {
        let events = |device| {
            let (_, trace) = run("gpt2", &Options { device, sizes: small_gpt2(), steps: 2, ..options.clone() });
            let blocks = trace.events.ids().filter(|&id| matches!(trace.subject(id), Subject::Block(_)));
            blocks.map(|id| format!("{:?}", trace.subject(id))).collect::<Vec<_>>()
        };
        let (computed, counted) = (events(DeviceChoice::Cpu), events(DeviceChoice::Meta));
        assert!(computed == counted && computed.len() > 100, "{options:?}");
    }
}

#[test]
fn eight_bit_state_takes_a_quarter_of_the_memory_and_learns() {
    let options = |optimizer| Options { optimizer: Some(optimizer), form: None, ..gpt2_of_32() };
    let fused = Options { form: Some(Form::Fused), ..options(OptimizerKind::AdamW) };
    // 124,439,808 parameters with 8 bytes of state, or 2 bytes and their scales.
    let less = peak("gpt2", &fused) - peak("gpt2", &options(OptimizerKind::AdamW8bit));
    assert!((124_439_808 * 59 / 10..124_439_808 * 6).contains(&less), "{less}");
    let learns = Options { device: DeviceChoice::Cpu, steps: 12, ..Options::default() };
    let (report, _) = run("vit-small", &Options { optimizer: Some(OptimizerKind::AdamW8bit), ..learns });
    let losses = report.losses.expect("the processor computes losses");
    assert!(losses[11] < 0.8 * losses[0], "{losses:?}");
}

#[test]
fn impossible_choices_are_refused_with_the_reason() {
    let _alone = alone();
    let refused = |options: Options| Session::start("gpt2", &options).err().expect("it is refused").to_string();
    let unknown = refused(Options { checkpoint: scopes(&["layers.*"]), ..Options::default() });
    assert!(unknown.contains("no module matches 'layers.*'; the blocks of the model are h.*"), "{unknown}");
    let uneven = refused(Options { accumulate: Some(3), ..Options::default() });
    assert!(uneven.contains("a batch of 8 cannot be split into 3 equal micro-batches"), "{uneven}");
    let both = Options { accumulate: Some(2), optimizer_in_backward: true, ..Options::default() };
    assert!(refused(both).contains("--accumulate cannot be combined with --optimizer-in-backward"));
    let form = Options { optimizer: Some(OptimizerKind::AdamW8bit), form: Some(Form::PerTensor), ..Options::default() };
    assert!(refused(form).contains("--no-foreach cannot be combined with --optimizer adamw8bit"));
    let rnn = Session::start("rnn", &Options { accumulate: Some(2), ..Options::default() }).err().expect("refused");
    assert!(rnn.to_string().contains("rnn does not support --accumulate"), "{rnn}");
}

/// 6 operations per parameter and token for the products, of which backward does two thirds, and attention; the head is
/// computed once more in backward.
#[test]
fn recomputed_blocks_cost_their_forward_once_more() {
    let _alone = alone();
    let flops = |checkpoint: Checkpoint| {
        let options =
            Options { checkpoint, sizes: Sizes { layers: Some(4), ..Sizes::default() }, ..Options::default() };
        let mut session = Session::start("gpt2", &options).expect("it starts");
        let (done, costs) = count(|| session.step());
        done.expect("it trains");
        costs.total().flops as i64
    };
    let (plain, one, all) = (flops(Checkpoint::default()), flops(scopes(&["h.2"])), flops(Checkpoint::BLOCKS));
    let tokens = 8 * 1024;
    let products = tokens * 2 * 12 * 768 * 768;
    let attention = 8 * 4 * 1024 * 1024 * 768;
    let block = one - plain;
    let expected = products + attention;
    assert!(block >= expected && block * 100 < expected * 102, "{block} and {expected}");
    assert_eq!(all - plain, 4 * block);
    let head = 3 * 2 * tokens * 768 * 50_257;
    let step = 3 * 4 * products + 7 * attention / 2 * 4 + head;
    assert!(plain > step && plain * 100 < step * 103, "{plain} and {step}");
}
