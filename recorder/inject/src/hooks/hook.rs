//! Hooks, each consisting of a function of this library and the driver's function of the same name that it calls.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::Function;
use crate::loader;

#[derive(Debug)]
pub(crate) struct Hook {
    /// Name that libraries export.
    pub(crate) name: &'static CStr,
    /// Name that programs pass to `cuGetProcAddress`.
    pub(crate) short: &'static str,
    /// CUDA version from which `cuGetProcAddress` returns this function for the unversioned name, such as 11020 for
    /// 11.2.
    pub(crate) since: i32,
    /// Whether stream 0 is the thread's own default stream (per-thread default stream).
    pub(crate) is_per_thread: bool,
    ours: AtomicPtr<c_void>,
    theirs: AtomicPtr<c_void>,
}

impl Hook {
    pub(crate) const fn new(
        name: &'static CStr,
        short: &'static str,
        since: i32,
        is_per_thread: bool,
        ours: *mut c_void,
    ) -> Self {
        let theirs = AtomicPtr::new(std::ptr::null_mut());
        Self { name, short, since, is_per_thread, ours: AtomicPtr::new(ours), theirs }
    }

    /// Returns the function of this library that replaces the driver's.
    pub(crate) fn ours(&self) -> Function {
        self.ours.load(Ordering::Relaxed)
    }

    /// Returns the driver's function, or `None` if there is no driver.
    pub(crate) fn theirs(&self) -> Option<Function> {
        let known = self.theirs.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        self.set_found(loader::next(self.name));
        Some(self.theirs.load(Ordering::Acquire)).filter(|found| !found.is_null())
    }

    /// Stores the driver's function, found by this library or by the program. The first function found is kept.
    pub(crate) fn set_found(&self, found: Function) {
        if !found.is_null() && found != self.ours() {
            let nobody = std::ptr::null_mut();
            let _ = self.theirs.compare_exchange(nobody, found, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

/// Declares functions that replace the driver's functions of the same names, and lists them in `HOOKS`.
///
/// Each entry has the name that programs pass to `cuGetProcAddress`, and the corresponding functions, which share one
/// body. The body receives the hook and a closure that calls the driver with the program's arguments. It runs only for
/// calls by the program. Nested calls are passed to the driver unchanged.
macro_rules! hooks {
    ($(
        #[doc = $about:literal]
        $short:literal: $($name:ident since $since:literal $($per_thread:ident)?),+;
        $arguments:tt |$hook:ident, $call:ident| $body:block
    )+) => {
        pub(super) static HOOKS: &[&$crate::hooks::hook::Hook] = &[$($(&$name::HOOK),+),+];

        $($($crate::hooks::hook::hooks! {
            @$name = $short since $since ($($per_thread)?), $about; $arguments |$hook, $call| $body
        })+)+
    };
    (
        @$name:ident = $short:literal since $since:literal ($($per_thread:ident)?), $about:literal;
        ($($argument:ident: $type:ty),* $(,)?) |$hook:ident, $call:ident| $body:block
    ) => {
        #[allow(non_snake_case, reason = "the driver's name")]
        mod $name {
            pub(super) static HOOK: $crate::hooks::hook::Hook = $crate::hooks::hook::Hook::new(
                // SAFETY: contains a single zero, at the end.
                unsafe { std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
                $short,
                $since,
                !stringify!($($per_thread)?).is_empty(),
                super::$name as *mut std::ffi::c_void,
            );
        }

        #[doc = $about]
        #[allow(non_snake_case, reason = "the driver's name")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $crate::abi::Answer {
            let $hook = &$name::HOOK;
            let Some(theirs) = $hook.theirs() else { return $crate::abi::NOT_FOUND };
            // SAFETY: the driver's function of this name, which takes these arguments.
            let function = unsafe {
                std::mem::transmute::<$crate::abi::Function, unsafe extern "C" fn($($type),*) -> $crate::abi::Answer>(theirs)
            };
            // SAFETY: the program's own arguments.
            let $call = || $crate::record::Answered { function: theirs, answer: unsafe { function($($argument),*) } };
            let Some(_call) = $crate::guard::Call::enter() else { return $call().answer };
            $body
        }
    };
}

pub(crate) use hooks;

/// Returns the value at `place`; the default value if `place` is null.
///
/// # Safety
/// `place` is null or readable.
pub(crate) unsafe fn at<V: Copy + Default>(place: *const V) -> V {
    // SAFETY: as promised by the caller.
    unsafe { place.as_ref() }.copied().unwrap_or_default()
}
