//! Small models that train quickly on a CPU, for experiments.

use super::definition::{Scenario, ScenarioInfo};
use super::options::{OptimizerKind, Options};
use super::task::{Task, checkpoint_if_asked, classification, data_rng, labels, random_input};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::models::{Perceptron, VisionTransformer, VitSize};
use crate::nn::Init;

pub(crate) const VIT_SMALL: Scenario = Scenario {
    info: ScenarioInfo {
        name: "vit-small",
        about: "a vision transformer with 0.2 million parameters, trained on 8 random images",
        options: &["--batch", "--accumulate", "--dtype", "--checkpoint"],
        variants: &[],
    },
    optimizer: Some(OptimizerKind::AdamW),
    build: vit_small,
};

pub(crate) const MLP: Scenario = Scenario {
    info: ScenarioInfo {
        name: "mlp",
        about: "three linear layers with ReLU, trained on 128 random inputs",
        options: &["--batch", "--accumulate", "--width", "--layers", "--dtype"],
        variants: &[],
    },
    optimizer: Some(OptimizerKind::Adam),
    build: mlp,
};

fn vit_small(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (size, dtype) = (VitSize::SMALL, options.dtype.unwrap_or(DType::F32));
    let model = VisionTransformer::new(&mut Init::new(device, dtype, options.seed), size)?;
    checkpoint_if_asked(&model, "encoder.layers.*", options)?;
    let batch = options.sizes.batch.unwrap_or(8);
    let input = random_input([batch, 3, size.image, size.image], dtype, device, &mut data_rng(options))?;
    classification(model, input, labels(batch, size.classes, device)?)
}

fn mlp(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (sizes, dtype) = (&options.sizes, options.dtype.unwrap_or(DType::F32));
    let (batch, inputs, classes) = (sizes.batch.unwrap_or(128), 784, 10);
    let (width, hidden) = (sizes.width.unwrap_or(512), sizes.layers.unwrap_or(3).saturating_sub(1));
    let model = Perceptron::new(&mut Init::new(device, dtype, options.seed), [inputs, width, classes], hidden)?;
    let input = random_input([batch, inputs], dtype, device, &mut data_rng(options))?;
    classification(model, input, labels(batch, classes, device)?)
}
