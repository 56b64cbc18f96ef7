//! Tests matrix products of the library against plain sums. The tests run on a GPU if HIGHWATER_TEST_GPU is 1,
//! otherwise on the stand-in for CUDA's libraries.
#![expect(unsafe_code, reason = "multiplies memory by its address")]

use std::sync::Arc;

use highwater_kernels::{Error, Gpu, Matrix, Number, Order, Product, Workspace};
use highwater_stand_in::Setup;

const NONE: Workspace = Workspace { address: 0, bytes: 0 };
const WORKSPACE_BYTES: u64 = 1 << 20;

/// Numbers on a device, given back when dropped.
struct Memory {
    gpu: Arc<Gpu>,
    address: u64,
    count: usize,
}

impl Memory {
    fn new(gpu: &Arc<Gpu>, numbers: &[f32]) -> Self {
        let address = gpu.reserve(numbers.len() as u64 * 4).expect("there is room");
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        // SAFETY: just reserved, as many bytes.
        unsafe { gpu.copy_in(address, &bytes, 0) }.expect("the device takes numbers");
        Self { gpu: Arc::clone(gpu), address, count: numbers.len() }
    }

    fn read(&self) -> Vec<f32> {
        let mut bytes = vec![0; self.count * 4];
        // SAFETY: as many bytes were reserved.
        unsafe { self.gpu.copy_out(&mut bytes, self.address, 0) }.expect("the device gives numbers");
        bytes.as_chunks().0.iter().map(|&number| f32::from_ne_bytes(number)).collect()
    }

    /// Matrices from number `first` on.
    fn matrix(&self, first: u64, order: Order, leading: u64, batch_stride: u64) -> Matrix {
        Matrix { address: self.address + first * 4, order, leading, batch_stride }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: reserved by `new`, and not used again; the device waits for its work.
        unsafe { self.gpu.release(self.address) }.expect("what was reserved can be released");
    }
}

/// Small whole numbers: their products and sums are exact in every order.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 17) as f32 - 8.0).collect()
}

/// The products, by the definition, into `out`.
fn by_definition(product: &Product, [out, left, right]: [(&Memory, &mut Vec<f32>); 3], bias: &[f32]) {
    let ((o, out), (l, left), (r, right)) = (out, left, right);
    let place = |memory: &Memory, matrix: Matrix, batch: u64, row: u64, column: u64| {
        let [line, along] = if matrix.order == Order::Rows { [row, column] } else { [column, row] };
        ((matrix.address - memory.address) / 4 + batch * matrix.batch_stride + line * matrix.leading + along) as usize
    };
    for batch in 0..product.batches {
        for (row, column) in (0..product.rows).flat_map(|row| (0..product.columns).map(move |column| (row, column))) {
            let terms = (0..product.inner).map(|inner| {
                left[place(l, product.left, batch, row, inner)] * right[place(r, product.right, batch, inner, column)]
            });
            let sum = terms.sum::<f32>() * product.scale as f32;
            let at = place(o, product.out, batch, row, column);
            let kept = if product.keep == 0.0 { 0.0 } else { product.keep as f32 * out[at] };
            out[at] = sum + kept + bias.get(column as usize).copied().unwrap_or(0.0);
        }
    }
}

#[test]
fn products_are_those_of_the_definition_in_every_order() {
    Setup::new().run(|| {
        let gpu = Gpu::open(0).expect("there is a device");
        let room = Memory::new(&gpu, &vec![0.0; (WORKSPACE_BYTES / 4) as usize]);
        let workspace = Workspace { address: room.address, bytes: WORKSPACE_BYTES };
        let bias = Memory::new(&gpu, &numbers(64, 5));
        let (mut given, orders) = (0, [Order::Rows, Order::Columns]);
        for ([rows, inner, columns], batches) in [([5, 3, 2], 1), ([17, 33, 29], 3), ([1, 64, 7], 2)] {
            for (o, l, r) in
                orders.into_iter().flat_map(|o| orders.into_iter().flat_map(move |l| orders.map(move |r| (o, l, r))))
            {
                'product: for (scale, keep) in [(1.0, 0.0), (2.0, 1.0), (-1.0, 0.5)] {
                    given += 1;
                    // Each begins one number after where memory begins, and has room behind its rows or columns.
                    let whole = |order, [rows, columns]: [u64; 2]| {
                        let [lines, length] = if order == Order::Rows { [rows, columns] } else { [columns, rows] };
                        let (leading, stride) = (length + 3, lines * (length + 3) + 5);
                        ((1 + batches * stride) as usize, leading, stride)
                    };
                    let sizes =
                        [(o, [rows, columns]), (l, [rows, inner]), (r, [inner, columns])].map(|(order, size)| {
                            let (count, leading, stride) = whole(order, size);
                            (order, count, leading, stride)
                        });
                    let mut host = [0, 1, 2].map(|i| numbers(sizes[i].1, given * 3 + i));
                    if keep == 0.0 {
                        host[0].fill(f32::NAN);
                    }
                    let device = [0, 1, 2].map(|i| Memory::new(&gpu, &host[i]));
                    let matrix = |i: usize| device[i].matrix(1, sizes[i].0, sizes[i].2, sizes[i].3);
                    let has_bias = o == Order::Rows && keep == 0.0;
                    let product = Product {
                        number: Number::F32,
                        rows,
                        inner,
                        columns,
                        batches,
                        out: matrix(0),
                        left: matrix(1),
                        right: matrix(2),
                        bias: has_bias.then_some(bias.address),
                        scale,
                        keep,
                    };
                    for workspace in [workspace, NONE] {
                        // SAFETY: all matrices lie within their memory, which lives until it was read.
                        let done = unsafe { gpu.multiply(&product, workspace, 0) };
                        // Some versions of the library do not fuse a bias with a single row; callers then add it first.
                        if has_bias && rows == 1 && matches!(done, Err(Error::NoAlgorithm { .. })) {
                            continue 'product;
                        }
                        done.expect("the library multiplies");
                    }
                    let [mut out, mut left, mut right] = host;
                    for _ in 0..2 {
                        let parts = [(&device[0], &mut out), (&device[1], &mut left), (&device[2], &mut right)];
                        by_definition(&product, parts, &if has_bias { bias.read() } else { Vec::new() });
                    }
                    let found = device[0].read();
                    let is_same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
                    let differs = out.iter().zip(&found).position(|pair| !is_same(pair));
                    assert_eq!(differs.map(|place| (place, out[place], found[place])), None, "{product}");
                }
            }
        }
    });
}

