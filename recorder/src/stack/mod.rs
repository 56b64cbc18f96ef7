//! Captures the current call stack as a key, in tens of nanoseconds.
//!
//! [`capture`] returns the current stack as a [`StackKey`]. Equal keys are equal stacks, in the whole process and for
//! its whole life. The [`depot`] converts keys back into return addresses, [`modules()`] maps addresses to binaries,
//! and [`crate::symbolize`] maps addresses to source lines.
//!
//! # How it works
//!
//! On Linux on x86-64 a frame is unwound with a small cached rule derived from the unwind tables. Only the frames that
//! changed since the thread's last capture are walked; the others are proved unchanged by comparing the stack words
//! that led to them. Programs need no flags and no frame pointers. On Linux on AArch64 the walk follows frame records,
//! which its compilers keep by default. Wherever the walk is not certain to be correct (signal frames, coroutines, code
//! generated at run time, unusual unwind tables, another system), the platform's unwinder captures that stack, which is
//! exact too. The first capture of a process compares both, and disables the walk if they disagree.
//!
//! # Costs
//!
//! Measured by `benches/stack.rs`. Once its addresses and its stack are known, a capture takes tens of nanoseconds and
//! neither locks nor allocates. A return address that is new to the process takes about half a microsecond, the first
//! capture of a thread some microseconds, the first of the process a tenth of a millisecond. The unwinder takes some
//! 100 ns per frame. Each thread that captures keeps some 50 KB; each new node of the stack tree some 50 bytes.
//!
//! # Limits
//!
//! * A stack keeps its [`MAX_FRAMES`] innermost frames; [`losses`] counts deeper stacks and failed captures.
//! * On x86-64, modules that were seen on a stack are never unloaded afterwards (`RTLD_NODELETE`), so that an address
//!   keeps its meaning. For a program that must unload its plugins, set the environment variable
//!   `HIGHWATER_STACKS=portable`: each capture then takes some microseconds, but no further modules are kept loaded.
//! * A capture may allocate and lock when something is new, so it must not be called from a signal handler. A handler
//!   that interrupts a capture on its own thread merely gets no stack.
//! * Tail calls leave no trace: in optimized code, a function that ends with `capture()` is not on the captured stack.
//!   Inlined functions appear when the stack is symbolized.
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

/// Maximum number of frames of a stack, of which the innermost are kept.
pub const MAX_FRAMES: usize = 256;
