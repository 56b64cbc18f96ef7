//! Attention and its gradients.

use highwater_engine::backend::kind::Mask;
use highwater_engine::backend::{self, AttentionSize};
use highwater_engine::{DType, Result, Tensor};
use highwater_stand_in::Setup;

use crate::harness::{Both, FLOATS, Pair, on_both, view};

/// The memory layout of queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum HeadLayout {
    /// Inputs are `[batch, heads, places, width]`; outputs are as in `ByPlace`, since the CPU kernel requires it.
    ByHead,
    /// Each `[batch, places, heads, width]`.
    ByPlace,
    /// All in one `[batch, places, heads of all, width]`; as many keys as queries.
    Packed,
    /// As `ByPlace`, but within wider rows, beginning at an unaligned element.
    Within,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    key_heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    mask: Mask,
    scale: f64,
    lie: HeadLayout,
}

/// One head of as many queries as keys.
fn square(length: usize, width: usize, mask: Mask) -> Case {
    Case {
        batch: 1,
        heads: 1,
        key_heads: 1,
        queries: length,
        keys: length,
        width,
        mask,
        scale: 0.6 / (width as f64).sqrt(),
        lie: HeadLayout::ByPlace,
    }
}

/// Tensors of query, key and value, and the memory in which they lie.
struct Three {
    memory: Vec<Pair>,
    views: [Pair; 3],
}

impl Case {
    /// Query, key and value, or their gradients: normal numbers by a seed, or all the same number.
    fn three(&self, both: &Both, dtype: DType, seed: Option<u64>) -> Three {
        let heads = [self.heads, self.key_heads, self.key_heads];
        let lengths = [self.queries, self.keys, self.keys];
        let make = |shape: [usize; 4], index: u64| match seed {
            Some(seed) => both.normal(shape, dtype, seed + index),
            None => both.full(shape, UNTOUCHED, dtype),
        };
        if self.lie == HeadLayout::Packed {
            let memory = make([self.batch, self.queries, heads.iter().sum(), self.width], 0);
            let first = [0, heads[0], heads[0] + heads[1]];
            let part = |index: usize| memory.map(|t| t.narrow(2, first[index], heads[index])?.transpose(1, 2));
            let views = [part(0), part(1), part(2)];
            return Three { memory: vec![memory], views };
        }
        let memory: Vec<Pair> = (0..3).map(|i| make(self.stored(heads[i], lengths[i]), i as u64)).collect();
        let views = std::array::from_fn(|i| memory[i].map(|t| self.seen(t)));
        Three { memory, views }
    }

    fn stored(&self, heads: usize, length: usize) -> [usize; 4] {
        match self.lie {
            HeadLayout::ByHead => [self.batch, heads, length, self.width],
            HeadLayout::ByPlace | HeadLayout::Packed => [self.batch, length, heads, self.width],
            HeadLayout::Within => [self.batch, length, heads, self.width + 3],
        }
    }

    fn seen(&self, stored: &Tensor) -> Result<Tensor> {
        match self.lie {
            HeadLayout::ByHead => stored.narrow(0, 0, self.batch),
            HeadLayout::ByPlace | HeadLayout::Packed => stored.transpose(1, 2),
            HeadLayout::Within => stored.narrow(3, 1, self.width)?.transpose(1, 2),
        }
    }

    /// The memory layout of the outputs.
    fn written(&self) -> Self {
        Self { lie: if self.lie == HeadLayout::ByHead { HeadLayout::ByPlace } else { self.lie }, ..*self }
    }

    /// A result of the query's shape, and one number for each of its rows.
    fn result(&self, both: &Both, dtype: DType) -> [Pair; 2] {
        let numbers = both.full([self.batch, self.queries, self.heads], UNTOUCHED, dtype.statistics());
        let result = both.full(self.written().stored(self.heads, self.queries), UNTOUCHED, dtype);
        [result, numbers]
    }

    /// Fails unless forward and backward give the same on the CUDA device and on the CPU.
    fn check(&self, both: &Both, dtype: DType) {
        for (name, pair) in self.computed(both, dtype) {
            assert_near(&format!("{name} of {self:?} in {dtype}"), &pair, dtype);
        }
    }

