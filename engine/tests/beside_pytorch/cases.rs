//! Reads the cases computed by PyTorch, as written by `testdata/pytorch/ops/make.py`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use half::{bf16, f16};
use highwater_engine::dtype::Truth;
use highwater_engine::ops::{AttentionOptions, ConvOptions, ConvTransposeOptions, Mask, PoolOptions};
use highwater_engine::{DType, Device, Shape, Tensor};
use serde_json::Value;

/// One operation on some inputs.
pub(crate) struct Case {
    pub(crate) op: String,
    pub(crate) args: Args,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outcomes: Vec<Outcome>,
}

/// What a case gives an operation beside tensors.
pub(crate) struct Args(Value);

pub(crate) struct Input {
    pub(crate) numbers: Numbers,
    /// None for fractions, which take the type at hand.
    dtype: Option<DType>,
    pub(crate) wants_grad: bool,
}

/// Result and gradients in one type.
pub(crate) struct Outcome {
    pub(crate) dtype: DType,
    pub(crate) result: Numbers,
    /// Of the inputs that want one. None where PyTorch has no gradient either.
    pub(crate) grads: Vec<Option<Numbers>>,
}

pub(crate) struct Numbers {
    pub(crate) shape: Shape,
    pub(crate) values: Vec<f64>,
}

/// Every case of a file.
pub(crate) fn read(file: &str) -> Vec<Case> {
    let file: Value = serde_json::from_str(file).expect("make.py writes JSON");
    file["cases"].as_array().expect("a list of cases").iter().map(Case::read).collect()
}

impl Case {
    fn read(case: &Value) -> Self {
        let inputs: Vec<Input> = case["inputs"].as_array().expect("a list of inputs").iter().map(Input::read).collect();
        let shapes: Vec<Shape> =
            inputs.iter().filter(|input| input.wants_grad).map(|input| input.numbers.shape).collect();
        let results = case["results"].as_object().expect("results by type");
        Self {
            op: text(&case["op"]).to_owned(),
            args: Args(case["args"].clone()),
            outcomes: results.iter().map(|(name, outcome)| Outcome::read(name, outcome, &shapes)).collect(),
            inputs,
        }
    }

    /// The outcome in `dtype`, if PyTorch computed that.
    pub(crate) fn outcome(&self, dtype: DType) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.dtype == dtype)
    }
}

impl Input {
    fn read(input: &Value) -> Self {
        let dtype = input["dtype"].as_str().map(|name| DType::from_name(name).expect("a type"));
        let numbers = Numbers::read(&shape(&input["shape"]), &input["values"], dtype.unwrap_or(DType::Bf16));
        Self { numbers, dtype, wants_grad: dtype.is_none() && input["fixed"].is_null() }
    }

    /// The numbers; fractions in type `dtype`.
    pub(crate) fn tensor(&self, dtype: DType, device: &Device) -> Tensor {
        self.numbers.tensor(self.dtype.unwrap_or(dtype), device)
    }
}

impl Outcome {
    fn read(name: &str, outcome: &Value, inputs: &[Shape]) -> Self {
        let dtype = DType::from_name(name).expect("a type");
        let grads = outcome["grads"].as_array().expect("a list of gradients");
        assert_eq!(grads.len(), inputs.len(), "one gradient for each input that wants one");
        let grads = inputs.iter().zip(grads).map(|(shape, grad)| Numbers::read_if_there(shape, grad, dtype)).collect();
        Self { dtype, result: Numbers::read(&shape(&outcome["shape"]), &outcome["result"], dtype), grads }
    }
}

impl Numbers {
    fn read_if_there(shape: &Shape, values: &Value, dtype: DType) -> Option<Self> {
        (!values.is_null()).then(|| Self::read(shape, values, dtype))
    }

    fn read(shape: &Shape, values: &Value, dtype: DType) -> Self {
        let bytes = BASE64_STANDARD.decode(text(values)).expect("numbers are base64");
        let count = shape.elements();
        // Doubles that lose nothing by it are written as singles or bf16.
        let dtype = match (dtype, bytes.len().checked_div(count)) {
            (DType::F64, Some(4)) => DType::F32,
            (DType::F64, Some(2)) => DType::Bf16,
            _ => dtype,
        };
        assert_eq!(bytes.len(), count * dtype.size(), "bytes for every number");
        let values = match dtype {
            DType::F64 => numbers(&bytes, f64::from_le_bytes),
            DType::F32 => numbers(&bytes, |bytes| f64::from(f32::from_le_bytes(bytes))),
            DType::Bf16 => numbers(&bytes, |bytes| f64::from(bf16::from_le_bytes(bytes))),
            DType::F16 => numbers(&bytes, |bytes| f64::from(f16::from_le_bytes(bytes))),
            DType::I64 => numbers(&bytes, |bytes| i64::from_le_bytes(bytes) as f64),
            DType::U8 | DType::Bool => numbers(&bytes, |[byte]| f64::from(byte)),
        };
        Self { shape: *shape, values }
    }

    /// The gradient that make.py gives to every result of this shape.
    pub(crate) fn seed(shape: &Shape) -> Self {
        let number = |i: u64| ((i.wrapping_mul(2_654_435_761) % (1 << 32)) >> 24) as f64 / 128.0 - 1.0;
        Self { shape: *shape, values: (0..shape.elements() as u64).map(number).collect() }
    }

