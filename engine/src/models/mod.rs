//! Models that the scenarios train.

pub mod perceptron;
pub mod vit;
pub mod language;
pub mod gpt2;
pub mod falcon;
pub mod llama;
pub mod nerf;
pub mod chain;
pub mod rnn;
pub mod branch;
pub mod vgg;
pub mod fcn;

pub use branch::{FrozenSum, FrozenTrunk};
pub use chain::MatmulChain;
pub use falcon::{Falcon, FalconSize};
pub use fcn::{Fcn, FcnPadding, FcnSize, FcnStride};
pub use gpt2::{Gpt2, Gpt2Size};
pub use language::LanguageModel;
pub use llama::{Llama, LlamaSize};
pub use nerf::{Nerf, NerfSize};
pub use perceptron::Perceptron;
pub use rnn::{Rnn, RnnForm};
pub use vgg::Vgg16;
pub use vit::{VisionTransformer, VitSize};
