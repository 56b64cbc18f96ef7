//! im2col, which unfolds the windows of an image into the columns of a matrix, so that a convolution is a matrix
//! product, and its reverse.

use std::ops::Range;

use bytemuck::Pod;
use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::number::{Float, with_float};
use crate::Result;
use crate::backend::{View, Window};

pub(crate) fn unfold(out: View<'_>, image: View<'_>, window: Window) -> Result<()> {
    with_float!("conv2d", out.dtype, T => {
        let values = image.storage.read::<T>("conv2d")?;
        let mut memory = out.storage.write::<T>("conv2d")?;
        let columns = Columns::new(out, image, window);
        let first = out.layout.offset().min(memory.len());
        let rows = memory[first..].par_chunks_mut(columns.down.max(1)).take(columns.rows);
        let rows = rows.enumerate().with_min_len(columns.rows_per_task());
        rows.for_each(|(row, memory)| columns.read_row(row, memory, &values));
        Ok(())
    })
}

pub(crate) fn fold_add(image: View<'_>, columns: View<'_>, window: Window) -> Result<()> {
    with_float!("conv2d", image.dtype, T => {
        let values = columns.storage.read::<T>("conv2d")?;
        let mut memory = image.storage.write::<T>("conv2d")?;
        let rows_per_channel = window.kernel[0] * window.kernel[1];
        let at = columns.layout.offset();
        let columns = Columns::new(columns, image, window);
        assert!(image.layout.shape()[0] <= 1 || columns.is_by_channels(), "the channels of the image are not contiguous");
        // Each task has a channel of the image, and adds its rows of columns in order.
        let first = image.layout.offset().min(memory.len());
        let (count, distance) = (image.layout.shape()[0], image.layout.strides()[0]);
        let channels = memory[first..].par_chunks_mut(if count == 1 { usize::MAX } else { distance.max(1) }).take(count);
        let channels_per_task = columns.rows_per_task().div_ceil(rows_per_channel.max(1));
        channels.enumerate().with_min_len(channels_per_task).for_each(|(channel, memory)| {
            for row in channel * rows_per_channel..(channel + 1) * rows_per_channel {
                columns.add_row(row, &values[(at + row * columns.down).min(values.len())..], memory);
            }
        });
        Ok(())
    })
}

/// The mapping between elements of columns and pixels of the image.
struct Columns {
    window: Window,
    /// The number of rows of the columns (one per kernel element of each channel), the number of output positions per
    /// row, and the strides of rows and positions.
    rows: usize,
    places: usize,
    down: usize,
    right: usize,
    /// The image's height and width, its offset, and the strides of its axes.
    size: [usize; 2],
    offset: usize,
    strides: [usize; 3],
}

impl Columns {
    fn new(columns: View<'_>, image: View<'_>, window: Window) -> Self {
        let (of_columns, of_image) = (columns.layout, image.layout);
        let ([rows, places], [down, right]) =
            ([0, 1].map(|axis| of_columns.shape()[axis]), [0, 1].map(|axis| of_columns.strides()[axis]));
        let reach = places.saturating_sub(1) * right;
        assert!(rows <= 1 || down > reach, "rows of columns overlap");
        let strides = [0, 1, 2].map(|axis| of_image.strides()[axis]);
        let size = [of_image.shape()[1], of_image.shape()[2]];
        // A single row may have any stride.
        let down = if rows == 1 { places.saturating_sub(1) * right + 1 } else { down };
        Self { window, rows, places, down, right, size, offset: of_image.offset(), strides }
    }

    /// Returns whether each channel of the image ends before the next begins.
    fn is_by_channels(&self) -> bool {
        let lengths = self.size.iter().zip(&self.strides[1..]);
        self.strides[0] > lengths.map(|(length, stride)| length.saturating_sub(1) * stride).sum()
    }

    fn rows_per_task(&self) -> usize {
        (ELEMENTS_PER_TASK / self.places.max(1)).max(1)
    }

    /// Calls `run(places, y)` for each range of positions in one line of the output. `y` is the corresponding line of
    /// the image, or `None` in the padding.
    fn runs(&self, row: usize, mut run: impl FnMut(Range<usize>, Option<usize>)) {
        let Window { kernel, stride, padding, dilation, places: [_, width], first } = self.window;
        let i = row / kernel[1] % kernel[0] * dilation[0];
        let mut done = 0;
        while done < self.places {
            let (line, x) = ((first + done) / width, (first + done) % width);
            let end = self.places.min(done + width - x);
            let y = (line * stride[0] + i).checked_sub(padding[0]).filter(|&y| y < self.size[0]);
            run(done..end, y);
            done = end;
        }
    }

    /// Returns the x coordinate of a position in the image, or `None` in the padding.
    fn column(&self, row: usize, place: usize) -> Option<usize> {
        let Window { kernel, stride, padding, dilation, places: [_, width], first } = self.window;
        let x = (first + place) % width * stride[1] + row % kernel[1] * dilation[1];
        x.checked_sub(padding[1]).filter(|&x| x < self.size[1])
    }

    /// Returns the part of a range of positions that is outside the padding, for a horizontal stride of 1.
    fn inside(&self, row: usize, run: &Range<usize>) -> Range<usize> {
        let j = row % self.window.kernel[1] * self.window.dilation[1];
        let (padding, width) = (self.window.padding[1], self.window.places[1]);
        let x = (self.window.first + run.start) % width;
        let start = run.end.min(run.start + padding.saturating_sub(x + j));
        let end = run.start + (self.size[1] + padding).saturating_sub(x + j);
        start..run.end.min(end).max(start)
    }

    fn read_row<T: Pod>(&self, row: usize, out: &mut [T], image: &[T]) {
        let channel = self.offset + row / (self.window.kernel[0] * self.window.kernel[1]) * self.strides[0];
        let whole_lines = self.window.stride[1] == 1 && self.strides[2] == 1 && self.right == 1;
        self.runs(row, |run, y| match y {
            Some(y) if whole_lines => {
                let inside = self.inside(row, &run);
                out[run.start..inside.start].fill(T::zeroed());
                out[inside.end..run.end].fill(T::zeroed());
                if let Some(x) = self.column(row, inside.start).filter(|_| !inside.is_empty()) {
                    let line = channel + y * self.strides[1] + x;
                    out[inside.clone()].copy_from_slice(&image[line..line + inside.len()]);
                }
            }
            _ => run.for_each(|place| {
                let pixel = y.zip(self.column(row, place));
                let pixel = pixel.map(|(y, x)| image[channel + y * self.strides[1] + x * self.strides[2]]);
                out[place * self.right] = pixel.unwrap_or_else(T::zeroed);
            }),
        });
    }

    fn add_row<T: Float>(&self, row: usize, values: &[T], channel: &mut [T]) {
        let whole_lines = self.window.stride[1] == 1 && self.strides[2] == 1 && self.right == 1;
        self.runs(row, |run, y| {
            let Some(y) = y else { return };
            if whole_lines {
                let inside = self.inside(row, &run);
                if let Some(x) = self.column(row, inside.start).filter(|_| !inside.is_empty()) {
                    let line = y * self.strides[1] + x;
                    super::rows::add_row(&mut channel[line..line + inside.len()], &values[inside]);
                }
                return;
            }
            for place in run {
                if let Some(x) = self.column(row, place) {
                    let pixel = &mut channel[y * self.strides[1] + x * self.strides[2]];
                    *pixel = T::store(pixel.load() + values[place * self.right].load());
                }
            }
        });
    }
}
