//! Tests that the Rust lines printed by `plan` can be pasted into a program: each function below contains the printed
//! lines, and the run has the peaks stated by the plan.

use std::error::Error;

use highwater_engine::models::{Gpt2, Gpt2Size, LanguageModel};
use highwater_engine::optim::Optimizer;
use highwater_engine::{DType, Result, Tensor};
use serde_json::Value;

use crate::binary::{highwater, stderr};

/// This file.
const SOURCE: &str = include_str!("pasted_lines.rs");
/// The program below as a scenario, but for its batch.
const MODEL: &str = "gpt2 --width 128 --layers 4 --heads 2 --vocab 500 --steps 2";
const SIZE: Gpt2Size = Gpt2Size { vocabulary: 500, positions: 1024, layers: 4, width: 128, heads: 2, dropout: 0.0 };
const STEPS: usize = 2;

/// The peaks of requested, allocated and reserved bytes.
type Peaks = std::result::Result<[u64; 3], Box<dyn Error>>;

/// What is planned, and the function with its lines.
struct Case {
    /// Number of sequences and their length.
    batch: [usize; 2],
    options: &'static str,
    /// The function whose source has the lines.
    name: &'static str,
    run: fn(Program) -> Peaks,
}

const CASES: [Case; 9] = [
    Case {
        batch: [4, 128],
        options: "--budget 20MiB --forbid micro-batches,in-backward,settings",
        name: "recomputed",
        run: recomputed,
    },
    Case {
        batch: [1, 64],
        options: "--budget 18MiB --forbid micro-batches,in-backward,settings,recompute",
        name: "fused",
        run: fused,
    },
    Case {
        batch: [1, 64],
        options: "--budget 14MiB --forbid settings,recompute",
        name: "in_backward",
        run: in_backward,
    },
    Case {
        batch: [4, 128],
        options: "--budget 20MiB --forbid recompute,settings,in-backward",
        name: "micro_batches",
        run: micro_batches,
    },
    Case { batch: [4, 128], options: "--budget 20MiB --allow 8bit --forbid ALL", name: "eight_bit", run: eight_bit },
    Case { batch: [4, 128], options: "--budget 15MiB --allow bf16 --forbid ALL", name: "bf16", run: bf16 },
    Case { batch: [4, 128], options: "--budget 18MiB --allow lora --forbid ALL", name: "lora", run: lora },
    Case { batch: [4, 128], options: "--budget 18MiB --allow freeze --forbid ALL", name: "frozen", run: frozen },
    Case {
        batch: [8, 256],
        options: "--budget 70MiB --forbid recompute,in-backward,micro-batches,fused",
        name: "open",
        run: with_settings,
    },
];

