//! The addresses of blocks within segments, the free ranges between them, and the reasons a request did not fit.
//!
//! An [`AddressIndex`] contains the reserved ranges over time, and an [`AddressMap`] the content of every address at
//! one moment. [`LaneAxis`] and [`lanes`] draw addresses over time. A [`FailedRequest`] explains why memory ran out.

pub mod extents;
pub mod map;
pub mod fit;
pub mod eviction_window;
pub mod release;
pub mod failed_request;
pub mod axis;
pub mod lanes;

pub use axis::{Lane, LaneAxis};
pub use eviction_window::{EvictionSet, Freed};
pub use extents::{AddressIndex, Extent, PoolAndStream};
pub use failed_request::{FailedRequest, Hole, Verdict};
pub use fit::{PoolFit, rooms};
pub use lanes::{LaneRaster, LaneWindow};
pub use map::{AddressMap, Content, Piece, ReservedSegment, UnplacedBlock, UnplacedReason, Usage};

#[cfg(test)]
mod tests;
