//! Tests that the operations of convolutional networks have PyTorch's results and gradients, and that unsupported
//! arguments are rejected.

use highwater_engine::nn::{
    BatchNorm2d, Conv2d, ConvTranspose2d, Dropout, Dropout2d, Filling, Init, LinearFilling, Module,
};
use highwater_engine::ops::{BatchStatistics, ConvOptions, ConvTransposeOptions, PoolOptions};
use highwater_engine::{DType, Device, Error, Result, Rng, Shape, Tensor, no_grad};

use crate::grad_harness::{check, check_within};

/// Results and gradients by PyTorch, written by `data/torch/make_conv_fixtures.py`.
const CASES: &str = include_str!("../data/torch/conv_ops.txt");

const NO_BORDER: [usize; 2] = [0, 0];

fn pool(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2], ceil: bool) -> PoolOptions {
    PoolOptions { kernel, stride, padding, ceil }
}

fn with_stride(stride: usize) -> ConvTransposeOptions {
    ConvTransposeOptions { stride: [stride; 2], ..ConvTransposeOptions::default() }
}

fn cosine(frequency: f64, shape: &Shape, device: &Device) -> Tensor {
    let numbers: Vec<f64> = (0..shape.elements()).map(|i| (frequency * i as f64).cos()).collect();
    Tensor::from_slice(&numbers, shape, device).unwrap()
}

fn numbers(values: &[f64], dtype: DType, device: &Device) -> Tensor {
    Tensor::from_slice(values, values.len(), device).unwrap().to_dtype(dtype).unwrap()
}

/// A mean and a variance of each of two channels.
fn running(like: &Tensor) -> [Tensor; 2] {
    [[0.5, -0.5], [2.0, 3.0]].map(|values| numbers(&values, like.dtype().statistics(), like.device()))
}

fn targets(device: &Device) -> Tensor {
    Tensor::from_slice(&[0_i64, 2, -100, 1], [2, 1, 2], device).unwrap()
}

fn run(case: &str, x: &[Tensor]) -> Result<Tensor> {
    let grown = ConvTransposeOptions {
        stride: [2, 1],
        padding: [1, 0],
        output_padding: [1, 0],
        ..ConvTransposeOptions::default()
    };
    match case {
        "max_pool side by side" => x[0].max_pool2d(PoolOptions { ceil: true, ..PoolOptions::square(2) }),
        "max_pool over one another" => x[0].max_pool2d(pool([3, 3], [2, 2], [1, 1], false)),
        "max_pool of other sides" => x[0].max_pool2d(pool([2, 3], [1, 2], [1, 0], false)),
        "max_pool with a border" => x[0].max_pool2d(pool([3, 3], [3, 3], [1, 1], true)),
        "max_pool of a large window" => x[0].max_pool2d(pool([17, 17], [1, 1], NO_BORDER, false)),
        "avg_pool side by side" => x[0].avg_pool2d(pool([2, 2], [2, 2], NO_BORDER, true), true),
        "avg_pool with zeros" => x[0].avg_pool2d(pool([3, 3], [3, 3], [1, 1], true), true),
        "avg_pool without zeros" => x[0].avg_pool2d(pool([3, 3], [2, 2], [1, 1], true), false),
        "conv_transpose" => x[0].conv_transpose2d(&x[1], Some(&x[2]), grown),
        "conv_transpose of pixels" => x[0].conv_transpose2d(&x[1], None, ConvTransposeOptions::default()),
        "conv_transpose cut" => x[0].conv_transpose2d_part(&x[1], None, with_stride(2), [[1, 2], [5, 3]]),
        "batch_norm of the batch" => x[0].batch_norm(Some(&x[1]), Some(&x[2]), BatchStatistics::Batch, 1e-3),
        "batch_norm as given" => {
            let [mean, variance] = running(&x[0]);
            x[0].batch_norm(Some(&x[1]), Some(&x[2]), BatchStatistics::Given([&mean, &variance]), 1e-3)
        }
        "batch_norm without parameters" => x[0].batch_norm(None, None, BatchStatistics::Batch, 1e-3),
        "batch_norm's memory" => {
            let running = running(&x[0]);
            for scale in [1.0, 2.0] {
                let statistics = BatchStatistics::Remembered { running: running.each_ref(), momentum: 0.1 };
                x[0].detach().mul_scalar(scale)?.batch_norm(None, None, statistics, 1e-3)?;
            }
            let [mean, variance] = running.map(|row| row.to_dtype(x[0].dtype()).unwrap().unsqueeze(0).unwrap());
            Tensor::concat(&[&mean, &variance], 0)?.add(&x[0].sum()?.mul_scalar(0.0)?)
        }
        "cross_entropy of images" => x[0].mul_scalar(3.0)?.cross_entropy(&targets(x[0].device()), Some(-100)),
        other => panic!("no operation for case '{other}'"),
    }
}

