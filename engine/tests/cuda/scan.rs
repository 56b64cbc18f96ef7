//! Cumulative sums and products along an axis.

use highwater_engine::backend::{self, Fold, Scan};
use highwater_engine::{DType, Shape, Tensor};

use crate::harness::{Both, FLOATS, Pair, compute, on_both, view};

fn scans(fold: Fold) -> impl Iterator<Item = Scan> {
    [(false, false), (false, true), (true, false), (true, true)].into_iter().map(move |(exclusive, backwards)| Scan {
        fold,
        exclusive,
        backwards,
    })
}

/// Lengths at which a thread, a warp or a block scans a line.
const SHAPES: [([usize; 2], usize); 8] =
    [([40, 7], 1), ([7, 40], 0), ([5, 70], 1), ([70, 3], 0), ([2, 5_001], 1), ([4, 1], 1), ([0, 4], 1), ([4, 0], 1)];

#[test]
fn running_sums_miss_nothing() {
    on_both(|both| {
        for dtype in FLOATS {
            for (shape, axis) in SHAPES {
                for scan in scans(Fold::Sum) {
                    let (input, out) = (both.whole(shape, [-1.0, 2.0], dtype, 1), both.full(shape, 9.0, dtype));
                    let what = format!("{scan:?} of {shape:?} along {axis}");
                    compute(|on| backend::scan(view(on(&out)), Some(view(on(&input))), axis, scan));
                    out.assert_equal(&what);
                    compute(|on| backend::scan(view(on(&input)), None, axis, scan));
                    input.assert_equal(&format!("{what}, in place"));
                }
            }
        }
    });
}

#[test]
fn running_sums_of_fractions_are_those_of_doubles_within_rounding() {
    on_both(|both| {
        for dtype in FLOATS {
            for (shape, axis) in SHAPES {
                let (input, out) = (both.uniform(shape, [0.0, 1.0], dtype, 1), both.full(shape, 9.0, dtype));
                let [exact, from] = [&out.cpu, &input.cpu].map(|t| t.to_dtype(DType::F64).expect("wider numbers"));
                let scan = Scan { fold: Fold::Sum, exclusive: false, backwards: false };
                for (to, from) in [(&exact, &from), (&out.cuda, &input.cuda)] {
                    backend::scan(view(to), Some(view(from)), axis, scan).expect("it sums");
                }
                let found = Pair { cpu: exact.to_dtype(dtype).expect("numbers"), cuda: out.cuda };
                let most = if dtype.size() == 2 { 1.5e-7 } else { 1e-6 };
                found.assert_close(&format!("{shape:?} along {axis}"), most, 0.0);
            }
        }
    });
}

/// Values around 1, with some zeros, and some that overflow unless they are multiplied in order.
fn factors(both: &Both, shape: impl Into<Shape>, dtype: DType) -> Pair {
    let shape = shape.into();
    let near_one = both.uniform(shape, [0.9, 1.1], dtype, 1).cpu.to_f64_vec().expect("numbers");
    let large = if dtype == DType::F16 { 3e3 } else { 1e30 };
    let numbers: Vec<f64> = near_one
        .into_iter()
        .enumerate()
        .map(|(place, number)| match place % 67 {
            20 => 0.0,
            24..27 => large,
            _ => number,
        })
        .collect();
    let tensor = Tensor::from_slice(&numbers, shape, &both.cpu).expect("they fill the shape");
    both.pair(tensor.to_dtype(dtype).expect("numbers become numbers"))
}

#[test]
fn running_products_are_made_in_order() {
    on_both(|both| {
        for dtype in FLOATS {
            for (shape, axis) in SHAPES {
                for scan in scans(Fold::Product) {
                    let (input, out) = (factors(both, shape, dtype), both.full(shape, 9.0, dtype));
                    compute(|on| backend::scan(view(on(&out)), Some(view(on(&input))), axis, scan));
                    out.assert_equal(&format!("{scan:?} of {shape:?} along {axis}"));
                }
            }
        }
    });
}

#[test]
fn gradients_of_running_products_go_through_zeros() {
    on_both(|both| {
        for dtype in FLOATS {
            for (shape, axis) in SHAPES {
                for exclusive in [false, true] {
                    let (input, grad) = (factors(both, shape, dtype), both.normal(shape, dtype, 2));
                    let out = both.full(shape, 9.0, dtype);
                    let walk = |on: fn(&Pair) -> &Tensor| {
                        backend::product_backward(view(on(&out)), view(on(&grad)), view(on(&input)), axis, exclusive)
                    };
                    compute(walk);
                    out.assert_close(&format!("{shape:?} along {axis}, exclusive: {exclusive}"), 2e-6, 1e-6);
                }
            }
        }
    });
}

#[test]
fn lines_may_lie_in_any_layout() {
    on_both(|both| {
        for (axis, fold) in [(0, Fold::Sum), (1, Fold::Sum), (2, Fold::Sum), (0, Fold::Product), (2, Fold::Product)] {
            let input =
                both.whole([5, 90, 4], [-1.0, 2.0], DType::F32, 1).map(|t| t.permute(&[1, 2, 0])?.narrow(0, 7, 40));
            let grad = both.whole([5, 40, 4], [-2.0, 3.0], DType::F32, 2).map(|t| t.permute(&[1, 2, 0]));
            let wide = both.full([40, 6, 7], 9.0, DType::F32);
            let out = wide.map(|t| t.narrow(1, 1, 4)?.narrow(2, 2, 5));
            let scan = Scan { fold, exclusive: true, backwards: true };
            compute(|on| backend::scan(view(on(&out)), Some(view(on(&input))), axis, scan));
            wide.assert_equal(&format!("{fold:?} along {axis}"));
            let product = |on: fn(&Pair) -> &Tensor| [view(on(&out)), view(on(&grad)), view(on(&input))];
            compute(|on| {
                let [out, grad, input] = product(on);
                backend::product_backward(out, grad, input, axis, false)
            });
            wide.assert_close(&format!("gradients along {axis}"), 1e-6, 0.0);
        }
    });
}
