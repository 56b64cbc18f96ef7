//! Autograd memory: what forward keeps, when backward frees it, and how much both need, to the byte.
//!
//! Everything runs on the accounting device. Sizes are multiples of the allocator's rounding, so that bytes asked for and
//! bytes allocated are the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use highwater_engine::autograd::no_recompute;
use highwater_engine::ops::AttentionOptions;
use highwater_engine::{DType, Device, Error, Result, Tensor, no_grad};
use highwater_recorder::Category;

const F32: DType = DType::F32;
/// A gigabyte-sized device is never the limit here.
const PLENTY: u64 = 1 << 40;

fn live(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.current
}

fn peak(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.peak
}

/// Bytes above those at the start that `work` has live at its peak.
fn growth(device: &Device, work: impl FnOnce()) -> u64 {
    device.allocator().reset_peak_stats();
    let before = live(device);
    work();
    peak(device) - before
}

fn zeros(shape: &[usize], device: &Device) -> Tensor {
    Tensor::zeros(highwater_engine::Shape::from_slice(shape).unwrap(), F32, device).unwrap()
}

fn parameter(shape: &[usize], device: &Device) -> Tensor {
    let tensor = zeros(shape, device);
    tensor.set_requires_grad(true).unwrap();
    tensor
}

/// Side of the square matrices; one takes `SQUARE` bytes.
const SIDE: usize = 256;
const SQUARE: u64 = (SIDE * SIDE * 4) as u64;

#[test]
fn saved_tensors_die_as_backward_passes_them_while_the_loss_is_held() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[SIDE, SIDE], &device);
    let mut y = x.tanh().unwrap();
    for _ in 0..9 {
        y = y.tanh().unwrap();
    }
    let loss = y.mul(&y).unwrap().sum().unwrap();
    drop(y);
    // Ten results are kept, and nothing else.
    assert_eq!(live(&device), SQUARE + 10 * SQUARE + 4);
    // The gradient of the square needs two buffers for a moment; then it is one, changed in place.
    assert_eq!(growth(&device, || loss.backward().unwrap()), 2 * SQUARE + 4);
    assert_eq!(live(&device), 2 * SQUARE + 4, "x, its gradient and the loss");
}

#[test]
fn a_gradient_is_moved_into_its_leaf_and_further_ones_are_added_in_place() {
    let device = Device::accounting(PLENTY);
    let w = parameter(&[SIDE, SIDE], &device);
    let x = zeros(&[2, SIDE], &device);
    let row = 2 * SIDE as u64 * 4;
    let mut h = x.clone();
    for _ in 0..20 {
        h = h.linear(&w, None).unwrap().tanh().unwrap();
    }
    let loss = h.sum().unwrap();
    drop(h);
    let grown = growth(&device, || loss.backward().unwrap());
    assert!(grown <= SQUARE + 4 * row, "one gradient of the weight, and a few rows: {grown}");
    assert_eq!(w.grad().unwrap().storage().bytes() as u64, SQUARE);
    assert_eq!(w.grad().unwrap().storage().category(), Category::Gradient);
}

#[test]
fn a_chain_of_products_needs_one_matrix_beside_what_it_kept() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[SIDE, SIDE], &device);
    let mut z = zeros(&[SIDE, SIDE], &device);
    for _ in 0..10 {
        z = z.matmul(&x).unwrap();
    }
    let loss = z.mul(&z.detach()).unwrap().sum().unwrap();
    drop(z);
    let kept = live(&device);
    // The last product's gradient replaces what the square kept; that of x is new; and each further product's takes over
    // the memory of an input that was kept.
    assert_eq!(growth(&device, || loss.backward().unwrap()), SQUARE + 4);
    assert_eq!(live(&device), 2 * SQUARE + 4);
    assert_eq!(kept, SQUARE + 11 * SQUARE + 4, "x, and the left input of each product and of the square");
}

#[test]
fn the_gradient_of_a_sum_stays_one_number_through_a_product() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[SIDE, SIDE], &device);
    let w = zeros(&[SIDE, SIDE], &device);
    let loss = x.matmul(&w).unwrap().sum().unwrap();
    // One dense matrix, for the leaf alone.
    let grown = growth(&device, || loss.backward().unwrap());
    assert!(grown < SQUARE + 4 * SIDE as u64 * 4, "{grown}");
}