/// `[a, b] c d …` as a shape and numbers.
fn parse(text: &str) -> (Shape, Vec<f64>) {
    let (shape, values) = text.strip_prefix('[').and_then(|text| text.split_once(']')).expect("a shape in brackets");
    let lengths = shape.split(", ").filter(|length| !length.is_empty());
    let shape: Vec<usize> = lengths.map(|length| length.parse().expect("a length")).collect();
    let values = values.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    (Shape::from_slice(&shape).unwrap(), values)
}

fn assert_is(found: &Tensor, expected: &str, tolerance: f64, what: &str) {
    let (shape, values) = parse(expected);
    assert_eq!(found.shape(), &shape, "{what}");
    for (place, (found, expected)) in found.to_f64_vec().unwrap().into_iter().zip(values).enumerate() {
        let close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
        assert!(close, "{what}, element {place}: {found} in place of PyTorch's {expected}");
    }
}

#[test]
fn results_and_gradients_are_pytorchs() {
    let device = Device::cpu();
    let mut compared = 0;
    for block in CASES.split("case ").filter(|block| !block.is_empty()) {
        let mut lines = block.lines();
        let name = lines.next().unwrap();
        let lines: Vec<&str> = lines.collect();
        let of = |kind: &str| -> Vec<&str> { lines.iter().filter_map(|line| line.strip_prefix(kind)).collect() };
        // In bf16, numbers that differ would be equal, and another one the largest.
        let in_half = [(DType::Bf16, 4e-2)].into_iter().filter(|_| !name.starts_with("max_pool"));
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)].into_iter().chain(in_half) {
            let leaf = |input: &str| {
                let (frequency, shape) = input.split_once(' ').unwrap();
                let leaf = cosine(frequency.parse().unwrap(), &parse(shape).0, &device).to_dtype(dtype).unwrap();
                leaf.set_requires_grad(true).unwrap();
                leaf
            };
            let inputs: Vec<Tensor> = of("input ").into_iter().map(leaf).collect();
            let result = run(name, &inputs).unwrap();
            assert_is(&result, of("result ")[0], tolerance, &format!("{name} in {dtype}"));
            result.backward_from(cosine(0.5, result.shape(), &device).to_dtype(dtype).unwrap()).unwrap();
            for (input, expected) in inputs.iter().zip(of("grad ")) {
                assert_is(&input.grad().unwrap(), expected, 4.0 * tolerance, &format!("gradient of {name} in {dtype}"));
            }
        }
        compared += 1;
    }
    assert_eq!(compared, 16);
}

#[test]
fn pooling_against_differences() {
    check([[2, 2, 3, 5]], |x| x[0].max_pool2d(pool([2, 2], [2, 2], NO_BORDER, true)));
    check([[1, 3, 4, 4]], |x| x[0].max_pool2d(pool([3, 2], [1, 2], [1, 1], false))?.square());
    check([[1, 1, 17, 17]], |x| x[0].max_pool2d(pool([17, 16], [1, 1], NO_BORDER, false)));
    check([[2, 2, 3, 5]], |x| x[0].avg_pool2d(pool([2, 2], [2, 2], NO_BORDER, true), true));
    check([[1, 3, 4, 4]], |x| x[0].avg_pool2d(pool([3, 2], [1, 2], [1, 1], true), false)?.square());
    check([[2, 3, 4, 2]], |x| x[0].permute(&[0, 3, 1, 2])?.max_pool2d(PoolOptions::square(2)));
    check([[2, 3, 4, 2]], |x| x[0].permute(&[0, 3, 1, 2])?.avg_pool2d(PoolOptions::square(2), true));
}

