//! AdamW with 8-bit running averages.

use super::adam::{AdamW, Moments};
use super::pending::{Going, Pending, Step};
use super::rule::{Form, Rule, Update, begin_fused, count, remember};
use crate::autograd::Operation;
use crate::backend::CODE_BLOCK;
use crate::{DType, Result, Tensor};

/// AdamW with running averages of one byte per element and one f32 scale per block of 256 (Dettmers et al., "8-bit
/// Optimizers via Block-wise Quantization", 2022). It needs 2.03 bytes per parameter instead of AdamW's 8 in f32. A
/// step dequantizes, updates and quantizes again block by block in one pass, so there are no intermediate results.
///
/// Accuracy: after each step, the relative error of an average of gradients is at most 6 % if its magnitude is within a
/// factor of ten of the largest in its block, 11 % within a hundred and 18 % within a thousand; below a four-millionth
/// of the largest it becomes 0. For an average of squares the bounds are 3, 6 and 11 %, and if it is above 0 it stays
/// at least a three-millionth of the largest, so quantization makes no step larger. The step itself uses the averages
/// before they are quantized, so errors do not accumulate. Parameters with fewer than `smallest` elements, which matter
/// much and use little memory, keep unquantized averages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW8bit {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rates of the running averages of the gradient and of its square.
    pub betas: [f64; 2],
    /// Added to the divisor for numerical stability.
    pub epsilon: f64,
    /// Decoupled weight decay, which is multiplied by the learning rate.
    pub weight_decay: f64,
    /// Number of elements below which a parameter has unquantized averages, in the parameter's dtype.
    pub smallest: usize,
}

impl Default for AdamW8bit {
    fn default() -> Self {
        let AdamW { learning_rate, betas, epsilon, weight_decay, .. } = AdamW::default();
        Self { learning_rate, betas, epsilon, weight_decay, smallest: 4096 }
    }
}

/// The state of [`AdamW8bit`] for a parameter.
#[derive(Debug)]
pub enum Moments8bit {
    /// Quantized averages for a large parameter.
    Coded(Coded),
    /// Unquantized averages for a small parameter; `None` before they are allocated.
    Full(Option<Moments>),
}

/// Running averages that are stored in 8 bits, with a scale for each block.
#[derive(Debug)]
pub struct Coded {
    /// Number of steps so far, without skipped ones.
    steps: u32,
    /// Quantized running averages of the gradient and of its square.
    codes: [Tensor; 2],
    /// Largest magnitude of each block of the averages.
    scales: [Tensor; 2],
}

impl Rule for AdamW8bit {
    type State = Moments8bit;

    fn check(&self) -> Result<()> {
        self.rule().check_as("adamw_8bit")
    }

    fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.learning_rate = rate;
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn prepare<'a>(&self, mut updates: Vec<Update<'a, Moments8bit>>, pending: &mut Pending<'a>) -> Result<()> {
        {
            let _operation = Operation::begin("adamw_8bit.state", &[]);
            updates.iter_mut().try_for_each(|update| self.begin(update))?;
        }
        let rule = self.rule();
        let mut full = Vec::new();
        let op = "adamw_8bit.fused";
        let operation = Operation::begin(op, &[]);
        for update in updates {
            let Update { parameter, rounded, scope, grad, grad_scale, state } = update;
            match state {
                Some(Moments8bit::Full(state)) => {
                    full.push(Update { parameter, rounded, scope, grad, grad_scale, state });
                }
                Some(Moments8bit::Coded(Coded { steps, codes, scales })) => {
                    begin_fused(op, parameter)?;
                    count(steps);
                    let step = rule.fused_step(*steps, grad_scale);
                    let going = Going::Adam8bit([&codes[0], &codes[1], &scales[0], &scales[1]], step);
                    pending.add(Step { parameter, rounded, grad, going });
                }
                None => {}
            }
        }
        drop(operation);
        rule.prepare(full, pending)
    }
}

impl AdamW8bit {
    /// Returns the same rule with unquantized averages.
    fn rule(&self) -> AdamW {
        let Self { learning_rate, betas, epsilon, weight_decay, .. } = *self;
        AdamW { learning_rate, betas, epsilon, weight_decay, form: Form::Fused }
    }

    /// Allocates a parameter's quantized averages before its first step, unless it has fewer than `smallest` elements.
    fn begin(&self, update: &mut Update<'_, Moments8bit>) -> Result<()> {
        if update.state.is_some() {
            return Ok(());
        }
        let elements = update.parameter.elements();
        if elements < self.smallest {
            *update.state = Some(Moments8bit::Full(None));
            return Ok(());
        }
        let device = update.parameter.device();
        // A scale of 0 makes the averages 0, whatever value code 0 represents.
        let codes = || Tensor::zeros(elements, DType::U8, device);
        let scales = || Tensor::zeros(elements.div_ceil(CODE_BLOCK), DType::F32, device);
        let make = || Ok(Coded { steps: 0, codes: [codes()?, codes()?], scales: [scales()?, scales()?] });
        *update.state = Some(Moments8bit::Coded(remember(update.scope, make)?));
        Ok(())
    }
}
