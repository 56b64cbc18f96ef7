//! Writes the library to preload to a file that the loader finds.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use highwater_app::files::computed_cache::cache_folder;

use crate::embedded_files::put;
use crate::output::Failure;

/// The library embedded in the binary; empty if the binary was built without it.
#[cfg(feature = "run")]
static CARRIED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inject.so"));
#[cfg(not(feature = "run"))]
const CARRIED: &[u8] = &[];

/// The file name of the library, which identifies its content.
const NAME: &str = include_str!(concat!(env!("OUT_DIR"), "/inject.so.name"));

/// The environment variable with the path of a library to use instead of the embedded one.
const VARIABLE: &str = "HIGHWATER_INJECT";

const BESIDE: &str = "libhighwater_inject_library.so";

#[derive(Debug)]
pub(super) struct Library {
    path: PathBuf,
    /// The temporary folder of the file; `None` if the file is in a cache. Dropping it removes the folder.
    _folder: Option<tempfile::TempDir>,
}

impl Library {
    /// Finds the library, or writes the embedded one into the user's cache, or else into a temporary folder.
    pub(super) fn provide() -> Result<Self, Failure> {
        if !cfg!(all(target_os = "linux", target_env = "gnu")) {
            let text =
                "`highwater run` works on Linux with the GNU C library: elsewhere, record from within the program";
            return Err(Failure::Record(text.to_owned()));
        }
        let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(path) = named {
            return Self::at(&path).ok_or_else(|| {
                Failure::Record(format!("{VARIABLE} names {}, which the dynamic loader cannot load", path.display()))
            });
        }
        if CARRIED.is_empty() {
            let beside = std::env::current_exe().ok().map(|own| own.with_file_name(BESIDE));
            return beside.as_deref().and_then(Self::at).ok_or_else(|| {
                Failure::Record(format!(
                    "this build does not include the library that records programs, and {BESIDE} is not beside it: build \
                     highwater with its default feature 'run', or name the library in {VARIABLE}"
                ))
            });
        }
        let cached = cache_folder().map(|folder| folder.join(NAME)).filter(|path| put(path, CARRIED).is_ok());
        let cached = cached.and_then(|path| Self::at(&path));
        if let Some(library) = cached {
            return Ok(library);
        }
        let cannot =
            |why: io::Error| Failure::Record(format!("cannot copy the library into a folder for this run: {why}"));
        let folder = tempfile::Builder::new().prefix("highwater-").tempdir().map_err(cannot)?;
        let path = folder.path().join(NAME);
        put(&path, CARRIED).map_err(cannot)?;
        Ok(Self { path, _folder: Some(folder) })
    }

    /// Returns the library at `path`; `None` if that is not a file, or contains a space, tab, newline or colon, which
    /// the loader interprets as separators.
    fn at(path: &Path) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let is_plain = !path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\t\n".contains(byte));
        (is_plain && path.is_file()).then_some(Self { path, _folder: None })
    }

    /// Returns the value of `LD_PRELOAD` with this library appended to `others`.
    pub(super) fn among(&self, others: Option<OsString>) -> OsString {
        let mut all = others.unwrap_or_default();
        if !all.is_empty() {
            all.push(":");
        }
        all.push(&self.path);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_behind_libraries_that_were_asked_for() {
        let library = Library { path: PathBuf::from("/cache/ours.so"), _folder: None };
        assert_eq!(library.among(None), "/cache/ours.so");
        assert_eq!(library.among(Some("/a.so:/b.so".into())), "/a.so:/b.so:/cache/ours.so");
        let folder = tempfile::tempdir().unwrap();
        let spaced = folder.path().join("a b.so");
        std::fs::write(&spaced, b"").unwrap();
        assert!(Library::at(&spaced).is_none(), "the loader would take it for two");
    }
}
