//! Rotary position embeddings.

use highwater_engine::backend::{self, Rotation};

use crate::harness::{FLOATS, on_both, run};

#[test]
fn heads_turn_as_on_the_processor_and_what_is_between_them_stays() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in [[2, 5, 3, 8], [1, 1, 1, 2], [3, 1, 2, 6], [1, 9, 1, 64], [2, 3, 2, 300], [0, 4, 2, 8]] {
                for (first, back) in [(0, false), (1000, false), (7, true)] {
                    let rotation = Rotation { base: 10_000.0, first, back };
                    let heads = both.normal(shape, dtype, 1);
                    run(|of| backend::rotary(of(&heads), rotation));
                    heads.assert_near(&format!("{shape:?} from {first} on"), 3.0);
                    let [batch, places, count, width] = shape;
                    let fused = both.normal([batch, places, 3 * count, width], dtype, 2);
                    let part = fused.map(|t| t.narrow(2, count, count));
                    run(|of| backend::rotary(of(&part), rotation));
                    fused.assert_near(&format!("{shape:?} between others, from {first} on"), 3.0);
                }
            }
        }
    });
}
