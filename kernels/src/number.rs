//! The dtypes for which kernels are compiled.

/// A dtype of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// IEEE double precision.
    F64,
    /// IEEE single precision.
    F32,
    /// bfloat16, the upper half of a single-precision number.
    Bf16,
    /// IEEE half precision.
    F16,
    /// Signed 64-bit integers.
    I64,
    /// Unsigned 8-bit integers.
    U8,
    /// Booleans, one byte each.
    Bool,
}

impl Number {
    /// All dtypes.
    pub const ALL: [Self; 7] = [Self::F64, Self::F32, Self::Bf16, Self::F16, Self::I64, Self::U8, Self::Bool];
    /// The floating-point dtypes.
    pub const FLOATS: [Self; 4] = [Self::F64, Self::F32, Self::Bf16, Self::F16];

    /// Returns the name of the dtype in kernels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::Bool => "truth",
        }
    }

    /// Returns the size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::U8 | Self::Bool => 1,
        }
    }
}