#[test]
fn more_batches_than_the_library_counts_come_in_parts() {
    Setup::new().run(|| {
        let gpu = Gpu::open(0).expect("there is a device");
        let count = 65_541_u64;
        let [left, right] = [1, 2].map(|seed| Memory::new(&gpu, &numbers(count as usize, seed)));
        let out = Memory::new(&gpu, &vec![f32::NAN; count as usize]);
        let matrix = |memory: &Memory| memory.matrix(0, Order::Rows, 1, 1);
        let product = Product {
            number: Number::F32,
            rows: 1,
            inner: 1,
            columns: 1,
            batches: count,
            out: matrix(&out),
            left: matrix(&left),
            right: matrix(&right),
            bias: None,
            scale: 1.0,
            keep: 0.0,
        };
        // SAFETY: each memory has as many numbers as there are batches, and lives until it was read.
        unsafe { gpu.multiply(&product, NONE, 0) }.expect("the library multiplies");
        let expected: Vec<f32> = left.read().iter().zip(right.read()).map(|(a, b)| a * b).collect();
        assert_eq!(out.read(), expected);
    });
}

/// `[1, 2; 3, 4] · [5, 6; 7, 8]`, with `bias` added to each row.
fn small(gpu: &Arc<Gpu>, bias: Option<u64>) -> Result<Vec<f32>, Error> {
    let [left, right, out] = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [f32::NAN; 4]];
    let [left, right, out] = [left, right, out].map(|numbers| Memory::new(gpu, &numbers));
    let matrix = |memory: &Memory| memory.matrix(0, Order::Rows, 2, 0);
    let product = Product {
        number: Number::F32,
        rows: 2,
        inner: 2,
        columns: 2,
        batches: 1,
        out: matrix(&out),
        left: matrix(&left),
        right: matrix(&right),
        bias,
        scale: 1.0,
        keep: 0.0,
    };
    for _ in 0..2 {
        // SAFETY: each memory has as many numbers, and lives until it was read.
        unsafe { gpu.multiply(&product, NONE, 0) }?;
    }
    Ok(out.read())
}

#[test]
fn where_the_library_refuses_its_own_proposals_the_next_is_run() {
    for (refused, succeeds) in [(0, true), (3, true), (7, true), (8, false)] {
        Setup::new().refused_proposals(refused).only_on_stand_in().run(move || {
            let result = small(&Gpu::open(0).expect("there is a device"), None);
            match succeeds {
                true => assert_eq!(result.expect("a proposal that works"), [19.0, 22.0, 43.0, 50.0]),
                false => assert!(matches!(result, Err(Error::NoAlgorithm { .. })), "none of eight"),
            }
        });
    }
}

#[test]
fn a_bias_that_is_not_aligned_to_16_bytes_is_not_fused() {
    Setup::new().run(|| {
        let gpu = Gpu::open(0).expect("there is a device");
        let bias = Memory::new(&gpu, &[0.0, 1.0, 2.0, 3.0, 10.0, 20.0]);
        assert_eq!(small(&gpu, Some(bias.address + 16)).expect("a product"), [29.0, 42.0, 53.0, 70.0]);
        for unaligned in [4, 8] {
            let refused = small(&gpu, Some(bias.address + unaligned));
            assert!(matches!(refused, Err(Error::NoAlgorithm { .. })), "{unaligned}");
        }
    });
}

#[test]
fn a_product_that_cannot_be_asked_for_is_named() {
    Setup::new().run(|| {
        let gpu = Gpu::open(0).expect("there is a device");
        let memory = Memory::new(&gpu, &[0.0; 64]);
        let matrix = memory.matrix(0, Order::Rows, 3, 0);
        let product = Product {
            number: Number::F32,
            rows: 4,
            inner: 4,
            columns: 4,
            batches: 1,
            out: matrix,
            left: matrix,
            right: matrix,
            bias: None,
            scale: 1.0,
            keep: 0.0,
        };
        // SAFETY: it is refused before anything is multiplied.
        let refused = unsafe { gpu.multiply(&product, NONE, 0) }.expect_err("rows overlap");
        assert!(matches!(refused, Error::Products { .. } | Error::NoAlgorithm { .. }), "{refused}");
        assert!(refused.to_string().contains("f32 [4 × 4] · [4 × 4] (left by rows of 3"), "{refused}");
        // SAFETY: where there are no results, nothing is read or written.
        unsafe { gpu.multiply(&Product { rows: 0, ..product }, NONE, 0) }.expect("there is nothing to do");
    });
}
