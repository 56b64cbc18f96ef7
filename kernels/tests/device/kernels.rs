//! Tests the results of kernels, and the errors for kernels that cannot be compiled, found or run.

use bytemuck::Pod;
use half::{bf16, f16};
use highwater_kernels::number::Number;
use highwater_kernels::{Arguments, Error, Gpu, Grid, Kernel, Types};
use highwater_stand_in::Setup;

use crate::block::{Block, gpu, launch, one_line};

/// A type of elements as the host has it.
trait Element: Pod {
    const NUMBER: Number;
    /// How far from the right number a kernel's may be, of its size.
    const ROUNDING: f64;
    fn of(number: f64) -> Self;
    fn number(self) -> f64;
}

macro_rules! element {
    ($type:ty, $number:ident, $rounding:expr, $of:expr, $to:expr) => {
        impl Element for $type {
            const NUMBER: Number = Number::$number;
            const ROUNDING: f64 = $rounding;
            fn of(number: f64) -> Self {
                $of(number)
            }
            fn number(self) -> f64 {
                $to(self)
            }
        }
    };
}

element!(f64, F64, 1e-14, |x| x, |x| x);
element!(f32, F32, 2e-6, |x| x as Self, f64::from);
element!(bf16, Bf16, 4e-3, Self::from_f64, Self::to_f64);
element!(f16, F16, 1e-3, Self::from_f64, Self::to_f64);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu_inner(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

/// A kernel's name, and the function of one number that it is, with its own two.
type Unary = (&'static str, fn(f64, [f64; 2]) -> f64);

const UNARY: [Unary; 11] = [
    ("unary_affine", |x, [a, b]| a * x + b),
    ("unary_exp", |x, _| x.exp()),
    ("unary_log", |x, _| x.ln()),
    ("unary_sqrt", |x, _| x.sqrt()),
    ("unary_square", |x, _| x * x),
    ("unary_tanh", |x, _| x.tanh()),
    ("unary_sin", |x, _| x.sin()),
    ("unary_cos", |x, _| x.cos()),
    ("unary_sigmoid", |x, _| sigmoid(x)),
    ("unary_silu", |x, _| x * sigmoid(x)),
    ("unary_gelu_tanh", |x, _| x * 0.5 * (1.0 + gelu_inner(x).tanh())),
];

/// As above, of two numbers.
type Binary = (&'static str, fn(f64, f64, f64) -> f64);

const BINARY: [Binary; 8] = [
    ("binary_add", |l, r, _| l + r),
    ("binary_sub", |l, r, _| l - r),
    ("binary_mul", |l, r, _| l * r),
    ("binary_div", |l, r, _| l / r),
    ("binary_add_scaled", |l, r, a| l + a * r),
    ("binary_lerp", |l, r, a| l + a * (r - l)),
    ("binary_tanh_grad", |l, r, _| l * (1.0 - r * r)),
    ("binary_relu_grad", |l, r, _| if r <= 0.0 { 0.0 } else { l }),
];

fn elements<E: Element>(count: usize, first: f64) -> Vec<E> {
    (0..count).map(|i| E::of(first + (i * 37 % 101) as f64 / 50.0)).collect()
}

fn assert_near<E: Element>(found: &[E], expected: impl Iterator<Item = f64>, what: &str) {
    for (i, (&found, expected)) in found.iter().zip(expected).enumerate() {
        let away = (found.number() - expected).abs();
        let most = E::ROUNDING * expected.abs().max(0.1);
        assert!(away <= most, "{what} of {}: {} at {i}, not {expected}", E::NUMBER.name(), found.number());
    }
}

/// Every function, over so many elements that blocks go round, and such that rows of 16 bytes do not fill them.
fn functions_of<E: Element>(gpu: &std::sync::Arc<Gpu>) {
    let types = Types::of(E::NUMBER);
    for count in [0_usize, 1, 7, 5003] {
        let (left, right) = (elements::<E>(count, 0.3), elements::<E>(count + 5, 0.7));
        let (from, other) = (Block::of(gpu, &left), Block::of(gpu, &right[5..]));
        let out = Block::of(gpu, &vec![E::of(0.0); count + 1]);
        let grid = Grid::row(u32::from(count > 0) * 3);
        for (name, function) in UNARY {
            let arguments = Arguments::new().with(out.address).with(from.address);
            let arguments = arguments.with_words(&one_line(2, count as u64)).with(0.5_f64).with(-0.25_f64);
            launch(gpu, Kernel::new("elementwise", name, types), grid, 0, &arguments).expect(name);
            let found = out.read::<E>(count + 1, 0);
            assert_near(&found, left.iter().map(|x| function(x.number(), [0.5, -0.25])), name);
            assert_eq!(found[count].number(), 0.0, "{name} leaves alone what follows");
        }
        for (name, function) in BINARY {
            let arguments = Arguments::new().with(out.address).with(from.address).with(other.address);
            let arguments = arguments.with_words(&one_line(3, count as u64)).with(0.5_f64);
            launch(gpu, Kernel::new("elementwise", name, types), grid, 0, &arguments).expect(name);
            let expected = left.iter().zip(&right[5..]).map(|(l, r)| function(l.number(), r.number(), 0.5));
            assert_near(&out.read::<E>(count, 0), expected, name);
        }
    }
}

#[test]
fn functions_of_doubles_are_those_of_loops() {
    Setup::new().run(|| functions_of::<f64>(&gpu()));
}

#[test]
fn functions_of_singles_are_those_of_loops() {
    Setup::new().run(|| functions_of::<f32>(&gpu()));
}

#[test]
fn functions_of_bf16_are_those_of_loops() {
    Setup::new().run(|| functions_of::<bf16>(&gpu()));
}

#[test]
fn functions_of_halves_are_those_of_loops() {
    Setup::new().run(|| functions_of::<f16>(&gpu()));
}

#[test]
fn a_kernel_that_does_not_compile_fails_with_the_compilers_words() {
    Setup::new().run(|| {
        let gpu = gpu();
        let kernel = Kernel::new("elementwise", "unary_exp", Types::of(Number::I64));
        let error = launch(&gpu, kernel, Grid::row(1), 0, &Arguments::new()).expect_err("whole numbers have none");
        assert!(matches!(error, Error::Compile { .. }), "{error}");
        let words = error.to_string();
        assert!(words.contains("elementwise.cu for T = i64") && words.contains("error: "), "{words}");
    });
}

#[test]
fn a_kernel_that_is_not_there_is_named() {
    Setup::new().run(|| {
        let gpu = gpu();
        let types = Types::of(Number::F32);
        let error = launch(&gpu, Kernel::new("fill", "flood", types), Grid::row(1), 0, &Arguments::new());
        let words = error.expect_err("there is none").to_string();
        assert!(words.contains("looking for flood in fill.cu") && words.contains("CUDA_ERROR_NOT_FOUND"), "{words}");
        let error = launch(&gpu, Kernel::new("flood", "fill", types), Grid::row(1), 0, &Arguments::new());
        assert!(error.expect_err("there is none").to_string().contains("no such file"));
    });
}

#[test]
fn arguments_that_are_not_the_kernels_own_are_refused() {
    Setup::new().only_on_stand_in().run(|| {
        let gpu = gpu();
        let block = Block::new(&gpu, 4096).expect("there is room");
        let kernel = Kernel::new("fill", "fill", Types::of(Number::F64));
        let words = |arguments: Arguments| {
            launch(&gpu, kernel, Grid::row(1), 0, &arguments).expect_err("they are wrong").to_string()
        };
        let line = one_line(1, 8);
        let most = || Arguments::new().with(block.address).with_words(&line);
        assert!(words(most()).contains("takes 3 arguments and is given 2"));
        assert!(words(most().with(1.0_f64).with(2.0_f64)).contains("takes 3 arguments and is given more"));
        let narrow = Arguments::new().with(block.address).with_words(&line[1..]).with(1.0_f64);
        assert!(words(narrow).contains("argument 2 lies at byte 152; its parameters' types put it at 160"));
    });
}

#[test]
fn a_kernel_that_strays_fails_and_so_does_all_that_follows() {
    for setup in [Setup::new(), Setup::new().lazy()] {
        setup.only_on_stand_in().run(|| {
            let gpu = gpu();
            let block = Block::new(&gpu, 4096).expect("there is room");
            let arguments = Arguments::new().with(block.address).with_words(&one_line(1, 4096)).with(1.0_f64);
            let kernel = Kernel::new("fill", "fill", Types::of(Number::F64));
            let launched = launch(&gpu, kernel, Grid::row(2), 0, &arguments);
            let error = launched.and_then(|()| gpu.synchronize(0)).expect_err("it writes past its block").to_string();
            assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS: fill reads or writes at 0x"), "{error}");
            let next = gpu.synchronize(0).expect_err("the context is of no use any more").to_string();
            assert!(next.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{next}");
            std::mem::forget(block);
        });
    }
}