#[test]
fn transposed_convolution_against_differences() {
    let shapes =
        |image: [usize; 4], kernel: [usize; 4]| [Shape::from(image), Shape::from(kernel), Shape::from(kernel[1])];
    let with = |stride, padding, output_padding| ConvTransposeOptions {
        stride,
        padding,
        output_padding,
        ..ConvTransposeOptions::default()
    };
    check(shapes([2, 3, 2, 2], [3, 2, 2, 2]), |x| {
        x[0].conv_transpose2d(&x[1], Some(&x[2]), with([2, 2], [0, 0], [0, 0]))
    });
    check(shapes([1, 2, 3, 2], [2, 3, 3, 4]), |x| {
        x[0].conv_transpose2d(&x[1], Some(&x[2]), with([2, 3], [1, 2], [1, 0]))?.tanh()
    });
    check(shapes([2, 2, 2, 3], [2, 3, 1, 1]), |x| {
        x[0].exp()?.conv_transpose2d(&x[1], Some(&x[2]), ConvTransposeOptions::default())
    });
    // An input that nobody else holds gives its memory to its gradient.
    check(shapes([2, 2, 2, 2], [2, 3, 3, 3]), |x| {
        x[0].mul_scalar(2.0)?.conv_transpose2d(&x[1], None, with([2, 2], [1, 1], [0, 0]))?.add(&x[2].sum()?)
    });
    check([[1, 2, 3, 2], [2, 2, 4, 4]], |x| x[0].conv_transpose2d_part(&x[1], None, with_stride(2), [[1, 0], [5, 6]]));
    check([[1, 2, 2, 3], [2, 1, 2, 2]], |x| {
        x[0].transpose(2, 3)?.conv_transpose2d(&x[1].transpose(2, 3)?, None, ConvTransposeOptions::default())
    });
}

#[test]
fn convolutions_in_a_row_share_memory_without_harm() {
    let options = ConvOptions { padding: [1, 1], ..ConvOptions::default() };
    check([[2, 2, 3, 3], [2, 2, 3, 3]], |x| x[0].conv2d(&x[1], None, options)?.conv2d(&x[1], None, options));
    check([[2, 2, 3, 3], [2, 2, 1, 1]], |x| {
        let first = x[0].conv2d(&x[1], None, ConvOptions::default())?;
        first.conv2d(&x[1], None, ConvOptions::default())?.mul(&first)
    });
    check([[2, 3, 3, 2], [4, 2, 1, 1]], |x| x[0].permute(&[0, 3, 1, 2])?.conv2d(&x[1], None, ConvOptions::default()));
}

#[test]
fn batch_norm_against_differences() {
    let shapes = || [Shape::from([3, 2, 2]), Shape::from(2), Shape::from(2)];
    check(shapes(), |x| x[0].batch_norm(Some(&x[1]), Some(&x[2]), BatchStatistics::Batch, 1e-2)?.tanh());
    check(shapes(), |x| x[0].batch_norm(Some(&x[1]), None, BatchStatistics::Batch, 1e-2)?.add(&x[2].sum()?));
    check(shapes(), |x| x[0].batch_norm(None, Some(&x[2]), BatchStatistics::Batch, 1e-2)?.mul(&x[1].sum()?));
    check(shapes(), |x| {
        let [mean, variance] = running(&x[0]);
        x[0].batch_norm(Some(&x[1]), Some(&x[2]), BatchStatistics::Given([&mean, &variance]), 1e-2)?.square()
    });
    // The next operation saves the recipe, not the result.
    check([Shape::from([2, 2, 2, 2]), Shape::from(2), Shape::from([2, 2, 1, 1])], |x| {
        let normal = x[0].batch_norm(Some(&x[1]), None, BatchStatistics::Batch, 1e-2)?;
        normal.conv2d(&x[2], None, ConvOptions::default())
    });
}

