//! Reads the data that torch-snapkit adds to a snapshot, namely shapes of tensors and the text of source files.

use super::store::{Dict, Refusal, Store};
use super::value::Value;
use crate::raw::LoggedShape;

/// Maximum length of a source file in bytes. Files written by people are shorter.
const LONGEST_SOURCE: usize = 8 << 20;

/// Maximum length of the paths and texts of all source files in bytes, since many paths may name the same text.
const MAX_SOURCES: usize = 64 << 20;

const MAX_DIMENSIONS: usize = 64;

/// Operators that return a view of an argument.
const VIEWS: [&str; 27] = [
    "_conj",
    "_neg_view",
    "_reshape_alias",
    "_unsafe_view",
    "alias",
    "as_strided",
    "chunk",
    "detach",
    "diagonal",
    "expand",
    "imag",
    "lift_fresh",
    "narrow",
    "permute",
    "real",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unfold",
    "unsqueeze",
    "view",
    "view_as_complex",
    "view_as_real",
];

impl Store {
    /// Adds the shapes of `shape_data`. For each device, it is a dict from an address, such as `0x7f00`, to the
    /// operators that returned a tensor there, in order. Each operator is a list of its name, a shape and a dtype.
    pub(super) fn take_shape_data(&mut self, devices: Value) -> Result<(), Refusal> {
        for (device, addresses) in (0..=u16::MAX).zip(self.take_items(devices).unwrap_or_default()) {
            let Some(Dict::Open(open)) = self.dict(addresses)? else { continue };
            for (address, results) in std::mem::take(&mut self.open_dicts[open as usize]) {
                let hexadecimal = self.text_of(address).and_then(|text| text.strip_prefix("0x"));
                let Some(address) = hexadecimal.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
                    self.intake
                        .count_unexpected("an address in 'shape_data' was skipped: expected a hexadecimal number");
                    continue;
                };
                for result in self.take_items(results).unwrap_or_default() {
                    match self.take_result(result) {
                        // A view, or an argument that was changed in place.
                        Some((0, _)) => {}
                        Some((bytes, shape)) => {
                            self.intake.logged_shape(LoggedShape { device, address, bytes, shape });
                        }
                        None => self.intake.count_unexpected(
                            "an entry of 'shape_data' was skipped: expected an operator, a shape and a supported dtype",
                        ),
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes of new memory and the shape of a result.
    fn take_result(&mut self, result: Value) -> Option<(u64, String)> {
        let &[operator, shape, dtype] = self.take_items(result)?.as_slice() else { return None };
        let sizes: Vec<u64> = match shape {
            Value::Pair(row) => self.pairs.get(row as usize).map(|(first, second)| vec![*first, *second])?,
            shape => self.take_items(shape)?.into_iter().map(Value::unsigned).collect::<Option<_>>()?,
        };
        if sizes.len() > MAX_DIMENSIONS {
            return None;
        }
        let (operator, dtype) = (self.text_of(operator)?, self.text_of(dtype)?.strip_prefix("torch.")?);
        let elements = sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
        let bytes = elements.checked_mul(element_size(dtype)?)?;
        let own_bytes = if allocates(operator) { bytes } else { 0 };
        let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
        Some((own_bytes, format!("[{}] {dtype}", sizes.join(", "))))
    }

    /// Adds the texts of `source_code`, a dict with paths as keys.
    pub(super) fn take_source_code(&mut self, value: Value) -> Result<(), Refusal> {
        let Some(Dict::Open(open)) = self.dict(value)? else { return Ok(()) };
        let (mut files, mut bytes) = (Vec::new(), 0);
        for (path, text) in std::mem::take(&mut self.open_dicts[open as usize]) {
            match (path, text) {
                (Value::Text(path), Value::Text(text)) if self.intake.string(text).len() <= LONGEST_SOURCE => {
                    let length = self.intake.string(path).len() + self.intake.string(text).len();
                    if bytes + length <= MAX_SOURCES {
                        bytes += length;
                        files.push((path, text));
                    } else {
                        self.intake
                            .count_unexpected("an entry of 'source_code' was skipped: the texts exceed 64 MiB in all");
                    }
                }
                _ => self.intake.count_unexpected(
                    "an entry of 'source_code' was skipped: expected a path and a text of at most 8 MiB",
                ),
            }
        }
        self.intake.sources(&files);
        Ok(())
    }

    fn text_of(&self, value: Value) -> Option<&str> {
        if let Value::Text(id) = value { Some(self.intake.string(id)) } else { None }
    }
}

/// Returns whether the result of an operator, such as `aten.add.Tensor`, is in new memory.
fn allocates(operator: &str) -> bool {
    let mut parts = operator.split('.').skip(1);
    let (name, overload) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    !(VIEWS.contains(&name) || name.ends_with('_') || overload.ends_with("out"))
}

/// Returns the size in bytes of an element of a PyTorch dtype, or `None` if it is unknown or not a whole number.
fn element_size(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "bool" | "uint8" | "int8" => 1,
        float8 if float8.starts_with("float8_") => 1,
        "float16" | "bfloat16" | "int16" | "uint16" => 2,
        "float32" | "int32" | "uint32" | "complex32" => 4,
        "float64" | "int64" | "uint64" | "complex64" => 8,
        "complex128" => 16,
        _ => return None,
    })
}
