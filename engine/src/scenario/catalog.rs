//! Catalog: the scenarios, and what each is made of.

use super::error::Error;
use super::options::{OptimizerKind, Options};
use super::task::{Classification, SumOfResults, Task, labels, random_input};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::models::{Perceptron, VisionTransformer, VitSize};
use crate::nn::Init;
use crate::rng::Rng;

/// A scenario as its users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioInfo {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is and what it shows, in a sentence.
    pub about: &'static str,
    /// The options that it has beside those of every scenario, as on the command line.
    pub options: &'static [&'static str],
}

/// A scenario as it is run.
pub(crate) struct Scenario {
    /// What its users see.
    pub(crate) info: ScenarioInfo,
    /// The optimizer, unless another is asked for.
    pub(crate) optimizer: OptimizerKind,
    /// Makes the model and its data.
    pub(crate) build: fn(&Device, &Options) -> Result<Box<dyn Task>>,
}

/// The options that every scenario has.
const COMMON: [&str; 9] = [
    "--device",
    "--steps",
    "--optimizer",
    "--foreach",
    "--no-foreach",
    "--optimizer-in-backward",
    "--capacity",
    "--alloc-conf",
    "--seed",
];

const INFOS: &[ScenarioInfo] = &[VIT_L_16.info, VIT_SMALL.info, MLP.info];
const SCENARIOS: &[Scenario] = &[VIT_L_16, VIT_SMALL, MLP];

const VIT_L_16: Scenario = Scenario {
    info: ScenarioInfo {
        name: "vit-l-16",
        about: "one image through torchvision's ViT-L/16 in f32: the peak is Adam's list of temporaries, or \
                the start of backward where the optimizer runs in backward",
        options: &["--batch"],
    },
    optimizer: OptimizerKind::Adam,
    build: vit_l_16,
};

const VIT_SMALL: Scenario = Scenario {
    info: ScenarioInfo {
        name: "vit-small",
        about: "a vision transformer of 0.2 million parameters that learns the labels of 8 random images",
        options: &["--batch"],
    },
    optimizer: OptimizerKind::AdamW,
    build: vit_small,
};

const MLP: Scenario = Scenario {
    info: ScenarioInfo {
        name: "mlp",
        about: "three linear layers with ReLU between them that learn the labels of 128 random inputs",
        options: &["--batch"],
    },
    optimizer: OptimizerKind::Adam,
    build: mlp,
};

/// Every scenario.
pub fn all() -> &'static [ScenarioInfo] {
    INFOS
}

/// The scenario called `name`, if `options` asks for nothing that it has not.
pub(crate) fn find(name: &str, options: &Options) -> Result<&'static Scenario, Error> {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.info.name == name);
    let unknown =
        || Error::UnknownScenario { name: name.to_owned(), known: INFOS.iter().map(|info| info.name).collect() };
    let scenario = scenario.ok_or_else(unknown)?;
    let info = &scenario.info;
    let given = [("--batch", options.batch), ("--seq", options.seq)];
    for (option, value) in given {
        let Some(value) = value else { continue };
        if !info.options.contains(&option) {
            let known = COMMON.iter().chain(info.options).copied().collect();
            return Err(Error::UnknownOption { scenario: info.name, option, known });
        }
        if value == 0 {
            return Err(Error::OptionValue { option, value: value.to_string(), need: "give 1 or more" });
        }
    }
    Ok(scenario)
}

fn vit_l_16(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let size = VitSize::L_16;
    let model = VisionTransformer::new(&mut Init::new(device, DType::F32, options.seed), size)?;
    let shape = [options.batch.unwrap_or(1), 3, size.image, size.image];
    Ok(Box::new(SumOfResults { model, input: random_input(shape, device, &mut data_rng(options))? }))
}

fn vit_small(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let size = VitSize::SMALL;
    let model = VisionTransformer::new(&mut Init::new(device, DType::F32, options.seed), size)?;
    let batch = options.batch.unwrap_or(8);
    let input = random_input([batch, 3, size.image, size.image], device, &mut data_rng(options))?;
    Ok(Box::new(Classification { model, input, labels: labels(batch, size.classes, device)? }))
}

fn mlp(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (batch, [inputs, width, classes]) = (options.batch.unwrap_or(128), [784, 512, 10]);
    let model = Perceptron::new(&mut Init::new(device, DType::F32, options.seed), [inputs, width, classes], 2)?;
    let input = random_input([batch, inputs], device, &mut data_rng(options))?;
    Ok(Box::new(Classification { model, input, labels: labels(batch, classes, device)? }))
}

/// The random numbers of the data: other ones than the model's.
fn data_rng(options: &Options) -> Rng {
    Rng::new(!options.seed)
}
