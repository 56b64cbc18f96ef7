//! Questions about recordings of any length. Each is answered window by window, and the answers are merged in order.

pub mod peak;
pub mod phases;
pub mod source;
pub mod doubt;
pub mod summary;
pub mod between;
pub mod listed_blocks;
pub mod growth;
pub mod tree;
pub mod peak_stacks;
pub mod trace_events;
pub mod statistics;
pub mod verify;
pub mod explain;
pub mod diff;
pub mod budget;
