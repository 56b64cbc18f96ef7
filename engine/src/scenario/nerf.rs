//! The tiny NeRF from a discussion of candle's memory use in backpropagation.

use std::cell::RefCell;

use highwater_recorder::{Category, scope};

use super::definition::{Scenario, ScenarioInfo};
use super::options::{OptimizerKind, Options};
use super::task::{Task, checkpoint_if_asked, data_rng, of_whole};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::models::nerf::{Nerf, NerfSize, Rays, Samples};
use crate::nn::Init;
use crate::tensor::Tensor;

pub(crate) const TINY_NERF: Scenario = Scenario {
    info: ScenarioInfo {
        name: "tiny-nerf",
        about: "a radiance field (NeRF) trained on 640,000 points in chunks of 65,536 that form one graph; candle needs \
                2.5 times PyTorch's memory for it",
        options: &["--width", "--layers", "--image", "--samples", "--chunk", "--checkpoint"],
        variants: &[],
    },
    optimizer: Some(OptimizerKind::AdamW),
    build,
};

/// Nearest and farthest distance of the scene along a ray.
const REACH: [f64; 2] = [2.0, 6.0];

fn build(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (sizes, tiny) = (&options.sizes, NerfSize::TINY);
    let size = NerfSize {
        width: sizes.width.unwrap_or(tiny.width),
        layers: sizes.layers.unwrap_or(tiny.layers),
        octaves: tiny.octaves,
        chunk: sizes.chunk.unwrap_or(tiny.chunk),
    };
    let model = Nerf::new(&mut Init::new(device, DType::F32, options.seed), size)?;
    checkpoint_if_asked(&model, "network", options)?;
    let (rays, colours) = picture_of_a_sphere(sizes.image.unwrap_or(100), device)?;
    let (samples, rng) = (sizes.samples.unwrap_or(64), RefCell::new(data_rng(options)));
    of_whole(model, move |model| {
        let samples = Samples::along(&rays, samples, REACH, &mut rng.borrow_mut())?;
        model.render(samples)?.mse_loss(&colours)
    })
}

/// Returns rays through an image of `side` × `side` pixels, and their colors. The image shows a sphere of radius 1 from
/// a distance of 4 on black. The color of a surface point represents its normal.
fn picture_of_a_sphere(side: usize, device: &Device) -> Result<(Rays, Tensor)> {
    let _category = scope::category(Category::Input);
    let rays = side.saturating_mul(side);
    if !device.has_values() {
        let empty = || Tensor::as_from_slice([rays, 3], DType::F32, device);
        return Ok((Rays { origins: empty()?, directions: empty()? }, empty()?));
    }
    let distance = 4.0_f32;
    let (mut directions, mut colours) = (Vec::with_capacity(3 * rays), Vec::with_capacity(3 * rays));
    for pixel in 0..rays {
        let place = |at: usize| 0.4 * ((2 * at + 1) as f32 / side as f32 - 1.0);
        let [x, y] = [place(pixel % side), -place(pixel / side)];
        let norm = (x * x + y * y + 1.0).sqrt();
        let ray = [x / norm, y / norm, -1.0 / norm];
        directions.extend(ray);
        // The ray meets the sphere where |(0, 0, distance) + t · ray| = 1.
        let ahead = -distance * ray[2];
        let inside = ahead * ahead - distance * distance + 1.0;
        let reach = ahead - inside.max(0.0).sqrt();
        let facing = [reach * ray[0], reach * ray[1], distance + reach * ray[2]];
        colours.extend(facing.map(|part| if inside > 0.0 { 0.5 + 0.5 * part } else { 0.0 }));
    }
    let origins: Vec<f32> = [0.0, 0.0, distance].into_iter().cycle().take(3 * rays).collect();
    let tensor = |numbers: &[f32]| Tensor::from_slice(numbers, [rays, 3], device);
    Ok((Rays { origins: tensor(&origins)?, directions: tensor(&directions)? }, tensor(&colours)?))
}
