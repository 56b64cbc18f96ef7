//! Beside burn: a small network that burn trains on its CPU backend, recorded by the global allocator.
//!
//! `cargo run`, then `highwater phases burn.snap`.

use burn::tensor::{Device, Tensor, TensorData};
use highwater_recorder::{HistoryOptions, Phase, Recorded, RecordedHeap, Result, record_memory_history, scope};

#[global_allocator]
static HEAP: RecordedHeap = RecordedHeap::new();

const EXAMPLES: usize = 64;
const INPUTS: usize = 16;
const HIDDEN: usize = 128;

fn main() -> Result<()> {
    let recorded = train(HistoryOptions::to_file("burn.snap"))?;
    println!("losses: {:?}", recorded.value);
    recorded.problem.map_or(Ok(()), Err)
}

/// Returns a tensor of pseudorandom numbers between -`bound` and `bound`.
fn numbers<const D: usize>(shape: [usize; D], bound: f32, device: &Device) -> Tensor<D> {
    let count = shape.iter().product();
    let number = |place: usize| bound * (((place * 7919 + 13) % 1009) as f32 / 504.5 - 1.0);
    Tensor::from_data(TensorData::new((0..count).map(number).collect::<Vec<f32>>(), shape), device)
}

/// Fits a network of two layers to a sum in three steps of plain gradient descent; returns the loss of each.
fn train(options: HistoryOptions) -> Result<Recorded<Vec<f32>>> {
    record_memory_history(options, || {
        let device = Device::flex().autodiff();
        let mut weights = [
            numbers([INPUTS, HIDDEN], 0.25, &device).require_grad(),
            numbers([HIDDEN, 1], 0.09, &device).require_grad(),
        ];
        let inputs = numbers([EXAMPLES, INPUTS], 1.0, &device);
        let targets = inputs.clone().sum_dim(1);
        let mut losses = Vec::new();
        for _ in 0..3 {
            let loss = {
                let _phase = scope::phase(Phase::Forward);
                let hidden = {
                    let _scope = scope::scope("hidden");
                    inputs.clone().matmul(weights[0].clone()).tanh()
                };
                let _scope = scope::scope("head");
                (hidden.matmul(weights[1].clone()) - targets.clone()).powi_scalar(2).mean()
            };
            losses.push(loss.clone().into_scalar::<f32>());
            let grads = {
                let _phase = scope::phase(Phase::Backward);
                loss.backward()
            };
            let _phase = scope::phase(Phase::Optimizer);
            weights = weights.map(|weight| {
                let grad = weight.grad(&grads).expect("a weight has no gradient");
                (weight.inner() - grad * 0.05).autodiff().require_grad()
            });
        }
        Ok(losses)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_analysis::verify::verify_trace;
    use highwater_recorder::snapshots::Trace;

    /// The blocks of `bytes` bytes that were made in the module `path` during `phase`.
    fn made(trace: &Trace, path: &str, phase: Phase, bytes: usize) -> usize {
        let blocks = trace.blocks.ids().map(|id| trace.blocks.get(id));
        let made = blocks.filter(|block| {
            block.requested == bytes as u64
                && trace.tables.scope_path(block.scope) == path
                && trace.spans.at(block.alloc).is_some_and(|span| span.phase == phase)
        });
        made.count()
    }

    #[test]
    fn a_program_of_burns_is_recorded_by_the_global_allocator() {
        let recorded = train(HistoryOptions::in_memory()).expect("burn trains");
        let losses = &recorded.value;
        assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
        let trace = recorded.trace.expect("wanted in memory");
        assert_eq!((verify_trace(&trace), trace.trust.unmatched_frees), (vec![], 0));
        assert_eq!(trace.spans.steps(), [0, 1, 2], "steps are counted by their phases");
        // Of the hidden layer's product and its activation at least the latter is kept, and has a gradient.
        let hidden = EXAMPLES * HIDDEN * 4;
        assert!(made(&trace, "hidden", Phase::Forward, hidden) >= 3, "one a step");
        assert!(made(&trace, "", Phase::Backward, hidden) >= 3, "one a step");
        let weight = INPUTS * HIDDEN * 4;
        assert!(made(&trace, "", Phase::Optimizer, weight) >= 3, "a new weight a step");
    }
}
