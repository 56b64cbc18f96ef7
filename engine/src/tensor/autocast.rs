//! Autocast: matrix products in half precision over parameters in single precision.

use std::cell::Cell;
use std::marker::PhantomData;

use super::Tensor;
use crate::dtype::DType;
use crate::error::Result;

thread_local! {
    static PRODUCTS: Cell<Option<DType>> = const { Cell::new(None) };
}

/// Has linear layers, matrix products and the losses behind them compute in `dtype` on this thread, whatever the type
/// of what they are given, until the guard drops. Sums of different types are of the wider one, norms of their
/// weights'. Parameters, their gradients and the optimizer's state stay as they are: mixed precision in the way of
/// PyTorch's `torch.autocast` (Micikevicius et al.: "Mixed Precision Training", 2018). Converted weights are not kept
/// for backward, but converted again.
pub fn autocast(dtype: DType) -> AutocastGuard {
    AutocastGuard::set(Some(dtype))
}

/// Restores the former way when dropped. Stays on its thread.
#[must_use = "the former way is restored when the guard is dropped"]
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

/// The type of products on this thread, if they have one of their own.
pub(crate) fn of_products() -> Option<DType> {
    PRODUCTS.get()
}

/// The type that a product of these is to be converted to, if any is of another.
pub(crate) fn for_product(operands: &[&Tensor]) -> Option<DType> {
    let dtype = of_products()?;
    let all_fractions = operands.iter().all(|operand| operand.dtype().is_float());
    (all_fractions && operands.iter().any(|operand| operand.dtype() != dtype)).then_some(dtype)
}

impl Tensor {
    /// Both operands of a sum in the wider's type, where types are converted by themselves and these differ.
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
