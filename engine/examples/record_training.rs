//! Records three training steps of your own model.
//!
//! `cargo run --example record_training`, then open `training.snap` with `highwater`.

use highwater_engine::nn::{Child, Init, LayerNorm, Linear, Mlp, Module};
use highwater_engine::nn::{Filling, LinearFilling};
use highwater_engine::optim::{AdamW, Optimizer, RuleOptimizer};
use highwater_engine::{DType, Device, Result, Tensor};
use highwater_recorder::{Category, HistoryOptions, record_memory_history, scope};

/// A residual MLP: a module composed of named modules.
struct Model {
    norm: Child<LayerNorm>,
    mlp: Child<Mlp>,
    head: Child<Linear>,
}

impl Model {
    fn new(init: &mut Init) -> Result<Self> {
        let filling = |[inputs, outputs]: [usize; 2]| LinearFilling {
            weight: Filling::xavier_uniform(inputs, outputs),
            bias: Some(Filling::Zeros),
        };
        Ok(Self {
            norm: Child::new("norm", init, |init| LayerNorm::new(init, 256, 1e-5))?,
            mlp: Child::new("mlp", init, |init| Mlp::new(init, [256, 1024], filling))?,
            head: Child::new("head", init, |init| Linear::new(init, [256, 10]))?,
        })
    }
}

impl Module for Model {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mixed = self.mlp.forward(&self.norm.forward(input)?)?.into_add(input)?;
        self.head.forward(&mixed)
    }

    highwater_engine::visit_fields!(norm, mlp, head);
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let recorded = record_memory_history(HistoryOptions::to_file("training.snap"), || {
        let device = Device::cpu();
        let mut init = Init::new(&device, DType::F32, 0);
        let model = Model::new(&mut init)?;
        let mut optimizer = RuleOptimizer::new(AdamW::default(), model.parameters())?;
        let (input, labels) = {
            let _category = scope::category(Category::Input);
            let labels: Vec<i64> = (0..64).map(|example| example % 10).collect();
            (Tensor::ones([64, 256], DType::F32, &device)?, Tensor::from_slice(&labels, 64, &device)?)
        };
        for _ in 0..3 {
            model.forward(&input)?.cross_entropy(&labels, None)?.backward()?;
            optimizer.step()?;
            optimizer.zero_grad();
        }
        Ok(())
    })?;
    // The training went well; did the recording?
    recorded.problem.map_or(Ok(()), |problem| Err(problem.into()))
}
