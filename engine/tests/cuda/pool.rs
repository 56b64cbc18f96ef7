//! Max and average pooling, and their gradients.

use highwater_engine::backend::{self, Window};
use highwater_engine::{DType, Shape, Tensor};

use crate::harness::{Both, FLOATS, Pair, compute, on_both, view};

/// Images and pooling windows: adjacent, overlapping, apart, and past the end.
fn cases() -> [([usize; 4], Window); 6] {
    let window =
        |kernel, stride, padding, places| Window { kernel, stride, padding, dilation: [1, 1], places, first: 0 };
    [
        ([2, 3, 8, 10], window([2, 2], [2, 2], [0, 0], [4, 5])),
        ([1, 5, 9, 7], window([3, 3], [2, 2], [1, 1], [5, 4])),
        ([3, 2, 7, 6], window([2, 3], [1, 2], [1, 1], [8, 3])),
        ([2, 2, 9, 11], window([1, 2], [4, 3], [0, 0], [3, 4])),
        ([2, 1, 7, 7], window([3, 3], [2, 3], [0, 1], [3, 3])),
        ([1, 2, 40, 37], window([17, 17], [5, 4], [8, 8], [9, 10])),
    ]
}

fn result_shape(size: [usize; 4], window: &Window) -> Shape {
    Shape::from([size[0], size[1], window.places[0], window.places[1]])
}

#[test]
fn the_first_of_the_largest_in_each_window_is_found() {
    on_both(|both| {
        for dtype in FLOATS {
            for (size, window) in cases() {
                let input = both.whole(size, [-3.0, 4.0], dtype, 1);
                assert_largest(both, &input, window);
            }
        }
        let (size, window) = cases()[1];
        let mut numbers = both.whole(size, [-3.0, 4.0], DType::F32, 1).cpu.to_vec::<f32>().expect("numbers");
        (numbers[10], numbers[11], numbers[40]) = (f32::NAN, f32::NAN, f32::INFINITY);
        numbers[63..126].fill(f32::NEG_INFINITY);
        let input = both.pair(Tensor::from_slice(&numbers, size, &both.cpu).expect("they fill the shape"));
        assert_largest(both, &input, window);
        let turned = both.whole([7, 5, 9, 2], [-3.0, 4.0], DType::Bf16, 1).map(|t| t.permute(&[3, 1, 2, 0]));
        assert_largest(both, &turned, window);
    });
}

fn assert_largest(both: &Both, input: &Pair, window: Window) {
    let shape: Vec<usize> = input.cpu.shape().iter().copied().collect();
    let shape = result_shape([shape[0], shape[1], shape[2], shape[3]], &window);
    let what = format!("{:?} under {window:?}", input.cpu.layout());
    let alone = both.full(shape, 9.0, input.cpu.dtype());
    compute(|on| backend::max_pool(view(on(&alone)), None, view(on(input)), window));
    alone.assert_equal(&what);
    for dtype in [DType::U8, DType::I64] {
        if dtype == DType::U8 && window.kernel[0] * window.kernel[1] > 256 {
            continue;
        }
        let (out, places) = (both.full(shape, 9.0, input.cpu.dtype()), both.full(shape, 99.0, dtype));
        compute(|on| backend::max_pool(view(on(&out)), Some(view(on(&places))), view(on(input)), window));
        out.assert_equal(&what);
        places.assert_equal(&format!("places of {what}"));
        let sum = both.whole(*input.cpu.shape(), [-2.0, 3.0], input.cpu.dtype(), 2);
        let grad = grads(both, shape, input.cpu.dtype());
        compute(|on| backend::max_pool_backward(view(on(&sum)), view(on(&grad)), view(on(&places)), window));
        sum.assert_equal(&format!("gradients of {what}"));
    }
}

/// Integers, of which a few add up without rounding, in random order.
fn grads(both: &Both, shape: Shape, dtype: DType) -> Pair {
    let turned = Shape::from([shape[2], shape[0], shape[3], shape[1]]);
    both.whole(turned, [-2.0, 3.0], dtype, 3).map(|t| t.permute(&[1, 3, 0, 2]))
}

#[test]
fn means_count_padding_or_not() {
    on_both(|both| {
        for dtype in FLOATS {
            for (size, window) in cases() {
                for counts_padding in [false, true] {
                    let input = both.whole([size[0], size[2], size[3], size[1]], [-3.0, 4.0], dtype, 1);
                    let input = input.map(|t| t.permute(&[0, 3, 1, 2]));
                    let shape = result_shape(size, &window);
                    let out = both.full(shape, 9.0, dtype);
                    compute(|on| backend::avg_pool(view(on(&out)), view(on(&input)), window, counts_padding));
                    out.assert_equal(&format!("{size:?} under {window:?}, {counts_padding}"));
                }
            }
        }
    });
}

#[test]
fn the_gradient_of_a_mean_is_shared() {
    on_both(|both| {
        for dtype in FLOATS {
            // The processor rounds halves after each window, a kernel once: as single precision does at the end.
            let exact = if dtype.size() == 2 { DType::F32 } else { dtype };
            for (size, window) in cases() {
                for counts_padding in [false, true] {
                    let (sum, grad) = (both.full(size, 1.0, dtype), grads(both, result_shape(size, &window), dtype));
                    let [wide, wide_grad] = [&sum.cpu, &grad.cpu].map(|t| t.to_dtype(exact).expect("wider numbers"));
                    backend::avg_pool_backward(view(&wide), view(&wide_grad), window, counts_padding)
                        .expect("it computes");
                    backend::avg_pool_backward(view(&sum.cuda), view(&grad.cuda), window, counts_padding)
                        .expect("a kernel starts");
                    let found = Pair { cpu: wide.to_dtype(dtype).expect("numbers"), cuda: sum.cuda };
                    found.assert_equal(&format!("{size:?} under {window:?}, {counts_padding}"));
                }
            }
        }
    });
}

#[test]
fn no_images_have_no_windows() {
    on_both(|both| {
        let window = cases()[0].1;
        let (input, out) =
            (both.full([0, 3, 8, 10], 1.0, DType::F32).cuda, both.full([0, 3, 4, 5], 1.0, DType::F32).cuda);
        let places = both.full([0, 3, 4, 5], 0.0, DType::U8).cuda;
        backend::max_pool(view(&out), Some(view(&places)), view(&input), window).expect("nothing to start");
        backend::avg_pool(view(&out), view(&input), window, true).expect("nothing to start");
        backend::max_pool_backward(view(&input), view(&out), view(&places), window).expect("nothing to start");
        backend::avg_pool_backward(view(&input), view(&out), window, true).expect("nothing to start");
        both.cuda.synchronize().expect("nothing went wrong");
    });
}
