//! Elementwise comparisons of two tensors, or of a tensor and a scalar.

use super::elementwise::convert;
use super::number::{Castable, with_element};
use crate::backend::{Comparison, Nest, View};
use crate::dtype::Truth;
use crate::{DType, Result};

const OP: &str = "compare";

pub(crate) fn compare(out: View<'_>, comparison: Comparison, left: View<'_>, right: View<'_>) -> Result<()> {
    let nest = Nest::new([out.layout, left.layout, right.layout]);
    let mut memory = out.storage.write::<Truth>(OP)?;
    if left.dtype == DType::I64 {
        // Double precision does not represent all large integers.
        let (l, r) = (left.storage.read::<i64>(OP)?, right.storage.read::<i64>(OP)?);
        nest.each(|[at, left, right]| memory[at] = holds(comparison, &l[left], &r[right]).into());
        return Ok(());
    }
    with_element!(left.dtype, T => {
        let (l, r) = (left.storage.read::<T>(OP)?, right.storage.read::<T>(OP)?);
        let wide = |value: T| Castable::wide(value);
        nest.each(|[at, left, right]| memory[at] = holds(comparison, &wide(l[left]), &wide(r[right])).into());
        Ok(())
    })
}

pub(crate) fn compare_number(out: View<'_>, comparison: Comparison, input: View<'_>, number: f64) -> Result<()> {
    // As everywhere, a scalar is first rounded to the type of arithmetic.
    let is_single = input.dtype.is_float() && input.dtype != DType::F64;
    let number = if is_single { f64::from(number as f32) } else { number };
    with_element!(input.dtype, T => {
        convert(out, input, &|(x,): (T,)| Truth::from(holds(comparison, &Castable::wide(x), &number)))
    })
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
