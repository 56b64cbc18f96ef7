//! The driver's errors and entry points by name.
#![expect(unsafe_code, reason = "asks the system's loader, and exports functions under NVIDIA's names")]

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::{
    INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NO_DEVICE, NOT_SUPPORTED, OUT_OF_MEMORY, Out, SUCCESS, Status,
    answer, functions, give, refuses,
};

fn description(status: Status) -> &'static CStr {
    match status {
        SUCCESS => c"no error",
        INVALID_VALUE => c"invalid argument",
        OUT_OF_MEMORY => c"out of memory",
        NO_DEVICE => c"no CUDA-capable device is detected",
        INVALID_DEVICE => c"invalid device ordinal",
        INVALID_HANDLE => c"invalid resource handle",
        NOT_SUPPORTED => c"operation not supported by the simulated GPU",
        _ => c"unknown error",
    }
}

/// Returns the function of this library with this name; `None` if it does not define one.
pub(crate) fn own(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: plain data, for which zeros are valid.
    let mut facts: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: looks up an address of this library, and writes to a local variable.
    let is_known = unsafe { libc::dladdr((own as *const ()).cast(), &raw mut facts) } != 0;
    if !is_known || facts.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is the loader's own; the library is loaded already.
    let library = unsafe { libc::dlopen(facts.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // SAFETY: the handle is the loader's; the name ends with a zero.
    let found = (!library.is_null()).then(|| unsafe { libc::dlsym(library, name.as_ptr()) })?;
    (!found.is_null()).then_some(found)
}

fn entry_point(name: *const c_char, function: Out<'_, *mut c_void>) -> bool {
    // SAFETY: the caller's name, which ends with a zero.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
    // The driver exports some functions with a version in the name only.
    let found = name.and_then(|name| {
        let versioned = || Some([name.to_bytes(), b"_v2\0"].concat());
        own(name).or_else(|| own(CStr::from_bytes_with_nul(&versioned()?).ok()?))
    });
    give(function, found.unwrap_or(std::ptr::null_mut()));
    found.is_some()
}

functions! {
    fn cudaGetErrorString(status: Status) -> *const c_char { description(status).as_ptr() }
    fn cudaGetErrorName(status: Status) -> *const c_char { description(status).as_ptr() }
    fn cuGetErrorString, cuGetErrorName(status: Status, text: Out<'_, *const c_char>) {
        give(text, description(status).as_ptr());
    }

    /// Sets `status` to 1 if there is no such function.
    fn cudaGetDriverEntryPointByVersion(
        name: *const c_char,
        function: Out<'_, *mut c_void>,
        _version: u32,
        _flags: u64,
        status: Out<'_, c_int>,
    ) {
        give(status, c_int::from(!entry_point(name, function)));
    }
    fn cudaGetDriverEntryPoint(name: *const c_char, function: Out<'_, *mut c_void>, _flags: u64, status: Out<'_, c_int>) {
        give(status, c_int::from(!entry_point(name, function)));
    }
    fn cuGetProcAddress_v2(
        name: *const c_char,
        function: Out<'_, *mut c_void>,
        _version: c_int,
        _flags: u64,
        status: Out<'_, c_int>,
    ) {
        let is_found = entry_point(name, function);
        give(status, c_int::from(!is_found));
        if is_found { SUCCESS } else { 500 }
    }
}

// NVRTC of CUDA 13 crashes if a driver does not have this function, and goes on if it fails. Libraries that link the
// runtime statically ask it for private functions.
refuses! { cuGetExportTable }
