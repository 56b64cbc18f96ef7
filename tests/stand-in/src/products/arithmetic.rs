//! Matrix products in double precision, or in single precision for any element type, rounded once at the end.
#![expect(unsafe_code, reason = "reads and writes matrices at addresses")]

use gemm::Parallelism;
use half::{bf16, f16};

use super::choice::Problem;
use super::descriptions::{Element, Layout};

/// An element type, and the type in which products of its elements are summed.
trait Number: Copy {
    type Real: Real;
    fn real(self) -> Self::Real;
    fn nearest(real: Self::Real) -> Self;
}

/// The types in which products are accumulated.
trait Real: Copy + Default + 'static + std::ops::Mul<Output = Self> + std::ops::Add<Output = Self> + PartialEq {
    const ONE: Self;
    fn of(factor: f64) -> Self;
}

impl Real for f32 {
    const ONE: Self = 1.0;
    fn of(factor: f64) -> Self {
        factor as Self
    }
}

impl Real for f64 {
    const ONE: Self = 1.0;
    fn of(factor: f64) -> Self {
        factor
    }
}

macro_rules! number {
    ($type:ty, $real:ty, $widen:expr, $round:expr) => {
        impl Number for $type {
            type Real = $real;
            fn real(self) -> $real {
                $widen(self)
            }
            fn nearest(real: $real) -> Self {
                $round(real)
            }
        }
    };
}

number!(f64, f64, |x| x, |x| x);
number!(f32, f32, |x| x, |x| x);
number!(bf16, f32, bf16::to_f32, bf16::from_f32);
number!(f16, f32, f16::to_f32, f16::from_f32);

/// Computes `D = alpha · A · B + beta · C + bias` for each matrix of the batch. `C` is not read where beta is 0.
///
/// # Safety
/// The addresses must point to matrices and a bias with the layouts in the problem. During the call, no other code may
/// read `D` or write any of them. `D` may be the same matrix as `C`, but must not overlap the others.
pub(super) unsafe fn compute(problem: &Problem, addresses: [u64; 4], factors: [f64; 2]) {
    let [a, _, _, d] = problem.layouts.map(|layout| layout.element);
    // SAFETY: as promised by the caller, with the types that the problem names.
    unsafe {
        match (a, d) {
            (Element::F64, _) => batch::<f64, f64>(problem, addresses, factors),
            (Element::F32, _) => batch::<f32, f32>(problem, addresses, factors),
            (Element::Bf16, Element::F32) => batch::<bf16, f32>(problem, addresses, factors),
            (Element::Bf16, _) => batch::<bf16, bf16>(problem, addresses, factors),
            (Element::F16, Element::F32) => batch::<f16, f32>(problem, addresses, factors),
            (Element::F16, _) => batch::<f16, f16>(problem, addresses, factors),
        }
    }
}

/// # Safety
/// As for [`compute`].
unsafe fn batch<I: Number, O: Number<Real = I::Real>>(problem: &Problem, addresses: [u64; 4], factors: [f64; 2]) {
    let [rows, columns, inner] = problem.size.map(|side| side as usize);
    let [scale, keep] = factors.map(I::Real::of);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut product = vec![I::Real::default(); rows * columns];
    let at = |index: usize, number: usize, size: usize| {
        let offset = number as u64 * problem.layouts[index].batch_stride as u64 * size as u64;
        (addresses[index] + offset) as usize
    };
    let [.., c, d] = problem.layouts.map(|layout| layout.strides().map(|stride| stride as usize));
    let bias = problem.operation.bias;
    for number in 0..problem.layouts[0].batch as usize {
        // SAFETY: the matrices of this number, by the caller's promise.
        unsafe {
            gather::<I>(&problem.layouts[0], at(0, number, size_of::<I>()), &mut left);
            gather::<I>(&problem.layouts[1], at(1, number, size_of::<I>()), &mut right);
        }
        let turned = |index: usize, [down, across]: [usize; 2]| {
            if problem.operation.transposed[index] { (across, 1) } else { (1, down) }
        };
        // Both lie with their columns together, the product as well.
        let (left_row, left_column) = turned(0, [rows, inner]);
        let (right_row, right_column) = turned(1, [inner, columns]);
        // SAFETY: all three are as large as the problem says, and distinct.
        unsafe {
            gemm::gemm(
                rows,
                columns,
                inner,
                product.as_mut_ptr(),
                rows as isize,
                1,
                false,
                left.as_ptr(),
                left_column as isize,
                left_row as isize,
                right.as_ptr(),
                right_column as isize,
                right_row as isize,
                I::Real::default(),
                I::Real::ONE,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
        let added = std::ptr::with_exposed_provenance::<O>(at(2, number, size_of::<O>()));
        let out = std::ptr::with_exposed_provenance_mut::<O>(at(3, number, size_of::<O>()));
        let each = bias.address as usize + number * bias.batch_stride as usize * size_of::<O>();
        let each = std::ptr::with_exposed_provenance::<O>(each);
        for column in 0..columns {
            for row in 0..rows {
                let mut value = scale * product[column * rows + row];
                // SAFETY: elements of the matrices of this number, by the caller's promise.
                unsafe {
                    if keep != I::Real::default() {
                        value = value + keep * added.add(row * c[0] + column * c[1]).read_unaligned().real();
                    }
                    if bias.is_added {
                        value = value + each.add(row).read_unaligned().real();
                    }
                    out.add(row * d[0] + column * d[1]).write_unaligned(O::nearest(value));
                }
            }
        }
    }
}

/// Reads a matrix, column by column.
///
/// # Safety
/// `address` must point to a matrix with this layout.
unsafe fn gather<N: Number>(layout: &Layout, address: usize, into: &mut Vec<N::Real>) {
    let [row, column] = layout.strides().map(|stride| stride as usize);
    let start = std::ptr::with_exposed_provenance::<N>(address);
    into.clear();
    for across in 0..layout.columns as usize {
        for down in 0..layout.rows as usize {
            // SAFETY: as promised by the caller.
            into.push(unsafe { start.add(down * row + across * column).read_unaligned() }.real());
        }
    }
}
