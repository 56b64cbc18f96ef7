//! Json: a memory snapshot as JSON text, read in one pass.
//!
//! Nothing of the text is kept but what the [`Intake`](super::Intake) keeps: each event is a row of fixed size when its
//! closing brace is read. What is missing is as if it were empty; a key that is there twice counts as it was last.

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

/// Reads a snapshot from JSON text that lies in memory; faster than [`read_json`]. `watch` is told
/// from time to time how far reading has come, and stops it with [`ControlFlow::Break`]. Fails where the text is not JSON, or
/// has something else where a list or a dict must be.
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

/// Reads a snapshot from a stream of JSON text, to the stream's end. Fails as [`read_json_bytes`] does, or where the
/// stream does.
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
