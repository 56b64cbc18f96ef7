//! Counts the work of primitives, as floating-point operations and as bytes that are read or written.
//!
//! | primitive | floating-point operations |
//! |---|---|
//! | matrix product of `[m, k]` and `[k, n]` | 2·m·n·k |
//! | attention, q queries, k keys and width w per head | 4·q·k·w; backward 10·q·k·w. A mask does not lower it |
//! | fills, copies, gathers and the like | 0 |
//! | all others | 1 per element of the largest operand |
//!
//! These are the conventions of PyTorch's `FlopCounterMode`, which omits the last row. Bytes are those of all operands,
//! each counted once even if it is both read and written, without the elements that a broadcast repeats. Of a table,
//! only the rows that are gathered count, or twice the rows that are added to it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Add, AddAssign};

use highwater_recorder::{OpId, ScopeId, scope};

use super::operand::Argument;
use crate::DType;

/// The work of some primitives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Number of primitive calls. On a GPU, most launch one kernel or more; calls in [`run_all`](super::run_all) may
    /// share one.
    pub calls: u64,
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let Self { flops, bytes, calls } = other;
        Self {
            flops: self.flops.saturating_add(flops),
            bytes: self.bytes.saturating_add(bytes),
            calls: self.calls.saturating_add(calls),
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The work of one primitive, in the quantities that determine its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrimitiveCost {
    /// The dtype of the operands of a matrix product or of attention; `None` for other primitives.
    pub product: Option<DType>,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read or written.
    pub bytes: u64,
}

/// The work of some code, by the scope in which it ran, and by primitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// The work in each scope, without that of nested scopes.
    pub by_scope: BTreeMap<ScopeId, Cost>,
    /// The work of each operation, including its forward, recomputation and backward. Operations have ids only while
    /// they are recorded.
    pub by_op: BTreeMap<OpId, Cost>,
    /// The number of runs of primitives with the same work.
    pub primitives: BTreeMap<PrimitiveCost, u64>,
}

impl Costs {
    /// Returns the sum over all scopes.
    pub fn total(&self) -> Cost {
        self.by_scope.values().fold(Cost::default(), |sum, cost| sum + *cost)
    }
}

thread_local! {
    static COUNTED: RefCell<Option<Costs>> = const { RefCell::new(None) };
}

/// Runs `code`, and returns its result and the work of all primitives that it ran on this thread. The work is the same
/// on every device. Work counted by a call within `code` is not counted again.
pub fn count<R>(code: impl FnOnce() -> R) -> (R, Costs) {
    let outer = COUNTED.replace(Some(Costs::default()));
    let restore = Restore(Some(outer));
    let result = code();
    let costs = COUNTED.take().unwrap_or_default();
    drop(restore);
    (result, costs)
}

/// Restores an outer count when dropped, also after a panic.
struct Restore(Option<Option<Costs>>);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(outer) = self.0.take() {
            COUNTED.set(outer);
        }
    }
}

#[inline]
pub(super) fn is_counted() -> bool {
    COUNTED.with_borrow(Option::is_some)
}

pub(super) fn add(primitive: &str, arguments: &[&dyn Argument]) {
    let mut operands = Vec::new();
    for argument in arguments {
        argument.views(&mut |view| {
            let shape = view.layout.shape();
            let axes = (0..shape.rank()).map(|axis| (shape[axis], view.layout.strides()[axis]));
            let distinct = axes.map(|(length, stride)| if stride == 0 { 1 } else { length as u64 }).product::<u64>();
            let distinct = if shape.elements() == 0 { 0 } else { distinct };
            let from_end = |place: usize| shape.rank().checked_sub(place).map_or(1, |axis| shape[axis] as u64);
            operands.push(Operand {
                elements: shape.elements() as u64,
                bytes: distinct * view.dtype.size() as u64,
                columns: from_end(1),
                rows: from_end(2),
                dtype: view.dtype,
            });
        });
    }
    let cost = Cost { flops: flops(primitive, &operands), bytes: bytes(primitive, &operands), calls: 1 };
    let one = PrimitiveCost { product: product_dtype(primitive, &operands), flops: cost.flops, bytes: cost.bytes };
    let (scope, op) = (scope::current_scope(), scope::current_op());
    COUNTED.with_borrow_mut(|counted| {
        if let Some(costs) = counted {
            *costs.by_scope.entry(scope).or_default() += cost;
            *costs.by_op.entry(op).or_default() += cost;
            *costs.primitives.entry(one).or_default() += 1;
        }
    });
}

