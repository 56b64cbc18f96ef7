//! Tests of matrix products against plain loops, and of rejected arguments.
#![expect(unsafe_code, reason = "calls functions as C does, with addresses")]

use std::ffi::c_void;
use std::mem::MaybeUninit;

use half::{bf16, f16};

use crate::driver::{devices, memory};
use crate::functions::Out;
use crate::products::functions::{
    Chosen, cublasLtCreate, cublasLtDestroy, cublasLtMatmul, cublasLtMatmulAlgoGetHeuristic, cublasLtMatmulDescCreate,
    cublasLtMatmulDescDestroy, cublasLtMatmulDescSetAttribute, cublasLtMatmulPreferenceCreate,
    cublasLtMatmulPreferenceSetAttribute, cublasLtMatrixLayoutCreate, cublasLtMatrixLayoutSetAttribute,
};

const INVALID_VALUE: i32 = 7;
const NOT_SUPPORTED: i32 = 15;

/// Types of elements: `cudaDataType`, bytes, and how numbers are written and read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F32 = 0,
    F64 = 1,
    F16 = 2,
    Bf16 = 14,
}

impl Kind {
    fn bytes(self, number: f64) -> Vec<u8> {
        match self {
            Self::F32 => (number as f32).to_ne_bytes().to_vec(),
            Self::F64 => number.to_ne_bytes().to_vec(),
            Self::F16 => f16::from_f64(number).to_ne_bytes().to_vec(),
            Self::Bf16 => bf16::from_f64(number).to_ne_bytes().to_vec(),
        }
    }

    fn number(self, bytes: &[u8]) -> f64 {
        match self {
            Self::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().expect("4 bytes"))),
            Self::F64 => f64::from_ne_bytes(bytes.try_into().expect("8 bytes")),
            Self::F16 => f16::from_ne_bytes(bytes.try_into().expect("2 bytes")).to_f64(),
            Self::Bf16 => bf16::from_ne_bytes(bytes.try_into().expect("2 bytes")).to_f64(),
        }
    }

    fn size(self) -> usize {
        self.bytes(0.0).len()
    }
}

/// A batch of matrices on the device, and the same numbers on the host.
struct Matrix {
    kind: Kind,
    leading: usize,
    has_rows_together: bool,
    stride: usize,
    address: u64,
    layout: u64,
    numbers: Vec<f64>,
}

impl Matrix {
    fn new(kind: Kind, [rows, columns]: [usize; 2], has_rows_together: bool, batch: usize, seed: u64) -> Self {
        let leading = if has_rows_together { columns } else { rows } + (seed % 3) as usize;
        let stride = leading * if has_rows_together { rows } else { columns } + 5;
        let mut state = seed;
        let numbers = (0..stride * batch).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Few digits, so that every type has them exactly.
            ((state >> 60) as f64 - 8.0) / 8.0
        });
        let numbers: Vec<f64> = numbers.collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|&number| kind.bytes(number)).collect();
        let address = given(|address| memory::cuMemAlloc_v2(address, bytes.len()));
        assert_eq!(memory::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), 0), 0);
        let (kind_number, size) = (kind as i32, [rows, columns].map(|side| side as u64));
        let layout = given(|layout| cublasLtMatrixLayoutCreate(layout, kind_number, size[0], size[1], leading as i64));
        let matrix = Self { kind, leading, has_rows_together, stride, address, layout, numbers };
        matrix.set(1, i32::from(has_rows_together));
        matrix.set(5, batch as i32);
        matrix.set(6, stride as i64);
        matrix
    }

    fn set<V: Copy>(&self, attribute: i32, value: V) -> i32 {
        cublasLtMatrixLayoutSetAttribute(self.layout, attribute, (&raw const value).cast(), size_of::<V>())
    }

    fn place(&self, number: usize, row: usize, column: usize) -> usize {
        let [down, across] = if self.has_rows_together { [self.leading, 1] } else { [1, self.leading] };
        number * self.stride + row * down + column * across
    }

    fn found(&self) -> Vec<f64> {
        let mut bytes = vec![0_u8; self.numbers.len() * self.kind.size()];
        let copied = memory::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), self.address, bytes.len(), 0);
        assert_eq!(copied, 0);
        bytes.chunks_exact(self.kind.size()).map(|bytes| self.kind.number(bytes)).collect()
    }
}

impl Drop for Matrix {
    fn drop(&mut self) {
        assert_eq!(memory::cuMemFree_v2(self.address), 0);
    }
}

