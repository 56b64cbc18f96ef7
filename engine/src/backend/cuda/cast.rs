//! Casts between element types.

use highwater_kernels::{Arguments, Kernel};

use super::elementwise::copy;
use super::launch::{Queue, reading, types, writing};
use super::lines::Lines;
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::dtype::DType;
use crate::error::Result;

pub(crate) fn cast(out: View<'_>, input: View<'_>) -> Result<()> {
    if out.dtype == input.dtype {
        return copy(out, input);
    }
    let op = "cast";
    let name = match out.dtype {
        DType::F64 => "cast_f64",
        DType::F32 => "cast_f32",
        DType::Bf16 => "cast_bf16",
        DType::F16 => "cast_f16",
        DType::I64 => "cast_i64",
        DType::U8 => "cast_u8",
        DType::Bool => "cast_truth",
    };
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, input.layout]);
    let (from, to) = (reading(input, op)?, writing(out, op)?);
    let lines = Lines::new(&queue, &nest, [(&to, out.dtype.size()), (&from, input.dtype.size())]);
    let arguments = lines.after(Arguments::new().with(to.address()).with(from.address()));
    queue.launch(Kernel::new("cast", name, types(input.dtype)), lines.grid, &arguments)
}
