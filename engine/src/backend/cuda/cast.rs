//! Casts between element types.

use super::elementwise::copy;
use super::launch::Launch;
use crate::backend::View;
use crate::{DType, Result};

pub(crate) fn cast(out: View<'_>, input: View<'_>) -> Result<()> {
    if out.dtype == input.dtype {
        return copy(out, input);
    }
    let name = match out.dtype {
        DType::F64 => "cast_f64",
        DType::F32 => "cast_f32",
        DType::Bf16 => "cast_bf16",
        DType::F16 => "cast_f16",
        DType::I64 => "cast_i64",
        DType::U8 => "cast_u8",
        DType::Bool => "cast_truth",
    };
    Launch::new("cast", input)?.write(out)?.read(input)?.lines::<2>().run("cast", name)
}
