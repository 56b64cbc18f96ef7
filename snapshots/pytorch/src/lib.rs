//! PyTorch's memory snapshots, as `torch.cuda.memory._snapshot` makes them, in and out; and opening recordings of any
//! kind ([`open`]).
//!
//! ```text
//!   pickle, JSON, page  ──►  Intake  ──►  RawSnapshot  ──►  Trace
//! ```
//!
//! A reader hands every value that it recognises to the [`Intake`], which keeps one copy of each text, frame and stack
//! and a record of fixed size for each event. What results is a [`RawSnapshot`]: what the file says, and no more.

mod sequences;
pub mod raw;
mod intake;
pub mod pickle;
pub mod json;
pub mod page;
mod assemble;
pub mod digest;
pub mod embedded;
pub mod export;
pub mod open;

pub use assemble::assemble;
pub use digest::EventDigest;
pub use embedded::recover;
pub use intake::{BlockDraft, EventDraft, Intake, SegmentDraft};
pub use raw::RawSnapshot;
pub use sequences::Sequences;
