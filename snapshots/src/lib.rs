//! Memory recordings: events and tables, the traces built from them, and the `.snap` format.
//!
//! This crate has no globals, reads no clock, and uses threads only through rayon, with the feature `parallel`. Modules
//! are declared in layer order: each uses only modules declared above it.

#[cfg(not(target_family = "wasm"))]
pub mod yielding;
#[cfg(target_family = "wasm")]
#[path = "yielding_web.rs"]
pub mod yielding;
pub mod units;
#[cfg(feature = "suggest")]
pub mod suggest;
#[cfg(feature = "pprof")]
pub mod pprof;
pub mod category;
pub mod metric;
pub mod ids;
pub mod error;
pub mod mapped;
pub mod byte_source;
pub mod rotation;
pub mod intern;
pub mod ranges;
pub mod natural;
pub mod shown;
pub mod line_text;
pub mod scope_pattern;
pub mod references;
pub mod tables;
pub mod event;
pub mod transition;
pub mod stage;
pub mod sum_rule;
pub mod trace;
pub mod alloc_rules;
mod block_index;
pub mod live_bytes;
pub mod builder;
pub mod merge;
mod live_blocks;
pub mod live_state;
pub mod format;
#[cfg(feature = "symbols")]
pub mod symbols;
pub mod text;

pub use builder::{StartingBlock, StartingState, TraceBuilder};
pub use category::{Category, Phase, Pool};
pub use error::{Error, Problem, Result};
pub use event::EventKind;
pub use ids::{BlockId, DeviceId, EventId, FrameId, ModuleId, OpId, ScopeId, SegmentId, StackId, StreamId, StringId};
pub use rotation::RotatedFiles;
pub use scope_pattern::ScopePattern;
pub use trace::{Header, Subject, Trace};
pub use units::{
    count_of, format_bytes, format_bytes_apart, format_count, format_duration, format_exact_bytes, format_nanos,
    format_required_bytes, format_share, format_signed_bytes, parse_bytes, parse_range, parse_size,
};
