//! Batched matrix products with as few calls as the layouts allow, and their gradients.
//!
//! Shared by matmul and linear. Decisions depend only on shapes and layouts, never on values, so every device allocates
//! the same memory.

use crate::autograd::{InputGradients, Saved};
use crate::backend::{self, View};
use crate::{Error, Layout, Result, Shape, Tensor};

/// Returns the axes before the last two.
pub(super) fn batch_of(shape: &Shape) -> Shape {
    Shape::filled(&shape[..shape.rank() - 2])
}

pub(super) fn with_matrix(op: &'static str, batch: &Shape, rows: usize, columns: usize) -> Result<Shape> {
    batch.with_last(op, rows)?.with_last(op, columns)
}

impl Tensor {
    /// Returns this tensor without history if its matrices are stored by rows or by columns, as matrix products
    /// require; otherwise a copy.
    pub(super) fn operand(&self) -> Result<Self> {
        if is_by_lines(*self.layout()) { Ok(self.detach()) } else { self.copied() }
    }

    /// Returns a view with the last two axes exchanged, without history.
    pub(super) fn transposed(&self) -> Self {
        let rank = self.rank();
        self.with_layout(self.layout().transpose(rank - 2, rank - 1))
    }
}

/// Returns whether matrices are stored by rows or by columns, without overlap.
pub(super) fn is_by_lines(layout: Layout) -> bool {
    let (shape, strides) = (layout.shape(), layout.strides());
    let rank = shape.rank();
    let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
    let (down, right) = (strides[rank - 2], strides[rank - 1]);
    let by_rows = (columns <= 1 || right == 1) && (rows <= 1 || down >= columns.max(1));
    let by_columns = (rows <= 1 || down == 1) && (columns <= 1 || right >= rows.max(1));
    by_rows || by_columns
}

/// Returns all axes except the last joined into one, if this needs no copy.
fn fold(layout: &Layout) -> Option<Layout> {
    let shape = layout.shape();
    let last = shape.rank() - 1;
    let rows = shape[..last].iter().product();
    layout.reshape(&Shape::from([rows, shape[last]]))
}

fn turn(layout: &Layout) -> Layout {
    let rank = layout.shape().rank();
    layout.transpose(rank - 2, rank - 1)
}

/// Computes `out = left · right + keep · out`, summed over the batch axes that are missing in `out` or have length 1.
/// Operands are those returned by [`Tensor::operand`].
pub(super) fn multiply(out: &Tensor, left: &Tensor, right: &Tensor, keep: f64) -> Result<()> {
    multiply_scaled(out, left, right, [1.0, keep])
}

pub(super) fn multiply_scaled(out: &Tensor, left: &Tensor, right: &Tensor, [scale, keep]: [f64; 2]) -> Result<()> {
    multiply_onto(out, left, right, Onto::Kept { scale, keep })
}

/// Computes `out = left · right + bias`, with one element of `bias` per column. Does not sum over batches.
pub(super) fn multiply_onto_bias(out: &Tensor, left: &Tensor, right: &Tensor, bias: &Tensor) -> Result<()> {
    multiply_onto(out, left, right, Onto::Bias(bias))
}

/// Whether a product is added to `keep` times the destination, or to a bias.
#[derive(Clone, Copy)]
enum Onto<'a> {
    Kept { scale: f64, keep: f64 },
    Bias(&'a Tensor),
}