/// Calls a function with an output parameter, and returns the value that it writes.
fn given<V>(call: impl FnOnce(Out<'_, V>) -> i32) -> V {
    let mut place = MaybeUninit::uninit();
    assert_eq!(call(Some(&mut place)), 0);
    // SAFETY: the call succeeded, so it has written its answer.
    unsafe { place.assume_init() }
}

/// Returns a handle of the library and a context for it.
fn library() -> u64 {
    assert_eq!(devices::cuInit(0), 0);
    assert_eq!(devices::cuCtxSetCurrent(given(|context| devices::cuDevicePrimaryCtxRetain(context, 0))), 0);
    given(|handle| cublasLtCreate(handle))
}

fn operation(compute: i32, scale: Kind, transposed: [bool; 2]) -> u64 {
    let operation = given(|operation| cublasLtMatmulDescCreate(operation, compute, scale as i32));
    for (attribute, transposed) in [3, 4].into_iter().zip(transposed) {
        let value = i32::from(transposed);
        assert_eq!(cublasLtMatmulDescSetAttribute(operation, attribute, (&raw const value).cast(), 4), 0);
    }
    operation
}

fn wish(workspace_bytes: u64, alignment: i32) -> u64 {
    let wish = given(|wish| cublasLtMatmulPreferenceCreate(wish));
    let bytes = (&raw const workspace_bytes).cast::<c_void>();
    assert_eq!(cublasLtMatmulPreferenceSetAttribute(wish, 1, bytes, 8), 0);
    for attribute in 5..=8 {
        let value = (&raw const alignment).cast::<c_void>();
        assert_eq!(cublasLtMatmulPreferenceSetAttribute(wish, attribute, value, 4), 0);
    }
    wish
}

/// Requests an algorithm.
fn choose(library: u64, operation: u64, layouts: [u64; 4], wish: u64) -> Result<Chosen, i32> {
    let (mut chosen, mut count) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let ([a, b, c, d], place) = (layouts, chosen.as_mut_ptr());
    match cublasLtMatmulAlgoGetHeuristic(library, operation, a, b, c, d, wish, 1, place, Some(&mut count)) {
        // SAFETY: it was written.
        0 => Ok(unsafe { chosen.assume_init() }),
        status => Err(status),
    }
}

/// A product that is ready to be computed.
struct Product {
    library: u64,
    operation: u64,
    matrices: [Matrix; 4],
    chosen: Chosen,
    factors: [f64; 2],
    scale: Kind,
}

impl Product {
    fn run(&self, addresses: [u64; 4], workspace: (u64, usize)) -> i32 {
        let [a, b, c, d] = &self.matrices;
        let [alpha, beta] = self.factors.map(|factor| self.scale.bytes(factor));
        let (alpha, beta) = (alpha.as_ptr().cast(), beta.as_ptr().cast());
        cublasLtMatmul(
            self.library,
            self.operation,
            alpha,
            addresses[0],
            a.layout,
            addresses[1],
            b.layout,
            beta,
            addresses[2],
            c.layout,
            addresses[3],
            d.layout,
            Some(&self.chosen.choice),
            workspace.0,
            workspace.1,
            0,
        )
    }

    fn addresses(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|index| self.matrices[index].address)
    }
}

/// The size m, n and k; which of the two inputs are transposed; and which of the four matrices are row-major.
fn product(kinds: [Kind; 2], [m, n, k]: [usize; 3], choices: u64, batch: usize, factors: [f64; 2]) -> Product {
    let is = |bit: u32| choices >> bit & 1 == 1;
    let library = library();
    let (compute, scale) = if kinds[0] == Kind::F64 { (70, Kind::F64) } else { (68, Kind::F32) };
    let operation = operation(compute, scale, [is(0), is(1)]);
    let (left, right) = (if is(0) { [k, m] } else { [m, k] }, if is(1) { [n, k] } else { [k, n] });
    let matrices = [
        Matrix::new(kinds[0], left, is(2), batch, choices + 1),
        Matrix::new(kinds[0], right, is(3), batch, choices + 2),
        Matrix::new(kinds[1], [m, n], is(4), batch, choices + 3),
        Matrix::new(kinds[1], [m, n], is(4), batch, choices + 6),
    ];
    let layouts = [0, 1, 2, 3].map(|index| matrices[index].layout);
    let chosen = choose(library, operation, layouts, wish(1 << 20, 256)).expect("there is an algorithm");
    Product { library, operation, matrices, chosen, factors, scale }
}

