//! Matrix products by cuBLASLt, with as few calls as the layouts allow.

use highwater_kernels::{Error as Cuda, Matrix, Order, Product, Workspace};

use super::elementwise;
use super::launch::{Launch, check_float, number};
use crate::backend::{Nest, Unary, View};
use crate::{Error, Layout, Result};

const OP: &str = "matmul";

/// Indices of the operands in arrays.
const OUT: usize = 0;
const LEFT: usize = 1;
const RIGHT: usize = 2;

pub(crate) fn matmul(out: View<'_>, left: View<'_>, right: View<'_>, scale: f64, keep: f64) -> Result<()> {
    check_float(OP, out.dtype)?;
    let Some(axes) = Axes::of([out.layout, left.layout, right.layout]) else {
        return if out.layout.elements() == 0 { Ok(()) } else { keep_only(out, keep) };
    };
    multiply(&axes.joined()?, [out, left, right], None, [scale, keep])
}

pub(crate) fn matmul_bias(out: View<'_>, left: View<'_>, right: View<'_>, bias: View<'_>) -> Result<()> {
    check_float(OP, out.dtype)?;
    if let Some(axes) = Axes::of([out.layout, left.layout, right.layout]) {
        let axes = axes.joined()?;
        let is_by_rows = axes.lines(OUT).is_some_and(|(order, _)| order == Order::Rows);
        // If a batch axis is merged into the columns, there are more columns than biases.
        if is_by_rows && axes.columns.length == bias.layout.elements() && bias.layout.is_contiguous() {
            match multiply(&axes, [out, left, right], Some(bias), [1.0, 0.0]) {
                // cuBLASLt cannot add this bias: copy it to the output, and add the product to it.
                Err(Error::Cuda(Cuda::NoAlgorithm { .. })) => {}
                other => return other,
            }
        }
    }
    elementwise::copy(out, View { layout: &bias.layout.expand(OP, out.layout.shape())?, ..bias })?;
    matmul(out, left, right, 1.0, 1.0)
}

/// Computes `out = keep · out`, the result of a product with an empty inner axis.
fn keep_only(out: View<'_>, keep: f64) -> Result<()> {
    let mut layout = *out.layout;
    for axis in 0..layout.shape().rank() {
        if layout.strides()[axis] == 0 {
            layout = layout.narrow(OP, axis, 0, 1)?;
        }
    }
    let once = View { layout: &layout, ..out };
    if keep == 0.0 {
        elementwise::fill(once, 0.0)
    } else if keep == 1.0 {
        Ok(())
    } else {
        elementwise::unary(once, Unary::Affine { scale: keep, shift: 0.0 }, None)
    }
}

#[derive(Clone, Copy, Debug)]
struct Axis {
    length: usize,
    /// The strides of out, left and right, which are 0 for operands without this axis.
    strides: [usize; 3],
}

impl Axis {
    /// Merges both axes, if `outer` continues where this axis ends for every operand.
    fn joined(self, outer: Self) -> Option<Self> {
        if self.length == 1 {
            return Some(outer);
        }
        let goes_on = (0..3).all(|operand| outer.strides[operand] == self.length * self.strides[operand]);
        goes_on.then(|| Self { length: self.length * outer.length, ..self })
    }
}

#[derive(Clone, Debug)]
struct Axes {
    rows: Axis,
    inner: Axis,
    columns: Axis,
    batches: Vec<Axis>,
}

impl Axes {
    /// Creates the loops from the layouts of out, left and right. Returns `None` if the inner axis or the result is
    /// empty.
    fn of(layouts: [&Layout; 3]) -> Option<Self> {
        let rank = layouts[OUT].shape().rank();
        let (rows, columns) = (layouts[OUT].shape()[rank - 2], layouts[OUT].shape()[rank - 1]);
        let inner = layouts[LEFT].shape()[rank - 1];
        assert!(
            layouts[LEFT].shape()[rank - 2..] == [rows, inner]
                && layouts[RIGHT].shape()[rank - 2..] == [inner, columns],
            "the shapes of a matrix product do not match"
        );
        if inner == 0 || layouts[OUT].elements() == 0 {
            return None;
        }
        let [out, left, right] = layouts.map(|layout| {
            let strides = layout.strides();
            [strides[rank - 2], strides[rank - 1]]
        });
        let batch = layouts.map(|layout| layout.select(rank - 1, 0).select(rank - 2, 0));
        let nest = Nest::new([&batch[OUT], &batch[LEFT], &batch[RIGHT]]);
        let (lengths, strides) = nest.axes();
        let batches = lengths.iter().enumerate().filter(|&(_, &length)| length != 1);
        Some(Self {
            rows: Axis { length: rows, strides: [out[0], left[0], 0] },
            inner: Axis { length: inner, strides: [0, left[1], right[0]] },
            columns: Axis { length: columns, strides: [out[1], 0, right[1]] },
            batches: batches.map(|(axis, &length)| Axis { length, strides: strides.map(|of| of[axis]) }).collect(),
        })
    }

