//! Reads a memory snapshot from JSON text in one pass.
//!
//! Only what the [`Intake`](super::Intake) stores is kept in memory: each event becomes a row of fixed size when its
//! closing brace is read. Missing keys are treated as empty; if a key is repeated, the last value is used.

mod place;
mod reading;
mod leaf;
mod shape;
mod frames;
mod events;
mod blocks;
mod segments;
mod settings;
mod annotations;
mod top;

use std::cell::Cell;
use std::io::Read;
use std::ops::ControlFlow;
use std::rc::Rc;

use serde::de::DeserializeSeed;

use self::place::{Located, offset_in};
use self::reading::Reading;
use self::top::Top;
use super::raw::RawSnapshot;
use highwater_snapshots::error::Result;
use highwater_snapshots::format::Progress;

/// Reads a snapshot from JSON text in memory; faster than [`read_json`]. `watch` is called from time to time with the
/// progress and stops reading by returning [`ControlFlow::Break`].
///
/// # Errors
///
/// Returns an error if the text is not JSON, has another value where a list or a dict is required, or is not a
/// snapshot, and [`Error::Cancelled`](highwater_snapshots::Error::Cancelled) if `watch` stops reading.
pub fn read_json_bytes(bytes: &[u8], watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<RawSnapshot> {
    let mut reading = Reading::of_bytes(bytes, watch);
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let top = Top { reading: &mut reading }.deserialize(&mut text).and_then(|top| text.end().map(|()| top));
    match top {
        Ok(top) => top.finish(reading.intake),
        Err(error) => {
            let offset = offset_in(bytes, error.line(), error.column());
            Err(reading.why(error, offset))
        }
    }
}

/// Reads a snapshot from a stream of JSON text, up to the end of the stream.
///
/// # Errors
///
/// Returns an error if reading `input` fails, or in the cases of [`read_json_bytes`].
pub fn read_json(input: impl Read, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<RawSnapshot> {
    let offset: Rc<Cell<u64>> = Rc::default();
    let mut input = Located::new(input, Rc::clone(&offset));
    let mut reading = Reading::of_stream(offset, watch);
    let mut text = serde_json::Deserializer::from_reader(&mut input);
    let top = Top { reading: &mut reading }.deserialize(&mut text).and_then(|top| text.end().map(|()| top));
    match top {
        Ok(top) => top.finish(reading.intake),
        Err(error) => {
            let offset = input.offset(error.line(), error.column());
            Err(reading.why(error, offset))
        }
    }
}
