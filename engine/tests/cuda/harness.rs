//! Test helpers that create equal tensors on the CPU device and a CUDA device and compare the results.

use highwater_engine::backend::View;
use highwater_engine::{DType, Device, Result, Rng, Shape, Tensor};
use highwater_stand_in::Setup;

/// The dtypes in which primitives compute.
pub(crate) const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::Bf16, DType::F16];

/// Runs `body` with the cpu device and a CUDA device.
pub(crate) fn on_both(body: impl FnOnce(&Both)) {
    Setup::new().run(|| body(&Both::open()));
}

/// The two devices.
pub(crate) struct Both {
    pub(crate) cpu: Device,
    pub(crate) cuda: Device,
}

impl Both {
    /// Opens both, in a process that finds the CUDA device.
    pub(crate) fn open() -> Self {
        Self { cpu: Device::cpu(), cuda: Device::cuda(0).expect("there is a CUDA device") }
    }
}

/// The same tensor on both devices.
pub(crate) struct Pair {
    pub(crate) cpu: Tensor,
    pub(crate) cuda: Tensor,
}

impl Both {
    /// `tensor`, of the CPU device, on both devices, contiguous.
    pub(crate) fn pair(&self, tensor: Tensor) -> Pair {
        let cuda = tensor.to_device(&self.cuda).expect("there is room");
        Pair { cpu: tensor, cuda }
    }

    /// Normal numbers, the same for the same seed.
    pub(crate) fn normal(&self, shape: impl Into<Shape>, dtype: DType, seed: u64) -> Pair {
        let tensor = Tensor::randn(shape, DType::F32, &self.cpu, &mut Rng::new(seed)).expect("there is room");
        self.pair(tensor.to_dtype(dtype).expect("numbers become numbers"))
    }

    /// Numbers from `low` up to but not including `high`, the same for the same seed.
    pub(crate) fn uniform(&self, shape: impl Into<Shape>, range: [f64; 2], dtype: DType, seed: u64) -> Pair {
        let tensor = Tensor::uniform(shape, range, DType::F32, &self.cpu, &mut Rng::new(seed)).expect("there is room");
        self.pair(tensor.to_dtype(dtype).expect("numbers become numbers"))
    }

    /// Whole numbers from `low` up to but not including `high`, as fractions: whatever the order in which few of them
    /// are added, nothing is rounded.
    pub(crate) fn whole(&self, shape: impl Into<Shape>, range: [f64; 2], dtype: DType, seed: u64) -> Pair {
        let tensor = Tensor::uniform(shape, range, DType::F64, &self.cpu, &mut Rng::new(seed)).expect("there is room");
        let whole: Vec<f64> = numbers(&tensor).into_iter().map(f64::floor).collect();
        let tensor = Tensor::from_slice(&whole, *tensor.shape(), &self.cpu).expect("they fill the shape");
        self.pair(tensor.to_dtype(dtype).expect("numbers become numbers"))
    }

    /// Matrices of this shape in every memory layout, each with the layout's name.
    pub(crate) fn layouts(
        &self,
        [rows, columns]: [usize; 2],
        make: impl Fn(&Self, Shape) -> Pair,
    ) -> Vec<(&'static str, Pair)> {
        let of = |shape: &[usize]| make(self, Shape::from_slice(shape).expect("few axes"));
        vec![
            ("in order", of(&[rows, columns])),
            (
                "from an odd place on",
                of(&[rows * columns + 1]).map(|t| t.narrow(0, 1, rows * columns)?.reshape([rows, columns])),
            ),
            ("transposed", of(&[columns, rows]).map(|t| t.transpose(0, 1))),
            ("narrowed to some columns", of(&[rows, columns + 16]).map(|t| t.narrow(1, 8, columns))),
            ("every third column", of(&[rows, columns, 3]).map(|t| t.select(2, 1))),
            ("one row repeated", of(&[columns]).map(|t| t.expand([rows, columns]))),
            ("one column repeated", of(&[rows, 1]).map(|t| t.expand([rows, columns]))),
            ("one number repeated", of(&[1, 1]).map(|t| t.expand([rows, columns]))),
        ]
    }

    /// The given integers.
    pub(crate) fn indices(&self, shape: impl Into<Shape>, numbers: &[i64]) -> Pair {
        self.pair(Tensor::from_slice(numbers, shape, &self.cpu).expect("they fill the shape"))
    }

