//! Looks up functions and source lines of addresses in a binary, from its DWARF sections and symbol table.

#[cfg_attr(target_os = "linux", path = "elf.rs")]
#[cfg_attr(not(target_os = "linux"), path = "any_format.rs")]
mod file;

use std::path::Path;

use addr2line::gimli::Reader;

use super::line::Line;

/// An open binary or debug file. A look-up takes microseconds.
pub(super) struct DebugInfo {
    file: file::DebugFile,
}

impl DebugInfo {
    pub(super) fn open(path: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        Ok(Self { file: file::DebugFile::open(path)? })
    }

    /// Returns the source lines of an address, innermost first: inlined functions precede the function that contains
    /// them. Empty if neither debug information nor a symbol covers the address.
    pub(super) fn lines(&self, address: u64) -> Vec<Line> {
        let (mut out, full_name) = self.file.frames(address);
        let symbol = self.file.symbol(address);
        let name = symbol.map(|symbol| addr2line::demangle_auto(symbol.into(), None).into_owned());
        match (out.last_mut(), name) {
            // Line tables alone have a function's last name only; the symbol of the machine's function has its path
            // too.
            (Some(outermost), Some(name))
                if !full_name && (outermost.function.is_empty() || symbol.is_some_and(is_mangled)) =>
            {
                outermost.function = name;
            }
            (None, Some(function)) => out.push(Line { function, file: None, line: 0 }),
            _ => {}
        }
        out.retain(|line| !line.function.is_empty() || line.file.is_some());
        out
    }
}

/// Converts frames to source lines, and returns whether the function name of the last one includes its path.
fn lines_of<R: Reader>(mut frames: addr2line::FrameIter<'_, R>) -> (Vec<Line>, bool) {
    let mut out = Vec::new();
    let mut full_name = false;
    // Damaged debug information ends the list early.
    while let Ok(Some(frame)) = frames.next() {
        let raw = frame.function.as_ref().and_then(|name| name.raw_name().ok());
        full_name = raw.is_some_and(|raw| is_mangled(&raw));
        let function = frame.function.and_then(|name| Some(name.demangle().ok()?.into_owned()));
        let file = frame.location.as_ref().and_then(|place| place.file).map(str::to_owned);
        let line = frame.location.as_ref().and_then(|place| place.line).unwrap_or(0);
        out.push(Line { function: function.unwrap_or_default(), file, line });
    }
    (out, full_name)
}

/// Whether a symbol is a mangled Rust or C++ name, which includes the path.
fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_R") || symbol.starts_with("_Z")
}
