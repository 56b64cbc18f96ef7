//! Means, and sums of squared distances from them.

use highwater_engine::backend;
use highwater_engine::{DType, Shape};

use crate::harness::{Both, FLOATS, Pair, on_both, run};

/// Shapes, and the axes that are taken together: the last, the first, those between, all, none, and those of length 1;
/// few and many elements, and so many places and elements that blocks go round and sums are cut into parts.
fn cases() -> Vec<(Shape, Vec<usize>)> {
    vec![
        (Shape::from([5, 7]), vec![1]),
        (Shape::from([3000, 3]), vec![1]),
        (Shape::from([3, 5000]), vec![1]),
        (Shape::from([5000, 3]), vec![0]),
        (Shape::from([6, 300]), vec![0]),
        (Shape::from([4, 9, 33]), vec![1]),
        (Shape::from([4, 9, 33]), vec![0, 2]),
        (Shape::from([40, 90]), vec![0, 1]),
        (Shape::from([4, 1, 33]), vec![1]),
        (Shape::from([4, 3]), vec![]),
        (Shape::from([0, 3]), vec![1]),
        (Shape::from([3, 0]), vec![1]),
    ]
}

/// Memory of the shape with axes of length 1, and the same repeated to the whole shape.
fn repeated(both: &Both, shape: Shape, axes: &[usize], value: f64, dtype: DType) -> [Pair; 2] {
    let kept: Vec<usize> =
        shape.iter().enumerate().map(|(axis, &length)| if axes.contains(&axis) { 1 } else { length }).collect();
    let memory = both.full(Shape::from_slice(&kept).expect("few axes"), value, dtype);
    let whole = memory.map(|t| t.expand(shape));
    [memory, whole]
}

#[test]
fn means_and_variances_along_any_axes_are_those_of_the_processor() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                for (shape, axes) in cases() {
                    for turned in [false, true] {
                        let input = if turned {
                            let mut lengths = shape.to_vec();
                            lengths.reverse();
                            let turned =
                                both.uniform(Shape::from_slice(&lengths).expect("few axes"), [-1.0, 3.0], dtype, 1);
                            turned.map(|t| t.transpose(0, -1))
                        } else {
                            both.uniform(shape, [-1.0, 3.0], dtype, 1)
                        };
                        let what = format!("{shape:?} along {axes:?}, turned {turned}");
                        let [mean, means] = repeated(both, shape, &axes, 7.0, dtype.statistics());
                        run(|of| backend::exact_mean(of(&means), of(&input)));
                        mean.assert_near(&format!("mean of {what}"), 2.0);
                        let mean = both.pair(mean.cpu);
                        let means = mean.map(|t| t.expand(shape));
                        let [variance, variances] = repeated(both, shape, &axes, 7.0, dtype);
                        run(|of| backend::variance(of(&variances), of(&input), of(&means), 0.125));
                        variance.assert_near(&format!("variance of {what}"), 32.0);
                    }
                }
            }
        });
    });
}

#[test]
fn gradients_of_variances_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for (shape, axes) in cases() {
                let [_, means] = repeated(both, shape, &axes, 0.75, dtype.statistics());
                let [_, grads] = repeated(both, shape, &axes, 1.25, dtype);
                let input = both.uniform(shape, [-1.0, 3.0], dtype, 1);
                let out = both.full(shape, 9.0, dtype);
                let backward = |out: &Pair, input: Option<&Pair>| {
                    run(|of| backend::variance_backward(of(out), of(&grads), input.map(of), of(&means), 0.5));
                    out.assert_near(&format!("gradient of {shape:?}, apart {}", input.is_some()), 4.0);
                };
                backward(&out, Some(&input));
                backward(&input, None);
            }
            let memory = both.uniform([7, 6], [-1.0, 3.0], dtype, 1);
            let input = memory.map(|t| t.transpose(0, 1)?.narrow(1, 1, 5));
            let grads = both.normal([6, 5], dtype, 2);
            let [_, means] = repeated(both, Shape::from([6, 5]), &[0], 0.75, dtype.statistics());
            run(|of| backend::variance_backward(of(&input), of(&grads), None, of(&means), 0.5));
            memory.assert_near("gradient in place of a view, and what is beside it", 4.0);
        }
    });
}
