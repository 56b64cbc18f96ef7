//! Matrix products.

use highwater_engine::backend;
use highwater_engine::{DType, Result, Shape, Tensor};

use crate::harness::{Both, FLOATS, Pair, on_both, view};

/// The order in which a matrix is stored: by rows or by columns.
#[derive(Clone, Copy, Debug)]
enum By {
    Rows,
    Columns,
}

const WAYS: [By; 2] = [By::Rows, By::Columns];

/// A matrix within larger memory: all of it, and the matrix.
struct Stored {
    all: Pair,
    matrix: Pair,
}

impl Stored {
    /// Numbers of `seed`, or for none what is no number; `beside` more in each row or column, `before` of them first.
    fn new(
        both: &Both,
        size: [usize; 2],
        by: By,
        [before, beside]: [usize; 2],
        dtype: DType,
        seed: Option<u64>,
    ) -> Self {
        let [rows, columns] = size;
        let [lines, length] = if matches!(by, By::Rows) { [rows, columns] } else { [columns, rows] };
        let shape = Shape::from([lines, length + beside]);
        let all = match seed {
            Some(seed) => both.normal(shape, dtype, seed),
            None => both.full(shape, f64::NAN, dtype),
        };
        let narrow = all.map(|t| t.narrow(1, before, length));
        let matrix = if matches!(by, By::Rows) { narrow } else { narrow.map(|t| t.transpose(0, 1)) };
        Self { all, matrix }
    }
}

/// The product on both devices.
fn multiply(out: &Pair, left: &Pair, right: &Pair, scale: f64, keep: f64) {
    backend::matmul(view(&out.cpu), view(&left.cpu), view(&right.cpu), scale, keep).expect("the processor computes");
    backend::matmul(view(&out.cuda), view(&left.cuda), view(&right.cuda), scale, keep).expect("the library computes");
}

/// Fails unless both are equal within the rounding of a sum of some dozens of products.
fn assert_close(pair: &Pair, what: &str) {
    let (relative, absolute) = match pair.cpu.dtype() {
        DType::F64 => (1e-5, 1e-4),
        DType::F32 => (1e-6, 1e-5),
        // Sums are single precision's, rounded once.
        _ => (1.3e-7, 1.3e-7),
    };
    pair.assert_close(what, relative, absolute);
}

#[test]
fn matrices_may_be_stored_by_rows_and_by_columns_with_room_between() {
    on_both(|both| {
        for dtype in FLOATS {
            for [m, k, n] in [[1, 1, 1], [3, 5, 7], [33, 18, 65], [1, 40, 9], [40, 3, 1]] {
                for (o, l, r) in WAYS
                    .into_iter()
                    .flat_map(|o| WAYS.into_iter().flat_map(move |l| WAYS.into_iter().map(move |r| (o, l, r))))
                {
                    for room in [[0, 0], [1, 3]] {
                        let left = Stored::new(both, [m, k], l, room, dtype, Some(1)).matrix;
                        let right = Stored::new(both, [k, n], r, room, dtype, Some(2)).matrix;
                        let out = Stored::new(both, [m, n], o, room, dtype, None);
                        let what = format!("{dtype} {m} {k} {n}, {o:?} {l:?} {r:?}, {room:?}");
                        multiply(&out.matrix, &left, &right, 1.0, 0.0);
                        assert_close(&out.all, &what);
                        multiply(&out.matrix, &left, &right, -1.5, 1.0);
                        assert_close(&out.all, &format!("{what}, added"));
                        multiply(&out.matrix, &left, &right, 0.5, -0.25);
                        assert_close(&out.all, &format!("{what}, added to a part"));
                    }
                }
            }
        }
    });
}

/// An operand: the shape that it has in memory, and the view that is multiplied.
type Operand = (&'static [usize], fn(&Tensor) -> Result<Tensor>);

/// The operand as it is in memory, not transposed.
fn whole(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.detach())
}

fn heads_first(tensor: &Tensor) -> Result<Tensor> {
    tensor.transpose(1, 2)
}

