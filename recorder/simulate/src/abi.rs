//! The common parts of functions that C calls: status codes, output parameters, handles.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The return value of CUDA's functions. The runtime and the driver share the codes below.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const INVALID_VALUE: Status = 1;
pub(crate) const OUT_OF_MEMORY: Status = 2;
pub(crate) const NO_DEVICE: Status = 100;
pub(crate) const INVALID_DEVICE: Status = 101;
pub(crate) const INVALID_HANDLE: Status = 400;
pub(crate) const NOT_SUPPORTED: Status = 801;

/// The CUDA version of the driver and the runtime. PyTorch needs one that is as new as its own; a newer one is fine.
pub(crate) const CUDA_VERSION: c_int = 13020;

/// An output parameter: a place that a function writes to, or null.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Writes an output parameter unless it is null.
pub(crate) fn give<T>(out: Out<'_, T>, value: T) {
    if let Some(place) = out {
        place.write(value);
    }
}

/// Returns a handle, never null, of a stream or of a library's object that has no state here.
pub(crate) fn new_handle() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0x1000);
    LAST.fetch_add(16, Ordering::Relaxed) + 16
}

/// Defines functions that C calls, which return a [`Status`] unless they say otherwise.
macro_rules! functions {
    () => {};
    ($(#[$about:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $crate::abi::functions! {
            $(#[$about])* fn $name($($argument: $type),*) -> $crate::abi::Status $body $($rest)*
        }
    };
    (
        $(#[$about:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block $($rest:tt)*
    ) => {
        $(#[$about])*
        #[allow(non_snake_case, reason = "NVIDIA's name")]
        // SAFETY: the name is NVIDIA's, whose function this one replaces, and no other function of the program has it.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) extern "C" fn $name($($argument: $type),*) -> $result $body
        $crate::abi::functions! { $($rest)* }
    };
}

/// Defines functions that only succeed.
macro_rules! succeeds {
    ($($name:ident)*) => { $($crate::abi::functions! { fn $name() { $crate::abi::SUCCESS } })* };
}

/// Defines functions that a program may call and that are refused, so that PyTorch raises an error or does without.
macro_rules! refuses {
    ($($name:ident)*) => { $($crate::abi::functions! { fn $name() { $crate::abi::NOT_SUPPORTED } })* };
}

/// Defines functions that write a new handle to their first parameter.
macro_rules! creates {
    ($($name:ident)*) => {$(
        $crate::abi::functions! {
            fn $name(handle: $crate::abi::Out<'_, usize>) {
                $crate::abi::give(handle, $crate::abi::new_handle());
                $crate::abi::SUCCESS
            }
        }
    )*};
}

pub(crate) use {creates, functions, refuses, succeeds};