    /// The results of forward and backward on both devices, by name.
    fn computed(&self, both: &Both, dtype: DType) -> Vec<(&'static str, Pair)> {
        let size = AttentionSize { scale: self.scale, mask: self.mask };
        let inputs = self.three(both, dtype, Some(1));
        let [result, log_sums] = self.result(both, dtype);
        let [result_seen, log_sums_seen] =
            [result.map(|t| self.written().seen(t)), log_sums.map(|t| t.transpose(1, 2))];
        let grad = both.normal(self.stored(self.heads, self.queries), dtype, 7).map(|t| self.seen(t));
        let delta = both.full([self.batch, self.queries, self.heads], UNTOUCHED, dtype.statistics());
        let delta_seen = delta.map(|t| t.transpose(1, 2));
        let gradients = self.written().three(both, dtype, None);
        let on = |of: fn(&Pair) -> &Tensor| -> Result<()> {
            let of = |pair| view(of(pair));
            let seen = inputs.views.each_ref().map(of);
            backend::attention(of(&result_seen), of(&log_sums_seen), seen, size)?;
            backend::attention_delta(of(&delta_seen), of(&grad), of(&result_seen))?;
            let [query, key, value] = gradients.views.each_ref().map(of);
            let known = [of(&grad), of(&log_sums_seen), of(&delta_seen)];
            backend::attention_backward(query, [key, value], known, seen, size)
        };
        on(|pair| &pair.cpu).expect("the processor computes");
        on(|pair| &pair.cuda).expect("kernels start");
        let names = ["the gradient of the query", "the gradient of the key", "the gradient of the value"];
        let results = [("the result", result), ("logarithms of sums", log_sums), ("delta", delta)];
        results.into_iter().chain(names.into_iter().zip(gradients.memory)).collect()
    }
}

/// The value of memory that must not be written: computed values are smaller.
const UNTOUCHED: f64 = 1024.0;

/// Fails unless the numbers that were computed are nearly equal. 16-bit weights are rounded before they are multiplied,
/// so that single elements have no narrow bound: the root mean square of the differences is compared with that of the
/// elements, and each difference with both that and its element.
fn assert_near(what: &str, pair: &Pair, dtype: DType) {
    let (expected, found) = (pair.cpu.to_f64_vec().expect("numbers"), pair.cuda.to_f64_vec().expect("numbers"));
    assert_eq!(expected.len(), found.len(), "{what}");
    let rounding = match dtype {
        DType::F64 => 1e-13,
        DType::F32 => 5e-6,
        DType::F16 => 1.5e-3,
        _ => 1e-2,
    };
    let (mut error, mut scale, mut count) = (0.0, 0.0, 0.0);
    let mut numbers = Vec::new();
    for (place, (&expected, &found)) in expected.iter().zip(&found).enumerate() {
        if expected == UNTOUCHED {
            assert_eq!(found, UNTOUCHED, "{what}: element {place} is written and should not be");
            continue;
        }
        if expected.is_nan() || expected.is_infinite() {
            assert!(
                expected == found || expected.is_nan() && found.is_nan(),
                "{what}: element {place} is {found}, not {expected}"
            );
            continue;
        }
        error += (expected - found).powi(2);
        numbers.push((expected, found));
        scale += expected.powi(2);
        count += 1.0;
    }
    let (error, scale) = ((error / f64::max(count, 1.0)).sqrt(), (scale / f64::max(count, 1.0)).sqrt());
    // Gradients of a single key are differences of equal numbers: nothing but rounding, of numbers of about 1.
    let scale = scale.max(5e-2);
    assert!(error <= rounding * scale, "{what}: the error is {error:e} in numbers of about {scale:e}");
    for (expected, found) in numbers {
        let most = rounding * (20.0 * scale + 10.0 * expected.abs());
        assert!(
            (expected - found).abs() <= most,
            "{what}: {found:e} is not {expected:e}, where numbers are about {scale:e}"
        );
    }
}

const MASKS: [Mask; 2] = [Mask::None, Mask::Causal];

