//! Tests that every scope matched by a checkpoint pattern is recomputed, keeps only its inputs, and leaves the
//! gradients unchanged.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_engine::models::{
    Falcon, FalconSize, Fcn, FcnPadding, FcnSize, FcnStride, FrozenTrunk, Gpt2, Gpt2Size, Llama, LlamaSize, Nerf,
    NerfSize, Perceptron, Rnn, RnnForm, VisionTransformer, VitSize,
};
use highwater_engine::nn::{Init, LoraOptions, Module, checkpoint_scopes};
use highwater_engine::{DType, Device, Result, Rng, Tensor};
use highwater_recorder::snapshots::{EventId, Trace};
use highwater_recorder::{Category, HistoryOptions, Level, Phase, record_memory_history, scope};

/// The recorder is one for the process: tests that record take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A model and what goes into it.
struct Case {
    name: &'static str,
    make: fn(&mut Init) -> Result<Box<dyn Module>>,
    input: fn(&Device) -> Result<Tensor>,
    /// Scopes that keep nothing for backward, so that there is nothing to recompute.
    keep_nothing: &'static [&'static str],
    /// Scopes that run several times in a forward.
    repeated: &'static [(&'static str, usize)],
}

fn floats<const N: usize>(shape: [usize; N], device: &Device) -> Result<Tensor>
where
    highwater_engine::Shape: From<[usize; N]>,
{
    Tensor::uniform(shape, [-1.0, 1.0], DType::F32, device, &mut Rng::new(3))
}

fn tokens(device: &Device) -> Result<Tensor> {
    let numbers: Vec<i64> = (0..12).map(|place| (7 * place + 3) % 96).collect();
    Tensor::from_slice(&numbers, [2, 6], device)
}

fn fcn(init: &mut Init, stride: FcnStride, padding: FcnPadding) -> Result<Box<dyn Module>> {
    let size = FcnSize { stride, padding, divisor: 64, ..FcnSize::SMALL };
    Ok(Box::new(Fcn::new(init, size)?))
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "perceptron",
            make: |init| Ok(Box::new(Perceptron::new(init, [8, 16, 4], 2)?)),
            input: |device| floats([4, 8], device),
            keep_nothing: &[],
            repeated: &[],
        },
        Case {
            name: "vit",
            make: |init| Ok(Box::new(VisionTransformer::new(init, VitSize { image: 8, layers: 2, ..VitSize::SMALL })?)),
            input: |device| floats([2, 3, 8, 8], device),
            keep_nothing: &[],
            repeated: &[],
        },
        Case {
            name: "gpt2",
            make: |init| Ok(Box::new(Gpt2::new(init, Gpt2Size { dropout: 0.1, layers: 2, ..Gpt2Size::SMALL }, None)?)),
            input: tokens,
            // The sum with the positions.
            keep_nothing: &["wpe"],
            repeated: &[],
        },
        Case {
            name: "falcon",
            make: |init| Ok(Box::new(Falcon::new(init, FalconSize { layers: 2, ..FalconSize::SMALL }, None)?)),
            input: tokens,
            keep_nothing: &[],
            repeated: &[],
        },
        Case {
            name: "llama",
            make: |init| Ok(Box::new(Llama::new(init, LlamaSize { layers: 2, ..LlamaSize::SMALL }, None)?)),
            input: tokens,
            keep_nothing: &[],
            repeated: &[],
        },
        Case {
            name: "llama with LoRA",
            make: |init| {
                let lora = LoraOptions::new(4, &["q_proj", "v_proj"]);
                Ok(Box::new(Llama::new(init, LlamaSize { layers: 2, ..LlamaSize::SMALL }, Some(&lora))?))
            },
            input: tokens,
            // Frozen, and before the first correction: no gradient goes there.
            keep_nothing: &[
                "embed_tokens",
                "layers.0.input_layernorm",
                "layers.0.self_attn.k_proj",
                "layers.0.self_attn.q_proj.base_layer",
                "layers.0.self_attn.v_proj.base_layer",
            ],
            repeated: &[],
        },
        Case {
            name: "nerf",
            make: |init| Ok(Box::new(Nerf::new(init, NerfSize { layers: 6, ..NerfSize::SMALL })?)),
            input: |device| floats([64, 3], device),
            // Its input is computed again from the points.
            keep_nothing: &["network.layers.0"],
            repeated: &[],
        },
        Case {
            name: "fcn-8s",
            make: |init| fcn(init, FcnStride::Eight, FcnPadding::One),
            input: |device| floats([1, 3, 64, 64], device),
            // Backward draws the random numbers again.
            keep_nothing: &["drop6", "drop7"],
            repeated: &[("features", 5)],
        },
        Case {
            name: "fcn-8s with wide padding",
            make: |init| fcn(init, FcnStride::Eight, FcnPadding::Hundred),
            input: |device| floats([1, 3, 16, 16], device),
            keep_nothing: &["drop6", "drop7"],
            repeated: &[("features", 5)],
        },
        Case {
            name: "fcn-32s",
            make: |init| fcn(init, FcnStride::ThirtyTwo, FcnPadding::One),
            input: |device| floats([1, 3, 64, 64], device),
            keep_nothing: &["drop6", "drop7"],
            repeated: &[("features", 5)],
        },
        Case {
            name: "rnn",
            make: |init| Ok(Box::new(Rnn::new(init, 8, RnnForm::TwoBiases)?)),
            input: |device| floats([3, 2, 8], device),
            keep_nothing: &[],
            repeated: &[("input", 3), ("hidden", 3)],
        },
        Case {
            name: "frozen trunk with a branch",
            make: |init| Ok(Box::new(FrozenTrunk::new(init, [8, 2, 4], true)?)),
            input: |device| floats([4, 8], device),
            keep_nothing: &["trunk", "trunk.0", "trunk.1"],
            repeated: &[],
        },
    ]
}

