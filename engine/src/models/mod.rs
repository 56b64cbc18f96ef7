//! Models: networks that scenarios train.

pub mod perceptron;
pub mod vit;
pub mod language;
pub mod gpt2;
pub mod falcon;
pub mod llama;

pub use falcon::{Falcon, FalconSize};
pub use gpt2::{Gpt2, Gpt2Size};
pub use language::LanguageModel;
pub use llama::{Llama, LlamaSize};
pub use perceptron::Perceptron;
pub use vit::{VisionTransformer, VitSize};
