//! Tests how many bytes an encoder block keeps for backward, and that every device makes the same allocations.

use std::sync::{Arc, Mutex};

use highwater_engine::autograd::no_recompute;
use highwater_engine::ops::{AttentionOptions, ConvOptions};
use highwater_engine::{DType, Device, Result, Shape, Tensor};

const F32: DType = DType::F32;
/// More than is ever needed here.
const PLENTY: u64 = 1 << 40;

fn live(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.current
}

fn zeros(shape: &[usize], device: &Device) -> Tensor {
    Tensor::zeros(Shape::from_slice(shape).unwrap(), F32, device).unwrap()
}

fn parameter(shape: &[usize], device: &Device) -> Tensor {
    let tensor = zeros(shape, device);
    tensor.set_requires_grad(true).unwrap();
    tensor
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
fn one_step_makes_the_same_allocations_on_cpu_and_accounting() {
    let step = |device: &Device| -> Result<Vec<String>> {
        let log = Arc::new(Mutex::new(Vec::new()));
        let note = {
            let (log, device) = (log.clone(), device.clone());
            move || {
                // The blocks that live now, by the number of their allocation, and all that happened so far.
                let state = device.allocator().state();
                let blocks = state.iter().flat_map(|segment| &segment.blocks).filter(|block| block.key.is_some());
                let mut blocks: Vec<_> =
                    blocks.map(|block| (block.key, block.bytes, block.requested, block.usage)).collect();
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
        let options = ConvOptions { stride: [4, 4], ..ConvOptions::default() };
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
