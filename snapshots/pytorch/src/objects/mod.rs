//! The lists and dicts in the file of a snapshot, in any format, and the meaning of their keys.
//!
//! ```text
//!   pickle, JSON  ──values──►  Store  ──rows──►  Intake
//!                              lists, dicts     strings, frames, stacks, events
//! ```
//!
//! A dict with the keys of an event, a frame, a segment or a block becomes a row of fixed size as soon as it is filled,
//! which saves memory. A list of frames becomes the index of a stack. All other lists and dicts are kept until the
//! outermost value is complete and [`Store::snapshot`] extracts the parts of the snapshot.

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
