//! Access to the C library's own `dlsym`, and to the functions of the libraries loaded after this one.
#![expect(unsafe_code, reason = "asks the system's loader")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::Function;

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> Function;

/// Symbol versions of the C library's `dlsym`, first the current version, then the older ones on x86-64 and on AArch64.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];

const DRIVER: &CStr = c"libcuda.so.1";

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> Function;
}

static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Replaces a `dlsym` that cannot be found. Finds no function.
unsafe extern "C" fn finds_nothing(_handle: *mut c_void, _name: *const c_char) -> Function {
    ptr::null_mut()
}

/// Returns the `dlsym` of the C library. A lookup by name alone would find the `dlsym` of this library.
pub(crate) fn real_dlsym() -> Dlsym {
    let mut found = REAL.load(Ordering::Acquire);
    if found.is_null() {
        let of_version = |version: &CStr| {
            // SAFETY: the strings are terminated by a zero.
            unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) }
        };
        found = VERSIONS.into_iter().map(of_version).find(|found| !found.is_null()).unwrap_or(ptr::null_mut());
        REAL.store(found, Ordering::Release);
    }
    if found.is_null() {
        return finds_nothing;
    }
    // SAFETY: the C library's function of this name.
    unsafe { std::mem::transmute::<Function, Dlsym>(found) }
}

/// Returns a function of the library behind `handle`; null if there is no such function.
pub(crate) fn find(handle: *mut c_void, name: &CStr) -> Function {
    // SAFETY: the handle is the loader's, or one of its special ones; the name is terminated by a zero. Called from
    // this library, so that "next" means the libraries behind it.
    unsafe { real_dlsym()(handle, name.as_ptr()) }
}

/// Returns the handle of a library that is already loaded, or null if it is not loaded.
fn loaded(path: *const c_char) -> *mut c_void {
    // SAFETY: the path is terminated by a zero, and nothing is loaded: no initializer runs.
    unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD as c_int) }
}

/// Returns the handle of the driver's library, or null if it is not loaded.
pub(crate) fn driver() -> *mut c_void {
    loaded(DRIVER.as_ptr())
}

/// Returns the handle of the library that contains a function; null if there is none.
pub(crate) fn library_of(function: Function) -> *mut c_void {
    // SAFETY: plain data, for which zeros are valid.
    let mut facts: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: looks up any address, and writes to a local variable.
    let is_known = unsafe { libc::dladdr(function, &raw mut facts) } != 0;
    if is_known && !facts.dli_fname.is_null() { loaded(facts.dli_fname) } else { ptr::null_mut() }
}

/// Returns the driver function `name`, for a program that is linked with the driver or that found this library's
/// function by name. Returns null if there is none.
pub(crate) fn next(name: &CStr) -> Function {
    let next = find(libc::RTLD_NEXT, name);
    if !next.is_null() {
        return next;
    }
    let driver = driver();
    if driver.is_null() { ptr::null_mut() } else { find(driver, name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_librarys_own_dlsym_finds_what_there_is() {
        let strlen = find(libc::RTLD_DEFAULT, c"strlen");
        assert!(!strlen.is_null());
        assert!(find(libc::RTLD_DEFAULT, c"no_function_has_this_name").is_null());
        let library = library_of(strlen);
        assert!(!library.is_null(), "the C library is loaded");
        assert!(!find(library, c"malloc").is_null());
    }
}
