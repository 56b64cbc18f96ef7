//! Stands in for CUDA's libraries in tests: the driver, the compiler and cuBLASLt, on a machine without a GPU.
//!
//! The library that this builds has the functions of `libcuda.so.1`, `libnvrtc.so.13` and `libcublasLt.so.13` by which
//! the kernels crate speaks to a GPU. So all of that crate runs as it is: its own calls of the driver, the allocator
//! above them, and the text of every kernel, which the host's C++ compiler makes run on the host. Tests use it through
//! [`Setup`].
//!
//! # What it does as a GPU does
//! - A device's memory is bounded: what does not fit fails as it does there. Fresh memory is full of NaN,
//!   and what lies past a block faults.
//! - Streams, events and what waits for what; with [`LAZY_VARIABLE`](settings::LAZY_VARIABLE), work runs as late as it
//!   may, so that a use of memory that was handed out too early is seen.
//! - Warps, barriers and shared memory. Lanes that wait for one another for ever make the launch fail, and so do
//!   accesses to memory that is not there; both name the thread.
//! - In full size, where only what is handed out and launched is looked at: with
//!   [`IDLE_VARIABLE`](settings::IDLE_VARIABLE) nothing is computed, and memory is address space.
//!
//! # What it does not
//! One thread runs at a time, so what is missing between two threads shows up only if it matters in which order they
//! run; [`SEED_VARIABLE`](settings::SEED_VARIABLE) changes that order. Nothing it takes says anything about a GPU's
//! time.
//!
//! # Variables
//! They are read when the driver is first asked for anything; [`settings`] says what each means.

#![cfg_attr(test, allow(dead_code, reason = "functions called from C are exported only outside tests"))]

// Written once, for this library and for the simulated GPU under PyTorch.
#[path = "../../../recorder/simulate/src/functions.rs"]
mod functions;
mod failure;
pub mod settings;
mod mapping;
mod streams;
mod memory;
mod pages;
mod shared_memory;
mod programs;
mod machine;
mod image;
mod driver;
mod compiler;
mod products;
pub mod libraries;
pub mod setup;

pub use setup::Setup;

#[cfg(test)]
mod tests;
