//! Number: the types of elements that kernels are compiled for.

/// What an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// IEEE double precision.
    F64,
    /// IEEE single precision.
    F32,
    /// The upper half of a single.
    Bf16,
    /// IEEE half precision.
    F16,
    /// Signed whole numbers of 64 bits.
    I64,
    /// Whole numbers from 0 to 255.
    U8,
    /// True or false, one byte each.
    Bool,
}

impl Number {
    /// Every type.
    pub const ALL: [Self; 7] = [Self::F64, Self::F32, Self::Bf16, Self::F16, Self::I64, Self::U8, Self::Bool];
    /// Those that are fractions.
    pub const FLOATS: [Self; 4] = [Self::F64, Self::F32, Self::Bf16, Self::F16];

    /// What kernels call it.
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

    /// Bytes that one takes.
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::U8 | Self::Bool => 1,
        }
    }
}
