//! Tests the steps and phases of programs that mark none or only some of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_analysis::phases::phases_of;
use highwater_analysis::{Metric, Source};
use highwater_engine::autograd::{checkpoint, no_grad};
use highwater_engine::models::Perceptron;
use highwater_engine::nn::{Init, Linear, Module};
use highwater_engine::optim::{
    Accumulation, Adam, Form, LossScaler, Optimizer, RuleOptimizer, Sgd, clip_grad_norm, run_in_backward,
};
use highwater_engine::{DType, Device, Result, Tensor};
use highwater_recorder::snapshots::Trace;
use highwater_recorder::{Category, DeviceId, HistoryOptions, Phase, Recording, record_memory_history, scope};

#[path = "../examples/plain_loop.rs"]
#[expect(dead_code, reason = "the example's main runs as a program only")]
mod plain_loop;

/// The recorder is one for the process: tests that record take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    scope::leave_steps();
    turn
}

/// A model with its optimizer, on its own device.
struct Program {
    device: Device,
    model: Perceptron,
    optimizer: RuleOptimizer<Adam>,
}

impl Program {
    fn new() -> Result<Self> {
        let device = Device::cpu();
        let model = Perceptron::new(&mut Init::new(&device, DType::F32, 0), [8, 16, 4], 1)?;
        let optimizer = RuleOptimizer::new(Adam::default(), model.parameters())?;
        Ok(Self { device, model, optimizer })
    }

    fn batch(&self) -> Result<Tensor> {
        Tensor::ones([2, 8], DType::F32, &self.device)
    }

    fn loss(&self) -> Result<Tensor> {
        self.model.forward(&self.batch()?)?.square()?.mean()
    }

    fn finish_step(&mut self) -> Result<()> {
        self.optimizer.step()?;
        self.optimizer.zero_grad();
        Ok(())
    }
}

/// Records `body` and gives the rows of its phases, as `0 forward`; of setup without a step.
fn recorded(body: impl FnOnce() -> Result<()>) -> Vec<String> {
    let recorded = record_memory_history(HistoryOptions::in_memory(), || Ok(body()?)).expect("the program succeeds");
    rows(&recorded.trace.expect("wanted in memory"))
}

fn rows(trace: &Trace) -> Vec<String> {
    let device = trace.events.device.first().copied().unwrap_or(DeviceId(0));
    let name = |step: Option<u32>| step.map_or(String::new(), |step| format!("{step} "));
    phases_of(trace, device, Metric::Requested).iter().map(|row| format!("{}{}", name(row.step), row.phase)).collect()
}

fn steps_of(count: u32, phases: &[&str]) -> Vec<String> {
    (0..count).flat_map(|step| phases.iter().map(move |phase| format!("{step} {phase}"))).collect()
}

const ALL: [&str; 4] = ["forward", "backward", "optimizer", "zero_grad"];

#[test]
fn the_first_operation_of_a_net_on_its_input_belongs_to_the_step_that_begins() {
    let _turn = turn();
    let mut program = Program::new().expect("it is made");
    let rows = recorded(|| {
        let batch = program.batch()?;
        for _ in 0..2 {
            program.model.forward(&(&batch * 2.0)?)?.square()?.mean()?.backward()?;
            program.finish_step()?;
            let _off = no_grad();
            drop((&batch * 3.0)?);
        }
        Ok(())
    });
    let of_last: Vec<&str> = rows.iter().filter_map(|row| row.strip_prefix("1 ")).collect();
    assert_eq!(of_last[..4], ["other", "forward", "backward", "optimizer"], "{rows:?}");
    assert!(!rows.iter().any(|row| row.starts_with("2 ")), "gradients are off after the last step: {rows:?}");
}