#[test]
fn attention_of_every_width_is_that_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for width in [1, 8, 31, 40, 64, 80, 128, 200] {
                for mask in MASKS {
                    square(37, width, mask).check(both, dtype);
                }
            }
        }
    });
}

#[test]
fn attention_of_every_length_is_that_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for (queries, keys) in [(1, 1), (2, 1), (1, 2), (17, 64), (64, 17), (65, 65), (130, 70), (3, 197)] {
                for mask in MASKS {
                    Case { queries, keys, ..square(1, 24, mask) }.check(both, dtype);
                }
            }
        }
    });
}

#[test]
fn attention_of_many_rows_has_large_tiles() {
    on_both(|both| {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for (mask, width) in [(Mask::None, 64), (Mask::Causal, 64), (Mask::Causal, 48)] {
                Case { batch: 2, heads: 2, key_heads: 2, ..square(197, width, mask) }.check(both, dtype);
            }
            if dtype != DType::F32 {
                Case { heads: 4, key_heads: 2, ..square(140, 128, Mask::Causal) }.check(both, dtype);
                Case { heads: 4, key_heads: 4, keys: 75, ..square(140, 100, Mask::None) }.check(both, dtype);
            }
        }
    });
}

/// The sum of the squares of all elements.
fn squares(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.map(|number| number * number).sum()
}

#[test]
fn single_precision_on_tensor_cores_errs_about_as_little_as_elsewhere() {
    on_both(|both| {
        for (width, mask) in [(64, Mask::None), (64, Mask::Causal), (96, Mask::Causal), (128, Mask::None)] {
            let case = Case { heads: 2, key_heads: 2, ..square(150, width, mask) };
            let exact = case.computed(both, DType::F64);
            for ((name, exact), (_, found)) in exact.iter().zip(case.computed(both, DType::F32)) {
                let (exact, found) =
                    (exact.cpu.to_f64_vec().expect("numbers"), found.cuda.to_f64_vec().expect("numbers"));
                let error = squares(exact.iter().zip(&found).map(|(exact, found)| exact - found));
                let relative = (error / squares(exact.iter().copied())).sqrt();
                assert!(relative < 1.5e-6, "{name} of {case:?} errs by {relative:e}");
            }
        }
    });
}

#[test]
fn long_sums_of_single_precision_are_not_cut_short() {
    on_both(|both| {
        let case = square(600, 64, Mask::None);
        let size = AttentionSize { scale: case.scale, mask: case.mask };
        let mean = |dtype: DType, of: fn(&Pair) -> &Tensor| {
            let inputs = case.three(both, dtype, Some(1)).views;
            let value = both.uniform(case.stored(1, case.keys), [1.0, 2.0], DType::F32, 5);
            let value = value.map(|t| case.seen(&t.to_dtype(dtype)?));
            let [result, log_sums] = case.result(both, dtype);
            let (seen, numbers) = (result.map(|t| case.seen(t)), log_sums.map(|t| t.transpose(1, 2)));
            let inputs = [&inputs[0], &inputs[1], &value].map(|pair| view(of(pair)));
            backend::attention(view(of(&seen)), view(of(&numbers)), inputs, size).expect("it computes");
            let numbers = of(&result).to_f64_vec().expect("numbers");
            numbers.iter().sum::<f64>() / numbers.len() as f64
        };
        let (exact, found) = (mean(DType::F64, |pair| &pair.cpu), mean(DType::F32, |pair| &pair.cuda));
        assert!((found / exact - 1.0).abs() < 5e-7, "the mean is {found} and should be {exact}");
    });
}

