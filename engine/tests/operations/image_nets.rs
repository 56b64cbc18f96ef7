//! Tests that the operations of image networks need no more memory than in PyTorch, and that such a network, written
//! with the public API only, trains as in PyTorch.

#[allow(dead_code, reason = "the example's own loop")]
#[path = "../../examples/resnext.rs"]
mod resnext;

use highwater_engine::nn::{Init, Module};
use highwater_engine::ops::{ConvOptions, ConvTransposeOptions};
use highwater_engine::optim::{Optimizer, RuleOptimizer, Sgd};
use highwater_engine::{DType, Device, Result, Shape, Tensor, no_grad};

use resnext::{ResNeXt, accuracies};

/// By PyTorch, written by `make.py` beside them.
const MEMORY: &str = include_str!("../../testdata/pytorch/image_nets/memory.txt");
const LOSSES: &str = include_str!("../../testdata/pytorch/image_nets/losses.txt");

const F32: DType = DType::F32;

type Operation = fn(&Tensor, &[Tensor]) -> Result<Tensor>;

/// A name of `make.py`, the shapes of the input and of the parameters, and what is done with them.
type Case = (&'static str, &'static [usize], &'static [&'static [usize]], Operation);

/// The operations of `make.py`.
const OPERATIONS: &[Case] = &[
    ("conv2d_grouped", &[4, 16, 32, 32], &[&[32, 4, 3, 3], &[32]], |x, w| {
        let options = ConvOptions { padding: [2, 2], dilation: [2, 2], groups: 4, ..ConvOptions::default() };
        x.conv2d(&w[0], Some(&w[1]), options)
    }),
    ("conv2d_depthwise", &[4, 16, 32, 32], &[&[16, 1, 3, 3]], |x, w| {
        x.conv2d(&w[0], None, ConvOptions { padding: [1, 1], groups: 16, ..ConvOptions::default() })
    }),
    ("conv_transpose2d_grouped", &[4, 16, 16, 16], &[&[16, 2, 4, 4]], |x, w| {
        let options = ConvTransposeOptions { stride: [2, 2], padding: [1, 1], groups: 4, ..Default::default() };
        x.conv_transpose2d(&w[0], None, options)
    }),
    ("group_norm", &[4, 16, 32, 32], &[&[16], &[16]], |x, w| x.group_norm(4, Some(&w[0]), Some(&w[1]), 1e-5)),
    ("group_norm_plain", &[4, 16, 32, 32], &[], |x, _| x.group_norm(4, None, None, 1e-5)),
    ("group_norm_rows", &[64, 256], &[&[256], &[256]], |x, w| x.group_norm(8, Some(&w[0]), Some(&w[1]), 1e-5)),
    ("pad", &[4, 16, 32, 32], &[], |x, _| x.pad(&[[0, 1], [1, 2]], 0.0)),
    ("argmax", &[64, 1000], &[], |x, _| x.argmax(1)),
    ("argmin_first", &[64, 1000], &[], |x, _| x.argmin(0)),
    ("max_axis", &[64, 1000], &[], |x, _| x.max_axis(1)),
    ("min_axis", &[64, 1000], &[], |x, _| x.min_axis(1)),
    ("topk", &[64, 1000], &[], |x, _| Ok(x.topk(5, 1)?.0)),
    ("divide_scalar", &[64, 1000], &[], |x, _| 2.0 / x),
    ("chain", &[64, 1000], &[&[64, 1000]], |x, w| ((x * &w[0] + &w[0])? * 0.5)? - 1.0),
];

/// Bytes above those before it that are live after forward, at forward's peak, at backward's peak, and after backward.
fn memory(input: &[usize], parameters: &[&[usize]], operation: Operation) -> Result<[u64; 4]> {
    let device = Device::accounting(1 << 40);
    let leaf = |shape: &&[usize]| {
        let leaf = Tensor::zeros(Shape::from_slice(shape)?, F32, &device)?;
        leaf.set_requires_grad(true)?;
        Ok(leaf)
    };
    let x = leaf(&input)?;
    let parameters = parameters.iter().map(leaf).collect::<Result<Vec<Tensor>>>()?;
    let seed = {
        let _mode = no_grad();
        operation(&x, &parameters)?.zeros_like()?
    };
    let stats = || device.allocator().stats().requested_bytes.all;
    let before = stats().current;
    device.allocator().reset_peak_stats();
    let out = operation(&(&x + 1.0)?, &parameters)?;
    let [kept, forward] = [stats().current, stats().peak].map(|bytes| bytes - before);
    if !out.requires_grad() {
        return Ok([kept, forward, 0, 0]);
    }
    device.allocator().reset_peak_stats();
    out.backward_from(seed.clone())?;
    Ok([kept, forward, stats().peak - before, stats().current - before])
}

