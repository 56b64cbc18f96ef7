//! The functions of `libcublasLt.so` that describe, choose and compute matrix products.

mod descriptions;
pub(crate) mod choice;
mod arithmetic;
pub(crate) mod functions;

use crate::failure::Failure;

/// `cublasStatus_t`, with the values that the stand-in returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Status {
    NotInitialized = 1,
    InvalidValue = 7,
    ExecutionFailed = 13,
    NotSupported = 15,
}

/// An error: a status and a text.
#[derive(Debug)]
struct Refusal {
    status: Status,
    words: String,
}

type Result<T, E = Refusal> = std::result::Result<T, E>;

fn refuse<T>(status: Status, words: impl Into<String>) -> Result<T> {
    Err(Refusal { status, words: words.into() })
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { status: Status::ExecutionFailed, words: failure.words }
    }
}
