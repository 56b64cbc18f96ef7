//! The kernel sources, and the units in which they are compiled.

use crate::number::Number;

/// A kernel source file.
#[derive(Debug)]
pub struct File {
    /// The name without the extension.
    pub name: &'static str,
    /// The CUDA C++ source text.
    pub text: &'static str,
    /// The dtypes for which the file is compiled, as pairs of `T` and `U`.
    pub types: &'static [Types],
}

/// The dtypes of `T` and `U` in a kernel source file. In files that do not use `U`, it equals `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Types {
    /// The dtype of `T`.
    pub t: Number,
    /// The dtype of `U`.
    pub u: Number,
}

impl Types {
    /// Returns `T`, with `U` equal to it.
    pub const fn of(t: Number) -> Self {
        Self { t, u: t }
    }

    /// Returns the given `T` and `U`.
    pub const fn pair(t: Number, u: Number) -> Self {
        Self { t, u }
    }
}

/// A compilation unit, which is a file with its dtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// The name of the source file without the extension.
    pub file: &'static str,
    /// The dtypes for which the kernel is compiled.
    pub types: Types,
}

/// The headers that kernel source files include, by name.
pub const HEADERS: &[(&str, &str)] = &[
    ("number.cuh", include_str!("../cuda/number.cuh")),
    ("maths.cuh", include_str!("../cuda/maths.cuh")),
    ("functions.cuh", include_str!("../cuda/functions.cuh")),
    ("nest.cuh", include_str!("../cuda/nest.cuh")),
    ("rows.cuh", include_str!("../cuda/rows.cuh")),
    ("columns.cuh", include_str!("../cuda/columns.cuh")),
    ("exponents.cuh", include_str!("../cuda/exponents.cuh")),
    ("lines.cuh", include_str!("../cuda/lines.cuh")),
    ("multi_tensor.cuh", include_str!("../cuda/multi_tensor.cuh")),
    ("philox.cuh", include_str!("../cuda/philox.cuh")),
    ("steps.cuh", include_str!("../cuda/steps.cuh")),
    ("parts.cuh", include_str!("../cuda/parts.cuh")),
    ("block.cuh", include_str!("../cuda/block.cuh")),
    ("prefix.cuh", include_str!("../cuda/prefix.cuh")),
    ("buckets.cuh", include_str!("../cuda/buckets.cuh")),
    ("window.cuh", include_str!("../cuda/window.cuh")),
    ("copies.cuh", include_str!("../cuda/copies.cuh")),
    ("tensor_cores.cuh", include_str!("../cuda/tensor_cores.cuh")),
    ("attention.cuh", include_str!("../cuda/attention.cuh")),
    ("attention_threads.cuh", include_str!("../cuda/attention_threads.cuh")),
    ("split_numbers.cuh", include_str!("../cuda/split_numbers.cuh")),
    ("attention_split.cuh", include_str!("../cuda/attention_split.cuh")),
    ("attention_tensor_cores.cuh", include_str!("../cuda/attention_tensor_cores.cuh")),
    ("attention_forward.cuh", include_str!("../cuda/attention_forward.cuh")),
    ("attention_backward.cuh", include_str!("../cuda/attention_backward.cuh")),
    ("attention_plans.cuh", include_str!("../cuda/attention_plans.cuh")),
];

macro_rules! files {
    ($($name:literal for $types:expr;)+) => {
        &[$(File { name: $name, text: include_str!(concat!("../cuda/", $name, ".cu")), types: $types },)+]
    };
}

/// All kernel source files.
pub const FILES: &[File] = files! {
    "batch_norm" for FLOATS;
    "chunked_loss" for FLOATS;
    "clip" for FLOATS;
    "elementwise" for FLOATS;
    "extremes" for FLOATS;
    "index" for FLOATS;
    "loss" for FLOATS;
    "norm" for FLOATS;
    "pick" for ALL;
    "pool" for FLOATS;
    "reduce" for FLOATS;
    "scan" for FLOATS;
    "softmax" for FLOATS;
    "fill" for SIZES;
    "multi_tensor" for FLOATS;
    "clip_each" for FLOATS;
    "cast" for ALL;
    "random" for FLOATS;
    "arange" for NUMBERS;
    "channel_dropout" for FLOATS;
    "compare" for ALL;
    "where_cond" for SIZES;
    "piecewise" for FLOATS;
    "power" for FLOATS;
    "frequencies" for FLOATS;
    "swiglu" for FLOATS;
    "rotary" for FLOATS;
    "optim" for STEPPED;
    "optim_8bit" for STEPPED;
    "squared_error" for FLOATS;
    "unfold" for FLOATS;
    "variance" for FLOATS;
    "attention_32" for FLOATS;
    "attention_64" for FLOATS;
    "attention_64_large" for SINGLES_AND_HALVES;
    "attention_96" for FLOATS;
    "attention_128" for FLOATS;
    "attention_128_large" for HALVES;
    "attention_128_lean" for SINGLES;
    "attention_256" for FLOATS;
    "attention_sums" for FLOATS;
};

const FLOATS: &[Types] =
    &[Types::of(Number::F64), Types::of(Number::F32), Types::of(Number::Bf16), Types::of(Number::F16)];

/// Floating-point and integer dtypes for arithmetic.
const NUMBERS: &[Types] = &[
    Types::of(Number::F64),
    Types::of(Number::F32),
    Types::of(Number::Bf16),
    Types::of(Number::F16),
    Types::of(Number::I64),
];

/// The dtypes of a parameter and of its gradient.
const STEPPED: &[Types] = &[
    Types::of(Number::F64),
    Types::of(Number::F32),
    Types::of(Number::Bf16),
    Types::of(Number::F16),
    Types::pair(Number::F32, Number::Bf16),
    Types::pair(Number::F32, Number::F16),
];

/// One dtype for each element size, for kernels that only move elements.
const SIZES: &[Types] =
    &[Types::of(Number::F64), Types::of(Number::F32), Types::of(Number::Bf16), Types::of(Number::U8)];
const SINGLES_AND_HALVES: &[Types] = &[Types::of(Number::F32), Types::of(Number::Bf16), Types::of(Number::F16)];

const SINGLES: &[Types] = &[Types::of(Number::F32)];

const HALVES: &[Types] = &[Types::of(Number::Bf16), Types::of(Number::F16)];

const ALL: &[Types] = &[
    Types::of(Number::F64),
    Types::of(Number::F32),
    Types::of(Number::Bf16),
    Types::of(Number::F16),
    Types::of(Number::I64),
    Types::of(Number::U8),
    Types::of(Number::Bool),
];

/// Returns the file with this name.
pub fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

/// Returns all compilation units.
pub fn units() -> impl Iterator<Item = Unit> {
    FILES.iter().flat_map(|file| file.types.iter().map(|&types| Unit { file: file.name, types }))
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Types { t, u } = self.types;
        write!(f, "{}.cu for T = {}, U = {}", self.file, t.name(), u.name())
    }
}
