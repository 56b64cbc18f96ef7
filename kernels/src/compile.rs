//! Compiles kernels to a GPU's machine code with NVRTC. Does not need a GPU.
#![expect(unsafe_code, reason = "calls the compiler's C functions")]

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use cudarc::nvrtc::sys;

use crate::error::{Error, Result};
use crate::library;
use crate::nvrtc::Nvrtc;
use crate::source::{HEADERS, Unit, file};

/// The result of compiling a unit.
#[derive(Debug)]
pub struct Compiled {
    /// The machine code, in the format that the driver loads (cubin).
    pub image: Vec<u8>,
    /// The compiler's log, which is empty if there are no messages.
    pub log: String,
}

/// Compiles `unit` for an architecture such as `sm_90`.
///
/// # Errors
/// Fails if NVRTC is missing or the unit does not compile.
pub fn compile(unit: Unit, arch: &str) -> Result<Compiled> {
    let nvrtc = library::nvrtc()?;
    let program = Program::new(nvrtc, unit, arch)?;
    let options: Vec<CString> = options(unit, arch).into_iter().map(terminated).collect();
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: `program` is live, and so are the options that the pointers refer to.
    let outcome = unsafe { (nvrtc.nvrtcCompileProgram)(program.handle, pointers.len() as i32, pointers.as_ptr()) };
    let log = program.log();
    match outcome.result() {
        Ok(()) => Ok(Compiled { image: program.image()?, log }),
        Err(error) => Err(program.failed(format!("{error}\n{log}"))),
    }
}

/// Returns the version of the compiler.
///
/// # Errors
/// Fails if NVRTC is missing.
pub fn version() -> Result<String> {
    let (major, minor) = library::nvrtc()?.version()?;
    Ok(format!("{major}.{minor}"))
}

/// Returns the compiler options for `unit`.
pub fn options(unit: Unit, arch: &str) -> Vec<String> {
    vec![
        format!("--gpu-architecture={arch}"),
        "--std=c++17".to_owned(),
        // Treat lambdas as device functions, since all code here is device code.
        "-default-device".to_owned(),
        "--generate-line-info".to_owned(),
        format!("--define-macro=T={}", unit.types.t.name()),
        format!("--define-macro=U={}", unit.types.u.name()),
    ]
}

struct Program<'a> {
    nvrtc: &'static Nvrtc,
    handle: sys::nvrtcProgram,
    unit: Unit,
    arch: &'a str,
}

impl<'a> Program<'a> {
    fn new(nvrtc: &'static Nvrtc, unit: Unit, arch: &'a str) -> Result<Self> {
        let mut program = Self { nvrtc, handle: ptr::null_mut(), unit, arch };
        let Some(file) = file(unit.file) else { return Err(program.failed("no such file".to_owned())) };
        let (text, name) = (terminated(file.text.to_owned()), terminated(format!("{}.cu", file.name)));
        let texts: Vec<CString> = HEADERS.iter().map(|&(_, text)| terminated(text.to_owned())).collect();
        let names: Vec<CString> = HEADERS.iter().map(|&(name, _)| terminated(name.to_owned())).collect();
        let texts: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let names_at: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let (handle, count) = (&raw mut program.handle, HEADERS.len() as i32);
        // SAFETY: all strings are zero-terminated and outlive the call, which copies them.
        let created = unsafe {
            (nvrtc.nvrtcCreateProgram)(handle, text.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names_at.as_ptr())
        };
        created.result().map_err(|error| program.failed(error.to_string()))?;
        Ok(program)
    }

    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the program is live, and the pointer is valid for writing a size.
        let _ = unsafe { (self.nvrtc.nvrtcGetProgramLogSize)(self.handle, &raw mut size) };
        let mut bytes = vec![0_u8; size];
        // SAFETY: as above, and the log has the size that the compiler just returned.
        let _ = unsafe { (self.nvrtc.nvrtcGetProgramLog)(self.handle, bytes.as_mut_ptr().cast()) };
        CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().trim().to_owned()).unwrap_or_default()
    }

    fn image(&self) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is live and compiled.
        unsafe { (self.nvrtc.nvrtcGetCUBINSize)(self.handle, &raw mut bytes) }
            .result()
            .map_err(|error| self.failed(error.to_string()))?;
        let mut image = vec![0_u8; bytes];
        // SAFETY: as above, and the image has the size that the compiler just returned.
        unsafe { (self.nvrtc.nvrtcGetCUBIN)(self.handle, image.as_mut_ptr().cast()) }
            .result()
            .map_err(|error| self.failed(error.to_string()))?;
        Ok(image)
    }

    fn failed(&self, log: String) -> Error {
        Error::Compile { unit: self.unit.to_string(), arch: self.arch.to_owned(), log }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle comes from the compiler and is not used again. A failure only leaks memory.
            let _ = unsafe { (self.nvrtc.nvrtcDestroyProgram)(&raw mut self.handle) };
        }
    }
}

/// Converts a kernel source or an option, which contains no zero bytes, to a C string.
fn terminated(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}
