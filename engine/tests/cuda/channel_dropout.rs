//! Channel dropout.

use highwater_engine::{Rng, Shape, backend};

use crate::harness::{FLOATS, on_both, run};

#[test]
fn the_same_channels_are_left_out() {
    on_both(|both| {
        let draw = Rng::new(11).draw(1000);
        for dtype in FLOATS {
            for shape in [
                Shape::from([2, 3, 5, 7]),
                Shape::from([5, 9]),
                Shape::from([2, 7, 64]),
                Shape::from([1, 3, 2000]),
                Shape::from([40, 11, 3]),
                Shape::from([0, 3, 5]),
                Shape::from([2, 3, 0]),
            ] {
                for share in [0.0, 0.4, 0.875] {
                    let input = both.normal(shape, dtype, 1);
                    let out = both.full(shape, 7.0, dtype);
                    run(|of| backend::dropout_channels(of(&out), Some(of(&input)), share, draw));
                    out.assert_equal(&format!("{share} of {shape:?}"));
                    run(|of| backend::dropout_channels(of(&input), None, share, draw));
                    input.assert_equal(&format!("{share} of {shape:?} in place"));
                }
            }
            let turned = both.normal([6, 3, 2, 4], dtype, 2).map(|t| t.permute(&[2, 1, 0, 3]));
            let out = both.full([2, 3, 6, 4], 7.0, dtype);
            run(|of| backend::dropout_channels(of(&out), Some(of(&turned)), 0.4, draw));
            out.assert_equal("turned");
        }
    });
}
