//! Reads a memory snapshot from JSON text in one pass.
//!
//! ```text
//!   text  ──►  Values  ──values──►  Store ──rows──►  Intake
//!              JSON values          objects
//! ```
//!
//! Each value goes to the `Store` as it is read, and a dict becomes a row of fixed size when its closing brace is read.
//! Parts that do not occur in snapshots are skipped without being kept, so that other JSON files take little memory. If
//! a key is repeated, the last value is used.

mod position;
mod reading;
mod values;

use std::cell::Cell;
use std::io::Read;
use std::ops::ControlFlow;
use std::rc::Rc;

use serde::de::DeserializeSeed as _;
use serde_json::Deserializer;

use self::position::{Counted, offset_in};
use self::reading::Reading;
use self::values::{Role, Values};
use super::objects::Value;
use super::raw::RawSnapshot;
use highwater_snapshots::error::Result;
use highwater_snapshots::format::Progress;

/// Reads a snapshot from JSON text in memory, faster than [`read_json`]. `watch` is called from time to time with the
/// progress and stops reading by returning [`ControlFlow::Break`].
///
/// # Errors
/// Returns an error if the text is not JSON, has another value where a list or a dict is required, or is not a
/// snapshot, and [`Error::Cancelled`](highwater_snapshots::Error::Cancelled) if `watch` stops reading.
pub fn read_json_bytes(bytes: &[u8], watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<RawSnapshot> {
    let text = Deserializer::from_slice(bytes);
    read(Reading::new(Some(bytes), Rc::default(), watch), text, |line, column| offset_in(bytes, line, column))
}

/// Reads a snapshot from a stream of JSON text, up to the end of the stream.
///
/// # Errors
/// Returns an error if reading `input` fails, or in the cases of [`read_json_bytes`].
pub fn read_json(input: impl Read, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<RawSnapshot> {
    let offset: Rc<Cell<u64>> = Rc::default();
    let text = Deserializer::from_reader(Counted::new(input, Rc::clone(&offset)));
    read(Reading::new(None, Rc::clone(&offset), watch), text, |_, _| offset.get())
}

/// Reads `text`. `offset` converts the line and column of an error.
fn read<'de>(
    mut reading: Reading<'_>,
    mut text: Deserializer<impl serde_json::de::Read<'de>>,
    offset: impl Fn(usize, usize) -> u64,
) -> Result<RawSnapshot> {
    let root = Values { reading: &mut reading, role: Role::Snapshot }.deserialize(&mut text);
    match root.and_then(|()| text.end()) {
        Ok(()) => reading.store.snapshot(reading.stack.pop().unwrap_or(Value::None), "JSON"),
        Err(error) => {
            let offset = offset(error.line(), error.column());
            Err(reading.why(error, offset))
        }
    }
}
