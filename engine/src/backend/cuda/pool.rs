//! Max and average pooling.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::{Arguments, Kernel};

use super::launch::{Place, Queue, address_of, check_float, reading, types, writing};
use super::window::WindowWords;
use crate::backend::{View, Window};
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;

const FILE: &str = "pool";

/// `struct Images` in pool.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Images {
    planes: u64,
    channels: u64,
    size: [u64; 2],
    strides: [u64; 4],
}

impl Images {
    /// The images that windows move over, and where the elements of what is read lie.
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

/// Where places within windows lie: as bytes and as integers, one of which is not there.
fn of_places(dtype: DType, places: &Option<Place<'_>>) -> [u64; 2] {
    let address = address_of(places);
    if dtype == DType::U8 { [address, 0] } else { [0, address] }
}

pub(crate) fn max_pool(out: View<'_>, places: Option<View<'_>>, input: View<'_>, window: Window) -> Result<()> {
    let op = "max_pool2d";
    check_float(op, out.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let (from, to) = (reading(input, op)?, writing(out, op)?);
    let at = places.map(|places| writing(places, op)).transpose()?;
    let [bytes, wholes] = of_places(places.map_or(DType::U8, |places| places.dtype), &at);
    let arguments = Arguments::new()
        .with(to.address())
        .with(bytes)
        .with(wholes)
        .with(from.address())
        .with(WindowWords::from(window))
        .with(Images::new(input.layout, input.layout));
    queue.launch(kernel("max_pool", out), queue.over(out.layout.elements(), 1), &arguments)
}

pub(crate) fn max_pool_backward(out: View<'_>, grad: View<'_>, places: View<'_>, window: Window) -> Result<()> {
    let op = "max_pool2d";
    check_float(op, out.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let (from, at, to) = (reading(grad, op)?, Some(reading(places, op)?), writing(out, op)?);
    let [bytes, wholes] = of_places(places.dtype, &at);
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(bytes)
        .with(wholes)
        .with(WindowWords::from(window))
        .with(Images::new(out.layout, grad.layout));
    queue.launch(kernel("max_pool_backward", out), queue.over(out.layout.elements(), 1), &arguments)
}

pub(crate) fn avg_pool(out: View<'_>, input: View<'_>, window: Window, counts_padding: bool) -> Result<()> {
    let op = "avg_pool2d";
    check_float(op, out.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let (from, to) = (reading(input, op)?, writing(out, op)?);
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(WindowWords::from(window))
        .with(Images::new(input.layout, input.layout))
        .with(u32::from(counts_padding));
    queue.launch(kernel("avg_pool", out), queue.over(out.layout.elements(), 1), &arguments)
}

pub(crate) fn avg_pool_backward(out: View<'_>, grad: View<'_>, window: Window, counts_padding: bool) -> Result<()> {
    let op = "avg_pool2d";
    check_float(op, out.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let (from, to) = (reading(grad, op)?, writing(out, op)?);
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(WindowWords::from(window))
        .with(Images::new(out.layout, grad.layout))
        .with(u32::from(counts_padding));
    queue.launch(kernel("avg_pool_backward", out), queue.over(out.layout.elements(), 1), &arguments)
}

fn kernel(name: &'static str, view: View<'_>) -> Kernel {
    Kernel::new(FILE, name, types(view.dtype))
}
