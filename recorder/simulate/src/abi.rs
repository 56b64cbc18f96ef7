//! The common parts of functions called from C, such as status codes, output parameters and handles.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use crate::functions::{Out, functions};

/// The return value of CUDA's functions. The runtime and the driver share the codes below.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const INVALID_VALUE: Status = 1;
pub(crate) const OUT_OF_MEMORY: Status = 2;
pub(crate) const NO_DEVICE: Status = 100;
pub(crate) const INVALID_DEVICE: Status = 101;
pub(crate) const INVALID_HANDLE: Status = 400;
pub(crate) const NOT_SUPPORTED: Status = 801;

/// The CUDA version of the driver and the runtime. PyTorch needs a version at least as new as its own.
pub(crate) const CUDA_VERSION: c_int = 13020;

/// Writes an output parameter unless it is null.
pub(crate) fn give<T>(out: Out<'_, T>, value: T) {
    if let Some(place) = out {
        place.write(value);
    }
}

/// Returns a new handle for a stream or library object without simulated state; never null.
pub(crate) fn new_handle() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0x1000);
    LAST.fetch_add(16, Ordering::Relaxed) + 16
}

/// Converts the result of a function's body to a CUDA status code; `()` means success.
pub(crate) trait IntoStatus {
    fn into_status(self) -> Status;
}

impl IntoStatus for Status {
    fn into_status(self) -> Status {
        self
    }
}

impl IntoStatus for () {
    fn into_status(self) -> Status {
        SUCCESS
    }
}

impl<T> IntoStatus for Result<T, Status> {
    fn into_status(self) -> Status {
        self.err().unwrap_or(SUCCESS)
    }
}

pub(crate) fn answer<A: IntoStatus>(_name: &str, body: impl FnOnce() -> A) -> Status {
    body().into_status()
}

/// Defines functions that do nothing and return success.
macro_rules! succeeds {
    ($($name:ident)*) => {
        $($crate::abi::functions! { fn $name() -> $crate::abi::Status { $crate::abi::SUCCESS } })*
    };
}

/// Defines functions that return an error, so that PyTorch raises an error or uses an alternative.
macro_rules! refuses {
    ($($name:ident)*) => {
        $($crate::abi::functions! { fn $name() -> $crate::abi::Status { $crate::abi::NOT_SUPPORTED } })*
    };
}

/// Defines functions that write a new handle to their first parameter.
macro_rules! creates {
    ($($name:ident)*) => {$(
        $crate::abi::functions! {
            fn $name(handle: $crate::abi::Out<'_, usize>) -> $crate::abi::Status {
                $crate::abi::give(handle, $crate::abi::new_handle());
                $crate::abi::SUCCESS
            }
        }
    )*};
}

pub(crate) use {creates, refuses, succeeds};
