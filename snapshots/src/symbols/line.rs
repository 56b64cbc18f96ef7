//! The inputs and results of symbolization: binaries, addresses and source locations.

use std::fmt;
use std::path::PathBuf;

/// A binary or shared library in which to look up symbols.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binary {
    /// The path at the time of the recording.
    pub path: PathBuf,
    /// The build id; empty if the binary has none.
    pub build_id: Vec<u8>,
}

/// Addresses to look up in one module, each within a call instruction and relative to the module's load bias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The binary whose addresses are looked up.
    pub binary: Binary,
    /// Addresses in the form of [`Frame::address`](crate::tables::Frame::address).
    pub addresses: Vec<u64>,
}

/// A source location.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// Demangled name of the function; empty if unknown.
    pub function: String,
    /// Path of the source file, as passed to the compiler; `None` if unknown.
    pub file: Option<String>,
    /// Line number, from 1; 0 if unknown.
    pub line: u32,
}

/// A module without symbols, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolProblem {
    /// The module's path.
    pub path: PathBuf,
    /// The attempts, their results, and a suggestion.
    pub what: String,
}

impl fmt::Display for SymbolProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no symbols for {}: {}", self.path.display(), self.what)
    }
}
