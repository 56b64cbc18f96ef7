//! Layers with named parameters, which report their scope to the recorder.
//!
//! A [`Child`] wraps a module under the name that its parent gives it, and enters that scope when the child is created,
//! called or visited. An allocation's scope (`encoder.layers.3.mlp.fc1`) and a parameter's path
//! (`encoder.layers.3.mlp.fc1.weight`) therefore always agree.

pub mod init;
pub mod module;
pub mod linear;
pub mod lora;
pub mod norm;
pub mod dropout;
pub mod embedding;
pub mod mlp;
pub mod attention;
pub mod transformer;
pub mod patch;
pub mod conv;
pub mod pool;
pub mod batch_norm;

pub use attention::MultiHeadAttention;
pub use batch_norm::BatchNorm2d;
pub use conv::{Conv2d, ConvTranspose2d};
pub use dropout::{Dropout, Dropout2d};
pub use embedding::Embedding;
pub use init::{Filling, Init};
pub use linear::{Linear, LinearFilling};
pub use lora::{LoraLinear, LoraOptions, Projection};
pub use mlp::Mlp;
pub use module::{Buffer, Child, Field, Mode, Module, Parameter, Sequence, Visitor, checkpoint_scopes};
pub use norm::{GroupNorm, LayerNorm, RmsNorm};
pub use patch::PatchEmbedding;
pub use pool::{AvgPool2d, MaxPool2d};
pub use transformer::{EncoderBlock, EncoderSize};
