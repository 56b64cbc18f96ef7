//! Cross-entropy from logits.

use highwater_engine::backend;
use highwater_engine::{DType, Shape};

use crate::harness::{Both, FLOATS, Pair, on_both, run, view};

const IGNORED: i64 = -100;

/// Logits: rows short and long, more of them than all blocks take at a time; and places beside one another, in packs
/// and not, of few classes and of many.
fn shapes() -> [Shape; 9] {
    [
        Shape::from([1100, 33]),
        Shape::from([3000, 2]),
        Shape::from([70, 2100]),
        Shape::from([2, 5, 1, 1]),
        Shape::from([3, 4, 7]),
        Shape::from([2, 70, 24]),
        Shape::from([2, 300, 3, 3]),
        Shape::from([1, 3, 1500]),
        Shape::from([0, 4]),
    ]
}

struct Problem {
    logits: Pair,
    targets: Pair,
}

/// Targets of which every fifth is ignored.
fn problem(both: &Both, shape: Shape, dtype: DType) -> Problem {
    let places = shape.elements() / shape[1];
    let class = |place: usize| if place % 5 == 3 { IGNORED } else { (place * 7 % shape[1]) as i64 };
    let targets: Vec<i64> = (0..places).map(class).collect();
    let logits = both.uniform(shape, [-4.0, 4.0], dtype, 1);
    Problem { logits, targets: both.indices(places, &targets) }
}

#[test]
fn losses_are_those_of_the_processor() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                for shape in shapes() {
                    let Problem { logits, targets } = problem(both, shape, dtype);
                    let (loss, count) = (both.full((), 9.0, dtype), both.full((), 9.0, dtype.statistics()));
                    let statistics = both.full(targets.cpu.elements(), 9.0, dtype.statistics());
                    run(|of| {
                        let [loss, statistics, count] = [of(&loss), of(&statistics), of(&count)];
                        backend::cross_entropy(loss, statistics, count, of(&logits), of(&targets), IGNORED)
                    });
                    statistics.assert_near(&format!("sums of exponents of {shape:?}"), 8.0);
                    count.assert_equal("the number of places that count");
                    loss.assert_near(&format!("loss of {shape:?}"), 8.0);
                }
            }
        });
    });
}

#[test]
fn gradients_of_logits_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in shapes() {
                let Problem { logits, targets } = problem(both, shape, dtype);
                let statistics = both.uniform(targets.cpu.elements(), [4.5, 5.5], dtype.statistics(), 3);
                let (grad, count) = (both.full((), 0.75, dtype), both.full((), 3.0, dtype.statistics()));
                let out = both.full(shape, 9.0, dtype);
                let backward = |out: &Pair, logits: Option<&Pair>| {
                    run(|of| {
                        let known = [of(&grad), of(&statistics), of(&count)];
                        backend::cross_entropy_backward(of(out), logits.map(of), known, of(&targets), IGNORED)
                    });
                    out.assert_near(&format!("gradient of {shape:?}, apart {}", logits.is_some()), 32.0);
                };
                backward(&out, Some(&logits));
                backward(&logits, None);
            }
        }
    });
}

#[test]
fn a_target_that_is_no_class_is_reported_when_the_device_is_waited_for() {
    on_both(|both| {
        for (shape, target) in [([2, 3, 1], 3), ([2, 3, 1], -1), ([1, 3, 2], 5)] {
            let logits = both.normal(shape, DType::F32, 1);
            let targets = both.indices(2, &[1, target]);
            let (loss, count) = (both.full((), 9.0, DType::F32), both.full((), 9.0, DType::F32));
            let statistics = both.full(2, 9.0, DType::F32);
            let call = |of: fn(&Pair) -> backend::View<'_>| {
                let [loss, statistics, count] = [of(&loss), of(&statistics), of(&count)];
                backend::cross_entropy(loss, statistics, count, of(&logits), of(&targets), IGNORED)
            };
            let expected = call(|pair| view(&pair.cpu)).expect_err("there is no such class");
            call(|pair| view(&pair.cuda)).expect("a kernel starts");
            let found = both.cuda.synchronize().expect_err("the kernel has told");
            for error in [expected.to_string(), found.to_string()] {
                assert!(error.contains(&format!("index {target} ")), "{error}");
            }
            both.cuda.synchronize().expect("it was told once");
        }
    });
}

#[test]
fn nothing_that_counts_has_no_mean_loss() {
    on_both(|both| {
        let (logits, targets) = (both.normal([2, 3], DType::F32, 1), both.indices(2, &[IGNORED, IGNORED]));
        let (loss, count) = (both.full((), 9.0, DType::F32), both.full((), 9.0, DType::F32));
        let statistics = both.full(2, 9.0, DType::F32);
        run(|of| {
            let [loss, statistics, count] = [of(&loss), of(&statistics), of(&count)];
            backend::cross_entropy(loss, statistics, count, of(&logits), of(&targets), IGNORED)
        });
        assert!(loss.cuda.to_f64_vec().expect("it can be read")[0].is_nan());
        loss.assert_equal("no mean");
        count.assert_equal("none");
    });
}
