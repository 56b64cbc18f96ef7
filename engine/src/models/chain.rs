//! A long product of one matrix with itself, differentiated by the graph or by hand.

use highwater_recorder::Category;

use crate::autograd::no_grad;
use crate::error::Result;
use crate::nn::{Filling, Init, Module};
use crate::tensor::Tensor;

/// x · (x · (… · (x · z))): the loop in which an engine that adds up gradients late, or out of place, runs out of
/// memory.
#[derive(Debug)]
pub struct MatmulChain {
    factor: Tensor,
    start: Tensor,
    length: usize,
}

impl MatmulChain {
    /// `length` products of matrices of `width` by `width`, with numbers so small that the result stays in range. Only
    /// the factor x requires a gradient, unless `start_too`.
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

    /// The sum of the last product.
    pub fn loss(&self) -> Result<Tensor> {
        self.forward(&self.start)?.sum()
    }

    /// The same without a graph, and the right factor of each product in order.
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

    /// The gradient of x, by a loop written out: each right factor is dropped when it has served.
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
