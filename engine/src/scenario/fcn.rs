//! A segmentation network on random images, whose backward allocates little more than the gradients.

use super::definition::{Scenario, ScenarioInfo, Variant};
use super::options::{OptimizerKind, Options};
use super::task::{Task, classification, data_rng, labels, random_input};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::models::{Fcn, FcnPadding, FcnSize, FcnStride};
use crate::nn::Init;

pub(crate) const FCN: Scenario = Scenario {
    info: ScenarioInfo {
        name: "fcn",
        about: "FCN-8s on VGG16 in f32 on three images of 256 × 256 pixels: backward adds the gradients and one \
                workspace, and max pooling saves one byte per output",
        options: &["--batch", "--image", "--padding", "--width", "--classes", "--dtype"],
        variants: &[
            Variant { name: "fcn32s", about: "FCN-32s: scores of the last pool only, upsampled 32 times" },
            Variant { name: "no-dropout", about: "no channel dropout before the scores" },
        ],
    },
    optimizer: Some(OptimizerKind::Sgd),
    build,
};

fn build(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (sizes, known) = (&options.sizes, FcnSize::VOC_8S);
    let (padding, image) = match sizes.padding {
        None | Some(100) => (FcnPadding::Hundred, 256),
        Some(1) => (FcnPadding::One, 288),
        Some(other) => {
            let what = format!("invalid padding {other}: expected 100, as in the FCN paper, or 1, as in VGG16");
            return Err(Error::Setting { op: "fcn", what });
        }
    };
    let width = sizes.width.unwrap_or(64);
    if !64_usize.is_multiple_of(width) {
        let what = format!(
            "invalid width {width}: expected a divisor of 64, the number of channels of VGG16's first convolution"
        );
        return Err(Error::Setting { op: "fcn", what });
    }
    let variant = options.variant.as_deref();
    let size = FcnSize {
        stride: if variant == Some("fcn32s") { FcnStride::ThirtyTwo } else { known.stride },
        padding,
        classes: sizes.classes.unwrap_or(known.classes),
        dropout: variant != Some("no-dropout"),
        divisor: 64 / width,
    };
    let (batch, image) = (sizes.batch.unwrap_or(3), sizes.image.unwrap_or(image));
    let dtype = options.dtype.unwrap_or(DType::F32);
    let model = Fcn::new(&mut Init::new(device, dtype, options.seed), size)?;
    let input = random_input([batch, 3, image, image], dtype, device, &mut data_rng(options))?;
    let places = batch.saturating_mul(image).saturating_mul(image);
    let labels = labels(places, size.classes, device)?.reshape([batch, image, image])?;
    classification(model, input, labels)
}
