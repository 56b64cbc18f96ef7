//! Unfolds the windows of images into the columns of a matrix (im2col), a limited number of windows at a time.
//!
//! Shared by convolution and transposed convolution. A 1×1 convolution with stride 1 and without padding needs no
//! workspace, because the image is its own matrix of columns.

use highwater_recorder::{Category, scope};

use super::product::is_by_lines;
use crate::autograd::InputGradients;
use crate::backend::{self, Window};
use crate::{Error, Result, Shape, Tensor};

/// Maximum size of the columns in bytes, unless one column needs more. It is small enough for the columns to stay in
/// the cache of a large GPU until they are multiplied.
const WORKSPACE_BYTES: usize = 32 << 20;
/// The columns take at most 1 / `SHARE_OF_IMAGES` of the larger of the images on both sides, or 1 / `SHARE_OF_WEIGHT`
/// of the weight, whichever is more, so that with small images and weights, the workspace does not determine the peak.
const SHARE_OF_IMAGES: usize = 4;
const SHARE_OF_WEIGHT: usize = 8;
/// Number of windows whose elements fill whole vector loads, regardless of the dtype. Parts begin at multiples of this
/// number, unless the workspace has room for fewer windows.
const PLACES_TOGETHER: usize = 32;

/// The workspace for the columns of images of one shape, `[groups, channels of a group · kernel height · kernel width,
/// windows]`.
pub(super) struct Columns {
    op: &'static str,
    // `None` if images are their own columns.
    memory: Option<Tensor>,
    window: Window,
    groups: usize,
    /// Maximum number of windows per part.
    most: usize,
}

/// A range of an image's windows.
#[derive(Clone, Copy)]
pub(super) struct Part {
    window: Window,
    count: usize,
}

impl Columns {
    /// Allocates columns for as many windows of `images` `[batch, channels, height, width]` as the limits allow, at
    /// most those of one image. `others` are the images on the other side of the product with the weight.
    pub(super) fn new(
        op: &'static str,
        [images, others]: [&Tensor; 2],
        weight: &Weight,
        window: Window,
    ) -> Result<Self> {
        let _category = scope::category(Category::Workspace);
        let all = window.places[0] * window.places[1];
        let is_whole = images.shape()[2..] == window.places;
        let is_pointwise = is_whole && window.kernel == [1, 1] && window.stride == [1, 1] && window.padding == [0, 0];
        if is_pointwise && images.layout().select(0, 0).reshape(&pixels(images.shape())).is_some_and(is_by_lines) {
            return Ok(Self { op, memory: None, window, groups: weight.groups, most: all.max(1) });
        }
        let column = images.shape()[1] * window.kernel[0] * window.kernel[1];
        let bytes = column.saturating_mul(images.dtype().size());
        let larger = images.bytes().max(others.bytes()) as usize;
        let of_weight = weight.shape.elements().saturating_mul(images.dtype().size());
        let room = WORKSPACE_BYTES.min((larger / SHARE_OF_IMAGES).max(of_weight / SHARE_OF_WEIGHT));
        let most = alike(all, (room / bytes.max(1)).max(1));
        let memory = Tensor::empty([column, most], images.dtype(), images.device())?;
        Ok(Self { op, memory: Some(memory), window, groups: weight.groups, most })
    }

    /// Returns all windows of one image, divided into parts that fit the workspace.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let (window, most, all) = (self.window, self.most, self.window.places[0] * self.window.places[1]);
        (0..all)
            .step_by(most)
            .map(move |first| Part { window: Window { first, ..window }, count: most.min(all - first) })
    }

    /// Calls `run` for each image and each part of its windows, with the corresponding image on the other side.
    pub(super) fn each_part(
        &self,
        [images, others]: [&Tensor; 2],
        mut run: impl FnMut(&Tensor, &Tensor, Part) -> Result<()>,
    ) -> Result<()> {
        for index in 0..images.shape()[0] {
            let (image, other) = (images.image(index), others.image(index));
            self.parts().try_for_each(|part| run(&image, &other, part))?;
        }
        Ok(())
    }

    /// Returns the columns of these windows of `image`, `[groups, channels of a group · kernel, windows]`, which are
    /// valid until the next call.
    pub(super) fn read(&self, image: &Tensor, part: Part) -> Result<Tensor> {
        let Some(columns) = self.first(part)? else {
            return by_group(&image.reshaped(&pixels_of_image(image.shape()))?, self.groups);
        };
        backend::unfold(columns.view(), image.view(), part.window)?;
        by_group(&columns, self.groups)
    }

    /// Returns the pixels of these windows in the image on the other side, `[groups, channels of a group, windows]`.
    pub(super) fn places(&self, image: &Tensor, part: Part) -> Result<Tensor> {
        by_group(&part.of(self.op, image)?, self.groups)
    }

    /// Computes the products of the matrices of each group with the pixels of `other`, the image on the other side, and
    /// adds these columns to the corresponding pixels of the contiguous `image`.
    pub(super) fn add_product(&self, image: &Tensor, left: &Tensor, other: &Tensor, part: Part) -> Result<()> {
        let right = self.places(other, part)?;
        let Some(columns) = self.first(part)? else {
            let image = by_group(&image.reshaped(&pixels_of_image(image.shape()))?, self.groups)?;
            return backend::matmul(image.view(), left.view(), right.view(), 1.0, 1.0);
        };
        backend::matmul(by_group(&columns, self.groups)?.view(), left.view(), right.view(), 1.0, 0.0)?;
        backend::fold_add(image.view(), columns.view(), part.window)
    }

    fn first(&self, part: Part) -> Result<Option<Tensor>> {
        let Some(memory) = &self.memory else { return Ok(None) };
        Ok(Some(memory.with_layout(memory.layout().narrow(self.op, 1, 0, part.count)?)))
    }
}

