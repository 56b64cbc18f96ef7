//! Alloc: the caching allocator, written once over the [`Driver`] of a device.
//!
//! Modules stand in layer order: each uses only what is declared above it.

pub mod driver;
mod config;
mod config_text;
mod rounding;
mod arena;
mod block;
mod free_list;
mod event_queue;
mod stats;
mod summary;
mod heap;
mod streams;
mod expandable;
mod release;
mod oom;
mod error;
mod caching;
mod state;
mod audit;
mod allocator;
mod source;

pub use allocator::CachingAllocator;
pub use block::Block;
pub use config::{AllocConfig, ConfigError, Divisions};
pub use driver::{Capacity, Driver, DriverError, DriverEvent, DriverKind};
pub use error::AllocError;
pub use oom::{Advice, OomReport, Unusable};
pub use state::{BlockState, BlockUsage, SegmentState};
pub use stats::{AllocStats, Stat, StatArray};
pub use summary::Summary;