    /// Merges each batch axis that is contiguous with the rows, the columns or the inner axis of all operands into that
    /// axis. A batch with the same right operand is thus one product of taller matrices, and a sum over a batch is one
    /// product with a longer inner axis. Fails if [`Self::lines`] is `None` for an operand.
    fn joined(mut self) -> Result<Self> {
        for (operand, what) in [(OUT, "result"), (LEFT, "first factor"), (RIGHT, "second factor")] {
            if self.lines(operand).is_none() {
                let [rows, columns] = self.matrix(operand);
                let (size, strides) =
                    ([rows.length, columns.length], [rows.strides[operand], columns.strides[operand]]);
                return Err(Error::Lines { op: OP, what, size, strides });
            }
        }
        let mut batches = std::mem::take(&mut self.batches);
        // From the innermost axis outwards, because a merged axis may make the next one contiguous.
        while let Some(outer) = batches.pop() {
            let [out, left, right] = outer.strides;
            let with = |axis: Axis| axis.joined(outer);
            let tries = [
                (right == 0).then(|| with(self.rows)).flatten().map(|rows| Self { rows, ..self.clone() }),
                (out == 0).then(|| with(self.inner)).flatten().map(|inner| Self { inner, ..self.clone() }),
                (left == 0).then(|| with(self.columns)).flatten().map(|columns| Self { columns, ..self.clone() }),
            ];
            let fits = |axes: &Self| [OUT, LEFT, RIGHT].into_iter().all(|operand| axes.lines(operand).is_some());
            match tries.into_iter().flatten().find(fits) {
                Some(fitting) => self = fitting,
                None => self.batches.push(outer),
            }
        }
        Ok(self)
    }

    fn matrix(&self, operand: usize) -> [Axis; 2] {
        match operand {
            OUT => [self.rows, self.columns],
            LEFT => [self.rows, self.inner],
            _ => [self.inner, self.columns],
        }
    }

    /// Returns the storage order of an operand's matrices, and the distance between the starts of their rows or
    /// columns, in elements. Returns `None` if neither are contiguous, or if they overlap.
    fn lines(&self, operand: usize) -> Option<(Order, usize)> {
        let [rows, columns] = self.matrix(operand);
        let (down, right) = (rows.strides[operand], columns.strides[operand]);
        let leading = |across: Axis, distance: usize, along: usize| {
            if across.length == 1 { Some(along) } else { Some(distance).filter(|&distance| distance >= along) }
        };
        let by_rows = || (columns.length == 1 || right == 1).then(|| leading(rows, down, columns.length))?;
        let by_columns = || (rows.length == 1 || down == 1).then(|| leading(columns, right, rows.length))?;
        let found = |order| move |leading| (order, leading);
        by_rows().map(found(Order::Rows)).or_else(|| by_columns().map(found(Order::Columns)))
    }
}

/// Submits the products over `axes`. Of the remaining batch axes, cuBLASLt processes the longest one along which the
/// matrices of the result neither overlap nor interleave, and this module loops over the others. The first product
/// written to an element is added to `keep` times its old value, or to `bias`.
fn multiply(axes: &Axes, views: [View<'_>; 3], bias: Option<View<'_>>, [scale, keep]: [f64; 2]) -> Result<()> {
    let [out, left, right] = views;
    let mut launch = Launch::new(OP, out)?;
    let (l, r) = (launch.lend(left)?, launch.lend(right)?);
    let bias = bias.map(|bias| launch.lend(bias)).transpose()?;
    let o = launch.lend_to_write(out)?;
    let (address, bytes) = launch.queue.workspace();
    let workspace = Workspace { address, bytes };
    let mut counted = axes.batches.clone();
    let extent =
        (axes.rows.length - 1) * axes.rows.strides[OUT] + (axes.columns.length - 1) * axes.columns.strides[OUT];
    let lies_apart = |&axis: &usize| counted[axis].strides[OUT] > extent;
    let longest = (0..counted.len()).filter(lies_apart).max_by_key(|&axis| counted[axis].length);
    let batch = longest.map_or(Axis { length: 1, strides: [0; 3] }, |axis| counted.remove(axis));
    let size = out.dtype.size() as u64;
    let matrix = |operand: usize, address: u64, offset: usize| {
        let (order, leading) = axes.lines(operand).expect("the joined axes have no leading dimension");
        let address = address + offset as u64 * size;
        Matrix { address, order, leading: leading as u64, batch_stride: batch.strides[operand] as u64 }
    };
    let mut position = vec![0; counted.len()];
    loop {
        let offset = |operand: usize| -> usize {
            position.iter().zip(&counted).map(|(place, axis)| place * axis.strides[operand]).sum()
        };
        let is_first = position.iter().zip(&counted).all(|(&place, axis)| place == 0 || axis.strides[OUT] != 0);
        let product = Product {
            number: number(out.dtype),
            rows: axes.rows.length as u64,
            inner: axes.inner.length as u64,
            columns: axes.columns.length as u64,
            batches: batch.length as u64,
            out: matrix(OUT, o, offset(OUT)),
            left: matrix(LEFT, l, offset(LEFT)),
            right: matrix(RIGHT, r, offset(RIGHT)),
            bias: bias.filter(|_| is_first),
            scale,
            keep: if is_first { keep } else { 1.0 },
        };
        launch.queue.multiply(&product, workspace)?;
        let next = (0..counted.len()).rev().find(|&axis| position[axis] + 1 < counted[axis].length);
        let Some(axis) = next else { return Ok(()) };
        position[axis] += 1;
        position[axis + 1..].fill(0);
    }
}