/// Returns the number of windows per part, at most `most`. Only the last part may be a little smaller, since a small
/// part would take as long as a full one. Parts begin at multiples of [`PLACES_TOGETHER`] if `most` is not below it.
fn alike(all: usize, most: usize) -> usize {
    let even = all.div_ceil(all.div_ceil(most).max(1)).max(1);
    match even.next_multiple_of(PLACES_TOGETHER) {
        aligned if aligned <= most => aligned.min(all.max(1)),
        _ if even > PLACES_TOGETHER => even - even % PLACES_TOGETHER,
        _ => even,
    }
}

impl Part {
    /// Returns these pixels of a contiguous image `[channels, height, width]` as `[channels, pixels]`.
    fn of(&self, op: &'static str, image: &Tensor) -> Result<Tensor> {
        let matrix = image.reshaped(&pixels_of_image(image.shape()))?;
        Ok(matrix.with_layout(matrix.layout().narrow(op, 1, self.window.first, self.count)?))
    }
}

/// The shape of a convolution's weight, and the number of groups into which its first axis is divided.
#[derive(Clone, Copy)]
pub(super) struct Weight {
    pub(super) shape: Shape,
    pub(super) groups: usize,
}

impl Weight {
    /// Returns a contiguous weight of this shape, or its gradient, as a matrix for each group, without history.
    pub(super) fn matrices(&self, weight: &Tensor) -> Result<Tensor> {
        let columns = self.shape[1..].iter().product();
        weight.reshaped(&Shape::from([self.groups, self.shape[0] / self.groups, columns]))
    }
}

pub(crate) fn check_groups(op: &'static str, channels: usize, groups: usize) -> Result<()> {
    if groups > 0 && channels.is_multiple_of(groups) {
        return Ok(());
    }
    Err(Error::Setting {
        op,
        what: format!("the number of channels, {channels}, must be a multiple of the number of groups, {groups}"),
    })
}

/// Returns rows as `[groups, rows of a group, columns]`.
fn by_group(rows: &Tensor, groups: usize) -> Result<Tensor> {
    rows.reshaped(&Shape::from([groups, rows.shape()[0] / groups, rows.shape()[1]]))
}

fn pixels(images: &Shape) -> Shape {
    Shape::from([images[1], images[2] * images[3]])
}

fn pixels_of_image(image: &Shape) -> Shape {
    Shape::from([image[0], image[1] * image[2]])
}

impl Tensor {
    pub(super) fn image(&self, index: usize) -> Self {
        self.with_layout(self.layout().select(0, index))
    }

    /// Fills these images with the bias of their channels, or with zeros.
    pub(super) fn fill_channels(&self, op: &'static str, bias: Option<&Self>) -> Result<()> {
        match bias {
            Some(bias) => {
                let by_channel = bias.reshaped(&Shape::from([bias.elements(), 1, 1]))?;
                backend::copy(self.view(), by_channel.broadcast_to(op, self.shape())?.view())
            }
            None => backend::fill(self.view(), 0.0),
        }
    }
}

/// Accumulates the gradient of the bias (input 2), which is the sum over all axes except the channels.
pub(super) fn give_bias(op: &'static str, grad: &Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
    if !inputs.needs(2) {
        return Ok(());
    }
    let (sum, keep) = if grad.elements() == 0 {
        (inputs.take_sum_or_zeros(2, grad)?, 1.0)
    } else {
        inputs.take_sum_or_new(2, grad)?
    };
    let by_channel = sum.reshaped(&Shape::from([sum.elements(), 1, 1]))?;
    backend::sum(by_channel.broadcast_to(op, grad.shape())?.view(), grad.view(), 1.0, keep)?;
    drop(by_channel);
    inputs.give(2, sum)
}

/// Returns memory for the gradient of the images (input 0), which contains the accumulated gradient or zeros. Reuses
/// the images' memory if it is not shared, as the images are no longer needed.
pub(super) fn take_images_or_zeros(
    images: Option<Tensor>,
    like: &Tensor,
    inputs: &mut InputGradients<'_>,
) -> Result<Tensor> {
    if let Some(sum) = inputs.take_sum(0) {
        return Ok(sum);
    }
    let reusable = images.filter(|images| images.is_free_in_order() && images.fills_storage());
    match reusable {
        Some(images) => {
            images.storage().changed();
            backend::fill(images.view(), 0.0)?;
            Ok(images)
        }
        None => inputs.take_sum_or_zeros(0, like),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_alike_aligned_and_no_larger_than_there_is_room_for() {
        assert_eq!(alike(206_116, 14_563), 13_760, "15 parts, the last of 13,476");
        assert_eq!(alike(64, 64), 64);
        assert_eq!(alike(50, 1000), 50, "all at once, whatever their number");
        assert_eq!(alike(784, 65), 64, "one part more where none is cut odd");
        assert_eq!(alike(100, 7), 7, "few places are not aligned");
        assert_eq!(alike(0, 5), 1);
        for (all, most) in [(1, 1), (97, 33), (4096, 113), (10_000, 9_999), (31, 30)] {
            assert!((1..=most).contains(&alike(all, most)), "{all} by {most}");
        }
    }
}