#[test]
fn what_is_infinite_stays_infinite_in_single_precision() {
    on_both(|both| {
        let case = square(40, 32, Mask::None);
        let size = AttentionSize { scale: 1.0, mask: case.mask };
        let make = |seed| both.uniform(case.stored(1, 40), [0.25, 1.0], DType::F32, seed).map(|t| case.seen(t));
        let inputs = [make(1), make(2), make(3)];
        // A key that nobody minds, and values that all get.
        let spoiled =
            [(1, 20, 0, 32, f64::NEG_INFINITY), (2, 3, 5, 1, f64::INFINITY), (2, 30, 9, 1, f64::NEG_INFINITY)];
        for (which, place, first, count, number) in spoiled {
            let part = inputs[which].map(|t| t.narrow(2, place, 1)?.narrow(3, first, count));
            for part in [&part.cpu, &part.cuda] {
                backend::fill(view(part), number).expect("it is filled");
            }
        }
        let [result, log_sums] = case.result(both, DType::F32);
        let (seen, numbers) = (result.map(|t| case.seen(t)), log_sums.map(|t| t.transpose(1, 2)));
        for of in [|pair: &Pair| pair.cpu.clone(), |pair: &Pair| pair.cuda.clone()] {
            let [seen, numbers, query, key, value] = [&seen, &numbers, &inputs[0], &inputs[1], &inputs[2]].map(of);
            let inputs = [&query, &key, &value].map(view);
            backend::attention(view(&seen), view(&numbers), inputs, size).expect("it computes");
        }
        let numbers = result.cuda.to_f64_vec().expect("numbers");
        let infinite = numbers.iter().filter(|number| number.is_infinite()).count();
        assert_eq!((infinite, numbers.iter().any(|number| number.is_nan())), (2 * 40, false));
        assert_near("the result", &result, DType::F32);
        assert_near("logarithms of sums", &log_sums, DType::F32);
    });
}

#[test]
fn blocks_with_little_shared_memory_have_lean_tiles() {
    // As GPUs of desktops have: 99 KiB a block.
    Setup::new().capability(8, 9).only_on_stand_in().run(|| {
        let both = Both::open();
        for dtype in FLOATS {
            for width in [100, 128, 200, 256] {
                if dtype != DType::F64 || width <= 128 {
                    square(37, width, Mask::Causal).check(&both, dtype);
                }
            }
        }
        let case = square(8, 200, Mask::None);
        let [result, log_sums] = case.result(&both, DType::F64).map(|pair| pair.cuda);
        let [query, key, value] = case.three(&both, DType::F64, Some(1)).views.map(|pair| pair.cuda);
        let size = AttentionSize { scale: case.scale, mask: case.mask };
        let result = case.seen(&result).expect("a view").clone();
        let log_sums = log_sums.transpose(1, 2).expect("a view");
        let refusal = backend::attention(view(&result), view(&log_sums), [&query, &key, &value].map(view), size);
        let refusal = refusal.expect_err("doubles take 132 KiB").to_string();
        assert!(refusal.contains("need more shared memory"), "{refusal}");
    });
}

#[test]
fn heads_of_keys_serve_several_heads_of_queries() {
    on_both(|both| {
        for dtype in FLOATS {
            for (heads, key_heads) in [(6, 3), (13, 1), (18, 2)] {
                for (mask, lie) in [
                    (Mask::Causal, HeadLayout::Packed),
                    (Mask::None, HeadLayout::ByPlace),
                    (Mask::Causal, HeadLayout::Within),
                ] {
                    Case { batch: 2, heads, key_heads, lie, ..square(21, 16, mask) }.check(both, dtype);
                }
            }
            // More keys than queries: parts of their gradients have no place to wait.
            Case { heads: 16, keys: 30, ..square(21, 16, Mask::None) }.check(both, dtype);
        }
    });
}

#[test]
fn rows_lie_in_any_order() {
    on_both(|both| {
        for dtype in FLOATS {
            for lie in [HeadLayout::ByHead, HeadLayout::ByPlace, HeadLayout::Packed, HeadLayout::Within] {
                for width in [5, 32, 72] {
                    Case { batch: 2, heads: 2, key_heads: 2, lie, ..square(19, width, Mask::Causal) }
                        .check(both, dtype);
                }
            }
        }
    });
}

#[test]
fn scores_have_any_scale() {
    on_both(|both| {
        for dtype in FLOATS {
            for scale in [-0.7, 0.0, 3.0] {
                for mask in MASKS {
                    Case { scale, ..square(70, 16, mask) }.check(both, dtype);
                }
            }
        }
    });
}

