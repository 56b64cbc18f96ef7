//! Unfolding of an image's windows into columns of a matrix (im2col), and the reverse.

use highwater_engine::backend::{self, Window};
use highwater_engine::{DType, Shape};

use crate::harness::{FLOATS, compute, on_both, view};

/// Channels, height and width of an image, and windows over it.
fn cases() -> impl Iterator<Item = ([usize; 3], Window)> {
    let window = |size: [usize; 2], [kernel, stride, padding, dilation]: [[usize; 2]; 4]| {
        let window = Window { kernel, stride, padding, dilation, places: [0, 0], first: 0 };
        let span = window.span();
        let places = [0, 1].map(|axis| (size[axis] + 2 * padding[axis] - span[axis]) / stride[axis] + 1);
        Window { places, ..window }
    };
    [
        ([3, 9, 11], [[3, 3], [1, 1], [1, 1], [1, 1]]),
        ([2, 8, 7], [[2, 3], [2, 1], [0, 2], [1, 1]]),
        ([1, 5, 40], [[5, 2], [3, 3], [4, 0], [1, 1]]),
        ([70, 4, 4], [[1, 1], [2, 2], [0, 0], [1, 1]]),
        ([2, 3, 3], [[2, 2], [1, 2], [7, 6], [1, 1]]),
        ([5, 2, 300], [[1, 4], [1, 1], [0, 1], [1, 1]]),
        ([3, 9, 11], [[3, 3], [1, 1], [2, 2], [2, 2]]),
        ([2, 8, 17], [[2, 3], [2, 3], [0, 2], [3, 4]]),
        ([1, 12, 40], [[3, 2], [3, 1], [4, 9], [5, 20]]),
    ]
    .into_iter()
    .map(move |(size, form)| (size, window([size[1], size[2]], form)))
}

/// All window positions, and ranges of them: within a line, across lines, and the last ones.
fn parts(window: Window) -> impl Iterator<Item = (Window, usize)> {
    let (all, width) = (window.places[0] * window.places[1], window.places[1]);
    [(0, all), (width - 1, 2), (1, width - 1), (width / 2, 2 * width), (all - 3, 3)]
        .into_iter()
        .map(move |(first, count)| (Window { first, ..window }, count.min(all - first)))
}

#[test]
fn windows_become_columns() {
    on_both(|both| {
        for dtype in FLOATS {
            for (size, window) in cases() {
                let image = both.normal(size, dtype, 1);
                let rows = size[0] * window.kernel[0] * window.kernel[1];
                for (window, count) in parts(window) {
                    let wide = both.full([rows, count + 3], 9.0, dtype);
                    let out = wide.map(|t| t.narrow(1, 0, count));
                    compute(|on| backend::unfold(view(on(&out)), view(on(&image)), window));
                    wide.assert_equal(&format!("{count} places of {window:?} over {size:?}"));
                }
            }
        }
    });
}

#[test]
fn the_image_may_lie_in_any_layout() {
    on_both(|both| {
        let image = both.normal([12, 9, 6], DType::Bf16, 1).map(|t| t.permute(&[2, 0, 1])?.narrow(1, 1, 9));
        let window =
            Window { kernel: [3, 2], stride: [1, 2], padding: [1, 1], dilation: [1, 1], places: [9, 5], first: 4 };
        let out = both.full([36, 33], 9.0, DType::Bf16);
        compute(|on| backend::unfold(view(on(&out)), view(on(&image)), window));
        out.assert_equal("a turned image");
    });
}

#[test]
fn columns_are_added_to_where_they_came_from() {
    on_both(|both| {
        for dtype in FLOATS {
            for (size, window) in cases() {
                let rows = size[0] * window.kernel[0] * window.kernel[1];
                // Doubles and singles are added in the same order as on the processor; halves are rounded later, and
                // whole numbers not at all.
                let is_half = dtype.size() == 2;
                let numbers = |shape: Shape, seed| {
                    if is_half { both.whole(shape, [-2.0, 3.0], dtype, seed) } else { both.normal(shape, dtype, seed) }
                };
                for (window, count) in parts(window) {
                    let columns = numbers(Shape::from([rows, count + 3]), 1).map(|t| t.narrow(1, 2, count));
                    let image = numbers(Shape::from(size), 2);
                    compute(|on| backend::fold_add(view(on(&image)), view(on(&columns)), window));
                    image.assert_equal(&format!("{count} places of {window:?} over {size:?}"));
                }
            }
        }
    });
}
