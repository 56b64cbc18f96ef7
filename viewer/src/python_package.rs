//! The Python package embedded in the binary. It is prepended to the module path of Python programs that the binary
//! runs.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use highwater_app::files::computed_cache::cache_folder;
use tempfile::TempDir;

use crate::embedded_files::put;

const MODULES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/package.rs"));

/// The code that Python runs at startup. It first runs the program's own module of the same name, which would otherwise
/// be hidden.
const START: &str = r#"import os, sys
_here = os.path.dirname(os.path.abspath(__file__))
def _start_own():
    # Those of importlib, which would take a millisecond to import.
    import _frozen_importlib, _frozen_importlib_external
    # The next one may be of this kind too, and would find this one again.
    before = list(sys.path)
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != _here]
    try:
        spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", sys.path)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module(_frozen_importlib.module_from_spec(spec))
    finally:
        sys.path[:] = [folder for folder in before if folder not in sys.path] + sys.path
if sys.version_info[0] > 2:
    _start_own()
"#;

#[derive(Debug)]
pub(crate) struct Package {
    path: PathBuf,
    /// The temporary folder of the package; `None` if it is in a cache. Dropping it removes the folder.
    temporary: Option<TempDir>,
}

impl Package {
    /// Provides the package, with the lines `then` as in [`write`]. Writes it to the user's cache, where Python can
    /// store its compiled files, or to a temporary folder if `apart`, or if the cache cannot be written to.
    ///
    /// # Errors
    /// Fails if no folder can be written to.
    pub(crate) fn provide(then: &str, apart: bool) -> io::Result<Self> {
        let content: String = MODULES.iter().map(|(_, source)| *source).chain([START, then]).collect();
        let name = format!("python-{:08x}", crc32fast::hash(content.as_bytes()));
        if let Some(path) = cache_folder().filter(|_| !apart).map(|cache| cache.join(name))
            && write(&path, then).is_ok()
        {
            return Ok(Self { path, temporary: None });
        }
        let folder = tempfile::Builder::new().prefix("highwater-python-").tempdir()?;
        write(folder.path(), then)?;
        Ok(Self { path: folder.path().to_owned(), temporary: Some(folder) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder when this process ends, and returns its path.
    pub(crate) fn keep(self) -> PathBuf {
        self.temporary.map_or(self.path, TempDir::keep)
    }
}

/// Writes the package into `folder` if it does not exist there, with a module that Python runs at startup. The module
/// ends with the lines `then`.
///
/// # Errors
/// Fails if the folder cannot be written to.
pub(crate) fn write(folder: &Path, then: &str) -> io::Result<()> {
    let package = folder.join("highwater");
    for (name, source) in MODULES {
        put(&package.join(name), source.as_bytes())?;
    }
    put(&folder.join("sitecustomize.py"), format!("{START}{then}").as_bytes())
}

/// Returns the environment variables that let Python programs find the package in `folder`, and let the package find
/// this binary.
pub(crate) fn environment(folder: &Path) -> impl Iterator<Item = (&'static str, OsString)> {
    let own = std::env::current_exe().ok().map(|own| ("HIGHWATER_BINARY", own.into()));
    [("PYTHONPATH", before("PYTHONPATH", folder))].into_iter().chain(own)
}

/// Returns the value of a path variable with `folder` prepended.
pub(crate) fn before(name: &str, folder: &Path) -> OsString {
    let mut value = folder.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(name).filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    value
}
