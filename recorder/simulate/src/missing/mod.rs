//! Functions of NVIDIA's libraries that a program's libraries import and that are not simulated.
//!
//! A library in memory defines each of these functions by name and is loaded before the importing library, so it is
//! found before NVIDIA's own libraries. A call then ends in this library and is reported by name, instead of reaching a
//! real library by accident.
#![expect(unsafe_code, reason = "loads a library that it has written, and is called by it")]

use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use memmap2::Mmap;
use object::{Object, ObjectSymbol};

use crate::abi::{NOT_SUPPORTED, Status, functions};
use crate::driver::own;
use crate::notes::{self, Kind};

mod library;

/// Prefixes of the names of NVIDIA's library functions. Driver functions are `cu` followed by a capital letter. NVRTC
/// and nvJitLink are not listed, since they compile code, which needs no device.
const PREFIXES: [&str; 13] = [
    "cuda", "__cuda", "cublas", "cudnn", "cufft", "cusolver", "cusparse", "curand", "cupti", "nccl", "nvml", "nvshmem",
    "cufile",
];

/// Functions taken from the real libraries because they need no device, such as cuDNN's descriptors, which are
/// structures on the host.
const REAL: [&str; 24] = [
    "cudnnCreateTensorDescriptor",
    "cudnnDestroyTensorDescriptor",
    "cudnnSetTensorNdDescriptor",
    "cudnnSetTensorNdDescriptorEx",
    "cudnnSetTensor4dDescriptor",
    "cudnnGetTensorNdDescriptor",
    "cudnnCreateFilterDescriptor",
    "cudnnDestroyFilterDescriptor",
    "cudnnSetFilterNdDescriptor",
    "cudnnGetFilterNdDescriptor",
    "cudnnCreateActivationDescriptor",
    "cudnnDestroyActivationDescriptor",
    "cudnnSetActivationDescriptor",
    "cudnnCreateDropoutDescriptor",
    "cudnnDestroyDropoutDescriptor",
    "cudnnCreatePoolingDescriptor",
    "cudnnSetPooling2dDescriptor",
    "cudnnCreateSpatialTransformerDescriptor",
    "cudnnDestroySpatialTransformerDescriptor",
    "cudnnSetSpatialTransformerNdDescriptor",
    "cudnnCreateCTCLossDescriptor",
    "cudnnDestroyCTCLossDescriptor",
    "cudnnSetCTCLossDescriptorEx",
    "cudnnSetCTCLossDescriptor_v9",
];

/// Exit status of a program that calls a missing function while no listener is set.
const STATUS: c_int = 3;

static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Called by each missing function.
extern "C" fn called(number: u32) -> Status {
    let name = NAMES.lock().unwrap_or_else(PoisonError::into_inner).get(number as usize).cloned().unwrap_or_default();
    notes::note(Kind::Missing, &name);
    if !notes::is_heard() {
        let message = format!("error: {name} is not simulated\n");
        // SAFETY: writes a buffer to standard error, and ends the process, because later behaviour would be undefined.
        unsafe {
            libc::write(2, message.as_ptr().cast(), message.len());
            libc::_exit(STATUS);
        }
    }
    NOT_SUPPORTED
}

fn is_nvidias(name: &str) -> bool {
    let is_of_driver = |rest: &str| rest.starts_with(|first: char| first.is_ascii_uppercase());
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || name.strip_prefix("cu").is_some_and(is_of_driver)
}

fn imported(path: &Path) -> Result<Vec<String>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
    let file = File::open(path).map_err(|error| failed(&error))?;
    // SAFETY: a library that is about to be loaded, and so mapped by the loader too, under the same condition: nobody
    // shortens it meanwhile.
    let bytes = unsafe { Mmap::map(&file) }.map_err(|error| failed(&error))?;
    let file = object::File::parse(&*bytes).map_err(|error| failed(&error))?;
    let undefined = file.dynamic_symbols().filter(ObjectSymbol::is_undefined);
    Ok(undefined.filter_map(|symbol| symbol.name().ok().filter(|name| is_nvidias(name)).map(str::to_owned)).collect())
}