fn multiply_onto(out: &Tensor, left: &Tensor, right: &Tensor, onto: Onto<'_>) -> Result<()> {
    let out = out.view();
    let op = "matmul";
    let [in_batch, left_batch, right_batch] = [out.layout.shape(), left.shape(), right.shape()].map(batch_of);
    let run = |o: &Layout, l: &Layout, r: &Layout| {
        let (left, right) = (View { layout: l, ..left.view() }, View { layout: r, ..right.view() });
        let out = View { layout: o, ..out };
        match onto {
            Onto::Kept { scale, keep } => backend::matmul(out, left, right, scale, keep),
            Onto::Bias(bias) => backend::matmul_bias(out, left, right, bias.view()),
        }
    };
    // One product of a taller left matrix, with the rows of all batches below one another …
    if right_batch.rank() == 0
        && in_batch == left_batch
        && let (Some(o), Some(l)) = (fold(out.layout), fold(left.layout()))
    {
        return run(&o, &l, right.layout());
    }
    // … or, if batches are summed, one product whose inner axis joins the batch axes and the inner axis.
    if in_batch.rank() == 0
        && left_batch == right_batch
        && let (Some(l), Some(r)) = (fold(&turn(left.layout())), fold(right.layout()))
    {
        return run(out.layout, &turn(&l), &r);
    }
    let batch = Shape::broadcast(op, &left_batch, &right_batch)?;
    if batch.elements() == 0 {
        // A product over an empty axis is zero.
        let is_kept = matches!(onto, Onto::Kept { keep, .. } if keep != 0.0);
        return if is_kept { Ok(()) } else { backend::fill(out, 0.0) };
    }
    let spread = |layout: &Layout| {
        let shape = layout.shape();
        layout.expand(op, &with_matrix(op, &batch, shape[shape.rank() - 2], shape[shape.rank() - 1])?)
    };
    run(&spread(out.layout)?, &spread(left.layout())?, &spread(right.layout())?)
}

