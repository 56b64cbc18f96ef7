//! Records a plain training loop of three steps, which marks neither steps nor phases.
//!
//! `cargo run --example plain_loop`, then `highwater phases plain.snap` and `highwater peak plain.snap --by frame`.

use highwater_engine::models::Perceptron;
use highwater_engine::nn::{Init, Module};
use highwater_engine::optim::{Adam, Optimizer, RuleOptimizer};
use highwater_engine::{DType, Device, Tensor};
use highwater_recorder::{HistoryOptions, Recorded, Result, record_memory_history};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let run = train(HistoryOptions::to_file("plain.snap"))?;
    // The training went well; did the recording?
    run.problem.map_or(Ok(()), |problem| Err(problem.into()))
}

/// Runs the loop, and records it.
pub(crate) fn train(options: HistoryOptions) -> Result<Recorded<()>> {
    record_memory_history(options, || {
        let device = Device::cpu();
        let model = Perceptron::new(&mut Init::new(&device, DType::F32, 0), [64, 256, 10], 2)?;
        let mut optimizer = RuleOptimizer::new(Adam::default(), model.parameters())?;
        let inputs = Tensor::ones([32, 64], DType::F32, &device)?;
        let labels: Vec<i64> = (0..32).map(|example| example % 10).collect();
        let labels = Tensor::from_slice(&labels, 32, &device)?;
        for _ in 0..3 {
            let loss = model.forward(&inputs)?.cross_entropy(&labels, None)?;
            loss.backward()?;
            optimizer.step()?;
            optimizer.zero_grad();
        }
        Ok(())
    })
}
