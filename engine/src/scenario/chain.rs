//! The chain of matrix products from a discussion of HIPS autograd's memory use.

use std::cell::RefCell;

use super::definition::{Scenario, ScenarioInfo, Variant};
use super::options::Options;
use super::task::{MicroBatch, Task, of_whole};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::models::MatmulChain;
use crate::nn::{Init, Module, Parameter};
use crate::tensor::Tensor;

pub(crate) const MATMUL_CHAIN: Scenario = Scenario {
    info: ScenarioInfo {
        name: "matmul-chain",
        about: "100 matrix products with one shared factor: memory stays flat in backward, because its gradient is accumulated in place",
        options: &["--width", "--layers", "--dtype"],
        variants: &[
            Variant { name: "both", about: "also the gradient of the first product's right factor" },
            Variant { name: "by-hand", about: "the backward loop written by hand, without autograd" },
        ],
    },
    optimizer: None,
    build,
};

struct ProductsByHand {
    chain: MatmulChain,
    rights: RefCell<Vec<Tensor>>,
}

impl Task for ProductsByHand {
    fn loss(&self, _: MicroBatch) -> Result<Tensor> {
        let (loss, rights) = self.chain.loss_by_hand()?;
        self.rights.replace(rights);
        Ok(loss)
    }

    fn backward(&self, _: &Tensor) -> Result<()> {
        self.chain.gradient_by_hand(self.rights.take())
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.chain.parameters()
    }
}

fn build(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let mut init = Init::new(device, options.dtype.unwrap_or(DType::F64), options.seed);
    let (width, length) = (options.sizes.width.unwrap_or(1000), options.sizes.layers.unwrap_or(100));
    let chain = MatmulChain::new(&mut init, width, length, options.variant.as_deref() == Some("both"))?;
    match options.variant.as_deref() {
        Some("by-hand") => Ok(Box::new(ProductsByHand { chain, rights: RefCell::new(Vec::new()) })),
        _ => of_whole(chain, MatmulChain::loss),
    }
}
