//! A stand-in for CUDA's libraries in tests: the driver, the compiler and cuBLASLt, on a machine without a GPU.
//!
//! The library of this crate defines the functions of `libcuda.so.1`, `libnvrtc.so.13` and `libcublasLt.so.13` that the
//! kernels crate calls. All of that crate therefore runs unchanged: its driver calls, the allocator above them, and
//! every kernel, which the host's C++ compiler compiles for the host. Tests use the library through [`Setup`].
//!
//! # What it simulates
//! - Device memory of limited size. A request that does not fit fails as on a GPU. New memory is filled with NaN, and
//!   accesses past the end of a block fault.
//! - Streams, events and waits. With [`LAZY_VARIABLE`](settings::LAZY_VARIABLE), work runs as late as permitted, so that
//!   memory that is reused too early causes errors.
//! - Warps, barriers and shared memory. Deadlocks of lanes, and accesses outside of memory, make the launch fail with an
//!   error that names the thread.
//! - Programs at full size: with [`IDLE_VARIABLE`](settings::IDLE_VARIABLE), nothing is computed and memory is only
//!   address space, so that allocations and launches can be checked.
//!
//! # What it does not simulate
//! Only one thread runs at a time, so a missing synchronization of two threads shows only if their order matters;
//! [`SEED_VARIABLE`](settings::SEED_VARIABLE) changes this order. Run times say nothing about those of a GPU.
//!
//! # Variables
//! They are read at the first call of the driver; [`settings`] documents each.

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