#[test]
fn nothing_is_attention_to_nothing() {
    on_both(|both| {
        for dtype in FLOATS {
            for mask in MASKS {
                for (batch, queries, keys) in [(0, 5, 5), (2, 0, 5), (2, 5, 0)] {
                    Case { batch, queries, keys, ..square(1, 16, mask) }.check(both, dtype);
                }
            }
        }
    });
}

#[test]
fn what_is_no_number_spoils_the_rows_that_see_it() {
    on_both(|both| {
        for dtype in FLOATS {
            let case = square(70, 16, Mask::Causal);
            let size = AttentionSize { scale: 1.0, mask: case.mask };
            let inputs = case.three(both, dtype, Some(1)).views;
            for (place, number) in [(40, f64::NAN), (60, f64::INFINITY)] {
                let spoil = inputs[1].map(|t| t.narrow(2, place, 1));
                for key in [&spoil.cpu, &spoil.cuda] {
                    backend::fill(view(key), number).expect("it is filled");
                }
            }
            let [result, log_sums] = case.result(both, dtype);
            let (seen, numbers) = (result.map(|t| case.seen(t)), log_sums.map(|t| t.transpose(1, 2)));
            let on = |of: fn(&Pair) -> &Tensor| {
                backend::attention(
                    view(of(&seen)),
                    view(of(&numbers)),
                    inputs.each_ref().map(|pair| view(of(pair))),
                    size,
                )
            };
            on(|pair| &pair.cpu).expect("the processor computes");
            on(|pair| &pair.cuda).expect("a kernel starts");
            assert_near("the result", &result, dtype);
            assert_near("logarithms of sums", &log_sums, dtype);
        }
    });
}

#[test]
fn gradients_are_differences_of_doubles() {
    on_both(|both| {
        let case = Case { heads: 2, ..square(6, 5, Mask::Causal) };
        let size = AttentionSize { scale: 0.9, mask: case.mask };
        let device = &both.cuda;
        let inputs = case.three(both, DType::F64, Some(3)).views.map(|pair| pair.cuda);
        let weights = both.normal([1, 2, 6, 5], DType::F64, 9);
        let loss = |inputs: [&Tensor; 3]| -> f64 {
            let out = Tensor::zeros([1, 2, 6, 5], DType::F64, device).expect("there is room");
            let log_sums = Tensor::zeros([1, 2, 6], DType::F64, device).expect("there is room");
            backend::attention(view(&out), view(&log_sums), inputs.map(view), size).expect("a kernel starts");
            let (out, weights) = (out.to_f64_vec().expect("numbers"), weights.cpu.to_f64_vec().expect("numbers"));
            out.iter().zip(weights).map(|(out, weight)| out * weight).sum()
        };
        let zeros = |tensor: &Tensor| Tensor::zeros(*tensor.shape(), DType::F64, device).expect("there is room");
        let (out, grads) = (zeros(&inputs[0]), inputs.each_ref().map(zeros));
        let [log_sums, delta] = [(); 2].map(|()| Tensor::zeros([1, 2, 6], DType::F64, device).expect("there is room"));
        let seen = inputs.each_ref().map(view);
        backend::attention(view(&out), view(&log_sums), seen, size).expect("a kernel starts");
        backend::attention_delta(view(&delta), view(&weights.cuda), view(&out)).expect("a kernel starts");
        let known = [view(&weights.cuda), view(&log_sums), view(&delta)];
        let [query, key, value] = grads.each_ref().map(view);
        backend::attention_backward(query, [key, value], known, seen, size).expect("kernels start");
        const STEP: f64 = 1e-5;
        for (which, grad) in grads.iter().enumerate() {
            let numbers = inputs[which].to_f64_vec().expect("numbers");
            for (place, slope) in grad.to_f64_vec().expect("numbers").into_iter().enumerate() {
                let moved = |by: f64| {
                    let mut numbers = numbers.clone();
                    numbers[place] += by;
                    let moved = Tensor::from_slice(&numbers, *inputs[which].shape(), device).expect("it fits");
                    loss(std::array::from_fn(|index| if index == which { &moved } else { &inputs[index] }))
                };
                let measured = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                assert!((measured - slope).abs() < 1e-8, "input {which}, place {place}: {slope} and {measured}");
            }
        }
    });
}