#[test]
fn products_are_those_of_plain_loops() {
    let kinds = [
        [Kind::F64, Kind::F64],
        [Kind::F32, Kind::F32],
        [Kind::Bf16, Kind::Bf16],
        [Kind::Bf16, Kind::F32],
        [Kind::F16, Kind::F16],
        [Kind::F16, Kind::F32],
    ];
    library();
    let work = given(|address| memory::cuMemAlloc_v2(address, 1 << 20));
    for (index, kinds) in kinds.into_iter().enumerate() {
        for choices in 0..32 {
            let size = [[7, 5, 9], [1, 4, 3], [17, 33, 20]][(choices as usize + index) % 3];
            let factors = [[1.0, 0.0], [0.5, 1.0], [2.0, -0.25]][choices as usize % 3];
            let batch = 1 + choices as usize % 2 * 2;
            let product = product(kinds, size, choices, batch, factors);
            // With beta = 0, what was there does not count, whatever it is; C and D may be one.
            let mut addresses = product.addresses();
            let is_one = choices % 4 == 1;
            if is_one {
                addresses[3] = addresses[2];
            }
            assert_eq!(product.run(addresses, (work, product.chosen.workspace_bytes)), 0);
            let [a, b, c, d] = &product.matrices;
            let out = if is_one { c } else { d };
            let found = out.found();
            let is = |bit: u32| choices >> bit & 1 == 1;
            let mut expected = out.numbers.clone();
            for number in 0..batch {
                for row in 0..size[0] {
                    for column in 0..size[1] {
                        let terms = (0..size[2]).map(|inner| {
                            let left = if is(0) { a.place(number, inner, row) } else { a.place(number, row, inner) };
                            let right =
                                if is(1) { b.place(number, column, inner) } else { b.place(number, inner, column) };
                            a.numbers[left] * b.numbers[right]
                        });
                        let sum =
                            factors[0] * terms.sum::<f64>() + factors[1] * c.numbers[c.place(number, row, column)];
                        expected[out.place(number, row, column)] = kinds[1].number(&kinds[1].bytes(sum));
                    }
                }
            }
            assert_eq!(found, expected, "{kinds:?} {size:?} {choices:b}");
        }
    }
    assert_eq!(memory::cuMemFree_v2(work), 0);
}

#[test]
fn a_bias_is_added_to_every_column() {
    for kind in [Kind::F64, Kind::F32, Kind::Bf16] {
        let mut product = product([kind; 2], [7, 5, 9], 0, 2, [0.5, 1.0]);
        let plain = product.run(product.addresses(), (0, 0));
        assert_eq!(plain, 0);
        let before = product.matrices[3].found();
        let bias = Matrix::new(kind, [7, 1], false, 1, 3);
        let set = |operation: u64, attribute: i32, value: &[u8]| {
            cublasLtMatmulDescSetAttribute(operation, attribute, value.as_ptr().cast(), value.len())
        };
        assert_eq!(set(product.operation, 7, &4_i32.to_ne_bytes()), 0);
        let layouts = [0, 1, 2, 3].map(|index| product.matrices[index].layout);
        product.chosen = choose(product.library, product.operation, layouts, wish(0, 256)).expect("an algorithm");
        assert_eq!(product.run(product.addresses(), (0, 0)), INVALID_VALUE, "no bias is given");
        assert_eq!(set(product.operation, 8, &bias.address.to_ne_bytes()), 0);
        assert_eq!(product.run(product.addresses(), (0, 0)), 0);
        let out = &product.matrices[3];
        for (number, row, column) in (0..2).flat_map(|n| (0..7).flat_map(move |r| (0..5).map(move |c| (n, r, c)))) {
            let place = out.place(number, row, column);
            let expected = before[place] + bias.numbers[row];
            assert_eq!(out.found()[place], kind.number(&kind.bytes(expected)), "{kind:?} {number} {row} {column}");
        }
        assert_eq!(set(product.operation, 26, &(Kind::F16 as i32).to_ne_bytes()), 0);
        let other = choose(product.library, product.operation, layouts, wish(0, 256)).map(drop);
        assert_eq!(other, Err(NOT_SUPPORTED));
        assert_eq!(set(product.operation, 7, &2_i32.to_ne_bytes()), NOT_SUPPORTED);
    }
}

