//! Max and average pooling.

use bytemuck::Pod;
use rayon::prelude::*;

use super::elements::{read, write};
use super::number::{Float, Real, with_float};
use crate::backend::{View, Window};
use crate::{DType, Error, Layout, Result};

pub(crate) fn max_pool(out: View<'_>, places: Option<View<'_>>, input: View<'_>, window: Window) -> Result<()> {
    with_float!("max_pool2d", out.dtype, T => {
        let values = input.storage.read::<T>("max_pool2d")?;
        let mut memory = write::<T>(out, "max_pool2d")?;
        let source = Planes::of(input.layout);
        let windows = window.places[0] * window.places[1];
        let Some(places) = places else {
            memory.par_chunks_mut(windows).enumerate().for_each(|(plane, out)| {
                let plane = source.plane(plane);
                for (place, element) in out.iter_mut().enumerate() {
                    *element = values[largest(&values, plane, window, place).0];
                }
            });
            return Ok(());
        };
        match places.dtype {
            DType::U8 => noted::<T, u8>(&mut memory, places, (&values, source), window),
            _ => noted::<T, i64>(&mut memory, places, (&values, source), window),
        }
    })
}

fn noted<T: Float, P: Place>(
    out: &mut [T],
    places: View<'_>,
    (values, source): (&[T], Planes),
    window: Window,
) -> Result<()> {
    let windows = window.places[0] * window.places[1];
    let mut notes = write::<P>(places, "max_pool2d")?;
    out.par_chunks_mut(windows).zip(notes.par_chunks_mut(windows)).enumerate().for_each(|(plane, (out, notes))| {
        let plane = source.plane(plane);
        for (place, (element, note)) in out.iter_mut().zip(notes).enumerate() {
            let (at, within) = largest(values, plane, window, place);
            *element = values[at];
            *note = P::of(within);
        }
    });
    Ok(())
}

/// Returns the offset of a window's maximum and its position within the window. Of equal elements, the first is chosen.
/// NaN counts as larger than all others.
fn largest<T: Float>(values: &[T], plane: Plane, window: Window, place: usize) -> (usize, usize) {
    let mut best = None;
    let corner = window.corner(place);
    for (i, y) in within(corner[0], window.kernel[0], plane.size[0]) {
        for (j, x) in within(corner[1], window.kernel[1], plane.size[1]) {
            let at = plane.at([y, x]);
            let value = values[at].load();
            let is_larger = best
                .is_none_or(|(_, _, so_far): (_, _, T::Real)| value > so_far || (value.is_nan() && !so_far.is_nan()));
            if is_larger {
                best = Some((at, i * window.kernel[1] + j, value));
            }
        }
    }
    best.map_or((plane.first, 0), |(at, within, _)| (at, within))
}

pub(crate) fn max_pool_backward(out: View<'_>, grad: View<'_>, places: View<'_>, window: Window) -> Result<()> {
    match places.dtype {
        DType::U8 => put_back::<u8>(out, grad, places, window),
        _ => put_back::<i64>(out, grad, places, window),
    }
}

fn put_back<P: Place>(out: View<'_>, grad: View<'_>, places: View<'_>, window: Window) -> Result<()> {
    with_float!("max_pool2d", out.dtype, T => {
        let grads = grad.storage.read::<T>("max_pool2d")?;
        let notes = read::<P>(places, "max_pool2d")?;
        let (source, target) = (Planes::of(grad.layout), Planes::of(out.layout));
        let windows = window.places[0] * window.places[1];
        let mut memory = write::<T>(out, "max_pool2d")?;
        let [height, width] = target.size;
        memory.par_chunks_mut(height * width).enumerate().try_for_each(|(plane, out)| {
            let from = source.plane(plane);
            for (place, note) in notes[plane * windows..][..windows].iter().enumerate() {
                let [y, x] = window.pixel(place, note.at());
                // Only uninitialized memory could refer to another pixel.
                let element = y.zip(x).filter(|&(_, x)| x < width).and_then(|(y, x)| out.get_mut(y * width + x));
                let element = element.ok_or(Error::Index { op: "max_pool2d", index: note.at() as i64, size: window.kernel[0] * window.kernel[1] })?;
                let value = grads[from.at([place / window.places[1], place % window.places[1]])];
                *element = T::store(element.load() + value.load());
            }
            Ok(())
        })
    })
}

pub(crate) fn avg_pool(out: View<'_>, input: View<'_>, window: Window, counts_padding: bool) -> Result<()> {
    with_float!("avg_pool2d", out.dtype, T => {
        type R = <T as Float>::Real;
        let values = input.storage.read::<T>("avg_pool2d")?;
        let mut memory = write::<T>(out, "avg_pool2d")?;
        let source = Planes::of(input.layout);
        let windows = window.places[0] * window.places[1];
        memory.par_chunks_mut(windows).enumerate().for_each(|(plane, out)| {
            let plane = source.plane(plane);
            for (place, element) in out.iter_mut().enumerate() {
                let corner = window.corner(place);
                let mut sum = R::ZERO;
                for (_, y) in within(corner[0], window.kernel[0], plane.size[0]) {
                    for (_, x) in within(corner[1], window.kernel[1], plane.size[1]) {
                        sum += values[plane.at([y, x])].load();
                    }
                }
                *element = T::store(sum / R::of(window.divisor(corner, plane.size, counts_padding)));
            }
        });
        Ok(())
    })
}

