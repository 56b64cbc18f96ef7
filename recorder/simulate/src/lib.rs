//! A simulated GPU, with the functions of the CUDA runtime, driver and libraries that PyTorch calls.
//!
//! `highwater simulate` loads the library into a program before PyTorch, and the library then handles PyTorch's calls
//! of CUDA. Device memory is counted and has addresses, but no contents. Kernels do nothing, and copies from the device
//! return zeros, except for small known contents. PyTorch's operators, autograd, optimizers and caching allocator are
//! the real ones, so allocations, snapshots and out-of-memory errors are real too.
//!
//! A call of a function that is not simulated fails with the function's name. To that end, `missing` replaces every
//! function that PyTorch's libraries import from NVIDIA's and that is not defined here, so that no real library is
//! called by accident. Inexact simulations, such as a workspace of unknown size, are reported (`notes`).
//!
//! `docs/simulate.md` documents which results are exact and which are not. The functions of NVIDIA's libraries are
//! declared with the parameters that are used, since the calling conventions of x86-64 and AArch64 allow a function to
//! ignore the others.
//!
//! Modules are declared in layer order, and each uses only modules declared above it.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#![cfg_attr(test, allow(dead_code, reason = "functions called from C are exported only outside tests"))]

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
