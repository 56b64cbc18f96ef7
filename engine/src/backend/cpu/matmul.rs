//! Matrix products of strided operands, using the gemm crate.
#![expect(unsafe_code, reason = "the matrix product takes pointers and strides, so that no operand needs a copy")]

use gemm::Parallelism;
use half::{bf16, f16};
use rayon::prelude::*;

use super::number::{Float, Real, with_float};
use crate::backend::{Nest, View};
use crate::{Layout, Result};

/// Minimum number of multiplications per task that justifies a second thread.
const MULTIPLICATIONS_PER_TASK: usize = 1 << 20;

/// Threads divide the elements of the output, and no dot product is split between threads, so the result does not
/// depend on their number.
pub(crate) fn matmul(out: View<'_>, left: View<'_>, right: View<'_>, scale: f64, keep: f64) -> Result<()> {
    with_float!("matmul", out.dtype, T => matmul_as::<T>(out, left, right, scale, keep))
}

pub(crate) fn matmul_bias(out: View<'_>, left: View<'_>, right: View<'_>, bias: View<'_>) -> Result<()> {
    super::elementwise::copy(out, View { layout: &bias.layout.expand("matmul", out.layout.shape())?, ..bias })?;
    matmul(out, left, right, 1.0, 1.0)
}

fn matmul_as<T: Product>(out: View<'_>, left: View<'_>, right: View<'_>, scale: f64, keep: f64) -> Result<()> {
    let (l, r) = (left.storage.read::<T>("matmul")?, right.storage.read::<T>("matmul")?);
    let mut o = out.storage.write::<T>("matmul")?;
    let fits = out.layout.end() <= o.len() && left.layout.end() <= l.len() && right.layout.end() <= r.len();
    assert!(fits, "a view extends past the end of its storage");
    let rank = out.layout.shape().rank();
    let (m, n, k) = (out.layout.shape()[rank - 2], out.layout.shape()[rank - 1], left.layout.shape()[rank - 1]);
    assert!(
        left.layout.shape()[rank - 2..] == [m, k] && right.layout.shape()[rank - 2..] == [k, n],
        "the shapes of a matrix product do not match"
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
    let nest = Nest::new([&batch[0], &batch[1], &batch[2]]);
    let mut products = Vec::with_capacity(nest.elements());
    let mut written = None;
    // Summed axes have stride 0 in the output, so the nest makes them innermost: products that are summed are
    // consecutive, and only the first applies `keep` to the previous output.
    nest.each(|[at_out, at_left, at_right]| {
        let keep = if written == Some(at_out) { 1.0 } else { keep };
        written = Some(at_out);
        // An empty operand (k = 0) is never read; its offset may be past its end.
        let (l, r) = (&l[at_left.min(l.len())..], &r[at_right.min(r.len())..]);
        products.push(Matrices {
            size: [m, k, n],
            factors: [T::Real::of(scale), T::Real::of(keep)],
            left: (l.as_ptr(), of_left),
            right: (r.as_ptr(), of_right),
            out: (o[at_out..].as_mut_ptr(), of_out),
        });
    });
    let work = m.saturating_mul(n).saturating_mul(k);
    let one_after_another = work > MULTIPLICATIONS_PER_TASK || !out.layout.is_distinct();
    if one_after_another || work.saturating_mul(products.len()) <= MULTIPLICATIONS_PER_TASK {
        let threads = if work > MULTIPLICATIONS_PER_TASK { Parallelism::Rayon(0) } else { Parallelism::None };
        products.into_iter().for_each(|product| T::product(product, threads));
    } else {
        let at_least = MULTIPLICATIONS_PER_TASK / work.max(1);
        products
            .into_par_iter()
            .with_min_len(at_least.max(1))
            .for_each(|product| T::product(product, Parallelism::None));
    }
    Ok(())
}

/// A matrix within a slice, with the strides of its rows and columns in elements.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, R> {
    pub(super) numbers: &'a [R],
    pub(super) strides: [usize; 2],
}

impl<R> Matrix<'_, R> {
    pub(super) fn transposed(mut self) -> Self {
        self.strides.swap(0, 1);
        self
    }
}

/// Computes `out = scale · left · right + keep · out`, with sizes `[m, k, n]`, on this thread. The rows of `out` are
/// contiguous.
pub(super) fn multiply<R: Product<Real = R>>(
    [m, k, n]: [usize; 3],
    [scale, keep]: [R; 2],
    left: Matrix<'_, R>,
    right: Matrix<'_, R>,
    out: &mut [R],
) {
    let end = |[rows, columns]: [usize; 2], [down, across]: [usize; 2]| {
        if rows == 0 || columns == 0 { 0 } else { (rows - 1) * down + (columns - 1) * across + 1 }
    };
    let fits = end([m, k], left.strides) <= left.numbers.len() && end([k, n], right.strides) <= right.numbers.len();
    assert!(fits && m * n <= out.len(), "a matrix extends past the end of its slice");
    let signed = |strides: [usize; 2]| strides.map(|stride| stride as isize);
    let product = Matrices {
        size: [m, k, n],
        factors: [scale, keep],
        left: (left.numbers.as_ptr(), signed(left.strides)),
        right: (right.numbers.as_ptr(), signed(right.strides)),
        out: (out.as_mut_ptr(), [n as isize, 1]),
    };
    R::product(product, Parallelism::None);
}

/// The product `out = factors[0] · left · right + factors[1] · out`, with sizes `[m, k, n]` and strides
/// `[down, right]`. All elements are in memory that the creator keeps borrowed until the product is computed; the
/// memory of the output is borrowed exclusively.
#[derive(Clone, Copy)]
pub(super) struct Matrices<T: Float> {
    size: [usize; 3],
    factors: [T::Real; 2],
    left: (*const T, [isize; 2]),
    right: (*const T, [isize; 2]),
    out: (*mut T, [isize; 2]),
}