#[test]
fn a_frozen_branch_costs_nothing() {
    let device = Device::accounting(PLENTY);
    let frozen: Vec<Tensor> = (0..3).map(|_| zeros(&[SIDE, SIDE], &device)).collect();
    let v = parameter(&[SIDE, SIDE], &device);
    let before = live(&device);
    let total = frozen.iter().rev().try_fold(v.clone(), |sum, t| t.add(&sum)).unwrap();
    let loss = total.sum().unwrap();
    drop(total);
    assert_eq!(live(&device), before + 4, "sums keep nothing");
    assert_eq!(growth(&device, || loss.backward().unwrap()), SQUARE + 4, "the one gradient that is wanted");
    assert!(frozen.iter().all(|t| t.grad().is_none()));

    // A frozen layer keeps no input, and its weight gets no gradient.
    let hidden = v.linear(&frozen[0], None).unwrap();
    let loss = hidden.linear(&frozen[1], None).unwrap().tanh().unwrap().sum().unwrap();
    drop(hidden);
    assert_eq!(live(&device), before + SQUARE + 4 + SQUARE + 4, "beside the gradient, the result of tanh");
    loss.backward().unwrap();
    assert!(frozen.iter().all(|t| t.grad().is_none()));
}

#[test]
fn without_gradients_nothing_is_kept() {
    let device = Device::accounting(PLENTY);
    let w = parameter(&[SIDE, SIDE], &device);
    let guard = no_grad();
    let y = w.gelu().unwrap().matmul(&w).unwrap().softmax(-1).unwrap();
    assert!(!y.requires_grad());
    assert_eq!(live(&device), 2 * SQUARE);
    drop(guard);
    assert!(w.exp().unwrap().requires_grad());
}

/// One encoder block: tokens, width and heads, with all weights.
struct Block {
    norms: [[Tensor; 2]; 2],
    layers: [[Tensor; 2]; 4],
}

const WIDTH: usize = 128;
const TOKENS: usize = 64;
const HEADS: usize = 4;
/// Bytes of one number a token and channel.
const UNIT: u64 = (TOKENS * WIDTH * 4) as u64;
/// Mean and deviation of two normalisations, and one number a token and head of the attention.
const STATISTICS: u64 = (TOKENS * 4 * 4 + TOKENS * HEADS * 4) as u64;

impl Block {
    fn new(device: &Device) -> Self {
        let norm = || [parameter(&[WIDTH], device), parameter(&[WIDTH], device)];
        let layer = |outputs, inputs| [parameter(&[outputs, inputs], device), parameter(&[outputs], device)];
        Self {
            norms: [norm(), norm()],
            layers: [layer(3 * WIDTH, WIDTH), layer(WIDTH, WIDTH), layer(4 * WIDTH, WIDTH), layer(WIDTH, 4 * WIDTH)],
        }
    }

    fn parameters(&self) -> impl Iterator<Item = &Tensor> {
        self.norms.iter().flatten().chain(self.layers.iter().flatten())
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let norm = |x: &Tensor, [weight, bias]: &[Tensor; 2]| x.layer_norm(Some(weight), Some(bias), 1e-6);
        let layer = |x: &Tensor, [weight, bias]: &[Tensor; 2]| x.linear(weight, Some(bias));
        let qkv = layer(&norm(x, &self.norms[0])?, &self.layers[0])?;
        let attended = qkv.attention_packed(HEADS, HEADS, AttentionOptions::default())?;
        drop(qkv);
        let middle = layer(&attended, &self.layers[1])?.into_add(x)?;
        drop(attended);
        let hidden = layer(&norm(&middle, &self.norms[1])?, &self.layers[2])?.gelu()?;
        layer(&hidden, &self.layers[3])?.into_add(&middle)
    }
}

#[test]
fn an_encoder_block_keeps_sixteen_values_a_channel_as_pytorch_does_or_ten_with_recomputation() {
    for (units, recomputes) in [(15, false), (9, true)] {
        let _guard = (!recomputes).then(no_recompute);
        let device = Device::accounting(PLENTY);
        let block = Block::new(&device);
        let x = zeros(&[1, TOKENS, WIDTH], &device);
        let before = live(&device);
        let out = block.forward(&x).unwrap();
        // The input, one unit of the sixteen or ten, was there before; the result belongs to the next block.
        assert_eq!(live(&device) - before, (units + 1) * UNIT + STATISTICS, "recomputes: {recomputes}");
        drop(out);
        assert_eq!(live(&device), before);
    }
}

