//! Formats tensors as text.

use std::fmt;

use super::Tensor;

/// Number of elements shown at each end of a longer axis.
const SHOWN_AT_AN_END: usize = 3;

impl fmt::Display for Tensor {
    /// Formats the elements in brackets, long axes shortened, with type, shape and device, such as `[1.0000, 2.0000]
    /// f32 [2] on cpu`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(numbers) = self.to_f64_vec() {
            let decimals = if self.dtype().is_float() { f.precision().unwrap_or(4) } else { 0 };
            write_axis(f, &numbers, self.shape(), decimals, 0)?;
            f.write_str(" ")?;
        }
        write!(f, "{} {} on {}", self.dtype(), self.shape(), self.device())
    }
}

fn write_axis(
    f: &mut fmt::Formatter<'_>,
    numbers: &[f64],
    shape: &[usize],
    decimals: usize,
    depth: usize,
) -> fmt::Result {
    let Some((&length, inner)) = shape.split_first() else {
        return write!(f, "{:.decimals$}", numbers[0]);
    };
    f.write_str("[")?;
    let each = numbers.len().checked_div(length).unwrap_or(0);
    let mut left_out = false;
    for i in 0..length {
        if length > 2 * SHOWN_AT_AN_END && (SHOWN_AT_AN_END..length - SHOWN_AT_AN_END).contains(&i) {
            left_out = true;
            continue;
        }
        if i > 0 {
            f.write_str(",")?;
            if inner.is_empty() {
                f.write_str(" ")?;
            } else {
                write!(f, "\n{:width$}", "", width = depth + 1)?;
            }
        }
        if std::mem::take(&mut left_out) {
            f.write_str("…, ")?;
        }
        write_axis(f, &numbers[i * each..(i + 1) * each], inner, decimals, depth + 1)?;
    }
    f.write_str("]")
}

impl fmt::Debug for Tensor {
    /// Formats type, shape and device, without the elements.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on {}", self.dtype(), self.shape(), self.device())?;
        if self.requires_grad() { f.write_str(", requires grad") } else { Ok(()) }
    }
}
