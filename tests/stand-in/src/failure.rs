//! Results of calls, and their conversion to C.

use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::functions::Out;

/// The driver's error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    InvalidValue = 1,
    OutOfMemory = 2,
    NotInitialized = 3,
    InvalidDevice = 101,
    InvalidImage = 200,
    InvalidContext = 201,
    NotFound = 500,
    InvalidHandle = 400,
    NotReady = 600,
    IllegalAddress = 700,
    LaunchFailed = 719,
    NotSupported = 801,
    Unknown = 999,
}

impl Code {
    pub(crate) const ALL: [Self; 13] = [
        Self::InvalidValue,
        Self::OutOfMemory,
        Self::NotInitialized,
        Self::InvalidDevice,
        Self::InvalidImage,
        Self::InvalidContext,
        Self::NotFound,
        Self::InvalidHandle,
        Self::NotReady,
        Self::IllegalAddress,
        Self::LaunchFailed,
        Self::NotSupported,
        Self::Unknown,
    ];

    /// The name in the driver's header.
    pub(crate) fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::InvalidValue => c"CUDA_ERROR_INVALID_VALUE",
            Self::OutOfMemory => c"CUDA_ERROR_OUT_OF_MEMORY",
            Self::NotInitialized => c"CUDA_ERROR_NOT_INITIALIZED",
            Self::InvalidDevice => c"CUDA_ERROR_INVALID_DEVICE",
            Self::InvalidImage => c"CUDA_ERROR_INVALID_IMAGE",
            Self::InvalidContext => c"CUDA_ERROR_INVALID_CONTEXT",
            Self::NotFound => c"CUDA_ERROR_NOT_FOUND",
            Self::InvalidHandle => c"CUDA_ERROR_INVALID_HANDLE",
            Self::NotReady => c"CUDA_ERROR_NOT_READY",
            Self::IllegalAddress => c"CUDA_ERROR_ILLEGAL_ADDRESS",
            Self::LaunchFailed => c"CUDA_ERROR_LAUNCH_FAILED",
            Self::NotSupported => c"CUDA_ERROR_NOT_SUPPORTED",
            Self::Unknown => c"CUDA_ERROR_UNKNOWN",
        }
    }
}

/// A failed call: the code for the caller, and a text for the output of the test.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) words: String,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Returns an error with this code and message.
pub(crate) fn fail<T>(code: Code, words: impl Into<String>) -> Result<T> {
    Err(Failure { code, words: words.into() })
}

thread_local! {
    static LAST: RefCell<Option<(Code, CString)>> = const { RefCell::new(None) };
}

/// Writes a result to an output parameter.
pub(crate) fn put<V>(place: Out<'_, V>, value: V) -> Result<()> {
    match place {
        Some(place) => {
            place.write(value);
            Ok(())
        }
        None => fail(Code::InvalidValue, "no place for the answer"),
    }
}

/// Runs a call from C. Catches panics, and stores the message of a failure for later queries.
pub(crate) fn answer(name: &str, call: impl FnOnce() -> Result<()>) -> i32 {
    let panicked = |_| fail(Code::Unknown, format!("the stand-in panicked in {name}"));
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked);
    let failure = outcome.err();
    let code = failure.as_ref().map_or(0, |failure| failure.code as i32);
    let words = failure.map(|failure| (failure.code, CString::new(failure.words).unwrap_or_default()));
    // A thread that ends has nobody to ask.
    let _ = LAST.try_with(|last| last.replace(words));
    code
}

/// Passes the message of this thread's last failure to `then`, if the failure had this code.
pub(crate) fn last_words(code: Code) -> Option<*const std::ffi::c_char> {
    LAST.with_borrow(|last| {
        last.as_ref().filter(|(kind, words)| *kind == code && !words.is_empty()).map(|(_, words)| words.as_ptr())
    })
}
