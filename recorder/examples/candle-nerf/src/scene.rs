//! The scene: a picture of a sphere as rays and colours, and sample points along the rays.

use candle_core::{Device, Result, Tensor};
use highwater_recorder::Category;

use crate::guards::{made_as, op};

/// The nearest and the farthest distance of sample points on a ray.
const REACH: [f32; 2] = [2.0, 6.0];
/// The position of the camera.
const DISTANCE: f32 = 4.0;
/// The length of the interval after the last point of a ray.
const TO_INFINITY: f32 = 1e10;

/// A seeded random number generator: splitmix64.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// `count` numbers from `low` to `high`.
    pub(crate) fn numbers(&mut self, count: usize, [low, high]: [f32; 2]) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            low + (high - low) * ((mixed ^ mixed >> 31) >> 40) as f32 / (1 << 24) as f32
        };
        (0..count).map(|_| next()).collect()
    }
}

/// Rays through the pixels of a picture and the pixels' colours, each `[rays, 3]`.
pub(crate) struct Scene {
    origins: Tensor,
    directions: Tensor,
    pub(crate) colours: Tensor,
}

/// Sample points along the rays.
pub(crate) struct Samples {
    /// `[rays · samples, 3]`.
    pub(crate) points: Tensor,
    /// Distance to the next point, negated: `[rays, samples]`.
    pub(crate) steps: Tensor,
}

impl Scene {
    /// A sphere of radius 1 in `side` by `side` pixels, coloured by its surface normals, on black.
    pub(crate) fn sphere(side: usize, device: &Device) -> Result<Self> {
        let (mut directions, mut colours) = (Vec::new(), Vec::new());
        for pixel in 0..side * side {
            let place = |at: usize| 0.4 * ((2 * at + 1) as f32 / side as f32 - 1.0);
            let [x, y] = [place(pixel % side), -place(pixel / side)];
            let norm = (x * x + y * y + 1.0).sqrt();
            let ray = [x / norm, y / norm, -1.0 / norm];
            // The ray meets the sphere where |(0, 0, distance) + t · ray| = 1.
            let ahead = -DISTANCE * ray[2];
            let inside = ahead * ahead - DISTANCE * DISTANCE + 1.0;
            let reach = ahead - inside.max(0.0).sqrt();
            let facing = [reach * ray[0], reach * ray[1], DISTANCE + reach * ray[2]];
            colours.extend(facing.map(|part| if inside > 0.0 { 0.5 + 0.5 * part } else { 0.0 }));
            directions.extend(ray);
        }
        let origins = [0.0, 0.0, DISTANCE].repeat(side * side);
        let tensor = |numbers: &[f32]| Tensor::from_slice(numbers, (side * side, 3), device);
        made_as(Category::Input, || {
            Ok(Self { origins: tensor(&origins)?, directions: tensor(&directions)?, colours: tensor(&colours)? })
        })
    }

    /// `count` points on each ray, each at a random position within its own interval.
    pub(crate) fn sample(&self, count: usize, chance: &mut Chance) -> Result<Samples> {
        let rays = self.origins.dim(0)?;
        let length = (REACH[1] - REACH[0]) / count as f32;
        let mut distances = chance.numbers(rays * count, [0.0, length]);
        for (at, distance) in distances.iter_mut().enumerate() {
            *distance += REACH[0] + length * (at % count) as f32;
        }
        let to_next = |at: usize| match at % count {
            last if last + 1 == count => -TO_INFINITY,
            _ => distances[at] - distances[at + 1],
        };
        // Backward asks for the steps: they are kept with the graph.
        let steps = made_as(Category::Activation, || {
            op("from_vec", || Tensor::from_iter((0..rays * count).map(to_next), self.origins.device()))
        })?;
        let steps = steps.reshape((rays, count))?;
        let distances = Tensor::from_vec(distances, (rays, count, 1), self.origins.device())?;
        let along = op("broadcast_mul", || self.directions.unsqueeze(1)?.broadcast_mul(&distances))?;
        let points = op("broadcast_add", || along.broadcast_add(&self.origins.unsqueeze(1)?))?;
        Ok(Samples { points: points.reshape((rays * count, 3))?, steps })
    }
}