#[derive(Clone, Copy, Debug)]
struct Operand {
    elements: u64,
    /// Bytes of distinct elements.
    bytes: u64,
    /// Length of the last axis.
    columns: u64,
    /// Length of the second to last axis.
    rows: u64,
    dtype: DType,
}

fn product_dtype(primitive: &str, operands: &[Operand]) -> Option<DType> {
    let operand = match primitive {
        "matmul" | "matmul_bias" => 1,
        "attention" | "attention_backward" => 0,
        _ => return None,
    };
    operands.get(operand).map(|operand| operand.dtype)
}

fn flops(primitive: &str, operands: &[Operand]) -> u64 {
    let product = |scale: u64, out: usize, other: u64| {
        operands.get(out).map_or(0, |out| scale.saturating_mul(out.elements).saturating_mul(other))
    };
    let columns = |operand: usize| operands.get(operand).map_or(0, |operand| operand.columns);
    let rows = |operand: usize| operands.get(operand).map_or(0, |operand| operand.rows);
    match primitive {
        "matmul" | "matmul_bias" => product(2, 0, columns(1)),
        // Operand 3 is the key.
        "attention" => product(4, 0, rows(3)),
        // Operand 7 is the key.
        "attention_backward" => product(10, 0, rows(7)),
        "fill" | "copy" | "cast" | "random" | "arange" | "gather_rows" | "gather" | "unfold" | "clear" => 0,
        _ => operands.iter().map(|operand| operand.elements).max().unwrap_or(0),
    }
}

fn bytes(primitive: &str, operands: &[Operand]) -> u64 {
    let sum = |operands: &[Operand]| operands.iter().map(|operand| operand.bytes).sum::<u64>();
    match (primitive, operands) {
        // Of the table, as many bytes are read as the output has.
        ("gather_rows", [out, _, indices]) => 2 * out.bytes + indices.bytes,
        ("add_rows", [_, rows, indices]) => 3 * rows.bytes + indices.bytes,
        _ => sum(operands),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::AttentionOptions;
    use crate::{Device, Tensor};

    fn zeros<const N: usize>(shape: [usize; N], device: &Device) -> Tensor
    where
        crate::Shape: From<[usize; N]>,
    {
        Tensor::zeros(shape, DType::F32, device).unwrap()
    }

    #[test]
    fn products_and_attention_are_counted_by_their_sizes_and_copies_by_their_bytes() {
        let device = Device::accounting(1 << 30);
        let (left, right) = (zeros([3, 5, 7], &device), zeros([7, 11], &device));
        let (_, costs) = count(|| left.matmul(&right).unwrap());
        assert_eq!(
            costs.total(),
            Cost { flops: 2 * 3 * 5 * 7 * 11, bytes: 4 * (3 * 5 * 7 + 7 * 11 + 3 * 5 * 11), calls: 1 }
        );
        assert!(costs.primitives.into_iter().all(|(one, count)| (one.product, count) == (Some(DType::F32), 1)));
        let heads = zeros([2, 4, 16, 8], &device);
        let (_, costs) = count(|| Tensor::attention(&heads, &heads, &heads, AttentionOptions::causal()).unwrap());
        assert_eq!(costs.total().flops, 4 * 2 * 4 * 16 * 16 * 8);
        let (_, costs) = count(|| zeros([4, 4], &device).transpose(0, 1).unwrap().contiguous().unwrap());
        assert_eq!(costs.total(), Cost { flops: 0, bytes: 3 * 64, calls: 2 }, "zeros, then a copy");
        let (_, costs) = count(|| zeros([4, 4], &device).transpose(0, 1).unwrap());
        assert_eq!(costs.total().flops, 0, "a view does no work");
    }

    #[test]
    fn counts_nest_and_end_after_a_panic() {
        let one = zeros([8], &Device::accounting(1 << 30));
        let (inner, outer) = count(|| count(|| one.exp().unwrap()).1);
        assert_eq!((inner.total().flops, outer.total().flops), (8, 0));
        let failed = std::panic::catch_unwind(|| count(|| panic!("as a test")));
        assert!(failed.is_err() && !is_counted());
    }
}
