//! Matmul: matrix products over strided operands, by the matrixmultiply crate.
#![expect(unsafe_code, reason = "the matrix product takes pointers and strides, so that no operand needs a copy")]

use half::{bf16, f16};
use rayon::prelude::*;

use super::nest::Nest;
use super::number::{Float, Real, with_float};
use crate::backend::View;
use crate::error::Result;
use crate::layout::Layout;

/// Fewer multiplications than this are not worth a second thread.
const MULTIPLICATIONS_A_TASK: usize = 1 << 18;

/// See [`crate::backend::matmul`].
pub fn matmul(out: View<'_>, left: View<'_>, right: View<'_>, scale: f64, keep: f64) -> Result<()> {
    with_float!("matmul", out.dtype, T => matmul_as::<T>(out, left, right, scale, keep))
}

fn matmul_as<T: Product>(out: View<'_>, left: View<'_>, right: View<'_>, scale: f64, keep: f64) -> Result<()> {
    let (l, r) = (left.storage.read::<T>("matmul")?, right.storage.read::<T>("matmul")?);
    let mut o = out.storage.write::<T>("matmul")?;
    let fits = out.layout.end() <= o.len() && left.layout.end() <= l.len() && right.layout.end() <= r.len();
    assert!(fits, "a view ends within its storage");
    let rank = out.layout.shape().rank();
    let (m, n, k) = (out.layout.shape()[rank - 2], out.layout.shape()[rank - 1], left.layout.shape()[rank - 1]);
    assert!(
        left.layout.shape()[rank - 2..] == [m, k] && right.layout.shape()[rank - 2..] == [k, n],
        "the shapes of a matrix product are checked by its operation"
    );
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let strides = |layout: &Layout| [layout.strides()[rank - 2] as isize, layout.strides()[rank - 1] as isize];
    let (of_out, of_left, of_right) = (strides(out.layout), strides(left.layout), strides(right.layout));
    let batch = [out.layout, left.layout, right.layout].map(|layout| {
        let matrix = layout.shape().rank();
        layout.select(matrix - 1, 0).select(matrix - 2, 0)
    });
    let mut written = None;
    // Axes that are summed have stride 0 in the output, so the nest makes them innermost: products that are summed
    // follow one another, and only the first meets what the output held.
    Nest::new([&batch[0], &batch[1], &batch[2]]).each(|[at_out, at_left, at_right]| {
        let keep = if written == Some(at_out) { 1.0 } else { keep };
        written = Some(at_out);
        // An operand without elements (k = 0) is never read; its offset may lie past its end.
        let (l, r) = (&l[at_left.min(l.len())..], &r[at_right.min(r.len())..]);
        let product = Matrices {
            size: [m, k, n],
            factors: [T::Real::of(scale), T::Real::of(keep)],
            left: (l.as_ptr(), of_left),
            right: (r.as_ptr(), of_right),
            out: (o[at_out..].as_mut_ptr(), of_out),
        };
        product.compute_in_parts();
    });
    Ok(())
}

/// `out = factors[0] · left · right + factors[1] · out`, with sizes `[m, k, n]` and strides `[down, right]`.
#[derive(Clone, Copy)]
struct Matrices<T: Float> {
    size: [usize; 3],
    factors: [T::Real; 2],
    left: (*const T, [isize; 2]),
    right: (*const T, [isize; 2]),
    out: (*mut T, [isize; 2]),
}

// SAFETY: the pointers are to memory that the caller of the primitive holds borrowed until all parts are computed; parts
// that run at the same time write different rows or columns.
unsafe impl<T: Float> Send for Matrices<T> {}

impl<T: Product> Matrices<T> {
    /// Shares the rows, or the columns if there are more, among threads. No sum is split, so the result does not depend
    /// on how many there are.
    fn compute_in_parts(self) {
        let [m, k, n] = self.size;
        let work = m.saturating_mul(n).saturating_mul(k) / MULTIPLICATIONS_A_TASK;
        let tasks = work.clamp(1, rayon::current_num_threads()).min(m.max(n));
        if tasks == 1 {
            T::product(self);
            return;
        }
        let split = m.max(n);
        let length = split.div_ceil(tasks);
        let parts: Vec<Self> = (0..split)
            .step_by(length)
            .map(|start| {
                let count = length.min(split - start);
                if m >= n { self.rows(start, count) } else { self.columns(start, count) }
            })
            .collect();
        parts.into_par_iter().for_each(T::product);
    }

