//! Stacks: where the program is, as a number, in tens of nanoseconds.
//!
//! [`capture`] gives the running stack as a [`StackKey`]: equal keys are equal stacks, in the whole process and for its
//! whole life. The [`depot`] turns keys back into return addresses, [`modules()`] says which binary an address lies in,
//! and [`crate::symbolize`] which source lines it stands for.
//!
//! # How
//!
//! On Linux on x86-64 a frame is left by a small cached rule read from the unwind tables, and only the frames that
//! changed since the thread's last capture are walked; the others are proved unchanged by comparing the words of the
//! stack that they were found through. Programs need no flags and no frame pointers. On Linux on AArch64 the walk follows
//! frame records, which its compilers keep by default. Wherever the walk cannot be sure (signal frames, coroutines, code
//! made at run time, unusual unwind tables, another system), the platform's unwinder takes that stack, which is exact
//! too. The first capture of a process compares both, and gives the walk up if they disagree.
//!
//! # Costs
//!
//! Measured by `benches/stack.rs`. A capture takes tens of nanoseconds, neither locks nor allocates, once its addresses
//! and its stack are known; a return address that is new to the process takes about half a microsecond, the first
//! capture of a thread some microseconds, that of the process a tenth of a millisecond. The unwinder takes some 100 ns
//! a frame. Each thread that captures keeps some 50 KB; each new node of the stack tree some 50 bytes.
//!
//! # Limits
//!
//! * A stack keeps its [`MAX_FRAMES`] innermost frames; [`losses`] counts those that had more, and captures without result.
//! * On x86-64, modules that were seen on a stack are never unloaded afterwards (`RTLD_NODELETE`), so that an address
//!   keeps its meaning. A program that must unload its plugins calls [`use_portable_unwinder`] first, or sets the
//!   environment variable `HIGHWATER_STACKS=portable`.
//! * A capture may allocate and lock when something is new: do not call it from a signal handler, though one that
//!   interrupts a capture on its own thread only gets no stack.
//! * Tail calls leave no trace: optimised, a function whose last act is `capture()` is not on the stack that it gets.
//!   Inlined functions appear when symbols are looked up.
//! * On AArch64 a C function that was built without a frame record hides its caller's call, and the stack of a signal
//!   handler lacks the call that the signal interrupted.

mod losses;
mod loader;
pub mod modules;
pub mod depot;
#[cfg(all(target_os = "linux", target_pointer_width = "64", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "linux/mod.rs"]
mod platform;
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[path = "elsewhere.rs"]
mod platform;

pub use depot::StackKey;
pub use losses::{Losses, losses};
pub use modules::{Module, ModuleOffset, Modules, modules};
pub use platform::{capture, capture_portable};

/// How many frames of a stack are kept, the innermost ones.
pub const MAX_FRAMES: usize = 256;

/// Uses the platform's unwinder for every capture from now on: some microseconds each, but no module is kept loaded
/// that was not already. Addresses of a module that is unloaded then mean nothing to [`crate::symbolize`].
pub fn use_portable_unwinder() {
    platform::use_portable();
}