/// A forward and a backward, recorded.
struct Run {
    trace: Trace,
    grads: Vec<Option<Vec<f32>>>,
}

impl Run {
    /// With the children at `path` checkpointed, of which there is one.
    fn of(case: &Case, path: Option<&str>) -> Self {
        scope::leave_steps();
        let device = Device::cpu();
        let model = (case.make)(&mut Init::new(&device, DType::F32, 1)).expect("it fits");
        // Some models begin with zeros, which no gradient passes.
        for parameter in model.parameters().iter().filter(|parameter| parameter.tensor.requires_grad()) {
            let _mode = highwater_engine::no_grad();
            parameter.tensor.add_(&floats_like(&parameter.tensor)).expect("parameters can be changed");
        }
        let input = (case.input)(&device).expect("it fits");
        if let Some(path) = path {
            assert_eq!(checkpoint_scopes(&*model, path).unwrap(), 1, "{}: {path}", case.name);
        }
        let options = HistoryOptions { level: Level::Events, ..HistoryOptions::in_memory() };
        let recorded = record_memory_history(options, || {
            let loss = model.forward(&input)?.square()?.mean()?;
            loss.backward()?;
            Ok(())
        });
        let trace = recorded.expect("it trains").trace.expect("wanted in memory");
        let grad = |tensor: &Tensor| tensor.grad().map(|grad| grad.to_vec().expect("the processor has values"));
        let grads = model.parameters().iter().map(|parameter| grad(&parameter.tensor)).collect();
        Self { trace, grads }
    }

    /// The paths of all modules that ran, outer ones included.
    fn paths(&self) -> BTreeSet<String> {
        let mut paths = BTreeSet::new();
        for op in &self.trace.tables.ops {
            let path = self.trace.tables.scope_path(op.scope);
            paths.extend(path.match_indices('.').map(|(end, _)| path[..end].to_owned()));
            paths.extend((!path.is_empty()).then_some(path));
        }
        paths
    }

    /// How many operations ran in the module at `path`.
    fn ops(&self, path: &str) -> usize {
        self.trace.tables.ops.iter().filter(|op| is_within(&self.trace.tables.scope_path(op.scope), path)).count()
    }

    /// The sizes of blocks that forward made in the module at `path` and kept for backward.
    fn kept(&self, path: &str) -> Vec<u64> {
        let forward = self.trace.spans.rows().iter().rfind(|span| span.phase == Phase::Forward).expect("forward ran");
        let end = EventId(forward.end.0 - 1);
        let blocks = self.trace.blocks.ids().map(|id| self.trace.blocks.get(id));
        let kept = blocks.filter(|block| {
            block.alloc <= end
                && block.is_live_after(end)
                && block.category == Category::Activation
                && is_within(&self.trace.tables.scope_path(block.scope), path)
        });
        kept.map(|block| block.requested).collect()
    }
}

fn floats_like(tensor: &Tensor) -> Tensor {
    Tensor::uniform(tensor.shape(), [-0.1, 0.1], DType::F32, tensor.device(), &mut Rng::new(5)).expect("it fits")
}

fn is_within(scope: &str, path: &str) -> bool {
    scope.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[test]
fn every_scope_of_every_model_is_recomputed_and_changes_no_gradient() {
    let _turn = turn();
    for case in cases() {
        let plain = Run::of(&case, None);
        assert!(plain.grads.iter().any(|grad| grad.iter().flatten().any(|number| *number != 0.0)), "{}", case.name);
        let paths = plain.paths();
        let mut left_alone = Vec::new();
        for path in &paths {
            let what = format!("{}: {path}", case.name);
            let run = Run::of(&case, Some(path));
            assert_eq!(run.grads, plain.grads, "{what}");
            if run.ops(path) == plain.ops(path) {
                left_alone.push(path.as_str());
                continue;
            }
            assert_eq!(run.ops(path), 2 * plain.ops(path), "{what} runs again");
            // What is left of each call is at most its result, which belongs to whatever comes next.
            let calls =
                case.repeated.iter().find(|(repeated, _)| is_within(path, repeated)).map_or(1, |(_, calls)| *calls);
            let kept = run.kept(path);
            assert!(kept.len() <= calls, "{what} keeps {kept:?} of {:?}", plain.kept(path));
        }
        assert_eq!(left_alone, case.keep_nothing, "{}", case.name);
        let model = (case.make)(&mut Init::new(&Device::cpu(), DType::F32, 1)).expect("it fits");
        let reported: usize =
            (1..8).filter_map(|depth| checkpoint_scopes(&*model, &vec!["*"; depth].join(".")).ok()).sum();
        assert_eq!(reported, paths.len(), "{}: a scope is reported that never runs", case.name);
    }
}
