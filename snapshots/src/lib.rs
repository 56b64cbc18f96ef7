//! What a memory recording *is*: its events and tables, the trace built from them, the `.snap` format, and the
//! questions one can ask of a trace.
//!
//! No globals, no clock, no threads but rayon's; nothing here knows an engine or a window.
//! Modules stand in layer order: each uses only what is declared above it.

pub mod units;
pub mod suggest;
pub mod category;
pub mod ids;
pub mod error;
mod mapped;
pub mod intern;
pub mod line_text;
pub mod tables;
pub mod event;
pub mod alloc_rules;
pub mod trace;
mod keys;
pub mod levels;
pub mod builder;
pub mod format;
pub mod symbols;
pub mod join;
pub mod text;
pub mod analysis;
pub mod pytorch;
pub mod guess;
pub mod open;

pub use builder::{StartingBlock, StartingState, TraceBuilder};
pub use category::{Category, Phase, Pool};
pub use error::{Error, Problem, Result};
pub use ids::{BlockId, DeviceId, EventId, FrameId, ModuleId, OpId, ScopeId, SegmentId, StackId, StreamId, StringId};
pub use trace::Trace;