/// Loads a library that defines `names`, numbered from `first`.
fn load(names: &[String], first: u32) -> Result<(), String> {
    // SAFETY: the name ends with a zero.
    let descriptor = unsafe { libc::memfd_create(c"highwater-missing".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(format!("cannot create a file in memory: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was just opened, and has no other owner.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(&library::write(names, first)).map_err(|error| format!("cannot write a file in memory: {error}"))?;
    // Descriptors are reused, and for a path that it has seen before the loader returns the library that it already
    // has. So each library gets its own path.
    static LOADED: AtomicUsize = AtomicUsize::new(0);
    let apart = "./".repeat(LOADED.fetch_add(1, Ordering::Relaxed));
    let path = CString::new(format!("/proc/self/fd/{apart}{descriptor}")).expect("the name contains a zero byte");
    // SAFETY: the path ends with a zero; the library has no initializers.
    let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    let slot = CString::new(library::SLOT).expect("the name contains a zero byte");
    // SAFETY: the handle is the loader's or null, which is refused below; the name ends with a zero.
    let slot = if loaded.is_null() { std::ptr::null_mut() } else { unsafe { libc::dlsym(loaded, slot.as_ptr()) } };
    if slot.is_null() {
        return Err("cannot load the library of missing functions".to_owned());
    }
    // SAFETY: the variable of the library, which is large enough for an address.
    unsafe { slot.cast::<*mut c_void>().write(called as *mut c_void) };
    Ok(())
}

/// Defines NVIDIA's functions that the library at `path` imports and that are neither simulated, nor taken from the
/// real libraries, nor defined already. Returns their number.
fn define_missing_of(path: &Path) -> Result<usize, String> {
    let mut known = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut seen: HashSet<String> = known.iter().cloned().collect();
    let mut missing = imported(path)?;
    missing.retain(|name| {
        let is_own = || CString::new(name.as_str()).is_ok_and(|name| own(&name).is_some());
        !REAL.contains(&name.as_str()) && seen.insert(name.clone()) && !is_own()
    });
    if !missing.is_empty() {
        load(&missing, known.len() as u32)?;
        known.extend(missing.iter().cloned());
    }
    Ok(missing.len())
}

functions! {
    /// Defines the functions that the library at `path` imports from NVIDIA's libraries and that are not simulated.
    /// Must be called before the library is loaded. Returns their number, or -1 on failure.
    fn highwater_simulate_define_missing(path: *const c_char) -> c_int {
        if path.is_null() { return -1; }
        // SAFETY: the caller's path, which ends with a zero.
        let path = unsafe { CStr::from_ptr(path) };
        match define_missing_of(Path::new(OsStr::from_bytes(path.to_bytes()))) {
            Ok(count) => count as c_int,
            Err(_) => -1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nvidias_libraries_are_known() {
        for name in ["cudaMalloc", "__cudaRegisterVar", "cuMemAlloc_v2", "cusolverDnXgeev", "ncclSend", "cuFileRead"] {
            assert!(is_nvidias(name), "{name}");
        }
        for name in ["cut", "malloc", "customer", "nvrtcCompileProgram", "_cudaMalloc", "cu"] {
            assert!(!is_nvidias(name), "{name}");
        }
    }

    #[test]
    fn each_function_of_the_library_is_found_and_calls_with_its_number() {
        static LAST: Mutex<Vec<u32>> = Mutex::new(Vec::new());
        extern "C" fn note(number: u32) -> Status {
            LAST.lock().unwrap().push(number);
            77
        }
        let names: Vec<String> = (0..700).map(|number| format!("planted_function_{number}")).collect();
        load(&names, 5).unwrap();
        let find = |name: &str| {
            let name = CString::new(name).unwrap();
            // SAFETY: the name ends with a zero.
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
        };
        let slot = find(library::SLOT);
        // SAFETY: the variable of the library that was just loaded, which no other test loads.
        unsafe { slot.cast::<*mut c_void>().write(note as *mut c_void) };
        for (number, name) in names.iter().enumerate() {
            let function = find(name);
            assert!(!function.is_null(), "{name}");
            // SAFETY: a function of the library, which takes any arguments.
            let function = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(usize) -> Status>(function) };
            assert_eq!(function(0), 77);
            assert_eq!(LAST.lock().unwrap().pop(), Some(number as u32 + 5));
        }
        load(&["planted_in_a_second_library".to_owned()], 705).unwrap();
        assert!(!find("planted_in_a_second_library").is_null(), "each library is loaded");
    }
}