#[test]
fn a_residual_sum_leaves_no_extra_buffer_in_forward() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[SIDE, SIDE], &device);
    let f = x.mul_scalar(2.0).unwrap();
    assert_eq!(growth(&device, || drop(f.into_add(&x).unwrap())), 0);
}

#[test]
fn cross_entropy_never_has_a_second_buffer_of_the_logits_size() {
    let device = Device::accounting(PLENTY);
    let (hidden, table) = (parameter(&[512, 8], &device), zeros(&[4096, 8], &device));
    let targets = Tensor::zeros(512, DType::I64, &device).unwrap();
    let logits_bytes = 512 * 4096 * 4;
    let before = live(&device);
    let mut loss = None;
    let forward = growth(&device, || {
        loss = Some(hidden.linear(&table, None).unwrap().cross_entropy(&targets, None).unwrap());
    });
    assert!(forward < logits_bytes + logits_bytes / 16, "{forward}");
    let backward = growth(&device, || loss.as_ref().unwrap().backward().unwrap());
    assert!(backward < logits_bytes / 16, "{backward}");
    assert_eq!(live(&device), before + 4 + hidden.bytes());
}

#[test]
fn a_table_that_is_also_the_head_has_one_gradient() {
    let device = Device::accounting(PLENTY);
    let table = parameter(&[4096, 64], &device);
    let tokens = Tensor::zeros(16, DType::I64, &device).unwrap();
    let hidden = table.embedding(&tokens).unwrap();
    let loss = hidden.tanh().unwrap().linear(&table, None).unwrap().cross_entropy(&tokens, None).unwrap();
    drop(hidden);
    let rest = 16 * (4096 + 4 * 64) * 4;
    let grown = growth(&device, || loss.backward().unwrap());
    assert!(grown < table.bytes() + rest, "{grown} for a table of {}", table.bytes());
}

#[test]
fn a_hook_sees_the_complete_gradient_once_and_may_free_it() {
    let device = Device::accounting(PLENTY);
    let weights: Vec<Tensor> = (0..8).map(|_| parameter(&[SIDE, SIDE], &device)).collect();
    let calls = Arc::new(AtomicUsize::new(0));
    for weight in &weights {
        let calls = calls.clone();
        weight
            .on_grad_ready(move |leaf| {
                calls.fetch_add(1, Ordering::Relaxed);
                let grad = leaf.take_grad().expect("the gradient is there");
                let _guard = no_grad();
                leaf.add_scaled_(&grad, -0.1)
            })
            .unwrap();
    }
    let x = zeros(&[2, SIDE], &device);
    // Each weight is used twice: the hook waits for both.
    let mut chain = weights.iter().chain(&weights);
    let loss = chain.try_fold(x, |h, w| h.linear(w, None)?.tanh()).unwrap().sum().unwrap();
    loss.backward().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), weights.len());
    assert!(weights.iter().all(|weight| weight.grad().is_none()));
    drop(loss);

    // Used once each, one gradient lives at a time.
    let loss = weights.iter().try_fold(zeros(&[2, SIDE], &device), |h, w| h.linear(w, None)?.tanh()).unwrap().sum().unwrap();
    let grown = growth(&device, || loss.backward().unwrap());
    assert!(grown < 2 * SQUARE, "{grown}");
}

#[test]
fn a_small_gradient_does_not_keep_a_large_block_alive() {
    let device = Device::accounting(PLENTY);
    let token = parameter(&[1, 1, WIDTH], &device);
    let patches = zeros(&[1, 4095, WIDTH], &device);
    let loss = Tensor::concat(&[&token, &patches], 1).unwrap().tanh().unwrap().sum().unwrap();
    loss.backward().unwrap();
    assert_eq!(token.grad().unwrap().storage().bytes() as u64, token.bytes());
}

