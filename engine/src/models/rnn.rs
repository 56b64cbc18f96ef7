//! A single-layer recurrent neural network.

use crate::nn::{Child, Filling, Init, Linear, Module, Visitor};
use crate::{Error, Result, Tensor};

#[derive(Debug)]
enum Cell {
    /// tanh(x·Wx + h·Wh + b).
    Weighted { input_weight: Tensor, hidden_weight: Tensor, bias: Tensor },
    /// tanh(x + h·Wh + b).
    Added { hidden_weight: Tensor, bias: Tensor },
    /// tanh(Wx·x + bx + Wh·h + bh), like PyTorch's `RNNCell`.
    TwoBiases { input: Child<Linear>, hidden: Child<Linear> },
}

/// The form of an [`Rnn`]'s step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RnnForm {
    /// Separate weights for input and state, and one bias.
    #[default]
    Weighted,
    /// The input, which has the width of the state, is added without a weight.
    Added,
    /// Separate weights and biases for input and state.
    TwoBiases,
}

/// A recurrent network (Elman, 1990). Its hidden size equals the size of its input.
#[derive(Debug)]
pub struct Rnn {
    cell: Cell,
}

impl Rnn {
    /// Creates a network of hidden size `width`, initialized uniformly within ±1/√width.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, width: usize, form: RnnForm) -> Result<Self> {
        let filling = Filling::kaiming_uniform(width);
        let square = |init: &mut Init| init.parameter([width, width], filling);
        let cell = match form {
            RnnForm::Weighted => Cell::Weighted {
                input_weight: square(init)?,
                hidden_weight: square(init)?,
                bias: init.parameter(width, filling)?,
            },
            RnnForm::Added => Cell::Added { hidden_weight: square(init)?, bias: init.parameter(width, filling)? },
            RnnForm::TwoBiases => Cell::TwoBiases {
                input: Child::new("input", init, |init| Linear::new(init, [width, width]))?,
                hidden: Child::new("hidden", init, |init| Linear::new(init, [width, width]))?,
            },
        };
        Ok(Self { cell })
    }

    /// Computes the state after `state` from one step's `input`. All three have shape `[batch, width]`.
    ///
    /// # Errors
    /// Fails if shapes or dtypes do not match, or if memory cannot be allocated.
    pub fn step(&self, input: &Tensor, state: &Tensor) -> Result<Tensor> {
        let sum = match &self.cell {
            Cell::Weighted { input_weight, hidden_weight, bias } => {
                state.matmul(hidden_weight)?.into_add(&input.matmul(input_weight)?)?.into_add(bias)
            }
            Cell::Added { hidden_weight, bias } => state.matmul(hidden_weight)?.into_add(input)?.into_add(bias),
            Cell::TwoBiases { input: of_input, hidden } => hidden.forward(state)?.into_add(&of_input.forward(input)?),
        }?;
        sum.tanh()
    }

    /// Computes the last state from the initial state `first` and inputs `[steps, batch, width]`.
    ///
    /// # Errors
    /// Fails if shapes or dtypes do not match, or if memory cannot be allocated.
    pub fn run(&self, inputs: &Tensor, first: &Tensor) -> Result<Tensor> {
        check_inputs(inputs)?;
        (0..inputs.shape()[0]).try_fold(first.clone(), |state, time| self.step(&inputs.select(0, time)?, &state))
    }
}

impl Module for Rnn {
    /// Computes the last state after inputs `[steps, batch, width]`, from an initial state of zeros.
    fn forward(&self, inputs: &Tensor) -> Result<Tensor> {
        check_inputs(inputs)?;
        let first = Tensor::zeros([inputs.shape()[1], inputs.shape()[2]], inputs.dtype(), inputs.device())?;
        self.run(inputs, &first)
    }

    fn visit(&self, visitor: &mut Visitor) {
        match &self.cell {
            Cell::Weighted { input_weight, hidden_weight, bias } => {
                visitor.parameter("input_weight", input_weight);
                visitor.parameter("hidden_weight", hidden_weight);
                visitor.parameter("bias", bias);
            }
            Cell::Added { hidden_weight, bias } => {
                visitor.parameter("hidden_weight", hidden_weight);
                visitor.parameter("bias", bias);
            }
            Cell::TwoBiases { input, hidden } => {
                visitor.child(input);
                visitor.child(hidden);
            }
        }
    }
}

fn check_inputs(inputs: &Tensor) -> Result<()> {
    if inputs.rank() == 3 {
        Ok(())
    } else {
        Err(Error::shape("rnn", inputs.shape(), "expected inputs of shape [steps, batch, width]"))
    }
}