#[test]
fn a_plain_loop_has_three_steps_of_four_phases_and_its_peak_in_the_optimizer() {
    let _turn = turn();
    let run = plain_loop::train(HistoryOptions::in_memory()).expect("it trains");
    let trace = run.trace.expect("wanted in memory");
    let device = trace.events.device[0];
    let rows = phases_of(&trace, device, Metric::Requested);
    assert_eq!(trace.spans.steps(), [0, 1, 2]);
    for step in 0..3 {
        let of_step: Vec<Phase> = rows.iter().filter(|row| row.step == Some(step)).map(|row| row.phase).collect();
        assert_eq!(of_step, [Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::ZeroGrad], "step {step}");
    }
    assert_eq!((rows[0].step, rows[0].phase), (None, Phase::Setup));
    // A weight of each layer, a gradient, two moments; and in the optimizer a temporary of each.
    let parameters = 4 * (64 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10);
    let batch = 32 * 64 * 4 + 32 * 8;
    let peak = Source::in_memory(&trace).peak(device, Metric::Requested).expect("a recording in memory can be read");
    assert_eq!(peak.phase, Phase::Optimizer);
    assert_eq!(peak.bytes, 5 * parameters + batch + 4);
    assert_eq!(rows[0].end_bytes, parameters + batch, "setup is the model and the batch");
}

#[test]
fn the_readme_shows_the_plain_loop() {
    let [readme, example] = [include_str!("../../README.md"), include_str!("../examples/plain_loop.rs")];
    let (_, section) = readme.split_once("### Rust").expect("the section is there");
    let code = section.split("```").nth(1).expect("it begins with code");
    let lines = |text: &'static str| text.lines().map(str::trim).filter(|line| !line.is_empty());
    let shown: Vec<&str> = lines(code).filter(|line| line.ends_with(';') && !line.starts_with('}')).collect();
    assert!(shown.len() >= 8, "{shown:?}");
    for line in shown {
        assert!(lines(example).any(|known| known == line), "{line} is not in the example");
    }
}

#[test]
fn making_and_evaluating_a_model_is_setup() {
    let _turn = turn();
    let rows = recorded(|| {
        let mut program = Program::new()?;
        // What a program computes of its data has no gradient.
        let _normalised = program.batch()?.mul_scalar(0.5)?.square()?;
        {
            let _mode = no_grad();
            program.loss()?;
        }
        program.loss()?.backward()?;
        program.finish_step()?;
        let _mode = no_grad();
        program.loss()?;
        Ok(())
    });
    assert_eq!(rows, [&["setup".to_owned()], &*steps_of(1, &ALL), &["0 other".to_owned()]].concat());
}

#[test]
fn a_model_of_one_layer_begins_forward_with_its_first_operation() {
    let _turn = turn();
    let recorded = record_memory_history(HistoryOptions::in_memory(), || {
        let device = Device::cpu();
        let model = Linear::new(&mut Init::new(&device, DType::F32, 0), [8, 4])?;
        let input = Tensor::ones([2, 8], DType::F32, &device)?;
        model.forward(&input)?.sum()?.backward()?;
        Ok(())
    });
    let trace = recorded.expect("it trains").trace.expect("wanted in memory");
    let rows = phases_of(&trace, trace.events.device[0], Metric::Requested);
    let setup = rows.first().expect("something is recorded");
    assert_eq!(setup.end_bytes, 4 * (8 * 4 + 4 + 2 * 8), "the layer's result is not part of setup");
}

#[test]
fn frozen_layers_before_trained_ones_belong_to_forward() {
    let _turn = turn();
    let rows = recorded(|| {
        let device = Device::cpu();
        let model = Perceptron::new(&mut Init::new(&device, DType::F32, 0), [8, 16, 4], 2)?;
        for parameter in model.parameters().iter().filter(|parameter| parameter.path.starts_with("layers")) {
            parameter.tensor.set_requires_grad(false)?;
        }
        let mut optimizer = RuleOptimizer::new(Sgd::default(), model.parameters())?;
        let input = Tensor::ones([2, 8], DType::F32, &device)?;
        for _ in 0..2 {
            model.forward(&input)?.mean()?.backward()?;
            optimizer.step()?;
            optimizer.zero_grad();
        }
        Ok(())
    });
    assert_eq!(rows, [&["setup".to_owned()], &*steps_of(2, &ALL)].concat());
}