pub(crate) fn avg_pool_backward(out: View<'_>, grad: View<'_>, window: Window, counts_padding: bool) -> Result<()> {
    with_float!("avg_pool2d", out.dtype, T => {
        type R = <T as Float>::Real;
        let grads = grad.storage.read::<T>("avg_pool2d")?;
        let (source, target) = (Planes::of(grad.layout), Planes::of(out.layout));
        let [height, width] = target.size;
        let mut memory = write::<T>(out, "avg_pool2d")?;
        memory.par_chunks_mut(height * width).enumerate().for_each(|(plane, out)| {
            let from = source.plane(plane);
            for place in 0..window.places[0] * window.places[1] {
                let corner = window.corner(place);
                let value = grads[from.at([place / window.places[1], place % window.places[1]])].load();
                let share = value / R::of(window.divisor(corner, target.size, counts_padding));
                for (_, y) in within(corner[0], window.kernel[0], height) {
                    for (_, x) in within(corner[1], window.kernel[1], width) {
                        let element = &mut out[y * width + x];
                        *element = T::store(element.load() + share);
                    }
                }
            }
        });
        Ok(())
    })
}

/// The element type of positions within a window.
trait Place: Pod + Send + Sync {
    fn of(place: usize) -> Self;
    fn at(self) -> usize;
}

impl Place for u8 {
    fn of(place: usize) -> Self {
        place as Self
    }

    fn at(self) -> usize {
        usize::from(self)
    }
}

impl Place for i64 {
    fn of(place: usize) -> Self {
        place as Self
    }

    fn at(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

/// The planes `[height, width]` of `[batch, channels, height, width]` in any layout.
#[derive(Clone, Copy)]
struct Planes {
    first: usize,
    channels: usize,
    size: [usize; 2],
    strides: [usize; 4],
}

#[derive(Clone, Copy)]
struct Plane {
    first: usize,
    size: [usize; 2],
    strides: [usize; 2],
}

impl Planes {
    fn of(layout: &Layout) -> Self {
        let (shape, strides) = (layout.shape(), layout.strides());
        let strides = [strides[0], strides[1], strides[2], strides[3]];
        Self { first: layout.offset(), channels: shape[1].max(1), size: [shape[2], shape[3]], strides }
    }

    fn plane(&self, index: usize) -> Plane {
        let (image, channel) = (index / self.channels, index % self.channels);
        let first = self.first + image * self.strides[0] + channel * self.strides[1];
        Plane { first, size: self.size, strides: [self.strides[2], self.strides[3]] }
    }
}

impl Plane {
    fn at(&self, [y, x]: [usize; 2]) -> usize {
        self.first + y * self.strides[0] + x * self.strides[1]
    }
}

/// Returns the offsets below `length` whose pixels, `start + offset`, are in `0..size`, each with its pixel.
fn within(start: isize, length: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    let skipped = start.min(0).unsigned_abs();
    let first = start.max(0) as usize;
    (skipped..length).zip(first..size)
}

impl Window {
    /// Returns the top left pixel, `[y, x]`, of the window at `place`. Coordinates above or left of the image are
    /// negative.
    fn corner(&self, place: usize) -> [isize; 2] {
        let place = [place / self.places[1], place % self.places[1]];
        [0, 1].map(|axis| (place[axis] * self.stride[axis]) as isize - self.padding[axis] as isize)
    }

    /// Returns the pixel at index `within` of the window at `place`; `None` for a negative coordinate.
    fn pixel(&self, place: usize, within: usize) -> [Option<usize>; 2] {
        let (corner, within) = (self.corner(place), [within / self.kernel[1], within % self.kernel[1]]);
        [0, 1].map(|axis| corner[axis].checked_add_unsigned(within[axis]).and_then(|at| usize::try_from(at).ok()))
    }

    /// Returns the divisor of a mean: the number of the window's pixels within the image, optionally including padding.
    /// Never counts the part of the last window beyond the padding.
    fn divisor(&self, corner: [isize; 2], size: [usize; 2], counts_padding: bool) -> f64 {
        let counted = [0, 1].map(|axis| {
            let (start, padding) = (corner[axis], if counts_padding { self.padding[axis] as isize } else { 0 });
            let end = (start + self.kernel[axis] as isize).min(size[axis] as isize + padding);
            (end - start.max(-padding)).max(1)
        });
        (counted[0] * counted[1]) as f64
    }
}
