//! The largest and smallest elements along an axis.

use highwater_engine::backend::{self, Extremum};
use highwater_engine::{DType, Shape, Tensor};

use crate::harness::{Both, FLOATS, Pair, compute, on_both, view};

#[test]
fn the_first_of_the_largest_and_of_the_smallest_are_found_and_nan_before_all() {
    on_both(|both| {
        for dtype in FLOATS {
            for (shape, axis) in [
                ([7, 5], 1),
                ([7, 40], 1),
                ([40, 7], 0),
                ([300, 3], 1),
                ([2, 700], 1),
                ([700, 3], 0),
                ([3, 5_000], 1),
                ([4, 1], 1),
            ] {
                let input = both.whole(shape, [-4.0, 4.0], dtype, 1);
                assert_found(both, &input, axis);
            }
            let turned = both.whole([9, 6, 20], [-9.0, 9.0], dtype, 2).map(|t| t.permute(&[2, 0, 1])?.narrow(1, 2, 5));
            (0..3).for_each(|axis| assert_found(both, &turned, axis));
        }
        let mut numbers = vec![f32::NEG_INFINITY; 6 * 1_030];
        numbers[3] = f32::NAN;
        numbers[900] = f32::NAN;
        numbers[1_031] = -5.0;
        numbers[2_070] = f32::INFINITY;
        numbers[2_071] = f32::NAN;
        numbers[4 * 1_030] = f32::NAN;
        let input = both.pair(Tensor::from_slice(&numbers, [6, 1_030], &both.cpu).expect("they fill it"));
        (0..2).for_each(|axis| assert_found(both, &input, axis));
        assert_found(both, &input.map(|t| t.narrow(1, 0, 40)), 1);
    });
}

/// Finds one, some and all elements along `axis`, with and without their values.
fn assert_found(both: &Both, input: &Pair, axis: usize) {
    let length = input.cpu.shape()[axis];
    for extremum in [Extremum::Largest, Extremum::Smallest] {
        for count in [0, 1, length.min(3), length.min(40)] {
            let lengths: Vec<usize> = input.cpu.shape().iter().copied().collect();
            let with = |count: usize| {
                let mut lengths = lengths.clone();
                lengths[axis] = count;
                Shape::from_slice(&lengths).expect("few axes")
            };
            let wide = both.full(with(count + 2), 7.0, input.cpu.dtype());
            let values = wide.map(|t| t.narrow(axis as isize, 1, count));
            let [places, alone] = [7.0, 8.0].map(|number| both.full(with(count), number, DType::I64));
            let (input, found) = (&input, &values);
            compute(|on| backend::extremes(view(on(&places)), Some(view(on(found))), view(on(input)), axis, extremum));
            compute(|on| backend::extremes(view(on(&alone)), None, view(on(input)), axis, extremum));
            let what = format!("{extremum:?} {count} of {:?} along {axis}", input.cpu.layout());
            wide.assert_equal(&what);
            places.assert_equal(&format!("places of {what}"));
            alone.assert_equal(&format!("places alone of {what}"));
        }
    }
}
