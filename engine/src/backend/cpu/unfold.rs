//! Unfold: an image's windows as columns of a matrix, so that a convolution is a matrix product; and the reverse.

use super::number::{Float, with_float};
use crate::backend::{View, Window};
use crate::error::Result;

/// See [`crate::backend::unfold`].
pub fn unfold(out: View<'_>, image: View<'_>, window: Window) -> Result<()> {
    with_float!("conv2d", out.dtype, T => {
        let values = image.storage.read::<T>("conv2d")?;
        let mut memory = out.storage.write::<T>("conv2d")?;
        let zero = <T as Float>::store(super::number::Real::ZERO);
        visit(out, image, window, |column, pixel| memory[column] = pixel.map_or(zero, |pixel| values[pixel]));
        Ok(())
    })
}

/// See [`crate::backend::fold_add`].
pub fn fold_add(image: View<'_>, columns: View<'_>, window: Window) -> Result<()> {
    with_float!("conv2d", image.dtype, T => {
        let values = columns.storage.read::<T>("conv2d")?;
        let mut memory = image.storage.write::<T>("conv2d")?;
        visit(columns, image, window, |column, pixel| {
            if let Some(pixel) = pixel {
                memory[pixel] = T::store(memory[pixel].load() + values[column].load());
            }
        });
        Ok(())
    })
}

/// Calls `pair(element of the columns, element of the image)` for every element of the columns; none in the padding.
fn visit(columns: View<'_>, image: View<'_>, window: Window, mut pair: impl FnMut(usize, Option<usize>)) {
    let [down, right] = [columns.layout.strides()[0], columns.layout.strides()[1]];
    let places = columns.layout.shape()[1];
    let (shape, strides) = (image.layout.shape(), image.layout.strides());
    let [kernel_height, kernel_width] = window.kernel;
    for row in 0..columns.layout.shape()[0] {
        let (channel, i, j) =
            (row / (kernel_height * kernel_width), row / kernel_width % kernel_height, row % kernel_width);
        for place in 0..places {
            let (y, x) = ((window.first + place) / window.places[1], (window.first + place) % window.places[1]);
            let y = (y * window.stride[0] + i).checked_sub(window.padding[0]).filter(|&y| y < shape[1]);
            let x = (x * window.stride[1] + j).checked_sub(window.padding[1]).filter(|&x| x < shape[2]);
            let pixel =
                y.zip(x).map(|(y, x)| image.layout.offset() + channel * strides[0] + y * strides[1] + x * strides[2]);
            pair(columns.layout.offset() + row * down + place * right, pixel);
        }
    }
}
