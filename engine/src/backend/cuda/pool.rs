//! Max and average pooling.

use bytemuck::{Pod, Zeroable};

use super::launch::Launch;
use super::window::WindowWords;
use crate::backend::{View, Window};
use crate::{DType, Layout, Result};

const FILE: &str = "pool";

/// The kernel argument `struct Images` in pool.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Images {
    planes: u64,
    channels: u64,
    size: [u64; 2],
    strides: [u64; 4],
}

impl Images {
    /// Returns the size of `images`, over which windows move, with the strides of `read`, whose elements are read.
    fn new(images: &Layout, read: &Layout) -> Self {
        let shape = images.shape();
        let strides = read.strides();
        Self {
            planes: (shape[0] * shape[1]) as u64,
            channels: shape[1] as u64,
            size: [shape[2] as u64, shape[3] as u64],
            strides: [strides[0] as u64, strides[1] as u64, strides[2] as u64, strides[3] as u64],
        }
    }
}

/// Returns the addresses of positions within windows, as bytes and as integers. One of them is 0.
fn places_words(places: View<'_>, address: u64) -> [u64; 2] {
    if places.dtype == DType::U8 { [address, 0] } else { [0, address] }
}

pub(crate) fn max_pool(out: View<'_>, places: Option<View<'_>>, input: View<'_>, window: Window) -> Result<()> {
    let mut launch = Launch::of_floats("max_pool2d", out)?.write(out)?;
    let [bytes, wholes] = match places {
        Some(places) => places_words(places, launch.lend_to_write(places)?),
        None => [0, 0],
    };
    let launch = launch.with(bytes).with(wholes).read(input)?;
    over_windows(launch, window, Images::new(input.layout, input.layout), out).run(FILE, "max_pool")
}

pub(crate) fn max_pool_backward(out: View<'_>, grad: View<'_>, places: View<'_>, window: Window) -> Result<()> {
    let mut launch = Launch::of_floats("max_pool2d", out)?.write(out)?.read(grad)?;
    let [bytes, wholes] = places_words(places, launch.lend(places)?);
    let launch = launch.with(bytes).with(wholes);
    over_windows(launch, window, Images::new(out.layout, grad.layout), out).run(FILE, "max_pool_backward")
}

pub(crate) fn avg_pool(out: View<'_>, input: View<'_>, window: Window, counts_padding: bool) -> Result<()> {
    let launch = Launch::of_floats("avg_pool2d", out)?.write(out)?.read(input)?;
    let launch = over_windows(launch, window, Images::new(input.layout, input.layout), out);
    launch.with(u32::from(counts_padding)).run(FILE, "avg_pool")
}

pub(crate) fn avg_pool_backward(out: View<'_>, grad: View<'_>, window: Window, counts_padding: bool) -> Result<()> {
    let launch = Launch::of_floats("avg_pool2d", out)?.write(out)?.read(grad)?;
    let launch = over_windows(launch, window, Images::new(out.layout, grad.layout), out);
    launch.with(u32::from(counts_padding)).run(FILE, "avg_pool_backward")
}

/// Adds windows and images, with a thread for each element that is written.
fn over_windows<'a>(launch: Launch<'a>, window: Window, images: Images, out: View<'_>) -> Launch<'a> {
    launch.with(WindowWords::from(window)).with(images).over(out.layout.elements(), 1)
}
