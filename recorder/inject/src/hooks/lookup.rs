//! Intercepts lookups of the driver's functions by name, and returns this library's hooks instead.
#![expect(unsafe_code, reason = "functions that C calls, one of which leaves its caller's registers alone")]

use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};

use super::hook::{Hook, hooks};
use super::{arrays, blocks, contexts, pages};
use crate::abi::{Function, LEGACY_STREAM, PER_THREAD_DEFAULT_STREAM, SUCCESS};
use crate::loader::{self, Dlsym};

fn all() -> impl Iterator<Item = &'static Hook> {
    [blocks::HOOKS, pages::HOOKS, arrays::HOOKS, contexts::HOOKS, HOOKS].into_iter().flatten().copied()
}

/// Returns the hook that a library exports as `name`.
fn exported(name: &CStr) -> Option<&'static Hook> {
    // Almost no symbol that a process looks up is one of the driver's.
    if !name.to_bytes().starts_with(b"cu") {
        return None;
    }
    all().find(|hook| hook.name == name)
}

/// Returns the hook for the function that the driver returns for `short` in CUDA `version`.
fn of_version(short: &str, version: i32, is_per_thread: bool) -> Option<&'static Hook> {
    let named = || all().filter(|hook| hook.short == short && hook.since <= version);
    let newest =
        |is_per_thread: bool| named().filter(|hook| hook.is_per_thread == is_per_thread).max_by_key(|hook| hook.since);
    // Most functions do not depend on streams, and are the same in both cases.
    newest(is_per_thread).or_else(|| newest(false))
}

/// Replaces the driver function stored at `place` by its hook, if there is a hook.
fn swap(symbol: *const c_char, place: *mut Function, version: c_int, flags: c_ulonglong, is_per_thread: bool) {
    if symbol.is_null() || place.is_null() {
        return;
    }
    // SAFETY: the program's string, which the driver has read.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    // SAFETY: the driver has written there.
    let found = unsafe { *place };
    let is_per_thread = flags & PER_THREAD_DEFAULT_STREAM != 0 || is_per_thread && flags & LEGACY_STREAM == 0;
    let hook = symbol.to_str().ok().and_then(|short| of_version(short, version, is_per_thread));
    if let Some(hook) = hook.filter(|_| !found.is_null()) {
        hook.set_found(found);
        // SAFETY: the program's variable, which the driver has just written.
        unsafe { *place = hook.ours() };
    }
}

type Place = *mut Function;

hooks! {
    /// Returns a function of the driver by name.
    "cuGetProcAddress": cuGetProcAddress since 11030, cuGetProcAddress_ptsz since 11030 per_thread;
    (symbol: *const c_char, place: Place, version: c_int, flags: c_ulonglong) |hook, call| {
        let answer = call().answer;
        if answer == SUCCESS { swap(symbol, place, version, flags, hook.is_per_thread); }
        answer
    }

    /// Variant of `cuGetProcAddress` that also reports the reason that a function was not found.
    "cuGetProcAddress": cuGetProcAddress_v2 since 12000, cuGetProcAddress_v2_ptsz since 12000 per_thread;
    (symbol: *const c_char, place: Place, version: c_int, flags: c_ulonglong, status: *mut c_int) |hook, call| {
        let answer = call().answer;
        if answer == SUCCESS { swap(symbol, place, version, flags, hook.is_per_thread); }
        answer
    }
}

/// The outcome of a call of `dlsym`.
#[repr(C)]
struct Choice {
    /// Result to return, unless null.
    answer: Function,
    /// The `dlsym` to jump to if the result is null.
    asked: Dlsym,
}

