//! Selection between the elements of two tensors by a condition.

use highwater_engine::{DType, backend};

use crate::harness::{on_both, run};

#[test]
fn elements_of_every_type_and_layout_are_chosen() {
    on_both(|both| {
        for dtype in DType::ALL {
            for shape in [[0, 3], [5, 32], [7, 19], [3, 1500]] {
                let truths = both.layouts(shape, |both, shape| both.whole(shape, [0.0, 3.0], DType::U8, 1));
                let left = both.layouts(shape, |both, shape| both.whole(shape, [1.0, 250.0], dtype, 2));
                let right = both.layouts(shape, |both, shape| both.whole(shape, [1.0, 250.0], dtype, 3));
                for (place, (name, condition)) in truths.iter().enumerate() {
                    for turn in [0, 3] {
                        let (of_left, left) = &left[(place + turn) % left.len()];
                        let (of_right, right) = &right[(place + 2 * turn) % right.len()];
                        let what = format!("by what is {name}: what is {of_left} or {of_right}");
                        let wide = both.full([shape[0], shape[1] + 16], 1.0, dtype);
                        let out = wide.map(|t| t.narrow(1, 8 * (place % 2), shape[1]));
                        run(|of| backend::where_cond(of(&out), of(condition), Some(of(left)), Some(of(right))));
                        wide.assert_equal(&what);
                        run(|of| backend::where_cond(of(&out), of(condition), Some(of(left)), None));
                        wide.assert_equal(&format!("{what}, only the first"));
                        run(|of| backend::where_cond(of(&out), of(condition), None, Some(of(right))));
                        wide.assert_equal(&format!("{what}, only the second"));
                        run(|of| backend::where_cond(of(&out), of(condition), None, None));
                        wide.assert_equal("neither");
                    }
                }
            }
        }
    });
}

#[test]
fn elements_are_cleared_where_the_condition_is_another() {
    on_both(|both| {
        for dtype in DType::ALL {
            for shape in [[0, 3], [5, 32], [7, 19]] {
                for (name, condition) in
                    both.layouts(shape, |both, shape| both.whole(shape, [0.0, 2.0], DType::Bool, 1))
                {
                    for wanted in [true, false] {
                        let wide = both.whole([shape[0], shape[1] + 16], [1.0, 250.0], dtype, 2);
                        let out = wide.map(|t| t.narrow(1, 8, shape[1]));
                        run(|of| backend::clear(of(&out), of(&condition), wanted));
                        wide.assert_equal(&format!("kept where it is {wanted}, by what is {name}"));
                    }
                }
            }
        }
    });
}