/// Every combination of batch shapes: output, left and right operand.
const BATCHES: [(&str, [Operand; 3]); 11] = [
    ("one after another", [(&[5, 3, 7], whole), (&[5, 3, 4], whole), (&[5, 4, 7], whole)]),
    ("one right operand for all", [(&[5, 3, 7], whole), (&[5, 3, 4], whole), (&[4, 7], |t| t.expand([5, 4, 7]))]),
    ("one left operand for all", [(&[5, 3, 7], whole), (&[3, 4], |t| t.expand([5, 3, 4])), (&[5, 4, 7], whole)]),
    (
        "heads between places and width",
        [(&[2, 6, 3, 4], heads_first), (&[2, 6, 3, 5], heads_first), (&[2, 5, 3, 4], heads_first)],
    ),
    (
        "heads, turned",
        [(&[2, 3, 6, 6], whole), (&[2, 6, 3, 5], heads_first), (&[2, 6, 3, 5], |t| t.permute(&[0, 2, 3, 1]))],
    ),
    (
        "every other matrix, and results by columns",
        [
            (&[6, 7, 3], |t| t.transpose(1, 2)?.narrow(0, 1, 4)),
            (&[4, 2, 3, 5], |t| t.narrow(1, 1, 1)?.squeeze(1)),
            (&[4, 5, 7], whole),
        ],
    ),
    (
        "summed, side by side in longer rows",
        [(&[3, 7], |t| t.expand([5, 3, 7])), (&[3, 5, 4], |t| t.transpose(0, 1)), (&[5, 4, 7], whole)],
    ),
    ("summed, one after another", [(&[3, 7], |t| t.expand([5, 3, 7])), (&[5, 3, 4], whole), (&[5, 4, 7], whole)]),
    (
        "summed over the outer of two axes",
        [(&[2, 3, 7], |t| t.expand([4, 2, 3, 7])), (&[4, 2, 3, 5], whole), (&[2, 5, 7], |t| t.expand([4, 2, 5, 7]))],
    ),
    (
        "summed over the inner of two axes, and repeated",
        [(&[4, 1, 3, 7], |t| t.expand([4, 2, 3, 7])), (&[4, 2, 3, 5], whole), (&[5, 7], |t| t.expand([4, 2, 5, 7]))],
    ),
    (
        "three axes that do not join",
        [
            (&[4, 3, 2, 5, 6], |t| t.permute(&[2, 0, 1, 3, 4])),
            (&[2, 3, 4, 5, 7], |t| t.transpose(1, 2)),
            (&[2, 1, 3, 7, 6], |t| t.expand([2, 4, 3, 7, 6])),
        ],
    ),
];

fn shape(lengths: &[usize]) -> Shape {
    Shape::from_slice(lengths).expect("a shape")
}

#[test]
fn batches_may_lie_in_any_way_and_be_summed() {
    on_both(|both| {
        for dtype in FLOATS {
            for (what, [out, left, right]) in BATCHES {
                let left = both.normal(shape(left.0), dtype, 1).map(left.1);
                let right = both.normal(shape(right.0), dtype, 2).map(right.1);
                for (scale, keep) in [(1.0, 0.0), (1.0, 1.0), (0.5, 2.0)] {
                    let all = if keep == 0.0 {
                        both.full(shape(out.0), f64::NAN, dtype)
                    } else {
                        both.normal(shape(out.0), dtype, 3)
                    };
                    multiply(&all.map(out.1), &left, &right, scale, keep);
                    // Halves are rounded after each product that is summed, of which there may be fewer here.
                    if what.starts_with("summed") && dtype.size() == 2 {
                        all.assert_close(what, 5e-7, 5e-7);
                    } else {
                        assert_close(&all, what);
                    }
                }
            }
        }
    });
}

#[test]
fn without_inner_numbers_what_is_kept_is_left() {
    on_both(|both| {
        for dtype in FLOATS {
            for (keep, before) in [(0.0, f64::NAN), (1.0, 3.0), (-2.0, 3.0)] {
                let (left, right) = (both.full([2, 3, 0], 1.0, dtype), both.full([2, 0, 4], 1.0, dtype));
                let out = both.full([2, 3, 4], before, dtype);
                multiply(&out, &left, &right, 1.0, keep);
                out.assert_equal("no inner numbers");
                let summed = both.full([3, 4], before, dtype);
                multiply(&summed.map(|t| t.expand([2, 3, 4])), &left, &right, 1.0, keep);
                summed.assert_equal("no inner numbers, summed");
            }
        }
    });
}

