//! Partly frozen models: frozen layers have no gradients and save nothing for backward.

use super::definition::{Scenario, ScenarioInfo, Variant};
use super::options::Options;
use super::task::{Task, classification, data_rng, labels, of_whole, random_input};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::models::{FrozenSum, FrozenTrunk};
use crate::nn::Init;

pub(crate) const FROZEN_BRANCH: Scenario = Scenario {
    info: ScenarioInfo {
        name: "frozen-branch",
        about: "t1 + (t2 + (t3 + v)) where only v is trained: one gradient is computed instead of four",
        options: &["--width", "--layers", "--batch", "--dtype"],
        variants: &[
            Variant { name: "trunk", about: "frozen layers under a trained head" },
            Variant { name: "branches", about: "frozen layers next to trained ones, under a trained head" },
        ],
    },
    optimizer: None,
    build,
};

const CLASSES: usize = 10;

fn build(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (sizes, dtype) = (&options.sizes, options.dtype.unwrap_or(DType::F32));
    let mut init = Init::new(device, dtype, options.seed);
    let (Some(variant), width) = (&options.variant, sizes.width.unwrap_or(1024)) else {
        return of_whole(FrozenSum::new(&mut init, sizes.width.unwrap_or(1000))?, FrozenSum::loss);
    };
    let model = FrozenTrunk::new(&mut init, [width, sizes.layers.unwrap_or(4), CLASSES], variant == "branches")?;
    let batch = sizes.batch.unwrap_or(512);
    let input = random_input([batch, width], dtype, device, &mut data_rng(options))?;
    classification(model, input, labels(batch, CLASSES, device)?)
}