/// Returns the hook for a driver function of this name if the library behind `handle` contains the function; otherwise
/// the result of the real `dlsym`.
extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> Choice {
    let asked = loader::real_dlsym();
    let passed_on = Choice { answer: std::ptr::null_mut(), asked };
    // A global lookup finds ours anyway; the result of `RTLD_NEXT` depends on the library of the caller.
    if name.is_null() || handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        return passed_on;
    }
    // SAFETY: the program's string, which is terminated by a zero.
    let Some(hook) = exported(unsafe { CStr::from_ptr(name) }) else { return passed_on };
    let found = loader::find(handle, hook.name);
    if found.is_null() {
        return passed_on;
    }
    hook.set_found(found);
    Choice { answer: hook.ours(), asked }
}

/// `dlsym` of the whole process. If it has no result of its own, it jumps to the C library's `dlsym` with its caller's
/// registers and return address, since that function determines from the address which library is "next".
#[cfg(not(test))]
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> Function {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "jmp rdx",
        "2:",
        "ret",
        choose = sym choose,
    )
}

/// `dlsym` of the whole process. If it has no result of its own, it jumps to the C library's `dlsym` with its caller's
/// registers and return address, since that function determines from the address which library is "next".
#[cfg(not(test))]
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> Function {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "bl {choose}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbnz x16, 2f",
        "br x17",
        "2:",
        "mov x0, x16",
        "ret",
        choose = sym choose,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_for_one_function_and_begins_as_the_driver_says() {
        for (index, hook) in all().enumerate() {
            let name = hook.name.to_str().expect("names are plain");
            assert!(all().take(index).all(|other| other.name != hook.name), "{name} twice");
            assert!(exported(hook.name).is_some_and(|found| std::ptr::eq(found, hook)), "{name}");
            let rest = name.strip_prefix(hook.short).expect("the short name is the beginning");
            assert!(["", "_v2", "_ptsz", "_v2_ptsz"].contains(&rest), "{name}");
            assert_eq!(rest.ends_with("_ptsz"), hook.is_per_thread, "{name}");
        }
        assert!(exported(c"cuMemAlloc").is_none(), "of the time of 32-bit addresses");
        assert!(exported(c"cublasCreate_v2").is_none());
    }

    #[test]
    fn what_is_none_of_the_drivers_is_looked_up_by_the_c_library() {
        // SAFETY: a library that is already loaded.
        let library = unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_LAZY) };
        for (handle, name) in [(library, c"strlen"), (library, c"cuMemAlloc_v2"), (libc::RTLD_NEXT, c"cuMemAlloc_v2")] {
            let choice = choose(handle, name.as_ptr());
            assert!(choice.answer.is_null(), "there is no driver here");
            assert_eq!(choice.asked as usize, loader::real_dlsym() as usize);
        }
        assert!(choose(library, std::ptr::null()).answer.is_null());
    }

    #[test]
    fn the_driver_means_the_newest_function_that_a_version_has() {
        let name = |short, version, is_per_thread| {
            of_version(short, version, is_per_thread).and_then(|hook| hook.name.to_str().ok())
        };
        assert_eq!(name("cuMemAlloc", 12040, false), Some("cuMemAlloc_v2"));
        assert_eq!(name("cuMemAlloc", 12040, true), Some("cuMemAlloc_v2"), "no stream takes part in it");
        assert_eq!(name("cuMemAlloc", 2000, false), None);
        assert_eq!(name("cuMemAllocAsync", 11020, true), Some("cuMemAllocAsync_ptsz"));
        assert_eq!(name("cuMemAllocAsync", 11010, true), None);
        assert_eq!(name("cuGetProcAddress", 11080, false), Some("cuGetProcAddress"));
        assert_eq!(name("cuGetProcAddress", 12000, false), Some("cuGetProcAddress_v2"));
        assert_eq!(name("cuGetProcAddress", 12000, true), Some("cuGetProcAddress_v2_ptsz"));
        assert_eq!(name("cuDevicePrimaryCtxReset", 10020, false), Some("cuDevicePrimaryCtxReset"));
        assert_eq!(name("cuLaunchKernel", 12040, false), None);
    }
}
