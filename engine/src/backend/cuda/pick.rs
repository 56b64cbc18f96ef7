//! Gathers elements along an axis by index, and adds gradients back to them.

use bytemuck::{Pod, Zeroable};

use super::buckets::Buckets;
use super::launch::{Launch, check_float, nest_words};
use crate::backend::{Nest, View};
use crate::{Layout, Result};

const FILE: &str = "pick";

/// Minimum number of lines at which each line has its own thread. Fewer lines would leave most of a device idle.
const MANY_LINES: usize = 1024;
/// Maximum length of lines that are processed by one thread each.
const SHORT: usize = 32;

/// The kernel argument `struct Lines` in pick.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Lines {
    lines: u64,
    size: u64,
    length: u64,
    strides: [u64; 3],
}

/// The kernel argument `struct Added` in pick.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Added {
    first: u64,
    count: u64,
    size: u64,
    stride: u64,
}

/// Returns the layout of the shape of `places` whose element at each position is that of `whole` at index 0 along
/// `axis`.
fn first_of_lines(op: &'static str, whole: &Layout, places: &Layout, axis: usize) -> Result<Layout> {
    let met = (0..whole.shape().rank())
        .filter(|&other| other != axis)
        .try_fold(*whole, |layout, other| layout.narrow(op, other, 0, places.shape()[other]))?;
    let length = met.shape()[axis].min(1);
    let first = met.narrow(op, axis, 0, length)?;
    // If the axis is empty, every index is out of range, and the layout is not used.
    if length == 0 { Ok(*places) } else { first.expand(op, places.shape()) }
}

pub(crate) fn gather(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize) -> Result<()> {
    let op = "gather";
    let first = first_of_lines(op, input.layout, places.layout, axis)?;
    let nest = Nest::new([out.layout, &first, places.layout]);
    let launch = Launch::new(op, out)?.write(out)?.read(input)?.read(places)?.with(nest.elements() as u64);
    let fault = launch.queue.gpu().fault_address();
    let launch = launch.with(input.layout.shape()[axis] as u64).with(input.layout.strides()[axis] as u64);
    launch.with(fault).words(&nest_words(&nest)).over(nest.elements(), 1).run(FILE, op)
}

pub(crate) fn scatter_add(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize) -> Result<()> {
    let op = "scatter_add";
    check_float(op, out.dtype)?;
    let (elements, length) = (places.layout.elements(), places.layout.shape()[axis]);
    if elements == 0 {
        return Ok(());
    }
    let first = first_of_lines(op, out.layout, places.layout, axis)?;
    let scatter = Scatter { op, views: [out, input, places], first, axis };
    if length <= SHORT || elements / length >= MANY_LINES {
        scatter.by_lines()
    } else {
        scatter.by_buckets(&Buckets::of(out.storage.device()))
    }
}

struct Scatter<'a> {
    op: &'static str,
    /// The target tensor, the source tensor, and the indices.
    views: [View<'a>; 3],
    /// The layout of the starts of the target lines.
    first: Layout,
    axis: usize,
}

impl Scatter<'_> {
    fn size(&self) -> u64 {
        self.views[0].layout.shape()[self.axis] as u64
    }

    fn strides(&self) -> [u64; 3] {
        self.views.map(|view| view.layout.strides()[self.axis] as u64)
    }

    fn launch(&self) -> Result<Launch<'_>> {
        let [out, input, places] = self.views;
        Launch::new(self.op, out)?.write(out)?.read(input)?.read(places)
    }

    /// Adds the elements of each line in one thread.
    fn by_lines(&self) -> Result<()> {
        let [_, input, places] = self.views;
        let layouts = [&self.first, input.layout, places.layout];
        let nest = Nest::new(layouts.map(|layout| layout.select(self.axis, 0)).each_ref());
        let length = places.layout.shape()[self.axis] as u64;
        let lines = Lines { lines: nest.elements() as u64, size: self.size(), length, strides: self.strides() };
        let launch = self.launch()?;
        let fault = launch.queue.gpu().fault_address();
        let launch = launch.with(lines).with(fault).words(&nest_words(&nest));
        launch.over(nest.elements(), 1).run(FILE, "scatter_lines")
    }

    /// Adds the elements of each bucket in one thread block.
    fn by_buckets(&self, buckets: &Buckets) -> Result<()> {
        let [out, input, places] = self.views;
        let nest = nest_words(&Nest::new([&self.first, input.layout, places.layout]));
        for part in buckets.parts(places.layout.elements() as u64) {
            let added = Added { first: part.first, count: part.count, size: self.size(), stride: self.strides()[0] };
            let launch = Launch::new(self.op, out)?.with(buckets.address()).read(places)?.with(added);
            let fault = launch.queue.gpu().fault_address();
            let launch = launch.with(part.buckets() as u32).with(fault).words(&nest);
            launch.over(part.count as usize, 1).run(FILE, "bucket_places")?;
            let launch = self.launch()?.with(buckets.address()).with(added).words(&nest);
            launch.grid(part.grid()).run(FILE, "scatter_buckets")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use highwater_stand_in::Setup;

    use super::*;
    use crate::device::Device;
    use crate::tensor::Tensor;

    #[test]
    fn places_that_there_is_no_room_for_are_taken_in_parts() {
        Setup::new().run(|| {
            let device = Device::cuda(0).expect("there is a device");
            let tensor = |numbers: &[f32], shape| Tensor::from_slice(numbers, shape, &device).expect("there is room");
            let (out, added) =
                (tensor(&[1.0, 2.0, 3.0], 3), tensor(&std::array::from_fn::<f32, 10, _>(|i| i as f32), 10));
            let places = Tensor::from_slice(&[2_i64, 0, 2, 2, 0, 0, 2, 0, 0, 2], 10, &device).expect("there is room");
            let first = first_of_lines("test", out.layout(), places.layout(), 0).expect("it fits");
            let views = [out.view(), added.view(), places.view()];
            let scatter = Scatter { op: "test", views, first, axis: 0 };
            scatter.by_buckets(&Buckets::small(&device, 4)).expect("kernels start");
            assert_eq!(out.to_vec::<f32>().expect("numbers"), [1.0 + 25.0, 2.0, 3.0 + 20.0]);
        });
    }
}
