//! Elementwise comparisons of two tensors, or of a tensor and a scalar.

use bytemuck::Pod;

use super::number::{Float, Real};
use crate::backend::nest::Nest;
use crate::backend::{Comparison, View};
use crate::dtype::{DType, Truth};
use crate::error::Result;

/// Runs `$body` with `$T` as the type of `$dtype`'s elements, and `$wide` as the conversion to a comparable type.
macro_rules! with_any {
    ($dtype:expr, $T:ident, $wide:ident => $body:expr) => {{
        macro_rules! arm {
            ($type:ty, $function:expr) => {{
                type $T = $type;
                let $wide = $function;
                $body
            }};
        }
        match $dtype {
            DType::F64 => arm!(f64, |x: f64| x),
            DType::F32 => arm!(f32, |x: f32| f64::from(x)),
            DType::Bf16 => arm!(half::bf16, |x: half::bf16| Real::wide(x.load())),
            DType::F16 => arm!(half::f16, |x: half::f16| Real::wide(x.load())),
            DType::I64 => arm!(i64, |x: i64| x),
            DType::U8 => arm!(u8, |x: u8| x),
            DType::Bool => arm!(Truth, |x: Truth| bool::from(x)),
        }
    }};
}

pub(crate) fn compare(out: View<'_>, comparison: Comparison, left: View<'_>, right: View<'_>) -> Result<()> {
    with_any!(left.dtype, T, wide => {
        let (l, r) = (left.storage.read::<T>("compare")?, right.storage.read::<T>("compare")?);
        let mut memory = out.storage.write::<Truth>("compare")?;
        let holds = |l: T, r: T| holds(comparison, &wide(l), &wide(r));
        Nest::new([out.layout, left.layout, right.layout])
            .each(|[at, at_left, at_right]| memory[at] = holds(l[at_left], r[at_right]).into());
        Ok(())
    })
}

pub(crate) fn compare_number(out: View<'_>, comparison: Comparison, input: View<'_>, number: f64) -> Result<()> {
    match input.dtype {
        DType::I64 => with_number::<i64>(out, input, |x| holds(comparison, &(x as f64), &number)),
        DType::U8 => with_number::<u8>(out, input, |x| holds(comparison, &f64::from(x), &number)),
        DType::Bool => {
            with_number::<Truth>(out, input, |x| holds(comparison, &f64::from(u8::from(bool::from(x))), &number))
        }
        DType::F64 => with_number::<f64>(out, input, |x| holds(comparison, &x, &number)),
        // As everywhere, a scalar is first rounded to the type of arithmetic.
        DType::F32 => with_number::<f32>(out, input, |x| holds(comparison, &x, &(number as f32))),
        DType::Bf16 => with_number::<half::bf16>(out, input, |x| holds(comparison, &x.load(), &(number as f32))),
        DType::F16 => with_number::<half::f16>(out, input, |x| holds(comparison, &x.load(), &(number as f32))),
    }
}

fn with_number<T: Pod>(out: View<'_>, input: View<'_>, holds: impl Fn(T) -> bool) -> Result<()> {
    let values = input.storage.read::<T>("compare")?;
    let mut memory = out.storage.write::<Truth>("compare")?;
    Nest::new([out.layout, input.layout]).each(|[at, from]| memory[at] = holds(values[from]).into());
    Ok(())
}

fn holds<N: PartialOrd>(comparison: Comparison, left: &N, right: &N) -> bool {
    match comparison {
        Comparison::Less => left < right,
        Comparison::LessOrEqual => left <= right,
        Comparison::Greater => left > right,
        Comparison::GreaterOrEqual => left >= right,
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
    }
}
