//! Reads, assembles and writes PyTorch's memory snapshots (`torch.cuda.memory._snapshot`), reads recordings of other
//! tools, and opens recordings of any kind ([`open`]).
//!
//! ```text
//!   pickle, JSON, page  ──►  objects  ──►  Intake  ──►  RawSnapshot  ──►  Trace
//! ```
//!
//! A reader only converts its format to lists, dicts and plain values. The meaning of a snapshot's keys is defined
//! once, in `objects`, which passes recognized values to the [`Intake`]. The intake interns strings, frames and stacks,
//! and stores each event as a record of fixed size. The result is a [`RawSnapshot`], which has the contents of the
//! file, and nothing inferred from them.

mod sequences;
mod names;
mod rows;
pub mod raw;
mod intake;
mod objects;
pub mod pickle;
pub mod json;
pub mod page;
mod assemble;
pub mod digest;
pub mod embedded;
pub mod export;
mod tools;
pub mod open;

pub use assemble::assemble;
pub use digest::EventDigest;
pub use embedded::recover;
pub use intake::{BlockDraft, EventDraft, Intake};
pub use raw::RawSnapshot;
pub use sequences::Sequences;
