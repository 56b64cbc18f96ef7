//! Element types of tensors, and their sizes in bytes.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// IEEE double precision.
    F64,
    /// IEEE single precision.
    F32,
    /// bfloat16, the upper half of single precision, with 8 bits of exponent and 7 of mantissa.
    Bf16,
    /// IEEE half precision.
    F16,
    /// Signed 64-bit integers, for indices and class labels.
    I64,
    /// Integers from 0 to 255, for small indices and quantized values.
    U8,
    /// True or false, one byte each.
    Bool,
}

impl DType {
    /// All element types.
    pub const ALL: [Self; 7] = [Self::F64, Self::F32, Self::Bf16, Self::F16, Self::I64, Self::U8, Self::Bool];

    /// Returns the size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::U8 | Self::Bool => 1,
        }
    }

    /// Returns whether this is a floating-point dtype, whose tensors can have gradients.
    pub const fn is_float(self) -> bool {
        !matches!(self, Self::I64 | Self::U8 | Self::Bool)
    }

    /// Returns the dtype of sums and statistics, which is f64 for f64 and otherwise f32.
    pub const fn statistics(self) -> Self {
        match self {
            Self::F64 => Self::F64,
            _ => Self::F32,
        }
    }

    /// Returns the name on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }

    /// Returns the dtype called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An element of a [`DType::Bool`] tensor, a byte where 0 is false and every other value is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Truth(u8);

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

impl From<Truth> for bool {
    fn from(value: Truth) -> Self {
        value.0 != 0
    }
}

/// A Rust type that corresponds to a [`DType`].
pub trait Element: Pod + Send + Sync {
    /// The corresponding dtype.
    const DTYPE: DType;
}

macro_rules! element {
    ($($type:ty => $dtype:ident,)+) => {
        $(impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        })+
    };
}

element! { f64 => F64, f32 => F32, bf16 => Bf16, f16 => F16, i64 => I64, u8 => U8, Truth => Bool, }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_its_type() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::from_name("f8"), None);
    }
}
