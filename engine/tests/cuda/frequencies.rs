//! Positional encoding by sines and cosines.

use highwater_engine::backend;

use crate::harness::{FLOATS, on_both, run};

#[test]
fn waves_and_their_slopes_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for (rows, width) in [(0, 3), (1, 1), (7, 3), (300, 3), (2, 40)] {
                for octaves in [0, 1, 4, 10] {
                    let wide = width * (1 + 2 * octaves);
                    let what = format!("{rows} rows of {width}, {octaves} octaves");
                    let input = both.uniform([rows, width], [-2.0, 2.0], dtype, 1);
                    let out = both.full([rows, wide], 7.0, dtype);
                    run(|of| backend::frequencies(of(&out), of(&input)));
                    out.assert_near(&what, 2.0);
                    let grad = both.normal([rows, wide], dtype, 2);
                    let back = both.full([rows, width], 7.0, dtype);
                    run(|of| backend::frequencies_backward(of(&back), of(&grad), of(&input)));
                    back.assert_near(&format!("slopes of {what}"), 20.0);
                }
            }
        }
    });
}