#[test]
fn where_there_are_no_results_nothing_is_done() {
    on_both(|both| {
        for shape in [[0, 3, 4], [2, 0, 4], [2, 3, 0]] {
            let [batch, m, n] = shape;
            let left = both.normal([batch, m, 5], DType::F32, 1);
            let right = both.normal([batch, 5, n], DType::F32, 2);
            let out = both.full(shape, 1.0, DType::F32);
            multiply(&out, &left, &right, 1.0, 0.0);
            out.assert_equal("no results");
        }
    });
}

#[test]
fn a_bias_is_added_to_each_row() {
    on_both(|both| {
        for dtype in FLOATS {
            for [m, k, n] in [[1, 1, 1], [3, 5, 7], [33, 18, 65], [4, 0, 3]] {
                for by in WAYS {
                    for room in [[0, 0], [1, 3]] {
                        let left = Stored::new(both, [m, k], By::Rows, room, dtype, Some(1)).matrix;
                        let right = Stored::new(both, [k, n], By::Columns, room, dtype, Some(2)).matrix;
                        let bias = both.normal([n + room[1]], dtype, 3).map(|t| t.narrow(0, room[0], n));
                        let out = Stored::new(both, [m, n], by, room, dtype, None);
                        multiply_onto_bias(&out.matrix, &left, &right, &bias);
                        assert_close(&out.all, &format!("{dtype} {m} {k} {n} {by:?} {room:?}"));
                    }
                }
            }
        }
    });
}

#[test]
fn a_bias_is_added_in_every_batch() {
    on_both(|both| {
        for dtype in [DType::F32, DType::Bf16] {
            let bias = both.normal([7], dtype, 3);
            for (what, [out, left, right]) in &BATCHES[..3] {
                let all = both.full(shape(out.0), f64::NAN, dtype);
                let (left, right) = (
                    both.normal(shape(left.0), dtype, 1).map(left.1),
                    both.normal(shape(right.0), dtype, 2).map(right.1),
                );
                multiply_onto_bias(&all.map(out.1), &left, &right, &bias);
                assert_close(&all, what);
            }
        }
    });
}

fn multiply_onto_bias(out: &Pair, left: &Pair, right: &Pair, bias: &Pair) {
    backend::matmul_bias(view(&out.cpu), view(&left.cpu), view(&right.cpu), view(&bias.cpu)).expect("it computes");
    backend::matmul_bias(view(&out.cuda), view(&left.cuda), view(&right.cuda), view(&bias.cuda)).expect("it computes");
}

#[test]
fn the_same_product_again_gives_the_same_bits() {
    on_both(|both| {
        for dtype in FLOATS {
            let (left, right) = (both.normal([70, 300], dtype, 1), both.normal([300, 50], dtype, 2));
            let products = [(); 2].map(|()| {
                let out = both.full([70, 50], 0.0, dtype).cuda;
                backend::matmul(view(&out), view(&left.cuda), view(&right.cuda), 1.0, 0.0).expect("it computes");
                out.to_f64_vec().expect("it can be read")
            });
            assert_eq!(products[0], products[1]);
        }
    });
}

#[test]
fn what_is_stored_neither_way_is_refused_with_its_strides() {
    on_both(|both| {
        let wide = both.normal([4, 2, 5, 2], DType::F32, 1).cuda;
        let every_other = wide.narrow(1, 0, 1).and_then(|t| t.narrow(3, 0, 1)).expect("a view");
        let neither = every_other.permute(&[1, 3, 0, 2]).expect("a view");
        let (right, out) =
            (both.normal([1, 1, 5, 3], DType::F32, 2).cuda, both.full([1, 1, 4, 3], 0.0, DType::F32).cuda);
        let refused = backend::matmul(view(&out), view(&neither), view(&right), 1.0, 0.0).expect_err("it is neither");
        let expected = "matmul: the matrices of the first factor have shape [4, 5] and strides [20, 2], neither \
                        row-major nor column-major; make a contiguous copy first";
        assert_eq!(refused.to_string(), expected);
    });
}

#[test]
fn integer_dtypes_are_refused() {
    on_both(|both| {
        let whole = both.indices([1, 1], &[3]).cuda;
        let refused = backend::matmul(view(&whole), view(&whole), view(&whole), 1.0, 0.0).expect_err("no product");
        assert!(refused.to_string().starts_with("matmul: unsupported dtype i64"), "{refused}");
    });
}
