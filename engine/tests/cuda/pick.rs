//! Gathers along an axis, and their gradients.

use highwater_engine::backend;
use highwater_engine::{DType, Error, Shape};

use crate::harness::{Both, FLOATS, Pair, compute, on_both, view};

/// Random indices into an axis of `size` elements.
fn places(both: &Both, shape: &[usize], size: usize, seed: u64) -> Pair {
    both.whole(Shape::from_slice(shape).expect("few axes"), [0.0, size as f64], DType::I64, seed)
}

#[test]
fn elements_of_any_type_are_picked() {
    on_both(|both| {
        for dtype in FLOATS.into_iter().chain([DType::I64, DType::U8, DType::Bool]) {
            let input = both.whole([6, 40, 5], [0.0, 2.0], dtype, 1);
            for (axis, shape) in [(0, [9, 40, 5]), (1, [6, 70, 5]), (2, [6, 40, 1]), (1, [3, 7, 2]), (1, [6, 0, 5])] {
                let places = places(both, &shape, input.cpu.shape()[axis], 2);
                let out = both.full(Shape::from(shape), 1.0, dtype);
                compute(|on| backend::gather(view(on(&out)), view(on(&input)), view(on(&places)), axis));
                out.assert_equal(&format!("{shape:?} along {axis}"));
            }
        }
    });
}

#[test]
fn elements_are_picked_from_any_layout() {
    on_both(|both| {
        let input = both.normal([6, 40, 5], DType::Bf16, 1).map(|t| t.permute(&[1, 2, 0])?.narrow(0, 3, 20));
        let places = places(both, &[5, 30, 6], 20, 2).map(|t| t.transpose(0, 1));
        let wide = both.full([31, 5, 9], 1.0, DType::Bf16);
        let out = wide.map(|t| t.narrow(0, 1, 30)?.narrow(2, 2, 6));
        compute(|on| backend::gather(view(on(&out)), view(on(&input)), view(on(&places)), 0));
        wide.assert_equal("views");
    });
}

#[test]
fn elements_are_added_in_their_order() {
    on_both(|both| {
        // Many short lines; few long ones; all to one place; places no longer than what is added to in other axes.
        let cases = [
            (0, [4, 40, 5], [9, 40, 5]),
            (1, [5, 7, 3], [5, 300, 3]),
            (1, [1, 1, 1], [1, 600, 1]),
            (2, [5, 6, 90], [3, 4, 60]),
            (0, [3, 30, 40], [40, 30, 40]),
            (1, [2, 3, 4], [2, 0, 4]),
        ];
        for (axis, whole, part) in cases {
            for dtype in [DType::F64, DType::F32] {
                let places = places(both, &part, whole[axis], 1);
                assert_added((&both.normal(whole, dtype, 2), &both.normal(part, dtype, 3), &places), axis);
            }
            for dtype in [DType::Bf16, DType::F16] {
                let places = places(both, &part, whole[axis], 1);
                let (to, added) = (both.whole(whole, [-3.0, 4.0], dtype, 2), both.whole(part, [-1.0, 2.0], dtype, 3));
                assert_added((&to, &added, &places), axis);
            }
        }
    });
}

#[test]
fn elements_are_added_in_any_layout_and_more_than_are_looked_at_together() {
    on_both(|both| {
        let places_in = places(both, &[3, 900], 20, 1).map(|t| t.transpose(0, 1));
        let added = both.normal([900, 5], DType::F32, 2).map(|t| t.narrow(1, 2, 3));
        let to = both.normal([3, 50], DType::F32, 3).map(|t| t.transpose(0, 1)?.narrow(0, 5, 20));
        assert_added((&to, &added, &places_in), 0);
        let long = places(both, &[2_500], 300, 4);
        assert_added((&both.normal(300, DType::F32, 5), &both.normal(2_500, DType::F32, 6), &long), 0);
        let stream = both.cuda.new_stream().expect("a stream");
        let (to, added) = (both.normal([2, 50], DType::F32, 5), both.normal([2, 200], DType::F32, 6));
        let places = places(both, &[2, 200], 50, 7);
        let entered = stream.enter();
        assert_added((&to, &added, &places), 1);
        drop(entered);
    });
}

fn assert_added((to, added, places): (&Pair, &Pair, &Pair), axis: usize) {
    compute(|on| backend::scatter_add(view(on(to)), view(on(added)), view(on(places)), axis));
    to.assert_equal(&format!("{:?} added along {axis} to {:?}", added.cpu.layout(), to.cpu.layout()));
}

#[test]
fn a_place_outside_of_the_axis_is_reported_and_nothing_done_for_it() {
    on_both(|both| {
        for (wrong, length) in [(4, 3), (-2, 3), (4, 40), (i64::MIN, 40)] {
            let mut numbers = vec![0; length];
            (numbers[0], numbers[1]) = (3, wrong);
            let places = both.indices(length, &numbers).cuda;
            let input = both.normal(4, DType::F32, 1).cuda;
            let out = both.full(length, 9.0, DType::F32).cuda;
            backend::gather(view(&out), view(&input), view(&places), 0).expect("a kernel starts");
            let told = both.cuda.synchronize();
            assert!(matches!(told, Err(Error::Index { index, size: 4, .. }) if index == wrong), "{told:?}");
            let (found, from) = (out.to_f64_vec().expect("numbers"), input.to_f64_vec().expect("numbers"));
            assert_eq!((found[0], found[1], found[2]), (from[3], 9.0, from[0]));

            let added = both.full(length, 2.0, DType::F32).cuda;
            backend::scatter_add(view(&input), view(&added), view(&places), 0).expect("a kernel starts");
            let told = both.cuda.synchronize();
            assert!(matches!(told, Err(Error::Index { index, size: 4, .. }) if index == wrong), "{told:?}");
            let expected = [from[0] + 2.0 * (length - 2) as f64, from[1], from[2], from[3] + 2.0];
            let found = input.to_f64_vec().expect("numbers");
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?}, {expected:?}");
        }
        let (nothing, places) = (both.full([0, 3], 0.0, DType::F32), both.indices([1, 3], &[0, 0, 0]));
        let out = both.full([1, 3], 9.0, DType::F32);
        backend::gather(view(&out.cuda), view(&nothing.cuda), view(&places.cuda), 0).expect("a kernel starts");
        assert!(matches!(both.cuda.synchronize(), Err(Error::Index { index: 0, size: 0, .. })));
        assert_eq!(out.cuda.to_f64_vec().expect("numbers"), [9.0; 3]);
    });
}