    fn rows(mut self, start: usize, count: usize) -> Self {
        self.size[0] = count;
        self.left.0 = self.left.0.wrapping_offset(start as isize * self.left.1[0]);
        self.out.0 = self.out.0.wrapping_offset(start as isize * self.out.1[0]);
        self
    }

    fn columns(mut self, start: usize, count: usize) -> Self {
        self.size[2] = count;
        self.right.0 = self.right.0.wrapping_offset(start as isize * self.right.1[1]);
        self.out.0 = self.out.0.wrapping_offset(start as isize * self.out.1[1]);
        self
    }
}

/// A type of elements with a matrix product.
trait Product: Float {
    fn product(matrices: Matrices<Self>);
}

macro_rules! product {
    ($type:ty, $gemm:path) => {
        impl Product for $type {
            fn product(matrices: Matrices<Self>) {
                let Matrices { size: [m, k, n], factors, left, right, out } = matrices;
                // SAFETY: `matmul_as` checked that every view ends within its memory, and holds that memory borrowed;
                // the output is distinct from both inputs, for it is borrowed alone.
                unsafe {
                    $gemm(
                        m, k, n, factors[0], left.0, left.1[0], left.1[1], right.0, right.1[0], right.1[1], factors[1],
                        out.0, out.1[0], out.1[1],
                    );
                }
            }
        }
    };
}

product!(f32, matrixmultiply::sgemm);
product!(f64, matrixmultiply::dgemm);

const TILE: usize = 64;
const DEPTH: usize = 256;

/// Half precision: tiles are widened to single precision, multiplied and summed there, and rounded once at the end.
macro_rules! half_product {
    ($type:ty) => {
        impl Product for $type {
            fn product(matrices: Matrices<Self>) {
                let Matrices { size: [m, k, n], factors, left, right, out } = matrices;
                let (mut a, mut b, mut c) = (vec![0.0; TILE * DEPTH], vec![0.0; DEPTH * TILE], vec![0.0; TILE * TILE]);
                for (row, column) in
                    (0..m).step_by(TILE).flat_map(|row| (0..n).step_by(TILE).map(move |column| (row, column)))
                {
                    let (rows, columns) = (TILE.min(m - row), TILE.min(n - column));
                    c.fill(0.0);
                    for depth in (0..k).step_by(DEPTH) {
                        let depths = DEPTH.min(k - depth);
                        widen(&mut a, left, [row, depth], [rows, depths]);
                        widen(&mut b, right, [depth, column], [depths, columns]);
                        f32::product(Matrices {
                            size: [rows, depths, columns],
                            factors: [1.0, 1.0],
                            left: (a.as_ptr(), [depths as isize, 1]),
                            right: (b.as_ptr(), [columns as isize, 1]),
                            out: (c.as_mut_ptr(), [columns as isize, 1]),
                        });
                    }
                    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                        let place =
                            out.0.wrapping_offset((row + i) as isize * out.1[0] + (column + j) as isize * out.1[1]);
                        let product = factors[0] * c[i * columns + j];
                        // SAFETY: the place is element (row + i, column + j) of the output; see the other types.
                        unsafe {
                            let kept = if factors[1] == 0.0 { 0.0 } else { factors[1] * (*place).load() };
                            *place = <$type as Float>::store(product + kept);
                        }
                    }
                }
            }
        }
    };
}

half_product!(bf16);
half_product!(f16);

/// Copies a tile of `size` rows and columns from `first` on, widened.
fn widen<T: Float<Real = f32>>(
    tile: &mut [f32],
    (from, strides): (*const T, [isize; 2]),
    first: [usize; 2],
    size: [usize; 2],
) {
    for i in 0..size[0] {
        for j in 0..size[1] {
            let place =
                from.wrapping_offset((first[0] + i) as isize * strides[0] + (first[1] + j) as isize * strides[1]);
            // SAFETY: the place is an element of the operand, which `matmul_as` checked to lie within its memory.
            tile[i * size[1] + j] = unsafe { (*place).load() };
        }
    }
}
