//! A caching allocator for GPU memory, which is independent of the device's [`Driver`], and the replay of recordings
//! through it.
//!
//! Reserving memory from a driver is slow, and releasing it waits for the whole device. Freed memory is therefore
//! cached and reused, at the cost of reserving more than is allocated. The rules are those of PyTorch's
//! `CUDACachingAllocator` (version 2.15, native backend), down to the constants: given the same requests, both create
//! the same segments in the same order, place every block at the same offset, and count the same statistics.
//!
//! # Overview
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
//! A **request** is rounded up to a multiple of 512 bytes. Requests of up to 1 MiB belong to the small pool, larger
//! ones to the large pool (`rounding`). Each pool keeps its free ranges by stream and size (`free_list`). The allocator
//! takes the best fit, on a tie from the oldest segment, and splits off the rest if it is worth keeping (`caching`). A
//! freed block is coalesced with its free neighbours, which are linked to it (`arena`, `heap`). A request or a free
//! costs O(log n) in the number of free ranges; in the common case that a block is freed and requested again, it costs
//! one search.
//!
//! A block belongs to the **stream** it was allocated for. A stream runs its work in order, so its memory may be reused
//! on that stream while earlier work still uses it. If another stream uses the block
//! ([`record_stream`](CachingAllocator::record_stream)), freeing the block records an event on that stream, and the
//! block is not reused until the event has completed (`streams`).
//!
//! If nothing in the cache fits, **memory is reserved** step by step. The request fails only after the last step
//! (`caching`, `release`):
//!
//! 1. if more is reserved than the garbage collection threshold allows, release the segments that have been free
//!    longest;
//! 2. reserve a new segment from the driver, within the memory fraction;
//! 3. with a split limit, release cached segments above it, largest first, then repeat step 2;
//! 4. wait for all streams, release the whole cache, then repeat step 2;
//! 5. search the cache once more, since a block may have become free in step 4. PyTorch lacks this step
//!    (pytorch/pytorch issue 189504); every request that PyTorch can serve is served before it, in PyTorch's way.
//!
//! With **expandable segments**, each pool and stream has one range of reserved addresses, larger than the device.
//! Memory is mapped into it page by page as it grows, so that the free range at its end is never too small
//! (`expandable`).
//!
//! Every operation is reported to the recorder under the lock, in the order of PyTorch's recorder. Only a failed
//! request is reported after unlocking, since the recording may then be written out.
//!
//! # Modules
//!
//! A [`CachingAllocator`] is built from a [`Driver`] and an [`AllocConfig`]; it allocates and frees [`Block`]s. It
//! reports [`AllocStats`], [`SegmentState`]s and, on failure, an [`OomReport`]. `audit` checks all invariants from
//! scratch.
//!
//! Modules are declared in layer order: each uses only modules declared above it.

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