#[test]
fn gradients_dropped_before_forward_end_the_step_before() {
    let _turn = turn();
    let rows = recorded(|| {
        let mut program = Program::new()?;
        let batch = program.batch()?;
        for _ in 0..2 {
            program.optimizer.zero_grad();
            program.model.forward(&batch)?.square()?.mean()?.backward()?;
            program.optimizer.step()?;
        }
        Ok(())
    });
    let expected = [&["setup".to_owned()], &*steps_of(1, &ALL), &steps_of(2, &ALL)[4..7]].concat();
    assert_eq!(rows, expected);
}

#[test]
fn accumulated_batches_are_one_step() {
    let _turn = turn();
    let rows = recorded(|| {
        let mut program = Program::new()?;
        let batch = program.batch()?;
        let mut accumulation = Accumulation::new(2)?;
        for _ in 0..4 {
            let loss = program.model.forward(&batch)?.square()?.mean()?;
            accumulation.backward(&loss)?;
            drop(loss);
            accumulation.step(&mut program.optimizer)?;
        }
        Ok(())
    });
    let once = ["forward", "backward", "forward", "backward", "optimizer", "zero_grad"];
    assert_eq!(rows, [&["setup".to_owned()], &*steps_of(2, &once)].concat());
}

#[test]
fn an_optimizer_within_backward_ends_a_step() {
    let _turn = turn();
    let rows = recorded(|| {
        let program = Program::new()?;
        run_in_backward(&Sgd { form: Form::Fused, ..Sgd::default() }, &program.model.parameters())?;
        let batch = program.batch()?;
        for _ in 0..3 {
            program.model.forward(&batch)?.square()?.mean()?.backward()?;
        }
        Ok(())
    });
    assert_eq!(rows, [&["setup".to_owned()], &*steps_of(3, &ALL[..2])].concat());
}

#[test]
fn two_optimizers_share_a_step_unless_forward_runs_between_them() {
    let _turn = turn();
    let run = |between: bool| {
        recorded(|| {
            let [mut one, mut other] = [Program::new()?, Program::new()?];
            let [first, second] = [one.batch()?, other.batch()?];
            for _ in 0..2 {
                one.model.forward(&first)?.square()?.mean()?.backward()?;
                if between {
                    one.finish_step()?;
                }
                other.model.forward(&second)?.square()?.mean()?.backward()?;
                other.finish_step()?;
                if !between {
                    one.finish_step()?;
                }
            }
            Ok(())
        })
    };
    assert_eq!(run(false).last().map(String::as_str), Some("1 zero_grad"));
    assert_eq!(run(true).last().map(String::as_str), Some("3 zero_grad"));
}

#[test]
fn a_step_that_the_loss_scaler_leaves_out_is_a_step() {
    let _turn = turn();
    let rows = recorded(|| {
        let mut program = Program::new()?;
        let mut scaler = LossScaler::default();
        let infinite = Tensor::full([2, 8], f64::INFINITY, DType::F32, &program.device)?;
        for _ in 0..2 {
            let loss = program.model.forward(&infinite)?.square()?.mean()?;
            scaler.backward(&loss)?;
            drop(loss);
            assert!(!scaler.step(&mut program.optimizer)?, "nothing is finite");
            program.optimizer.zero_grad();
        }
        Ok(())
    });
    assert_eq!(rows, [&["setup".to_owned()], &*steps_of(2, &ALL)].concat());
}

#[test]
fn recomputation_is_backward_and_clipping_belongs_to_no_phase() {
    let _turn = turn();
    let rows = recorded(|| {
        let program = Program::new()?;
        let (batch, mut optimizer, parameters) = (program.batch()?, program.optimizer, program.model.parameters());
        let part = checkpoint(&[&batch], move |inputs| program.model.forward(&inputs[0])?.square())?;
        part.mean()?.backward()?;
        drop(part);
        clip_grad_norm(&parameters, 1.0)?;
        optimizer.step()?;
        optimizer.zero_grad();
        Ok(())
    });
    assert_eq!(rows, ["setup", "0 forward", "0 backward", "0 other", "0 optimizer", "0 zero_grad"]);
}

