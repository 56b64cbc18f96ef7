//! A long chain of products with the same matrix, differentiated by autograd or by hand.

use highwater_recorder::Category;

use crate::nn::{Filling, Init, Module};
use crate::{Result, Tensor, no_grad};

/// x · (x · (… · (x · z))), a loop in which an engine runs out of memory if it accumulates gradients late or out of
/// place.
#[derive(Debug)]
pub struct MatmulChain {
    factor: Tensor,
    start: Tensor,
    length: usize,
}

impl MatmulChain {
    /// Creates a chain of `length` products of matrices of `width` × `width`, with values small enough to keep the
    /// result in range. Only the factor x requires a gradient, unless `start_too`.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, width: usize, length: usize, start_too: bool) -> Result<Self> {
        let filling = Filling::Normal { deviation: 1.0 / (width as f64).sqrt() };
        let chain = Self {
            factor: init.parameter([width, width], filling)?,
            start: init.parameter([width, width], filling)?,
            length,
        };
        chain.start.set_requires_grad(start_too)?;
        Ok(chain)
    }

    /// Computes the sum of the elements of the last product.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn loss(&self) -> Result<Tensor> {
        self.forward(&self.start)?.sum()
    }

    /// Like [`Self::loss`], but without a graph. Also returns the right operand of each product, in order.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn loss_by_hand(&self) -> Result<(Tensor, Vec<Tensor>)> {
        let _mode = no_grad();
        let mut product = self.start.clone();
        let mut rights = Vec::new();
        for _ in 0..self.length {
            let next = self.factor.matmul(&product)?;
            rights.push(std::mem::replace(&mut product, next));
        }
        Ok((product.sum()?, rights))
    }

    /// Computes the gradient of x, and replaces that of its leaf, by an explicit loop that drops each of the `rights`
    /// of [`Self::loss_by_hand`] after its last use. Changes nothing if there are none.
    ///
    /// # Errors
    /// Fails if shapes do not match, or if memory cannot be allocated.
    pub fn gradient_by_hand(&self, mut rights: Vec<Tensor>) -> Result<()> {
        let _mode = no_grad();
        let transposed = self.factor.transpose(0, 1)?;
        let mut grad = Tensor::ones((), self.factor.dtype(), self.factor.device())?.expand(self.factor.shape())?;
        let mut sum: Option<Tensor> = None;
        while let Some(right) = rights.pop() {
            let share = grad.matmul(&right.transpose(0, 1)?)?;
            drop(right);
            match &sum {
                Some(sum) => sum.add_(&share)?,
                None => {
                    share.tag(Category::Gradient);
                    sum = Some(share);
                }
            }
            if !rights.is_empty() {
                grad = transposed.matmul(&grad)?;
            }
        }
        match sum {
            Some(sum) => self.factor.set_grad(sum),
            None => Ok(()),
        }
    }
}

impl Module for MatmulChain {
    fn forward(&self, start: &Tensor) -> Result<Tensor> {
        (0..self.length).try_fold(start.clone(), |product, _| self.factor.matmul(&product))
    }

    crate::visit_fields!(factor, start);
}