    /// Memory full of `value` on both devices: elements that a kernel does not write stay equal.
    pub(crate) fn full(&self, shape: impl Into<Shape>, value: f64, dtype: DType) -> Pair {
        self.pair(Tensor::full(shape, value, dtype, &self.cpu).expect("there is room"))
    }
}

impl Pair {
    /// The same view of both.
    pub(crate) fn map(&self, view: impl Fn(&Tensor) -> Result<Tensor>) -> Self {
        Self { cpu: view(&self.cpu).expect("a view"), cuda: view(&self.cuda).expect("a view") }
    }

    /// Fails unless both are equal but for rounding: `relative` to the number's size, or `absolute`, for single
    /// precision; narrower types round more, doubles less.
    pub(crate) fn assert_close(&self, what: &str, relative: f64, absolute: f64) {
        let (expected, found) = (numbers(&self.cpu), numbers(&self.cuda));
        assert_eq!(expected.len(), found.len(), "{what}");
        let rounding = match self.cpu.dtype() {
            DType::F64 => 1e-9,
            DType::Bf16 => 65536.0,
            DType::F16 => 8192.0,
            _ => 1.0,
        };
        for (place, (&expected, &found)) in expected.iter().zip(&found).enumerate() {
            let is_same = expected == found || expected.is_nan() && found.is_nan();
            let most = (expected.abs() * relative * rounding).max(absolute * rounding);
            assert!(
                is_same || (expected - found).abs() <= most,
                "{what}, {}: element {place} is {found:e} and should be {expected:e}",
                self.cpu.dtype(),
            );
        }
    }

    /// Fails unless both are equal but for how they round: once to their type, in which neighbours may be hit, and
    /// while they are computed by `roundings` roundings of the largest number, in the precision of the type's
    /// arithmetic.
    pub(crate) fn assert_near(&self, what: &str, roundings: f64) {
        let dtype = self.cpu.dtype();
        let (expected, found) = (numbers(&self.cpu), numbers(&self.cuda));
        assert_eq!(expected.len(), found.len(), "{what}");
        let largest = expected.iter().map(|number| number.abs()).filter(|size| size.is_finite()).fold(0.0, f64::max);
        let computed = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        // Between neighbours, relative to the number, and at least, where numbers are so small that they lose digits.
        let (stored, least) = match dtype {
            DType::Bf16 => (f64::exp2(-7.0), 0.0),
            DType::F16 => (f64::exp2(-10.0), f64::exp2(-24.0)),
            _ => (0.0, 0.0),
        };
        for (place, (&expected, &found)) in expected.iter().zip(&found).enumerate() {
            let is_same = expected == found || expected.is_nan() && found.is_nan();
            let most = (expected.abs() * stored).max(least) + largest * roundings * computed;
            assert!(
                is_same || (expected - found).abs() <= most,
                "{what}, {dtype}: element {place} is {found:e} and should be {expected:e}, not {most:e} away"
            );
        }
    }

    /// Fails unless both are equal bit by bit; all NaNs count as equal.
    pub(crate) fn assert_equal(&self, what: &str) {
        self.assert_close(what, 0.0, 0.0);
    }
}

/// Runs a primitive on both devices; `on` selects a pair's tensor on the current one.
pub(crate) fn compute(primitive: impl Fn(fn(&Pair) -> &Tensor) -> Result<()>) {
    primitive(|pair| &pair.cpu).expect("the processor computes");
    primitive(|pair| &pair.cuda).expect("a kernel starts");
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_f64_vec().expect("the numbers can be read")
}

impl Both {
    /// Runs `body` on the CUDA device's default stream, and on another, where kernels have no workspace.
    pub(crate) fn with_and_without_workspace(&self, body: impl Fn()) {
        body();
        let stream = self.cuda.new_stream().expect("there is one more");
        stream.wait_for(&self.cuda.default_stream()).expect("it waits");
        let entered = stream.enter();
        body();
        drop(entered);
        self.cuda.default_stream().wait_for(&stream).expect("it waits");
    }
}

/// Calls a primitive on the CPU device and on the CUDA device: `call` accesses each one's tensor of a pair.
pub(crate) fn run(call: impl Fn(fn(&Pair) -> View<'_>) -> Result<()>) {
    call(|pair| view(&pair.cpu)).expect("the processor computes");
    call(|pair| view(&pair.cuda)).expect("a kernel starts");
}

/// A tensor as primitives take it.
pub(crate) fn view(tensor: &Tensor) -> View<'_> {
    View { storage: tensor.storage(), layout: tensor.layout(), dtype: tensor.dtype() }
}
