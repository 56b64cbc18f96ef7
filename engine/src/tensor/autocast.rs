//! Autocast, which computes matrix products in half precision with parameters in single precision.

use std::cell::Cell;
use std::marker::PhantomData;

use super::Tensor;
use crate::{DType, Result};

thread_local! {
    static PRODUCTS: Cell<Option<DType>> = const { Cell::new(None) };
}

/// Makes linear layers, matrix products and [`Tensor::linear_cross_entropy`] compute in `dtype` on this thread,
/// whatever the floating-point types of their inputs, until the guard is dropped. Elementwise sums, differences and
/// products of different types have the wider type, and layer, RMS and group norms have the type of their weights.
/// Parameters, their gradients and the optimizer's state are unchanged. This is mixed precision as in PyTorch's
/// `torch.autocast` (Micikevicius et al.: "Mixed Precision Training", 2018). Converted weights are not saved for
/// backward, but converted again.
pub fn autocast(dtype: DType) -> AutocastGuard {
    AutocastGuard::set(Some(dtype))
}

/// A guard that restores the previous autocast mode when dropped. Cannot be sent to another thread.
#[must_use = "dropping the guard immediately restores the previous mode"]
#[derive(Debug)]
pub struct AutocastGuard {
    former: Option<DType>,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl AutocastGuard {
    pub(crate) fn set(dtype: Option<DType>) -> Self {
        Self { former: PRODUCTS.replace(dtype), stays_on_its_thread: PhantomData }
    }
}

impl Drop for AutocastGuard {
    fn drop(&mut self) {
        PRODUCTS.set(self.former);
    }
}

/// Returns the data type of products on this thread, if autocast sets one.
pub(crate) fn of_products() -> Option<DType> {
    PRODUCTS.get()
}

/// Returns the dtype to which the operands of a product are converted; `None` if all operands already have it.
pub(crate) fn for_product(operands: &[&Tensor]) -> Option<DType> {
    let dtype = of_products()?;
    let all_floats = operands.iter().all(|operand| operand.dtype().is_float());
    (all_floats && operands.iter().any(|operand| operand.dtype() != dtype)).then_some(dtype)
}

impl Tensor {
    /// Returns both operands of a sum in the wider dtype, if autocast is on and their dtypes differ.
    pub(crate) fn widened(&self, other: &Self) -> Result<Option<(Self, Self)>> {
        let (left, right) = (self.dtype(), other.dtype());
        if of_products().is_none() || left == right || !left.is_float() || !right.is_float() {
            return Ok(None);
        }
        let wider = match left.size().cmp(&right.size()) {
            std::cmp::Ordering::Less => right,
            std::cmp::Ordering::Greater => left,
            std::cmp::Ordering::Equal => DType::F32,
        };
        Ok(Some((self.to_dtype(wider)?, other.to_dtype(wider)?)))
    }
}
