//! The recurrent network from a discussion of HIPS autograd's memory use.

use highwater_recorder::{Category, scope};

use super::definition::{Scenario, ScenarioInfo, Variant};
use super::options::Options;
use super::task::{Task, data_rng, of_whole, random_input};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::models::{Rnn, RnnForm};
use crate::nn::Init;
use crate::tensor::Tensor;

pub(crate) const RNN: Scenario = Scenario {
    info: ScenarioInfo {
        name: "rnn",
        about: "a recurrent network over 100 time steps: gradients of the shared weights are accumulated in place",
        options: &["--seq", "--batch", "--width", "--dtype"],
        variants: &[
            Variant { name: "input-added", about: "the input is added without a weight" },
            Variant { name: "cell", about: "two weights and two biases, as in PyTorch's RNNCell" },
        ],
    },
    optimizer: None,
    build,
};

fn build(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (sizes, dtype) = (&options.sizes, options.dtype.unwrap_or(DType::F64));
    let (steps, batch, width) = (sizes.seq.unwrap_or(100), sizes.batch.unwrap_or(64), sizes.width.unwrap_or(1000));
    let form = match options.variant.as_deref() {
        Some("input-added") => RnnForm::Added,
        Some("cell") => RnnForm::TwoBiases,
        _ => RnnForm::Weighted,
    };
    let model = Rnn::new(&mut Init::new(device, dtype, options.seed), width, form)?;
    let inputs = random_input([steps, batch, width], dtype, device, &mut data_rng(options))?;
    let _category = scope::category(Category::Input);
    let first = Tensor::zeros([batch, width], dtype, device)?;
    of_whole(model, move |model| model.run(&inputs, &first)?.sum())
}
