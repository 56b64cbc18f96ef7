//! A caching allocator for GPU memory, written once over the [`Driver`] of a device, and the replay of recordings
//! through it.
//!
//! Asking a driver for memory is slow, and giving memory back to it waits for the whole device. So memory that the
//! program frees is kept and handed out again, at the cost of holding more than is in use. The rules are those of
//! PyTorch's `CUDACachingAllocator` (version 2.15, native backend), down to the constants: fed the same requests, both
//! make the same segments in the same order, put every block at the same place in them, and count the same statistics.
//!
//! # The picture
//!
//! ```text
//! program         malloc / free / record_stream                        blocks
//!                    │
//! CachingAllocator   │  one lock
//!                    ▼
//! small pool   [ 512 B …    1 MiB]   segment 2 MiB     ┌──┬────┬──────────────────┐
//!                                                      │a │ b  │       free       │
//!                                                      └──┴────┴──────────────────┘
//! large pool   [more than 1 MiB …]   segment 20 MiB    ┌─────────┬───────┬────────┐
//!                                                      │    c    │ free  │   d    │
//!                                                      └─────────┴───────┴────────┘
//!              [10 MiB or more …]    its own segment   ┌──────────────────────────┐
//!                                                      │            e             │
//!                    ▲                                 └──────────────────────────┘
//!                    │
//! Driver          reserve / release / map / unmap / events             segments, pages
//! ```
//!
//! A **request** is rounded up to 512 bytes and belongs to the small pool up to 1 MiB, to the large pool above
//! (`rounding`). Each pool keeps its free ranges by stream and size (`free_list`). The smallest that fits is taken, on a
//! tie from the oldest segment; what is left of it is split off if it is worth keeping (`caching`). When a block is
//! freed, it joins its free neighbours, which it knows by links (`arena`, `heap`). A request or a free costs
//! O(log n) in the number of free ranges; in the common case that a block is freed and asked for again, it costs one
//! search.
//!
//! A block belongs to the **stream** that it was asked for. That stream runs its work in order, so the memory may be
//! handed out to it again while earlier work still uses it. Where another stream uses the block
//! ([`record_stream`](CachingAllocator::record_stream)), freeing leaves an event on that stream, and the block waits
//! until the event has passed (`streams`).
//!
//! When nothing fits, **memory is obtained** step by step, and given up only after the last (`caching`, `release`):
//!
//! 1. if more is held than the garbage collection threshold allows, segments that have been free for longest go back;
//! 2. a new segment from the driver, within the memory fraction;
//! 3. with a limit on splitting, segments above it go back, largest first, then step 2 again;
//! 4. all streams are waited for, the whole cache goes back, then step 2 again;
//! 5. the cache once more, where a block may have come free in step 4. PyTorch lacks this step
//!    (pytorch/pytorch issue 189504); everything that PyTorch can serve is served before it, in PyTorch's way.
//!
//! With **expandable segments** there is one range of reserved addresses per pool and stream, larger than the device.
//! Memory is mapped behind it page by page as it grows, so that free ranges at its end are never too small (`expandable`).
//!
//! All this is reported to the recorder under the lock, in the order in which PyTorch's recorder has it; only a request
//! that fails is reported after unlocking, since the recording may then be written out.
//!
//! # Pieces
//!
//! A [`CachingAllocator`] is made of a [`Driver`] and an [`AllocConfig`], hands out [`Block`]s and takes them back. It
//! answers with [`AllocStats`], with [`SegmentState`]s, and on failure with an [`OomReport`]. `audit` checks all
//! invariants from scratch.
//!
//! Modules stand in layer order: each uses only what is declared above it.

mod driver;
mod config;
mod config_text;
mod rounding;
mod request;
mod arena;
mod block;
mod free_list;
mod event_queue;
mod stats;
mod summary;
mod tie_break;
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
mod restore;
mod replay_queries;
mod source;
mod accounting;
pub mod replay;

pub use accounting::AccountingDriver;
pub use allocator::CachingAllocator;
pub use block::Block;
pub use config::{AllocConfig, ConfigError, Divisions};
pub use driver::{Capacity, Driver, DriverError, DriverEvent, DriverKind};
pub use error::AllocError;
pub use oom::{Advice, OomReport, Unusable};
pub(crate) use restore::{RestoredBlock, RestoredSegment, RestoredState};
pub use state::{BlockState, BlockUsage, SegmentState};
pub use stats::{AllocStats, Stat, StatArray};
pub use summary::Summary;
pub use tie_break::TieBreak;