/// The tensors saved for the gradients of a product. Each input is saved if the other input requires a gradient.
pub(super) struct ProductGradient {
    pub(super) op: &'static str,
    pub(super) left: Option<Saved>,
    /// The right input as given, `[inner, columns]` or `[columns, inner]`.
    pub(super) right: Option<Saved>,
    pub(super) right_is_turned: RightIs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RightIs {
    /// `[inner, columns]`, as in matmul.
    Plain,
    /// `[columns, inner]`, as in the weight of a linear layer.
    Transposed,
}

impl RightIs {
    /// Returns the tensor as `[inner, columns]`, or the reverse.
    fn turn(self, tensor: &Tensor) -> Tensor {
        match self {
            Self::Plain => tensor.detach(),
            Self::Transposed => tensor.transposed(),
        }
    }
}

/// The gradient of the result. If all its rows or all its columns are equal (as after a sum), it is represented by one
/// of them, and nothing is copied.
struct Incoming {
    grad: Tensor,
    rows: usize,
    columns: usize,
    same_rows: bool,
    same_columns: bool,
}

impl Incoming {
    fn new(grad: Tensor) -> Result<Self> {
        let rank = grad.rank();
        let (rows, columns) = (grad.shape()[rank - 2], grad.shape()[rank - 1]);
        let strides = grad.layout().strides();
        let same_rows = rows > 1 && strides[rank - 2] == 0;
        let same_columns = columns > 1 && strides[rank - 1] == 0;
        let mut layout = *grad.layout();
        if same_rows {
            layout = layout.narrow("matmul", rank - 2, 0, 1)?;
        }
        if same_columns {
            layout = layout.narrow("matmul", rank - 1, 0, 1)?;
        }
        let narrowed = grad.with_layout(layout);
        drop(grad);
        let grad = narrowed.operand()?;
        Ok(Self { grad, rows, columns, same_rows, same_columns })
    }
}

impl ProductGradient {
    /// Accumulates the gradients of inputs 0 (left) and 1 (right). The gradient of the right input is computed first,
    /// so that the other can overwrite the saved left input.
    pub(super) fn backward(self, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let Self { op, left, right, right_is_turned } = self;
        let incoming = Incoming::new(grad)?;
        let mut reusable = None;
        if let Some(left) = left {
            let left = left.take(op)?;
            give_right(&incoming, &left, right_is_turned, inputs)?;
            reusable = Some(left);
        }
        let Some(right) = right else { return Ok(()) };
        let right = right_is_turned.turn(&right.take(op)?);
        give_left(&incoming, reusable, &right, inputs)
    }
}

/// Accumulates `leftᵀ · grad`.
fn give_right(incoming: &Incoming, left: &Tensor, right_is: RightIs, inputs: &mut InputGradients<'_>) -> Result<()> {
    let rank = left.rank();
    let left = if incoming.same_rows { left.sum_over(&[rank - 2], 1.0)? } else { left.operand()? };
    let Some(shape) = inputs.shape(1).copied() else {
        return Ok(());
    };
    if incoming.same_columns {
        let (batch, inner) = (batch_of(&shape), left.shape()[rank - 1]);
        let column = Tensor::empty(with_matrix("matmul", &batch, inner, 1)?, left.dtype(), left.device())?;
        multiply(&column, &left.transposed(), &incoming.grad, 0.0)?;
        let all = column.broadcast_to("matmul", &with_matrix("matmul", &batch, inner, incoming.columns)?)?;
        drop(column);
        let transposed = right_is.turn(&all);
        drop(all);
        return inputs.give(1, transposed);
    }
    let (sum, keep) = match inputs.take_sum(1) {
        Some(sum) => (sum, 1.0),
        None => (inputs.allocate(1, &left)?, 0.0),
    };
    multiply(&right_is.turn(&sum), &left.transposed(), &incoming.grad, keep)?;
    inputs.give(1, sum)
}

/// Accumulates `grad · rightᵀ`, in the memory of the left input if it is not shared.
fn give_left(
    incoming: &Incoming,
    reusable: Option<Tensor>,
    right: &Tensor,
    inputs: &mut InputGradients<'_>,
) -> Result<()> {
    let rank = right.rank();
    let right = if incoming.same_columns { right.sum_over(&[rank - 1], 1.0)? } else { right.operand()? };
    let Some(shape) = inputs.shape(0).copied() else {
        return Ok(());
    };
    if incoming.same_rows {
        let (batch, inner) = (batch_of(&shape), right.shape()[rank - 2]);
        let row = Tensor::empty(with_matrix("matmul", &batch, 1, inner)?, right.dtype(), right.device())?;
        multiply(&row, &incoming.grad, &right.transposed(), 0.0)?;
        let all = row.broadcast_to("matmul", &with_matrix("matmul", &batch, incoming.rows, inner)?)?;
        drop(row);
        return inputs.give(0, all);
    }
    if let Some(sum) = inputs.take_sum(0) {
        multiply(&sum, &incoming.grad, &right.transposed(), 1.0)?;
        return inputs.give(0, sum);
    }
    let reusable = reusable.filter(|left| left.is_free_in_order() && left.fills_storage());
    let out = match reusable {
        Some(left) => {
            left.storage().changed();
            left
        }
        None => inputs.allocate(0, &right)?,
    };
    multiply(&out, &incoming.grad, &right.transposed(), 0.0)?;
    inputs.give(0, out)
}

/// Fails unless `left` is `[…, rows, inner]`, and `right` has at least two axes of which the matching one has length
/// `inner`.
pub(super) fn check(op: &'static str, left: &Tensor, right: &Tensor, right_is: RightIs) -> Result<()> {
    left.check_operand(op, right)?;
    left.check_float(op)?;
    let inner_from_end = if right_is == RightIs::Plain { 2 } else { 1 };
    let fits = left.rank() >= 1
        && right.rank() >= 2
        && left.shape()[left.rank() - 1] == right.shape()[right.rank() - inner_from_end];
    let need = match right_is {
        RightIs::Plain => "expected […, m, k] and […, k, n]",
        RightIs::Transposed => "expected an input of shape […, inputs] and a weight of shape [outputs, inputs]",
    };
    if fits { Ok(()) } else { Err(Error::shapes(op, left.shape(), right.shape(), need)) }
}