#[test]
fn what_the_program_marks_is_kept() {
    let _turn = turn();
    let rows = recorded(|| {
        let mut program = Program::new()?;
        let batch = program.batch()?;
        for step in [10, 20] {
            scope::step(step);
            for _ in 0..2 {
                program.model.forward(&batch)?.square()?.mean()?.backward()?;
                let _phase = scope::phase(Phase::Other);
                program.finish_step()?;
            }
        }
        Ok(())
    });
    let of_step = |step: u32| {
        let once = [format!("{step} forward"), format!("{step} backward"), format!("{step} other")];
        [once.clone(), once].concat()
    };
    assert_eq!(rows, [vec!["setup".to_owned()], of_step(10), of_step(20)].concat());
}

#[test]
fn a_recording_that_begins_in_the_middle_counts_its_own_steps() {
    let _turn = turn();
    let mut program = Program::new().expect("it fits");
    let batch = program.batch().expect("it fits");
    let forward = |program: &Program| program.model.forward(&batch)?.square()?.mean();
    for _ in 0..3 {
        forward(&program).and_then(|loss| loss.backward()).expect("it trains");
        program.finish_step().expect("it trains");
    }
    let loss = forward(&program).expect("it trains");
    let recording = Recording::start(HistoryOptions::in_memory()).expect("nothing else records");
    loss.backward().expect("it trains");
    drop(loss);
    program.finish_step().expect("it trains");
    forward(&program).and_then(|loss| loss.backward()).expect("it trains");
    let trace = recording.finish().expect("memory takes everything").trace.expect("wanted in memory");
    assert_eq!(rows(&trace), ["backward", "optimizer", "zero_grad", "0 forward", "0 backward"]);
}

#[test]
fn chosen_steps_are_chosen_among_counted_ones() {
    let _turn = turn();
    let options = HistoryOptions { steps: Some(1..2), ..HistoryOptions::in_memory() };
    let recorded = record_memory_history(options, || {
        let mut program = Program::new()?;
        let batch = program.batch()?;
        for _ in 0..3 {
            program.model.forward(&batch)?.square()?.mean()?.backward()?;
            program.finish_step()?;
        }
        Ok(())
    });
    let trace = recorded.expect("it trains").trace.expect("wanted in memory");
    assert_eq!(rows(&trace), ALL.map(|phase| format!("1 {phase}")));
}

#[test]
fn a_step_that_failed_is_tried_again_as_the_same_step() {
    let _turn = turn();
    let rows = recorded(|| {
        let mut program = Program::new()?;
        let (batch, _category) = (program.batch()?, scope::category(Category::Input));
        let wrong = Tensor::ones([2, 3], DType::F32, &program.device)?;
        for _ in 0..2 {
            assert!(program.model.forward(&batch)?.square()?.add(&wrong).is_err(), "shapes differ");
            program.model.forward(&batch)?.square()?.mean()?.backward()?;
            program.finish_step()?;
        }
        Ok(())
    });
    assert_eq!(rows, [&["setup".to_owned()], &*steps_of(2, &ALL)].concat());
}

#[test]
fn a_batch_made_in_the_loop_belongs_to_no_phase() {
    let _turn = turn();
    let rows = recorded(|| {
        let mut program = Program::new()?;
        for _ in 0..2 {
            let batch = program.batch()?;
            let loss = program.model.forward(&batch)?.square()?.mean()?;
            loss.backward()?;
            program.finish_step()?;
        }
        Ok(())
    });
    let steps = steps_of(2, &ALL);
    assert_eq!(rows, [&["setup".to_owned()], &steps[..4], &["0 other".to_owned()], &steps[4..]].concat());
}
