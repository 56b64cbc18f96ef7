//! torchvision's ViT-L/16 on random images, which is the model of PyTorch's tutorial on optimizer steps in backward.

use super::definition::{Scenario, ScenarioInfo};
use super::options::{OptimizerKind, Options};
use super::task::{Reduction, Task, checkpoint_if_asked, data_rng, freeze_if_asked, of_batch, random_input};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::models::{VisionTransformer, VitSize};
use crate::nn::{EncoderSize, Init, Module};

pub(crate) const VIT_L_16: Scenario = Scenario {
    info: ScenarioInfo {
        name: "vit-l-16",
        about: "torchvision's ViT-L/16 in f32 on one image: peak in Adam's temporaries, or at the start of backward if \
                the optimizer runs in backward",
        options: &[
            "--batch",
            "--accumulate",
            "--image",
            "--patch",
            "--width",
            "--layers",
            "--heads",
            "--hidden",
            "--classes",
            "--freeze",
            "--dtype",
            "--checkpoint",
        ],
        variants: &[],
    },
    optimizer: Some(OptimizerKind::Adam),
    build,
};

fn build(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (sizes, known) = (&options.sizes, VitSize::L_16);
    let width = sizes.width.unwrap_or(known.block.width);
    let heads = sizes.heads.unwrap_or(known.block.heads);
    let size = VitSize {
        image: sizes.image.unwrap_or(known.image),
        patch: sizes.patch.unwrap_or(known.patch),
        layers: sizes.layers.unwrap_or(known.layers),
        block: EncoderSize { width, heads, hidden: sizes.hidden.unwrap_or(4 * width), ..known.block },
        classes: sizes.classes.unwrap_or(known.classes),
    };
    let dtype = options.dtype.unwrap_or(DType::F32);
    let model = VisionTransformer::new(&mut Init::new(device, dtype, options.seed), size)?;
    checkpoint_if_asked(&model, "encoder.layers.*", options)?;
    let before = ["class_token", "conv_proj", "encoder.pos_embedding"];
    freeze_if_asked(&model, &before, "encoder.layers", options)?;
    let shape = [sizes.batch.unwrap_or(1), 3, size.image, size.image];
    let input = random_input(shape, dtype, device, &mut data_rng(options))?;
    of_batch(model, (shape[0], Reduction::Sum), move |model, part| model.forward(&part.of(&input)?)?.sum())
}
