//! The lists and dicts of a snapshot's file, of whatever format, and what their keys mean.
//!
//! ```text
//!   pickle, JSON  ──values──►  Store  ──rows──►  Intake
//!                              lists, dicts     strings, frames, stacks, events
//! ```
//!
//! A dict with the keys of an event, a frame, a segment or a block becomes a row of fixed size as soon as it is filled,
//! which keeps memory use small; a list of frames becomes the index of a stack. All other lists and dicts are kept as
//! they are until the outermost value is complete and [`Store::snapshot`] takes the parts of the snapshot out of it.

mod value;
mod shape;
mod store;
mod rows;
mod settings;
mod snapkit;
mod whole;

pub(crate) use shape::{Key, Keys, Shape};
pub(crate) use store::{Dict, List, Mark, Refusal, RowKind, Store};
pub(crate) use value::Value;
