//! Tests how many bytes the operations of convolutional networks keep and need on the accounting device.

use highwater_engine::ops::{BatchStatistics, ConvOptions, ConvTransposeOptions, PoolOptions};
use highwater_engine::{DType, Device, Rng, Tensor, no_grad};

const F32: DType = DType::F32;
/// One image of 8 channels and 64 by 64 pixels.
const IMAGE: [usize; 4] = [1, 8, 64, 64];
const BYTES: u64 = 8 * 64 * 64 * 4;

fn device() -> Device {
    Device::accounting(1 << 40)
}

fn live(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.current
}

/// Bytes above those at the start that `work` has live at its peak.
fn growth<T>(device: &Device, work: impl FnOnce() -> T) -> (T, u64) {
    device.allocator().reset_peak_stats();
    let before = live(device);
    let result = work();
    (result, device.allocator().stats().requested_bytes.all.peak - before)
}

fn frozen(shape: [usize; 4], device: &Device) -> Tensor {
    Tensor::zeros(shape, F32, device).unwrap()
}

fn leaf(shape: [usize; 4], device: &Device) -> Tensor {
    let leaf = frozen(shape, device);
    leaf.set_requires_grad(true).unwrap();
    leaf
}

fn same() -> ConvOptions {
    ConvOptions { padding: [1, 1], ..ConvOptions::default() }
}

/// `x` computed from a leaf by something that keeps nothing.
fn computed(leaf: &Tensor) -> Tensor {
    leaf.add_scalar(1.0).unwrap()
}

#[test]
fn a_pool_keeps_a_byte_for_each_result_and_not_its_input() {
    let device = device();
    let x = leaf(IMAGE, &device);
    let before = live(&device);
    let pooled = computed(&x).max_pool2d(PoolOptions::square(2)).unwrap();
    assert_eq!(live(&device), before + BYTES / 4 + BYTES / 16);
    let seen = pooled.detach();
    let loss = pooled.sum().unwrap();
    drop((pooled, seen));
    assert_eq!(live(&device), before + BYTES / 16 + 4);
    let ((), grown) = growth(&device, || loss.backward().unwrap());
    assert_eq!(grown, BYTES + 4, "the gradient of the input, from one number repeated");
    let averaged = computed(&x).avg_pool2d(PoolOptions::square(2), true).unwrap();
    assert_eq!(live(&device), before + BYTES + 4 + BYTES / 4, "a mean keeps nothing");
    drop(averaged);
    let _mode = no_grad();
    let (_, grown) = growth(&device, || x.max_pool2d(PoolOptions::square(2)).unwrap());
    assert_eq!(grown, BYTES / 4, "without gradients no places are noted");
    let (_, grown) = growth(&device, || x.max_pool2d(PoolOptions::square(17)).unwrap());
    assert_eq!(grown, 8 * 3 * 3 * 4);
}

#[test]
fn a_convolution_keeps_only_what_its_gradients_need() {
    let device = device();
    let kernel = [8, 8, 3, 3];
    for (x, w, kept) in [
        (frozen(IMAGE, &device), leaf(kernel, &device), BYTES),
        (leaf(IMAGE, &device), frozen(kernel, &device), 0),
        (leaf(IMAGE, &device), leaf(kernel, &device), BYTES),
    ] {
        let before = live(&device);
        let input = computed(&x);
        let out = input.conv2d(&w, None, same()).unwrap();
        drop(input);
        assert_eq!(live(&device), before + BYTES + kept);
        drop(out);
        assert_eq!(live(&device), before);
    }
}

#[test]
fn the_workspace_is_a_quarter_of_the_image_or_an_eighth_of_the_weight_or_32_mib_or_none_for_single_pixels() {
    let device = device();
    let _mode = no_grad();
    // Channels, outputs and side; the most there may be, and the columns that are taken at a time.
    for (channels, outputs, side, most, columns) in
        [(8, 8, 64, BYTES / 4, 96), (8, 8, 4096, 32 << 20, 115_712), (512, 64, 4, 64 * 512 * 3 * 3 * 4 / 8, 8)]
    {
        let (x, w) = (frozen([1, channels, side, side], &device), frozen([outputs, channels, 3, 3], &device));
        let (out, grown) = growth(&device, || x.conv2d(&w, None, same()).unwrap());
        let taken = grown - out.bytes();
        assert_eq!(taken, columns * channels as u64 * 3 * 3 * 4);
        assert!(taken <= most, "{taken} of {most}");
    }
    let (x, w) = (frozen(IMAGE, &device), frozen([4, 8, 1, 1], &device));
    let (_, grown) = growth(&device, || x.conv2d(&w, None, ConvOptions::default()).unwrap());
    assert_eq!(grown, BYTES / 2, "an image of single pixels is its own columns");
    let (tiny, wide) = (frozen([1, 8, 7, 7], &device), frozen([8, 8, 7, 7], &device));
    let (_, grown) = growth(&device, || tiny.conv2d(&wide, None, ConvOptions::default()).unwrap());
    assert_eq!(grown, 8 * 4 + 8 * 49 * 4, "one window is the least");
}

