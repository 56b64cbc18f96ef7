//! Encodes table rows and facts as bytes. This is the only module that uses bincode.
//!
//! Layout, fixed by [`CONFIG`]: integers little-endian at their full width, lengths of text and lists as `u64`, options
//! as one byte 0 or 1, enums as a `u32`, fields in declaration order.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::section::MAX_RAW_BYTES;
use crate::error::{Problem, Result};
use crate::ids::{FrameId, ModuleId, ScopeId, StackId, StringId};
use crate::tables::{Scope, SourceLine, Stack};
use crate::trace::Trust;

const CONFIG: Configuration<LittleEndian, Fixint, Limit<MAX_RAW_BYTES>> =
    bincode::config::standard().with_fixed_int_encoding().with_limit::<MAX_RAW_BYTES>();

/// The facts at the end of a finished recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndFacts {
    /// The limits of accuracy. Counts that a reader can compute, such as unmatched frees, may be 0.
    pub trust: Trust,
    /// Problems found while recording, or in the original file of a converted recording.
    pub problems: Vec<Problem>,
}

/// The source lines of a frame, written after symbolization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbols {
    /// The frame to which the lines belong.
    pub frame: FrameId,
    /// The lines, innermost (inlined) first.
    pub lines: Vec<SourceLine>,
}

/// A frame as stored; its source lines are stored separately, as [`Symbols`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FrameRow {
    pub(super) module: ModuleId,
    pub(super) address: u64,
}

/// A stack as stored. It has the distance in rows to its parent (0 for none), so a parent is always an earlier row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct StackRow {
    back: u32,
    frame: FrameId,
}

/// A scope as stored, with a parent as in [`StackRow`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ScopeRow {
    back: u32,
    name: StringId,
}

impl StackRow {
    /// The stored form of row `row`; `None` if its parent is not an earlier row.
    pub(super) fn from_stack(row: u32, stack: &Stack) -> Option<Self> {
        Some(Self { back: back_of(row, stack.parent.0)?, frame: stack.frame })
    }

    /// Returns the stack of row `row`; `None` if its parent would be before the first row.
    pub(super) fn to_stack(self, row: u32) -> Option<Stack> {
        Some(Stack { parent: StackId(parent_of(row, self.back)?), frame: self.frame })
    }
}

impl ScopeRow {
    /// The stored form of row `row`; `None` if its parent is not an earlier row.
    pub(super) fn from_scope(row: u32, scope: &Scope) -> Option<Self> {
        Some(Self { back: back_of(row, scope.parent.0)?, name: scope.name })
    }

    /// Returns the scope of row `row`; `None` if its parent would be before the first row.
    pub(super) fn to_scope(self, row: u32) -> Option<Scope> {
        Some(Scope { parent: ScopeId(parent_of(row, self.back)?), name: self.name })
    }
}

fn back_of(row: u32, parent: u32) -> Option<u32> {
    if parent == u32::MAX { Some(0) } else { row.checked_sub(parent).filter(|back| *back > 0) }
}

fn parent_of(row: u32, back: u32) -> Option<u32> {
    if back == 0 { Some(u32::MAX) } else { row.checked_sub(back) }
}

pub(super) fn put_row<T: Serialize + ?Sized>(out: &mut Vec<u8>, row: &T) -> Result<()> {
    bincode::serde::encode_into_std_write(row, out, CONFIG)
        .map(|_| ())
        .map_err(|error| crate::Error::Encode { what: format!("a row of a table cannot be encoded: {error}") })
}

pub(super) fn row_from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    rows_from_bytes(bytes, 1)?.pop().ok_or_else(|| "it contains no row".to_owned())
}

pub(super) fn rows_from_bytes<T: DeserializeOwned>(bytes: &[u8], count: u32) -> Result<Vec<T>, String> {
    take_rows(bytes, count, |rest| bincode::serde::decode_from_slice(rest, CONFIG))
}

pub(super) fn strings_from_bytes(bytes: &[u8], count: u32) -> Result<Vec<String>, String> {
    take_rows(bytes, count, |rest| {
        let (text, used): (&str, usize) = bincode::serde::borrow_decode_from_slice(rest, CONFIG)?;
        Ok((text.to_owned(), used))
    })
}

fn take_rows<T>(
    bytes: &[u8],
    count: u32,
    take: impl Fn(&[u8]) -> Result<(T, usize), bincode::error::DecodeError>,
) -> Result<Vec<T>, String> {
    // A false count does not allocate more memory than the payload takes.
    let mut rows = Vec::with_capacity((count as usize).min(bytes.len() / size_of::<T>().max(1)));
    let mut rest = bytes;
    for row in 0..count {
        if rest.is_empty() {
            return Err(format!("it declares {count} rows but ends after {row}"));
        }
        let (value, used) = take(rest).map_err(|error| format!("row {row} cannot be read: {error}"))?;
        rows.push(value);
        rest = &rest[used..];
    }
    if rest.is_empty() { Ok(rows) } else { Err(format!("{} bytes are left over after its {count} rows", rest.len())) }
}