#[test]
fn a_workspace_is_used_and_checked() {
    let large = product([Kind::F32; 2], [64, 64, 64], 0, 1, [1.0, 0.0]);
    let need = large.chosen.workspace_bytes;
    assert!(need > 0, "larger products ask for a workspace");
    let work = given(|address| memory::cuMemAlloc_v2(address, need + 256));
    assert_eq!(large.run(large.addresses(), (0, 0)), INVALID_VALUE);
    assert_eq!(large.run(large.addresses(), (work, need - 256)), INVALID_VALUE);
    assert_eq!(large.run(large.addresses(), (work + 16, need)), INVALID_VALUE);
    assert_eq!(large.run(large.addresses(), (work + 256, need + 256)), INVALID_VALUE);
    assert_eq!(large.run(large.addresses(), (work, need)), 0);
    let mut left = [0_u8; 4];
    assert_eq!(memory::cuMemcpyDtoHAsync_v2(left.as_mut_ptr().cast(), work, 4, 0), 0);
    assert_eq!(left, [0xff; 4], "nobody else's numbers survive in it");
    assert_eq!(memory::cuMemFree_v2(work), 0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let fits = product([Kind::F32; 2], [7, 5, 9], 0, 2, [1.0, 0.0]);
    let [a, b, c, d] = fits.addresses();
    assert_eq!(fits.run([a, b, c, d], (0, 0)), 0);
    assert_eq!(fits.run([a + 4, b, c, d], (0, 0)), INVALID_VALUE, "less aligned than was said");
    assert_eq!(fits.run([a, b, c, 512], (0, 0)), INVALID_VALUE, "not the device's memory");
    assert_eq!(fits.run([a, b, c, a], (0, 0)), INVALID_VALUE, "the output reaches past its block, or overlaps");
    let layouts = [0, 1, 2, 3].map(|index| fits.matrices[index].layout);
    let chosen = |layouts| choose(fits.library, fits.operation, layouts, wish(0, 256)).map(drop);
    assert_eq!(chosen(layouts), Ok(()));
    assert_eq!(chosen([layouts[1], layouts[1], layouts[2], layouts[3]]), Err(INVALID_VALUE), "shapes");
    assert_eq!(chosen([1, layouts[1], layouts[2], layouts[3]]), Err(INVALID_VALUE), "no such layout");
    let matrix = &fits.matrices[0];
    for (attribute, wrong, right) in [(4, 6_i64, matrix.leading as i64), (2, 0, 7), (3, 8, 9)] {
        assert_eq!(matrix.set(attribute, wrong), 0);
        assert_eq!(chosen(layouts), Err(INVALID_VALUE), "attribute {attribute}");
        assert_eq!(matrix.set(attribute, right), 0);
    }
    assert_eq!(matrix.set(5, 3_i32), 0);
    assert_eq!(chosen(layouts), Err(INVALID_VALUE), "batches");
    assert_eq!(matrix.set(5, 2_i32), 0);
    assert_eq!(matrix.set(0, Kind::F64 as i32), 0);
    assert_eq!(chosen(layouts), Err(NOT_SUPPORTED), "types");
    assert_eq!(matrix.set(0, Kind::F32 as i32), 0);
    assert_eq!(matrix.set(5, 2_i64), INVALID_VALUE, "a number of another size");
    assert_eq!(matrix.set(1, 2_i32), NOT_SUPPORTED, "an order that GPUs have for other types");
    assert_eq!(matrix.set(99, 2_i32), NOT_SUPPORTED);
    assert_eq!(fits.matrices[3].set(6, 3_i64), 0);
    assert_eq!(chosen(layouts), Err(INVALID_VALUE), "matrices of the output overlap");
    let other = product([Kind::F32; 2], [5, 7, 9], 0, 2, [1.0, 0.0]);
    let mixed = Product { chosen: fits.chosen, ..other };
    assert_eq!(mixed.run(mixed.addresses(), (0, 0)), INVALID_VALUE, "another product's algorithm");
    assert_eq!(cublasLtMatmulDescDestroy(mixed.operation), 0);
    assert_eq!(mixed.run(mixed.addresses(), (0, 0)), INVALID_VALUE, "an operation that is gone");
    assert_eq!(cublasLtDestroy(mixed.library), 0);
    assert_eq!(mixed.run(mixed.addresses(), (0, 0)), 1, "a library that is gone");
    assert_eq!(cublasLtCreate(None), INVALID_VALUE, "no place for the handle");
}
