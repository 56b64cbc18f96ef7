//! Models: networks that scenarios train.

pub mod perceptron;
pub mod vit;

pub use perceptron::Perceptron;
pub use vit::{VisionTransformer, VitSize};