#[test]
fn operations_need_at_most_pytorchs_memory() {
    for (&(name, input, parameters, operation), line) in OPERATIONS.iter().zip(MEMORY.lines()) {
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some(name));
        let theirs: Vec<u64> = words.map(|bytes| bytes.parse().expect("bytes")).collect();
        let ours = memory(input, parameters, operation).unwrap();
        // Workspaces, which PyTorch's figures lack, are at most a quarter of the images or of the result.
        let largest = ours[0].max(Shape::from_slice(input).unwrap().elements() as u64 * 4);
        let workspace = if name.starts_with("conv") { largest / 4 } else { 0 };
        let room = [0, workspace, workspace, 0];
        assert_eq!(ours[0], theirs[0], "{name} keeps what PyTorch keeps");
        for stage in 1..4 {
            assert!(ours[stage] <= theirs[stage] + room[stage], "{name}: {ours:?} of PyTorch's {theirs:?}");
        }
    }
    assert_eq!(OPERATIONS.len(), MEMORY.lines().count());
}

/// The script's `number`.
fn number(i: usize) -> f64 {
    let mut mixed = (i as u32).wrapping_mul(2_654_435_761);
    mixed ^= mixed >> 15;
    mixed = mixed.wrapping_mul(2_246_822_519);
    mixed ^= mixed >> 13;
    f64::from(mixed) / f64::from(1_u32 << 31) - 1.0
}

fn fill(model: &ResNeXt) -> Result<()> {
    let _mode = no_grad();
    let mut first = 0;
    for parameter in model.parameters() {
        let shift = if parameter.path.contains("norm") && parameter.path.ends_with("weight") { 1.0 } else { 0.0 };
        let count = parameter.tensor.elements();
        let values: Vec<f64> = (first..first + count).map(|i| 0.2 * number(i) + shift).collect();
        let shape = parameter.tensor.shape();
        parameter.tensor.copy_(&Tensor::from_slice(&values, shape, parameter.tensor.device())?)?;
        first += count;
    }
    Ok(())
}

/// Each step's loss, accuracy and share of labels among the three best.
fn train(dtype: DType) -> Result<Vec<[f64; 3]>> {
    const SHAPE: [usize; 4] = [8, 3, 16, 16];
    let device = Device::cpu();
    let model = ResNeXt::new(&mut Init::new(&device, dtype, 0))?;
    fill(&model)?;
    let rule = Sgd { learning_rate: 0.05, momentum: 0.9, ..Sgd::default() };
    let mut optimizer = RuleOptimizer::new(rule, model.parameters())?;
    let labels: Vec<i64> = (0..8).collect();
    let labels = Tensor::from_slice(&labels, 8, &device)?;
    let count = SHAPE.iter().product::<usize>();
    let mut steps = Vec::new();
    for step in 0..10 {
        let pixel = |i: usize| number(1_000_000 + step % 2 * count + i) + (i * 8 / count) as f64 / 4.0;
        let pixels: Vec<f64> = (0..count).map(pixel).collect();
        let logits = model.forward(&Tensor::from_slice(&pixels, SHAPE, &device)?.to_dtype(dtype)?)?;
        let loss = logits.cross_entropy(&labels, None)?;
        loss.backward()?;
        optimizer.step()?;
        optimizer.zero_grad();
        let [first, among] = accuracies(&logits, &labels, 3)?;
        steps.push([loss.item()?, first, among]);
    }
    Ok(steps)
}

#[test]
fn a_net_written_with_the_public_api_trains_as_in_pytorch() {
    for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, 1e-5)] {
        let steps = train(dtype).unwrap();
        assert_eq!(steps.len(), LOSSES.lines().count());
        for (step, (found, line)) in steps.iter().zip(LOSSES.lines()).enumerate() {
            let expected: Vec<f64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
            let off = (found[0] - expected[0]).abs() / expected[0];
            assert!(off <= tolerance, "{dtype}, step {step}: {found:?} in place of {expected:?}, {off:e} off");
            assert_eq!(found[1..], expected[1..], "{dtype}, step {step}");
        }
    }
}
