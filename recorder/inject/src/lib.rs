//! Records the CUDA driver's allocations of any program, without changes to the program.
//!
//! The dynamic loader puts the library into a process before the program's own libraries (`LD_PRELOAD`, which
//! `highwater run` sets). The library intercepts calls from the program to `libcuda.so.1`, whichever way the program
//! finds the driver's functions:
//!
//! - by linking with the driver: the library exports functions of the same names, which the loader finds first;
//! - by `dlsym`: the library exports `dlsym` too, and returns its own version of the functions that it intercepts;
//! - by the driver's own `cuGetProcAddress`, as the CUDA runtime does, even if it is linked statically.
//!
//! A call is forwarded to the driver with its arguments unchanged, and the driver's result is returned unchanged. In
//! between, the effect on memory is reported to the recorder. Recording begins at the first call that allocates memory
//! or fails for lack of it, so a process that never allocates memory with the driver writes no file.
//!
//! `docs/run.md` documents which events are recorded and which are not.
//!
//! Modules are declared in layer order, and each uses only modules declared above it.

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
