//! Records the GPU memory history of any allocator, such as a framework's, your own, or that of Highwater's engine.
//!
//! Wrap a part of the program in [`record_memory_history`], or keep a [`Recording`], and open the result in
//! `highwater`. An allocator takes part by calling about a dozen functions of [`api`]. The program names its modules,
//! phases and steps with the guards of [`scope`]. While nothing is recorded, an event costs one relaxed load.
//!
//! Modules are declared in layer order, and each uses only modules declared above it.

pub use highwater_snapshots as snapshots;
#[cfg(feature = "symbols")]
pub use highwater_snapshots::symbols as symbolize;

mod reentrancy;
pub mod level;
mod clock;
mod order;
mod message;
mod queue;
mod sender;
mod flush;
mod signals;
mod exit;
mod warn;
pub mod stack;
pub mod error;
pub mod options;
pub mod source;
pub mod throttle;
mod names;
pub mod context;
pub mod naming;
mod header;
mod current_stage;
mod history;
mod export;
mod intake;
mod file;
mod history_copy;
mod control;
mod merge;
mod rotation;
mod collector;
mod fork;
mod progress;
mod hub;
pub mod recording;
mod oom;
pub mod switch;
pub mod environment;
mod start;
pub mod api;
pub mod scope;
pub mod heap;

pub use error::{Error, Result};
pub use heap::RecordedHeap;
pub use highwater_snapshots::{Category, DeviceId, OpId, Phase, Pool, ScopeId, StackId, StreamId};
pub use level::Level;
pub use options::{HistoryOptions, Rotation, Sink, StacksOn, Symbols, WhenBehind};
pub use recording::{Counts, Finished, Finishing, Recording, dump_snapshot};
pub use source::Source;
pub use start::{Recorded, record_memory_history};
pub use switch::{Switch, Trigger};
pub use throttle::Throttle;