#[test]
fn one_step_makes_the_same_allocations_on_cpu_and_accounting() {
    let step = |device: &Device| -> Result<Vec<String>> {
        let log = Arc::new(std::sync::Mutex::new(Vec::new()));
        let note = {
            let (log, device) = (log.clone(), device.clone());
            move || {
                // The blocks that live now, by the number of their allocation, and all that happened so far.
                let state = device.allocator().state();
                let blocks = state.iter().flat_map(|segment| &segment.blocks).filter(|block| block.key.is_some());
                let mut blocks: Vec<_> = blocks.map(|block| (block.key, block.bytes, block.requested, block.usage)).collect();
                blocks.sort_by_key(|block| block.0);
                log.lock().unwrap().push(format!("{blocks:?} {:?}", device.allocator().stats()));
            }
        };
        let block = Block::new(device);
        let kernel = parameter(&[WIDTH, 3, 4, 4], device);
        for leaf in block.parameters().chain([&kernel]) {
            let note = note.clone();
            leaf.on_grad_ready(move |_| {
                note();
                Ok(())
            })?;
        }
        let image = Tensor::zeros([1, 3, 32, 32], F32, device)?;
        let options = highwater_engine::ops::ConvOptions { stride: [4, 4], padding: [0, 0] };
        let tokens = image.conv2d(&kernel, None, options)?.flatten_from(2)?.transpose(1, 2)?;
        note();
        let out = block.forward(&tokens)?;
        note();
        let logits = out.mean_axes(&[1])?;
        let loss = logits.cross_entropy(&Tensor::zeros(1, DType::I64, device)?, None)?;
        note();
        drop((tokens, out, logits));
        loss.backward()?;
        note();
        let log = log.lock().unwrap().clone();
        Ok(log)
    };
    let (cpu, accounting) = (step(&Device::cpu()).unwrap(), step(&Device::accounting(PLENTY)).unwrap());
    assert_eq!(cpu.len(), 4 + 13);
    for (place, (cpu, accounting)) in cpu.iter().zip(&accounting).enumerate() {
        assert_eq!(cpu, accounting, "note {place}");
    }
}

#[test]
fn a_graph_serves_once_and_notices_changes() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[4, 4], &device);
    let loss = x.exp().unwrap().sum().unwrap();
    loss.backward().unwrap();
    assert!(matches!(loss.backward(), Err(Error::Consumed { .. })));

    let y = x.exp().unwrap();
    let loss = y.sum().unwrap();
    assert!(matches!(y.fill_(0.0), Err(Error::InPlace { .. })));
    y.detach().fill_(0.0).unwrap();
    assert!(matches!(loss.backward(), Err(Error::Overwritten { op: "exp" })));

    assert!(matches!(y.backward(), Err(Error::NotScalar { .. })));
    assert!(matches!(zeros(&[1], &device).backward(), Err(Error::NoGraph)));
    assert!(matches!(x.add(&parameter(&[4], &Device::accounting(PLENTY))), Err(Error::Devices { .. })));
    assert!(matches!(x.add(&Tensor::zeros(4, DType::F64, &device).unwrap()), Err(Error::DType { .. })));
}

#[test]
fn a_changed_tensor_has_no_recipe() {
    let device = Device::cpu();
    let x = Tensor::from_slice(&[1.0_f32, -2.0], [1, 2], &device).unwrap();
    x.set_requires_grad(true).unwrap();
    let w = Tensor::ones([1, 2], F32, &device).unwrap();
    w.set_requires_grad(true).unwrap();
    let y = x.gelu().unwrap();
    y.detach().fill_(3.0).unwrap();
    y.linear(&w, None).unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(w.grad().unwrap().to_vec::<f32>().unwrap(), [3.0, 3.0]);
}

#[test]
fn running_out_of_memory_is_recognised_and_leaves_the_device_usable() {
    let device = Device::accounting(64 << 20);
    let kept = zeros(&[1 << 20], &device);
    let failed = Tensor::zeros(1 << 25, F32, &device).unwrap_err();
    assert!(failed.is_out_of_memory(), "{failed}");
    assert!(!kept.reshape(3).unwrap_err().is_out_of_memory());
    assert!(kept.exp().is_ok());
    assert!(Tensor::zeros([usize::MAX, 2], F32, &device).is_err());
}

#[test]
fn a_graph_of_a_hundred_thousand_operations_is_taken_apart_without_a_deep_stack() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[1], &device);
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = y.add_scalar(1.0).unwrap();
    }
    drop(y);
    assert_eq!(live(&device), 4);
}