#[test]
fn the_lines_of_a_plan_pasted_into_a_program_give_its_peaks() {
    let folder = tempfile::tempdir().unwrap();
    for Case { batch, options, name, run } in CASES {
        let options = options.replace("ALL", "fused,in-backward,micro-batches,recompute,settings");
        let [count, length] = batch;
        let words = format!("plan --scenario {MODEL} --batch {count} --seq {length} {options} --json");
        let output = highwater(folder.path(), &words);
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
        let printed: Vec<&str> = plan["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        let start = SOURCE.find(&format!("fn {name}(")).unwrap();
        let mut source = SOURCE[start..].lines().take_while(|line| *line != "}");
        let pasted = printed.iter().all(|line| source.any(|known| known.trim() == line.trim()));
        assert!(pasted && printed.len() > 2, "not in {name}, for {words}:\n{}", printed.join("\n"));
        let capacity = plan["budget_bytes"].as_u64().unwrap();
        let after = ["requested_bytes", "allocated_bytes", "reserved_bytes"];
        let after = after.map(|key| plan["after"][key].as_u64().unwrap());
        assert_eq!(run(Program { batch, capacity }).unwrap(), after, "{words}");
    }
}

/// What the functions below share.
#[derive(Clone, Copy)]
struct Program {
    batch: [usize; 2],
    capacity: u64,
}

impl Program {
    fn device(self) -> highwater_engine::Device {
        highwater_engine::Device::accounting(self.capacity)
    }

    fn init(device: &highwater_engine::Device) -> highwater_engine::nn::Init {
        highwater_engine::nn::Init::new(device, DType::F32, 0)
    }

    /// The batch: tokens and targets.
    fn batch(self, device: &highwater_engine::Device) -> Result<[Tensor; 2]> {
        let [count, length] = self.batch;
        let zeros = |shape: highwater_engine::Shape| Tensor::zeros(shape, DType::I64, device);
        Ok([zeros([count, length].into())?, zeros((count * length).into())?])
    }

    /// Trains with an optimizer that steps after backward.
    fn train(self, model: &Gpt2, batch: &[Tensor; 2], optimizer: &mut dyn Optimizer) -> Result<()> {
        for _ in 0..STEPS {
            loss(model, batch)?.backward()?;
            optimizer.step()?;
            optimizer.zero_grad();
        }
        Ok(())
    }
}

fn loss(model: &Gpt2, [tokens, targets]: &[Tensor; 2]) -> Result<Tensor> {
    let hidden = model.hidden(tokens)?;
    let rows = hidden.reshape([targets.shape()[0], SIZE.width])?;
    drop(hidden);
    rows.linear_cross_entropy(model.head_weight(), targets, None)
}

fn adamw(model: &Gpt2) -> Result<impl Optimizer + use<>> {
    use highwater_engine::nn::Module as _;
    let rule = highwater_engine::optim::AdamW::default();
    highwater_engine::optim::RuleOptimizer::new(rule, model.parameters())
}

fn peaks(device: &highwater_engine::Device) -> Peaks {
    let stats = device.allocator().stats();
    Ok([stats.requested_bytes, stats.allocated_bytes, stats.reserved_bytes].map(|bytes| bytes.all.peak))
}

fn recomputed(program: Program) -> Peaks {
    let device = program.device();
    let model = Gpt2::new(&mut Program::init(&device), SIZE, None)?;
    let batch = program.batch(&device)?;

    use highwater_engine::nn::checkpoint_scopes;

    checkpoint_scopes(&model, "h.{0-1}")?;

    program.train(&model, &batch, &mut adamw(&model)?)?;
    peaks(&device)
}

fn fused(program: Program) -> Peaks {
    let device = program.device();
    let model = Gpt2::new(&mut Program::init(&device), SIZE, None)?;
    let batch = program.batch(&device)?;

    use highwater_engine::nn::Module;
    use highwater_engine::optim::{AdamW, Form, RuleOptimizer};

    let mut optimizer = RuleOptimizer::new(AdamW { form: Form::Fused, ..AdamW::default() }, model.parameters())?;

    program.train(&model, &batch, &mut optimizer)?;
    peaks(&device)
}

fn in_backward(program: Program) -> Peaks {
    let device = program.device();
    let model = Gpt2::new(&mut Program::init(&device), SIZE, None)?;
    let batch = program.batch(&device)?;

    use highwater_engine::nn::Module;
    use highwater_engine::optim::{AdamW, run_in_backward};

    run_in_backward(&AdamW::default(), &model.parameters())?; // instead of an optimizer

    for _ in 0..STEPS {
        loss(&model, &batch)?.backward()?;
    }
    peaks(&device)
}

fn micro_batches(program: Program) -> Peaks {
    let device = program.device();
    let model = Gpt2::new(&mut Program::init(&device), SIZE, None)?;
    let batch = program.batch(&device)?;
    // What the printed lines leave to the program: the loop over the parts of the batch.
    let part_of = |index: usize| -> Result<[Tensor; 2]> {
        let [tokens, targets] = &batch;
        let length = program.batch[1];
        Ok([tokens.narrow(0, index, 1)?, targets.narrow(0, index * length, length)?])
    };

    use highwater_engine::nn::Module;
    use highwater_engine::optim::{Accumulation, AdamW, Form, RuleOptimizer};

    let mut optimizer = RuleOptimizer::new(AdamW { form: Form::Fused, ..AdamW::default() }, model.parameters())?;
    let mut accumulation = Accumulation::new(4)?;
    for part in (0..STEPS).flat_map(|_| 0..4) {
        let loss = loss(&model, &part_of(part)?)?;
        // For each of 4 equal parts of the batch, instead of loss.backward() and the optimizer's step:
        accumulation.backward(&loss)?;
        accumulation.step(&mut optimizer)?;
    }
    peaks(&device)
}

fn eight_bit(program: Program) -> Peaks {
    let device = program.device();
    let model = Gpt2::new(&mut Program::init(&device), SIZE, None)?;
    let batch = program.batch(&device)?;

    use highwater_engine::nn::Module;
    use highwater_engine::optim::{AdamW8bit, RuleOptimizer};

    let mut optimizer = RuleOptimizer::new(AdamW8bit::default(), model.parameters())?;

    program.train(&model, &batch, &mut optimizer)?;
    peaks(&device)
}

fn bf16(program: Program) -> Peaks {
    let device = program.device();
    let seed = 0;

    use highwater_engine::DType;
    use highwater_engine::nn::Init;

    let mut init = Init::new(&device, DType::Bf16, seed); // for the model

    let model = Gpt2::new(&mut init, SIZE, None)?;
    let batch = program.batch(&device)?;
    program.train(&model, &batch, &mut adamw(&model)?)?;
    peaks(&device)
}

fn lora(program: Program) -> Peaks {
    let device = program.device();

    use highwater_engine::nn::LoraOptions;

    let lora = LoraOptions::new(16, &["c_attn"]); // for the model

    let model = Gpt2::new(&mut Program::init(&device), SIZE, Some(&lora))?;
    let batch = program.batch(&device)?;
    program.train(&model, &batch, &mut adamw(&model)?)?;
    peaks(&device)
}

fn frozen(program: Program) -> Peaks {
    let device = program.device();
    let model = Gpt2::new(&mut Program::init(&device), SIZE, None)?;
    let batch = program.batch(&device)?;

    use highwater_engine::nn::Module;

    let frozen = ["h.0", "h.1", "h.2", "wpe", "wte"];
    for parameter in model.parameters() {
        let is_within = |name: &str| format!("{}.", parameter.path).starts_with(&format!("{name}."));
        if frozen.into_iter().any(is_within) {
            parameter.tensor.set_requires_grad(false)?;
        }
    }

    program.train(&model, &batch, &mut adamw(&model)?)?;
    peaks(&device)
}

/// Opens the device as the lines say. Tests have no GPU, so an accounting device stands in for it.
fn open() -> std::result::Result<highwater_engine::Device, Box<dyn Error>> {
    use highwater_engine::Device;

    let device = Device::cuda_with(0, None, "expandable_segments:True".parse()?)?;

    Ok(device)
}

fn with_settings(program: Program) -> Peaks {
    let _opened = open();
    let settings = "expandable_segments:True".parse()?;
    let device = highwater_engine::Device::accounting_with(program.capacity, settings);
    let model = Gpt2::new(&mut Program::init(&device), SIZE, None)?;
    let batch = program.batch(&device)?;
    program.train(&model, &batch, &mut adamw(&model)?)?;
    peaks(&device)
}