#[test]
fn dropout_of_channels_and_loss_of_images_against_differences() {
    check([[3, 4, 2]], |x| x[0].dropout2d(0.4, &mut Rng::new(3))?.square());
    check([[3, 4, 1, 2]], |x| x[0].mul_scalar(2.0)?.into_dropout2d(0.4, &mut Rng::new(3))?.into_relu());
    check_within([-3.0, 3.0], [[2, 3, 1, 2]], |x| x[0].cross_entropy(&targets(x[0].device()), Some(-100)));
    check_within([-3.0, 3.0], [[2, 1, 2, 3]], |x| {
        x[0].permute(&[0, 3, 1, 2])?.cross_entropy(&targets(x[0].device()), Some(-100))
    });
}

#[test]
fn the_loss_of_images_is_that_of_their_pixels_one_after_another() {
    let device = Device::cpu();
    let (classes, places) = (5, 700);
    let logits = Tensor::randn([3, classes, places], DType::F64, &device, &mut Rng::new(1)).unwrap();
    let labels: Vec<i64> = (0..3 * places as i64).map(|i| if i % 7 == 0 { -1 } else { i % classes as i64 }).collect();
    let of_images = logits.cross_entropy(&Tensor::from_slice(&labels, [3, places], &device).unwrap(), Some(-1));
    let rows = logits.transpose(1, 2).unwrap().reshape([3 * places, classes]).unwrap();
    let of_rows = rows.cross_entropy(&Tensor::from_slice(&labels, labels.len(), &device).unwrap(), Some(-1));
    let (of_images, of_rows) = (of_images.unwrap().item().unwrap(), of_rows.unwrap().item().unwrap());
    assert!((of_images - of_rows).abs() < 1e-12, "{of_images} and {of_rows}");
}