#[test]
fn the_gradient_of_a_convolutions_input_takes_the_inputs_memory_where_nobody_else_holds_it() {
    let device = device();
    let (x, w) = (leaf(IMAGE, &device), leaf([8, 8, 3, 3], &device));
    let run = |holds: bool| {
        let input = computed(&x);
        let loss = input.conv2d(&w, None, same()).unwrap().sum().unwrap();
        let held = holds.then_some(input);
        let ((), grown) = growth(&device, || loss.backward().unwrap());
        drop(held);
        x.take_grad();
        w.take_grad();
        grown
    };
    let (free, held) = (run(false), run(true));
    assert_eq!(held - free, BYTES);
    assert!(free < BYTES + BYTES / 2, "the result's gradient, made dense, a workspace and a small weight's: {free}");
    let grown = |holds: bool| {
        let input = computed(&x);
        let options = ConvTransposeOptions::default();
        let loss = input.conv_transpose2d(&w, None, options).unwrap().sum().unwrap();
        let held = holds.then_some(input);
        let ((), grown) = growth(&device, || loss.backward().unwrap());
        drop(held);
        x.take_grad();
        w.take_grad();
        grown
    };
    let (free, held) = (grown(false), grown(true));
    assert_eq!(held - free, BYTES);
    assert!(free < BYTES / 2, "of one number, repeated: {free}");
}

#[test]
fn a_weight_used_often_has_one_gradient() {
    let device = device();
    let w = leaf([64, 64, 3, 3], &device);
    let x = frozen([1, 64, 8, 8], &device);
    let mut hidden = x.conv2d(&w, None, same()).unwrap();
    for _ in 0..9 {
        hidden = hidden.conv2d(&w, None, same()).unwrap();
    }
    let loss = hidden.sum().unwrap();
    drop(hidden);
    let ((), grown) = growth(&device, || loss.backward().unwrap());
    assert!(grown < w.bytes() + 4 * x.bytes(), "{grown} for a weight of {}", w.bytes());
}

#[test]
fn the_loss_of_images_needs_no_second_buffer_of_their_size() {
    let device = device();
    let x = leaf(IMAGE, &device);
    let labels = Tensor::zeros([1, 64, 64], DType::I64, &device).unwrap();
    let before = live(&device);
    let (loss, grown) = growth(&device, || computed(&x).cross_entropy(&labels, None).unwrap());
    let place = 64 * 64 * 4;
    assert_eq!(grown, BYTES + place + 8);
    assert_eq!(live(&device), before + BYTES + place + 8);
    let ((), grown) = growth(&device, || loss.backward().unwrap());
    assert_eq!(grown, 4, "the logits become their gradient");
}

#[test]
fn a_batch_norm_keeps_its_input_and_two_numbers_a_channel_and_its_result_is_computed_again() {
    let device = device();
    let (x, w) = (leaf(IMAGE, &device), leaf([8, 8, 1, 1], &device));
    let before = live(&device);
    let normal = computed(&x).batch_norm(None, None, BatchStatistics::Batch, 1e-5).unwrap();
    let out = normal.conv2d(&w, None, ConvOptions::default()).unwrap();
    drop(normal);
    assert_eq!(live(&device), before + 2 * BYTES + 2 * 8 * 4, "input and result; the normalised numbers are not kept");
    drop(out);
    let [mean, variance] = [0, 1].map(|_| Tensor::ones(8, F32, &device).unwrap());
    let given = BatchStatistics::Given([&mean, &variance]);
    let before = live(&device);
    let normal = computed(&x).batch_norm(None, None, given, 1e-5).unwrap();
    assert_eq!(live(&device), before + BYTES, "with given statistics nothing is kept");
    let loss = normal.sum().unwrap();
    drop(normal);
    let ((), grown) = growth(&device, || loss.backward().unwrap());
    assert_eq!(grown, BYTES + 4);
}

#[test]
fn dropout_before_relu_needs_one_buffer_for_both() {
    let device = device();
    let x = leaf(IMAGE, &device);
    let before = live(&device);
    let chance = || Rng::new(0);
    let (out, grown) =
        growth(&device, || computed(&x).into_dropout2d(0.5, &mut chance()).unwrap().into_relu().unwrap());
    assert_eq!((live(&device) - before, grown), (BYTES, BYTES));
    drop(out);
    let relu_first = computed(&x).into_relu().unwrap().into_dropout2d(0.5, &mut chance()).unwrap();
    assert_eq!(live(&device) - before, 2 * BYTES, "what ReLU keeps cannot be overwritten");
    drop(relu_first);
}
