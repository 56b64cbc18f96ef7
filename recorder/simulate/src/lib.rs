//! A simulated GPU: the CUDA runtime, driver and libraries as PyTorch calls them, on a machine without a GPU.
//!
//! `highwater simulate` loads the library into a program before PyTorch, whose calls of CUDA it then answers. Memory of
//! the device is counted and has addresses, but no contents; kernels do nothing; copies from the device give zeros.
//! PyTorch's operators, autograd, optimizers and caching allocator are the real ones, so that its allocations,
//! snapshots and out-of-memory errors are too.
//!
//! A function that is not simulated fails by name: `missing` replaces every function that PyTorch's libraries import
//! from NVIDIA's and that is not defined here, so that no real library answers by accident. Inexact simulations, such
//! as a workspace of unknown size, are noted (`notes`).
//!
//! `docs/simulate.md` documents which results are exact and which are not. The functions of NVIDIA's libraries are
//! declared with the parameters that are used: the calling conventions of x86-64 and AArch64 let a function ignore the
//! others.
//!
//! Modules are declared in layer order: each uses only modules declared above it.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#![cfg_attr(test, allow(dead_code, reason = "functions that C calls are exported outside of tests only"))]

mod functions;
mod abi;
mod gpu;
mod addresses;
mod settings;
mod notes;
mod devices;
mod properties;
mod contents;
mod answers;
mod memory;
mod streams;
mod graphs;
mod kernels;
mod driver;
mod libraries;
mod missing;
mod watch;