    /// The largest of them that is finite, and 1 at most.
    pub(crate) fn size(&self) -> f64 {
        self.values.iter().map(|value| value.abs()).filter(|value| value.is_finite()).fold(0.0, f64::max).min(1.0)
    }

    pub(crate) fn tensor(&self, dtype: DType, device: &Device) -> Tensor {
        let made = match dtype {
            DType::I64 => {
                let whole: Vec<i64> = self.values.iter().map(|&value| value as i64).collect();
                Tensor::from_slice(&whole, self.shape, device)
            }
            DType::Bool => {
                let truths: Vec<Truth> = self.values.iter().map(|&value| Truth::from(value != 0.0)).collect();
                Tensor::from_slice(&truths, self.shape, device)
            }
            _ => Tensor::from_slice(&self.values, self.shape, device).and_then(|tensor| tensor.to_dtype(dtype)),
        };
        made.expect("there is memory")
    }

    /// Says where `found` is not near `times` these numbers: further off than `tolerance` times the number at hand, and
    /// `tolerance` times `size`, for where larger numbers cancelled.
    pub(crate) fn compare(&self, found: &Tensor, times: f64, tolerance: f64, size: f64) -> Result<(), String> {
        if found.shape() != &self.shape {
            return Err(format!("shape {} in place of {}", found.shape(), self.shape));
        }
        let found = found.to_f64_vec().map_err(|why| why.to_string())?;
        for (place, (&found, &expected)) in found.iter().zip(&self.values).enumerate() {
            let expected = times * expected;
            let near = (found - expected).abs() <= tolerance * (expected.abs() + times * size);
            if !(near || found == expected || found.is_nan() && expected.is_nan()) {
                return Err(format!("element {place} is {found:e} in place of {expected:e}"));
            }
        }
        Ok(())
    }
}

impl Args {
    pub(crate) fn axis(&self, name: &str) -> isize {
        isize::try_from(self.0[name].as_i64().unwrap_or_else(|| panic!("{name} is a whole number"))).expect("an axis")
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        usize::try_from(self.axis(name)).expect("a count")
    }

    pub(crate) fn axes(&self, name: &str) -> Vec<isize> {
        let list = self.0[name].as_array().unwrap_or_else(|| panic!("{name} is a list"));
        list.iter().map(|number| number.as_i64().expect("a whole number") as isize).collect()
    }

    /// Counts, two by two.
    pub(crate) fn pairs(&self, name: &str) -> Vec<[usize; 2]> {
        let counts: Vec<usize> = self.axes(name).into_iter().map(|count| count.try_into().expect("a count")).collect();
        counts.as_chunks().0.to_vec()
    }

    pub(crate) fn shape(&self, name: &str) -> Shape {
        shape(&self.0[name])
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or_else(|| panic!("{name} is a number"))
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or_else(|| panic!("{name} is true or false"))
    }

    pub(crate) fn dtype(&self, name: &str) -> DType {
        DType::from_name(text(&self.0[name])).expect("a type")
    }

    /// The class whose rows do not count, if any.
    pub(crate) fn ignored(&self) -> Option<i64> {
        self.0["ignored"].as_i64()
    }

    pub(crate) fn attention(&self) -> AttentionOptions {
        let mask = if self.flag("causal") { Mask::Causal } else { Mask::None };
        AttentionOptions { mask, scale: self.0["scale"].as_f64() }
    }

    fn two(&self, name: &str) -> [usize; 2] {
        [0, 1].map(|axis| self.shape(name)[axis])
    }

    pub(crate) fn convolution(&self) -> ConvOptions {
        let (stride, padding) = (self.two("stride"), self.two("padding"));
        match self.0["groups"].is_null() {
            true => ConvOptions { stride, padding, ..ConvOptions::default() },
            false => ConvOptions { stride, padding, dilation: self.two("dilation"), groups: self.count("groups") },
        }
    }

    pub(crate) fn transposed_convolution(&self) -> ConvTransposeOptions {
        let (stride, padding) = (self.two("stride"), self.two("padding"));
        let plain = ConvTransposeOptions {
            stride,
            padding,
            output_padding: self.two("output_padding"),
            ..ConvTransposeOptions::default()
        };
        match self.0["groups"].is_null() {
            true => plain,
            false => ConvTransposeOptions { dilation: self.two("dilation"), groups: self.count("groups"), ..plain },
        }
    }

    pub(crate) fn pool(&self) -> PoolOptions {
        let (kernel, stride, padding) = (self.two("kernel"), self.two("stride"), self.two("padding"));
        PoolOptions { kernel, stride, padding, ceil: self.flag("ceil") }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn shape(lengths: &Value) -> Shape {
    let lengths = lengths.as_array().expect("a list of lengths");
    let lengths: Vec<usize> = lengths.iter().map(|length| length.as_u64().expect("a length") as usize).collect();
    Shape::from_slice(&lengths).expect("few axes")
}

fn numbers<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    bytes.chunks_exact(N).map(|bytes| number(bytes.try_into().expect("chunks of that length"))).collect()
}
