//! Tests that the CPU kernels give the results of plain loops for sizes of many tiles, and the same results with any
//! number of threads.

use highwater_engine::backend::kind::Mask;
use highwater_engine::nn::{EncoderBlock, EncoderSize, Init, Module};
use highwater_engine::ops::attention::AttentionOptions;
use highwater_engine::{DType, Device, Result, Rng, Tensor};

fn random(shape: &[usize], dtype: DType, device: &Device, rng: &mut Rng) -> Tensor {
    let elements = shape.iter().product::<usize>();
    let flat = Tensor::randn(elements, DType::F64, device, rng).unwrap().to_dtype(dtype).unwrap();
    let tensor = match *shape {
        [a, b] => flat.reshape([a, b]),
        [a, b, c] => flat.reshape([a, b, c]),
        [a, b, c, d] => flat.reshape([a, b, c, d]),
        _ => Ok(flat),
    };
    tensor.unwrap().detach()
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()
}

fn assert_near(found: &Tensor, right: &Tensor, error: f64, what: &str) {
    let (found, right) = (numbers(found), numbers(right));
    assert_eq!(found.len(), right.len(), "{what}");
    for (i, (found, right)) in found.iter().zip(&right).enumerate() {
        assert!((found - right).abs() <= error * (1.0 + right.abs()), "{what}, element {i}: {found}, not {right}");
    }
}

/// Attention by operations that have nothing to do with its kernel, for as many heads as key heads.
fn plain_attention([query, key, value]: [&Tensor; 3], mask: Mask) -> Result<Tensor> {
    let (queries, keys, width) = (query.shape()[2], key.shape()[2], query.shape()[3]);
    let hidden: Vec<f64> =
        (0..queries * keys).map(|at| if mask == Mask::Causal && at % keys > at / keys { -1e30 } else { 0.0 }).collect();
    let hidden = Tensor::from_slice(&hidden, [queries, keys], query.device())?.to_dtype(query.dtype())?;
    let scores = query.matmul(&key.transpose(-1, -2)?)?.mul_scalar(1.0 / (width as f64).sqrt())?.add(&hidden)?;
    scores.softmax(-1)?.matmul(value)
}

#[test]
fn attention_of_many_tiles_is_plain_attention() -> Result<()> {
    let device = Device::cpu();
    for (dtype, error) in [(DType::F64, 1e-12), (DType::F32, 2e-5), (DType::Bf16, 4e-2)] {
        for (mask, queries, keys) in
            [(Mask::Causal, 200, 200), (Mask::None, 70, 300), (Mask::Causal, 130, 300), (Mask::Causal, 300, 70)]
        {
            let mut rng = Rng::new(7);
            let mut input = |length| random(&[2, 3, length, 20], dtype, &device, &mut rng);
            let inputs = [input(queries), input(keys), input(keys)];
            let grad = input(queries);
            let of = |mix: &dyn Fn([&Tensor; 3]) -> Result<Tensor>, dtype: DType| -> Result<[Tensor; 4]> {
                let leaves = inputs.each_ref().map(|input| input.to_dtype(dtype).unwrap().detach());
                leaves.iter().try_for_each(|leaf| leaf.set_requires_grad(true))?;
                let out = mix(leaves.each_ref())?;
                out.mul(&grad.to_dtype(dtype)?)?.sum()?.backward()?;
                let [query, key, value] = leaves.map(|leaf| leaf.grad().unwrap());
                Ok([out.detach(), query, key, value])
            };
            let options = AttentionOptions { mask, scale: None };
            let found = of(&|[query, key, value]| Tensor::attention(query, key, value, options), dtype)?;
            let right = of(&|inputs| plain_attention(inputs, mask), DType::F64)?;
            for ((found, right), what) in found.iter().zip(&right).zip(["out", "query", "key", "value"]) {
                assert_near(found, right, error, &format!("{what} of {dtype:?}, {mask:?}, {queries} and {keys}"));
            }
        }
    }
    Ok(())
}

#[test]
fn products_of_every_type_and_layout_are_sums_of_products() -> Result<()> {
    let device = Device::cpu();
    let mut rng = Rng::new(3);
    for (dtype, error) in [(DType::F64, 1e-12), (DType::F32, 1e-4), (DType::Bf16, 1e-2), (DType::F16, 2e-3)] {
        for [m, k, n] in [[1, 1, 1], [3, 0, 2], [130, 600, 257], [1, 70, 300], [300, 70, 1], [5, 2, 9]] {
            let (left, right) = (random(&[m, k], dtype, &device, &mut rng), random(&[k, n], dtype, &device, &mut rng));
            let turned = |tensor: &Tensor| tensor.transpose(0, 1)?.compact()?.transpose(0, 1);
            let (l, r) = (numbers(&left), numbers(&right));
            let right_numbers: Vec<f64> =
                (0..m * n).map(|at| (0..k).map(|i| l[at / n * k + i] * r[i * n + at % n]).sum()).collect();
            let expected = Tensor::from_slice(&right_numbers, [m, n], &device)?;
            let scaled = error * (k.max(1) as f64).sqrt();
            for (one, other) in [
                (left.clone(), right.clone()),
                (turned(&left)?, right.clone()),
                (left.clone(), turned(&right)?),
                (turned(&left)?, turned(&right)?),
            ] {
                assert_near(&one.matmul(&other)?, &expected, scaled, &format!("{dtype:?} {m}×{k}×{n}"));
            }
        }
    }
    Ok(())
}

/// A step's gradients, to the bit.
fn step(dtype: DType) -> Result<Vec<Vec<u64>>> {
    let device = Device::cpu();
    let size = EncoderSize { width: 96, heads: 3, hidden: 384, epsilon: 1e-5 };
    let block = EncoderBlock::new(&mut Init::new(&device, dtype, 5), size)?;
    let input = random(&[2, 150, 96], dtype, &device, &mut Rng::new(9));
    let loss = block.forward(&input)?.square()?.mean()?;
    loss.backward()?;
    let bits = |tensor: &Tensor| numbers(tensor).into_iter().map(f64::to_bits).collect();
    let grads = block.parameters().into_iter().map(|parameter| bits(&parameter.tensor.grad().unwrap()));
    Ok([bits(&loss)].into_iter().chain(grads).collect())
}

#[test]
fn results_are_the_same_with_any_number_of_threads() -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::Bf16] {
        let with =
            |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| step(dtype));
        let alone = with(1)?;
        for threads in [2, 3, 7] {
            assert!(with(threads)? == alone, "{dtype:?} with {threads} threads");
        }
    }
    Ok(())
}
