//! Networks that are only partly trained.

use crate::nn::{Child, Filling, Init, Linear, Module, Sequence, Visitor};
use crate::{Result, Tensor};

/// t₁ + (t₂ + (t₃ + v)), where only v is trained, so that no gradient is needed for any t.
#[derive(Debug)]
pub struct FrozenSum {
    frozen: Vec<Tensor>,
    trained: Tensor,
}

impl FrozenSum {
    /// Creates three frozen matrices and a trained one, all of `width` × `width`.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, width: usize) -> Result<Self> {
        let mut matrix = || init.parameter([width, width], Filling::Normal { deviation: 1.0 });
        let frozen = (0..3).map(|_| matrix()).collect::<Result<Vec<_>>>()?;
        frozen.iter().try_for_each(|matrix| matrix.set_requires_grad(false))?;
        Ok(Self { frozen, trained: matrix()? })
    }

    /// Computes the sum of all elements of the sum of all matrices.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn loss(&self) -> Result<Tensor> {
        self.forward(&self.trained)?.sum()
    }
}

impl Module for FrozenSum {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.frozen.iter().rev().try_fold(input.clone(), |sum, frozen| sum.into_add(frozen))
    }

    fn visit(&self, visitor: &mut Visitor) {
        for (place, frozen) in self.frozen.iter().enumerate() {
            visitor.parameter(&format!("frozen.{place}"), frozen);
        }
        visitor.parameter("trained", &self.trained);
    }
}

/// Frozen layers, optionally with a parallel branch of trained layers, followed by a trained head.
#[derive(Debug)]
pub struct FrozenTrunk {
    trunk: Child<Sequence<Linear>>,
    branch: Option<Child<Sequence<Linear>>>,
    head: Child<Linear>,
}

impl FrozenTrunk {
    /// Creates `layers` frozen layers of `width`, a parallel branch of as many trained layers if `with_branch`, and a
    /// head for `classes`.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, [width, layers, classes]: [usize; 3], with_branch: bool) -> Result<Self> {
        let stack = |init: &mut Init| Sequence::new(layers, init, |_, init| Linear::new(init, [width, width]));
        let trunk = Child::new("trunk", init, stack)?;
        trunk.parameters().iter().try_for_each(|parameter| parameter.tensor.set_requires_grad(false))?;
        let branch = if with_branch { Some(Child::new("branch", init, stack)?) } else { None };
        let head = Child::new("head", init, |init| Linear::new(init, [width, classes]))?;
        Ok(Self { trunk, branch, head })
    }
}

fn run(layers: &Sequence<Linear>, [input]: [Tensor; 1]) -> Result<Tensor> {
    layers.iter().try_fold(input, |hidden, layer| layer.forward(&hidden)?.into_relu())
}

impl Module for FrozenTrunk {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut hidden = self.trunk.run([input.clone()], run)?;
        if let Some(branch) = &self.branch {
            hidden = hidden.into_add(&branch.run([input.clone()], run)?)?;
        }
        self.head.forward(&hidden)
    }

    crate::visit_fields!(trunk, branch, head);
}
