//! Reads debug information on platforms where binaries are not ELF files.

use std::error::Error;
use std::path::Path;

use addr2line::Loader;

use crate::symbols::line::Line;

pub(super) struct DebugFile {
    loader: Loader,
}

impl DebugFile {
    pub(super) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Self { loader: Loader::new(path)? })
    }

    /// Returns the source lines of an address, and whether the function name of the last one includes its path.
    pub(super) fn frames(&self, address: u64) -> (Vec<Line>, bool) {
        match self.loader.find_frames(address) {
            Ok(frames) => super::lines_of(frames),
            Err(_) => (Vec::new(), false),
        }
    }

    pub(super) fn symbol(&self, address: u64) -> Option<&str> {
        self.loader.find_symbol(address)
    }
}