// SAFETY: the pointers are to memory that the caller of the primitive keeps borrowed until all products are computed;
// products that are computed at the same time write different elements.
unsafe impl<T: Float> Send for Matrices<T> {}
// SAFETY: as above.
unsafe impl<T: Float> Sync for Matrices<T> {}

pub(super) trait Product: Float {
    fn product(matrices: Matrices<Self>, threads: Parallelism);
}

macro_rules! product {
    ($type:ty) => {
        impl Product for $type {
            fn product(matrices: Matrices<Self>, threads: Parallelism) {
                let Matrices { size: [m, k, n], factors: [scale, keep], left, right, out } = matrices;
                // SAFETY: see `Matrices`: every element is within borrowed memory, and the output is distinct from both
                // inputs.
                unsafe {
                    gemm::gemm(
                        m,
                        n,
                        k,
                        out.0,
                        out.1[1],
                        out.1[0],
                        keep != 0.0,
                        left.0,
                        left.1[1],
                        left.1[0],
                        right.0,
                        right.1[1],
                        right.1[0],
                        keep,
                        scale,
                        false,
                        false,
                        false,
                        threads,
                    );
                }
            }
        }
    };
}

product!(f32);
product!(f64);

/// The numbers of rows and columns of a tile of the output, and of products accumulated at a time. The scratch space of
/// a tile takes 896 KiB.
const TILE: [usize; 2] = [128, 256];
const DEPTH: usize = 512;

/// Implements [`Product`] for a half-precision type. Tiles are converted to single precision, multiplied and
/// accumulated, and rounded once at the end.
macro_rules! half_product {
    ($type:ty) => {
        impl Product for $type {
            fn product(matrices: Matrices<Self>, threads: Parallelism) {
                let [m, _, n] = matrices.size;
                let [across, down] = [n.div_ceil(TILE[1]), m.div_ceil(TILE[0])];
                let tile = |scratch: &mut Scratch, index: usize| {
                    product_tile(matrices, [index / across * TILE[0], index % across * TILE[1]], scratch);
                };
                match threads {
                    Parallelism::None => {
                        let mut scratch = Scratch::default();
                        (0..across * down).for_each(|index| tile(&mut scratch, index));
                    }
                    Parallelism::Rayon(_) => (0..across * down).into_par_iter().for_each_init(Scratch::default, tile),
                }
            }
        }
    };
}

half_product!(bf16);
half_product!(f16);

/// Tiles of both operands and of the result, in single precision.
#[derive(Default)]
struct Scratch([Vec<f32>; 3]);

fn product_tile<T: Float<Real = f32>>(matrices: Matrices<T>, [row, column]: [usize; 2], scratch: &mut Scratch) {
    let Matrices { size: [m, k, n], factors: [scale, keep], left, right, out } = matrices;
    let Scratch([a, b, c]) = scratch;
    let (rows, columns) = (TILE[0].min(m - row), TILE[1].min(n - column));
    c.clear();
    c.resize(rows * columns, 0.0);
    for depth in (0..k).step_by(DEPTH) {
        let depths = DEPTH.min(k - depth);
        let left = widen(a, left, [row, depth], [rows, depths]);
        let right = widen(b, right, [depth, column], [depths, columns]);
        multiply([rows, depths, columns], [scale, if depth == 0 { 0.0 } else { 1.0 }], left, right, c);
    }
    for (i, products) in c.chunks(columns).enumerate() {
        let first = out.0.wrapping_offset((row + i) as isize * out.1[0] + column as isize * out.1[1]);
        for (j, &product) in products.iter().enumerate() {
            let place = first.wrapping_offset(j as isize * out.1[1]);
            // SAFETY: the place is element (row + i, column + j) of the output; see `Matrices`.
            unsafe {
                let kept = if keep == 0.0 { 0.0 } else { keep * (*place).load() };
                *place = T::store(product + kept);
            }
        }
    }
}

/// Copies a tile of `rows` and `columns` that starts at `first`, in single precision and in its memory order.
fn widen<T: Float<Real = f32>>(
    tile: &mut Vec<f32>,
    (from, strides): (*const T, [isize; 2]),
    first: [usize; 2],
    [rows, columns]: [usize; 2],
) -> Matrix<'_, f32> {
    let from = from.wrapping_offset(first[0] as isize * strides[0] + first[1] as isize * strides[1]);
    let by_columns = strides[0] == 1 && strides[1] != 1;
    let (lines, length) = if by_columns { (columns, rows) } else { (rows, columns) };
    let [along, across] = if by_columns { [strides[0], strides[1]] } else { [strides[1], strides[0]] };
    tile.clear();
    tile.resize(rows * columns, 0.0);
    for (line, out) in tile.chunks_mut(length.max(1)).take(lines).enumerate() {
        let from = from.wrapping_offset(line as isize * across);
        if along == 1 {
            // SAFETY: these are consecutive elements of the operand; see `Matrices`.
            let numbers = unsafe { std::slice::from_raw_parts(from, length) };
            super::rows::load(out, numbers);
        } else {
            for (i, wide) in out.iter_mut().enumerate() {
                // SAFETY: an element of the operand; see `Matrices`.
                *wide = unsafe { (*from.wrapping_offset(i as isize * along)).load() };
            }
        }
    }
    Matrix { numbers: tile, strides: if by_columns { [1, rows] } else { [columns, 1] } }
}
