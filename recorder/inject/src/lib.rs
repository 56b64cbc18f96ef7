//! Records the CUDA driver's allocations of a program that never heard of Highwater.
//!
//! The loader puts the library into a process before the program's own (`LD_PRELOAD`); `highwater run` sees to that. It
//! stands between the program and `libcuda.so.1` wherever a program gets at the driver's functions:
//!
//! - by linking with the driver: the library exports functions of the same names, which the loader finds first;
//! - by `dlsym`: the library exports that too, and answers for the functions that it knows;
//! - by the driver's own `cuGetProcAddress`, as CUDA's runtime does, also where it is linked in statically.
//!
//! A call goes to the driver with the arguments that it came with, and its answer comes back as it is; what it did to
//! memory is told to the recorder in between. Recording begins at the first call that obtains or frees memory, so that a
//! process which never speaks to the driver pays for nothing and leaves no file.
//!
//! `docs/run.md` says what is recorded, and what is not.
//!
//! Modules stand in layer order: each uses only what is declared
//! above it.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

mod abi;
mod arrays;
mod loader;
mod driver;
mod guard;
mod ledger;
mod session;
mod devices;
mod record;
mod hooks;
