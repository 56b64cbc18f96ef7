//! Cross-entropy of some rows of logits, which are overwritten with their gradients.

use highwater_engine::DType;
use highwater_engine::backend;

use crate::harness::{FLOATS, on_both, run, view};

const IGNORED: i64 = -100;

#[test]
fn targets_that_are_not_ignored_are_counted() {
    on_both(|both| {
        for places in [0_usize, 1, 300, 2500] {
            for ignored in [IGNORED, 2, 7] {
                let targets: Vec<i64> = (0..places).map(|place| if place % 3 == 0 { IGNORED } else { 7 }).collect();
                let targets = both.indices(places, &targets);
                for dtype in [DType::F32, DType::F64] {
                    let count = both.full(2, 9.0, dtype);
                    run(|of| backend::count_targets(of(&count), of(&targets), ignored));
                    count.assert_equal(&format!("{places} places without {ignored}"));
                }
            }
        }
    });
}

#[test]
fn rows_become_their_gradient_and_their_loss_is_added() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                for shape in [[5, 1], [1100, 33], [9, 64], [3, 1031], [70, 2100], [0, 4]] {
                    let class = |row: usize| if row % 5 == 3 { IGNORED } else { (row * 7 % shape[1]) as i64 };
                    let targets: Vec<i64> = (0..shape[0]).map(class).collect();
                    let targets = both.indices(shape[0], &targets);
                    let logits = both.uniform(shape, [-4.0, 4.0], dtype, 1);
                    let loss = both.full((), 0.5, dtype.statistics());
                    let count = both.full(2, 6.0, dtype.statistics());
                    run(|of| {
                        let known = [of(&count), of(&targets)];
                        backend::cross_entropy_in_place(of(&logits), of(&loss), known, IGNORED)
                    });
                    loss.assert_near(&format!("loss of {shape:?}"), 8.0);
                    logits.assert_near(&format!("gradient of {shape:?}"), 32.0);
                }
            }
        });
    });
}

#[test]
fn a_target_that_is_no_class_is_reported_when_the_device_is_waited_for() {
    on_both(|both| {
        let (logits, targets) = (both.normal([2, 3], DType::F32, 1), both.indices(2, &[1, 3]));
        let (loss, count) = (both.full((), 0.0, DType::F32), both.full(2, 2.0, DType::F32));
        let known = [view(&count.cuda), view(&targets.cuda)];
        backend::cross_entropy_in_place(view(&logits.cuda), view(&loss.cuda), known, IGNORED).expect("a kernel starts");
        let error = both.cuda.synchronize().expect_err("the kernel has told").to_string();
        assert!(error.contains("index 3 "), "{error}");
    });
}
