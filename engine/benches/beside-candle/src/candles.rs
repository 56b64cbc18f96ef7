//! The tasks in candle, with those of its operations that have gradients.

use std::collections::HashMap;

use anyhow::{Context, Result};
use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::optim::{AdamW, Optimizer, ParamsAdamW};

use crate::ours::Numbers;
use crate::task::{EPSILON, HEADS, NERF_INPUTS, NERF_LAYERS, NERF_OUTPUTS, Phases, Task, Trainer, VOCABULARY, WIDTH};

type Forward = Box<dyn Fn(&Parameters) -> Result<Tensor>>;

/// Creates a trainer with these initial parameters.
pub fn trainer(task: &Task, numbers: Vec<Numbers>) -> Result<Box<dyn Trainer>> {
    let parameters = Parameters::new(numbers)?;
    let forward: Forward = match *task {
        Task::Gpt2 { layers, tokens } => {
            let numbers: Vec<u32> = Task::tokens(tokens).into_iter().map(|token| token as u32).collect();
            let input = Tensor::new(&numbers[..tokens], &Device::Cpu)?;
            let targets = Tensor::new(&numbers[1..], &Device::Cpu)?;
            let positions = Tensor::arange(0, tokens as u32, &Device::Cpu)?;
            let hidden: Vec<u8> = (0..tokens * tokens).map(|at| u8::from(at % tokens > at / tokens)).collect();
            let mask = Tensor::from_vec(hidden, (tokens, tokens), &Device::Cpu)?;
            Box::new(move |parameters| {
                let logits = gpt2(parameters, &input, &positions, &mask, layers)?;
                Ok(candle_nn::loss::cross_entropy(&logits, &targets)?)
            })
        }
        Task::TinyNerf { points, .. } => {
            let tensor = |width| Tensor::from_vec(Task::numbers(points * width), (points, width), &Device::Cpu);
            let (input, target) = (tensor(NERF_INPUTS)?, tensor(NERF_OUTPUTS)?);
            Box::new(move |parameters| {
                let mut out = input.clone();
                for layer in 0..NERF_LAYERS {
                    out = parameters.linear(&format!("layers.{layer}"), &out)?.relu()?;
                }
                Ok(candle_nn::loss::mse(&parameters.linear("output", &out)?, &target)?)
            })
        }
    };
    let settings = ParamsAdamW { lr: 1e-4, weight_decay: 1e-2, ..ParamsAdamW::default() };
    let optimizer = AdamW::new(parameters.0.values().cloned().collect(), settings)?;
    Ok(Box::new(Training { parameters, forward, optimizer }))
}

struct Training {
    parameters: Parameters,
    forward: Forward,
    optimizer: AdamW,
}

impl Trainer for Training {
    fn step(&mut self) -> Result<(Phases, f64)> {
        Phases::time(
            || (self.forward)(&self.parameters),
            |loss| Ok((loss.backward()?, loss)),
            |(grads, loss)| {
                self.optimizer.step(&grads)?;
                drop(grads);
                Ok(f64::from(loss.to_scalar::<f32>()?))
            },
        )
    }
}

struct Parameters(HashMap<String, Var>);

impl Parameters {
    fn new(numbers: Vec<Numbers>) -> Result<Self> {
        let var = |(path, shape, numbers): Numbers| -> Result<(String, Var)> {
            Ok((path, Var::from_vec(numbers, shape, &Device::Cpu)?))
        };
        Ok(Self(numbers.into_iter().map(var).collect::<Result<_>>()?))
    }

    fn get(&self, path: &str) -> Result<&Tensor> {
        Ok(self.0.get(path).with_context(|| format!("there is no parameter {path}"))?.as_tensor())
    }

    /// Applies the layer to the rows of all batches at once, as candle's own layer does.
    fn linear(&self, path: &str, input: &Tensor) -> Result<Tensor> {
        let weight = self.get(&format!("{path}.weight"))?;
        Ok(input.matmul(&weight.t()?)?.broadcast_add(self.get(&format!("{path}.bias"))?)?)
    }

    /// The form that has gradients; candle's fast form has none.
    fn layer_norm(&self, path: &str, input: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.get(&format!("{path}.weight"))?, self.get(&format!("{path}.bias"))?);
        Ok(candle_nn::ops::layer_norm_slow(input, weight, bias, EPSILON as f32)?)
    }
}

fn gpt2(parameters: &Parameters, input: &Tensor, positions: &Tensor, mask: &Tensor, layers: usize) -> Result<Tensor> {
    let table = parameters.get("wte.weight")?;
    let mut rows = (table.index_select(input, 0)? + parameters.get("wpe.weight")?.index_select(positions, 0)?)?;
    for layer in 0..layers {
        let path = |part: &str| format!("h.{layer}.{part}");
        let normal = parameters.layer_norm(&path("ln_1"), &rows)?;
        let packed = parameters.linear(&path("attn.in_proj"), &normal)?;
        let mixed = attention(&packed, mask)?;
        rows = (parameters.linear(&path("attn.out_proj"), &mixed)? + rows)?;
        let normal = parameters.layer_norm(&path("ln_2"), &rows)?;
        let hidden = parameters.linear(&path("mlp.fc1"), &normal)?.gelu_erf()?;
        rows = (parameters.linear(&path("mlp.fc2"), &hidden)? + rows)?;
    }
    let normal = parameters.layer_norm("ln_f", &rows)?;
    debug_assert_eq!(table.dims(), [VOCABULARY, WIDTH]);
    Ok(normal.matmul(&table.t()?)?)
}

fn attention(packed: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let tokens = packed.dim(0)?;
    let heads = |part: usize| -> Result<Tensor> {
        let rows = packed.narrow(D::Minus1, part * WIDTH, WIDTH)?.reshape((tokens, HEADS, WIDTH / HEADS))?;
        Ok(rows.transpose(0, 1)?.contiguous()?)
    };
    let (query, key, value) = (heads(0)?, heads(1)?, heads(2)?);
    let scores = (query.matmul(&key.t()?)? * (1.0 / ((WIDTH / HEADS) as f64).sqrt()))?;
    let never = Tensor::new(f32::NEG_INFINITY, &Device::Cpu)?.to_dtype(DType::F32)?.broadcast_as(scores.shape())?;
    let scores = mask.broadcast_as(scores.shape())?.where_cond(&never, &scores)?;
    let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
    Ok(weights.matmul(&value)?.transpose(0, 1)?.reshape((tokens, WIDTH))?)
}
