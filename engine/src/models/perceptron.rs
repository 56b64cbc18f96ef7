//! Multi-layer perceptron: linear layers with ReLU between them.

use crate::nn::{Child, Init, Linear, Module, Sequence};
use crate::{Result, Tensor};

/// A multi-layer perceptron (Rosenblatt, 1958; Rumelhart et al., 1986).
#[derive(Debug)]
pub struct Perceptron {
    layers: Child<Sequence<Linear>>,
    head: Child<Linear>,
}

impl Perceptron {
    /// Creates a network with `inputs` input features, `layers` hidden layers of `width`, and `outputs` output
    /// features.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, [inputs, width, outputs]: [usize; 3], layers: usize) -> Result<Self> {
        let layer =
            |position: usize, init: &mut Init| Linear::new(init, [if position == 0 { inputs } else { width }, width]);
        let last = if layers == 0 { inputs } else { width };
        Ok(Self {
            layers: Child::new("layers", init, |init| Sequence::new(layers, init, layer))?,
            head: Child::new("head", init, |init| Linear::new(init, [last, outputs]))?,
        })
    }
}

impl Module for Perceptron {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let hidden = self.layers.run([input.clone()], |layers, [input]| {
            layers.iter().try_fold(input, |hidden, layer| layer.forward(&hidden)?.into_relu())
        })?;
        self.head.forward(&hidden)
    }

    crate::visit_fields!(layers, head);
}