#[test]
fn nothing_in_gives_nothing_out() {
    let device = Device::cpu();
    let leaf = |shape: &[usize]| {
        let leaf = Tensor::ones(Shape::from_slice(shape).unwrap(), DType::F32, &device).unwrap();
        leaf.set_requires_grad(true).unwrap();
        leaf
    };
    for (batch, channels) in [(0, 2), (2, 0)] {
        let x = leaf(&[batch, channels, 3, 3]);
        let [mean, variance] = [leaf(&[channels]).detach(), leaf(&[channels]).detach()];
        let outs = [
            x.max_pool2d(PoolOptions::square(2)).unwrap(),
            x.avg_pool2d(PoolOptions::square(3), true).unwrap(),
            x.dropout2d(0.5, &mut Rng::new(0)).unwrap(),
            x.batch_norm(None, None, BatchStatistics::Given([&mean, &variance]), 1e-5).unwrap(),
        ];
        for out in outs {
            assert_eq!(out.elements(), 0);
            out.sum().unwrap().backward().unwrap();
            assert_eq!(x.take_grad().unwrap().shape(), x.shape());
        }
    }
    let (x, w) = (leaf(&[0, 2, 3, 3]), leaf(&[2, 4, 2, 2]));
    let out = x.conv_transpose2d(&w, None, ConvTransposeOptions::default()).unwrap();
    assert_eq!(**out.shape(), [0, 4, 4, 4]);
    out.sum().unwrap().backward().unwrap();
    assert_eq!(w.grad().unwrap().to_f64_vec().unwrap(), vec![0.0; 32]);
    let labels = Tensor::from_slice::<i64>(&[], [0, 3], &device).unwrap();
    let loss = leaf(&[0, 2, 3]).cross_entropy(&labels, None).unwrap();
    assert!(loss.item().unwrap().is_nan(), "the mean of nothing");
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let device = Device::accounting(1 << 30);
    let x = Tensor::zeros([2, 3, 4, 4], DType::F32, &device).unwrap();
    let w = Tensor::zeros([3, 2, 2, 2], DType::F32, &device).unwrap();
    let says = |result: Result<Tensor>, parts: &[&str]| {
        let text = result.unwrap_err().to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    says(x.max_pool2d(PoolOptions::square(5)), &["max_pool2d", "[2, 3, 4, 4]", "fit"]);
    says(x.avg_pool2d(pool([2, 2], [1, 0], NO_BORDER, false), true), &["avg_pool2d", "stride [1, 0]"]);
    says(x.max_pool2d(pool([2, 2], [1, 1], [2, 0], false)), &["padding [2, 0]", "half the kernel"]);
    says(w.select(0, 0).unwrap().max_pool2d(PoolOptions::square(1)), &["[batch, channels, height, width]"]);
    let grown = ConvTransposeOptions { output_padding: [1, 0], ..ConvTransposeOptions::default() };
    says(x.conv_transpose2d(&w, None, grown), &["output padding [1, 0]", "stride [1, 1]"]);
    let cut = ConvTransposeOptions { padding: [3, 0], ..ConvTransposeOptions::default() };
    says(x.conv_transpose2d(&w, None, cut), &["conv_transpose2d", "at least one"]);
    says(
        x.conv_transpose2d(&x, None, ConvTransposeOptions::default()),
        &["[channels, outputs / groups, height, width]"],
    );
    says(x.conv_transpose2d_part(&w, None, with_stride(1), [[2, 0], [4, 5]]), &["2..6", "length 5"]);
    let double = Tensor::zeros(3, DType::F64, &device).unwrap();
    let groups = |groups| ConvOptions { groups, ..ConvOptions::default() };
    says(x.conv2d(&w, None, groups(2)), &["conv2d", "[2, 3, 4, 4]", "[outputs, channels / groups, height, width]"]);
    says(x.conv2d(&x, None, groups(0)), &["conv2d", "[outputs, channels / groups, height, width]"]);
    let depthwise = Tensor::zeros([4, 1, 2, 2], DType::F32, &device).unwrap();
    says(x.conv2d(&depthwise, None, groups(3)), &["channels, 4, must be a multiple of the number of groups, 3"]);
    let gaps = ConvOptions { dilation: [1, 0], ..ConvOptions::default() };
    says(x.conv2d(&x, None, gaps), &["dilation [1, 0] must be at least 1"]);
    let wide = ConvOptions { dilation: [1, 2], ..ConvOptions::default() };
    says(x.conv2d(&x, None, wide), &["conv2d", "with its dilation", "fit"]);
    says(x.group_norm(2, None, None, 1e-5), &["group_norm", "channels, 3,", "groups, 2"]);
    says(x.group_norm(3, Some(&w), None, 1e-5), &["group_norm", "one element per channel"]);
    says(double.group_norm(1, None, None, 1e-5), &["group_norm", "[batch, channels, …]"]);
    says(x.pad(&[[0, 0]; 5], 0.0), &["pad", "5 pairs", "at most one per axis"]);
    let mut init = Init::new(&device, DType::F32, 0);
    let layer = Conv2d::new(&mut init, [4, 6, 3], groups(4)).unwrap_err().to_string();
    assert!(layer.contains("Conv2d: the number of channels, 6, must be a multiple of"), "{layer}");
    says(x.dropout2d(1.0, &mut Rng::new(0)), &["probability 1"]);
    says(x.batch_norm(Some(&w), None, BatchStatistics::Batch, 1e-5), &["of shape [channels]"]);
    let one = Tensor::zeros([1, 3], DType::F32, &device).unwrap();
    says(one.batch_norm(None, None, BatchStatistics::Batch, 1e-5), &["[1, 3]", "at least 2"]);
    says(x.batch_norm(None, None, BatchStatistics::Given([&double, &double]), 1e-5), &["f64", "running statistics"]);
    let labels = Tensor::zeros([2, 4], DType::I64, &device).unwrap();
    says(x.cross_entropy(&labels, None), &["[2, 3, 4, 4]", "[batch, classes, …]"]);
    let cpu = Device::cpu();
    let far = Tensor::from_slice(&[0_i64, 3, 0, 0], [2, 1, 2], &cpu).unwrap();
    let wrong = Tensor::zeros([2, 3, 1, 2], DType::F32, &cpu).unwrap().cross_entropy(&far, None);
    assert!(matches!(wrong, Err(Error::Index { index: 3, size: 3, .. })));
}

#[test]
fn channels_drop_out_as_a_whole_and_the_same_seed_repeats_them() {
    let device = Device::cpu();
    let x = Tensor::ones([50, 20, 3], DType::F64, &device).unwrap();
    let dropped = x.dropout2d(0.25, &mut Rng::new(5)).unwrap().to_vec::<f64>().unwrap();
    let channels: Vec<f64> = dropped.chunks(3).map(|channel| channel[0]).collect();
    assert!(dropped.chunks(3).all(|channel| channel == [channel[0]; 3]));
    assert!(channels.iter().all(|&number| number == 0.0 || number == 4.0 / 3.0));
    let zeros = channels.iter().filter(|&&number| number == 0.0).count();
    assert!((200..300).contains(&zeros), "{zeros} of 1000");
    assert_eq!(x.into_dropout2d(0.25, &mut Rng::new(5)).unwrap().to_vec::<f64>().unwrap(), dropped);
}

#[test]
fn modules_that_train_and_that_are_used_differ() {
    let device = Device::cpu();
    let mut init = Init::new(&device, DType::F32, 1);
    let x = Tensor::ones([4, 8, 2, 2], DType::F32, &device).unwrap();
    let drops: [Box<dyn Module>; 2] =
        [Box::new(Dropout::new(&mut init, 0.5)), Box::new(Dropout2d::new(&mut init, 0.5))];
    for drop in drops {
        let runs = [0, 1].map(|_| drop.forward(&x).unwrap().to_vec::<f32>().unwrap());
        assert_ne!(runs[0], runs[1], "each run draws anew");
        drop.set_training(false);
        assert_eq!(drop.forward(&x).unwrap().id(), x.id());
        drop.set_training(true);
        assert_ne!(drop.forward(&x).unwrap().to_vec::<f32>().unwrap(), vec![1.0; 128]);
    }
    let norm = BatchNorm2d::new(&mut init, 8).unwrap();
    let names: Vec<String> = norm.buffers().into_iter().map(|buffer| buffer.path).collect();
    assert_eq!((names, norm.parameters().len()), (vec!["running_mean".to_owned(), "running_var".to_owned()], 2));
    let mean = || norm.buffers()[0].tensor.to_vec::<f32>().unwrap()[7];
    let _mode = no_grad();
    norm.forward(&x).unwrap();
    assert_eq!(mean(), 0.1, "a tenth of the way from 0 to the batch's 1");
    norm.set_training(false);
    norm.forward(&x).unwrap();
    assert_eq!(mean(), 0.1);
}

#[test]
fn layers_begin_as_pytorchs_do() {
    let device = Device::cpu();
    let mut init = Init::new(&device, DType::F32, 1);
    let largest = |module: &dyn Module, bound: f64| {
        for parameter in module.parameters() {
            let numbers = parameter.tensor.to_f64_vec().unwrap();
            let largest = numbers.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
            assert!(largest <= bound && largest > 0.8 * bound, "{}: {largest} within {bound}", parameter.path);
        }
    };
    largest(&Conv2d::new(&mut init, [8, 16, 3], ConvOptions::default()).unwrap(), (1.0 / 72.0_f64).sqrt());
    let options = ConvTransposeOptions::default();
    largest(&ConvTranspose2d::new(&mut init, [8, 16, 3], options).unwrap(), (1.0 / 144.0_f64).sqrt());
    let filling = LinearFilling { weight: Filling::Bilinear, bias: None };
    let doubled = ConvTransposeOptions { stride: [2, 2], padding: [1, 1], ..options };
    let grow = ConvTranspose2d::filled(&mut init, [2, 2, 4], doubled, filling).unwrap();
    // A plane stays a plane within the borders, and channels stay apart.
    let ramp: Vec<f32> = (0..2 * 4 * 4).map(|i| if i < 16 { (i % 4) as f32 } else { 0.0 }).collect();
    let grown = grow.forward(&Tensor::from_slice(&ramp, [1, 2, 4, 4], &device).unwrap()).unwrap();
    let grown = grown.to_vec::<f32>().unwrap();
    assert_eq!(grown[8 + 1..8 + 7], [0.25, 0.75, 1.25, 1.75, 2.25, 2.75]);
    assert_eq!(grown[64..], [0.0; 64]);
    let twos = Init::new(&device, DType::Bf16, 1).parameter([1, 1, 3, 3], Filling::Bilinear).unwrap();
    assert_eq!(twos.to_f64_vec().unwrap(), [0.25, 0.5, 0.25, 0.5, 1.0, 0.5, 0.25, 0.5, 0.25]);
}
