//! The Python package embedded in the binary, which is prepended to the module path of Python programs that it runs.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

/// The modules: name and source.
const MODULES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/package.rs"));

/// The code that Python runs at startup. It first runs the program's own module of the same name, which it shadows.
const START: &str = r#"import os, sys
_here = os.path.dirname(os.path.abspath(__file__))
def _start_own():
    import importlib.machinery, importlib.util
    # The next one may be of this kind too, and would find this one again.
    before = list(sys.path)
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != _here]
    try:
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
    finally:
        sys.path[:] = [folder for folder in before if folder not in sys.path] + sys.path
if sys.version_info[0] > 2:
    _start_own()
"#;

/// Writes the package into `folder`, with a module that Python runs at startup and that ends with the lines `then`.
///
/// # Errors
///
/// Fails if the folder cannot be written to.
pub(crate) fn write(folder: &Path, then: &str) -> io::Result<()> {
    let package = folder.join("highwater");
    std::fs::create_dir_all(&package)?;
    for (name, source) in MODULES {
        std::fs::write(package.join(name), source)?;
    }
    std::fs::write(folder.join("sitecustomize.py"), format!("{START}{then}"))
}

/// The environment variables by which Python programs find the package in `folder`, and the package finds this binary.
pub(crate) fn environment(folder: &Path) -> impl Iterator<Item = (&'static str, OsString)> {
    let own = std::env::current_exe().ok().map(|own| ("HIGHWATER_BINARY", own.into()));
    [("PYTHONPATH", before("PYTHONPATH", folder))].into_iter().chain(own)
}

/// The value of a path variable with `folder` prepended.
pub(crate) fn before(name: &str, folder: &Path) -> OsString {
    let mut value = folder.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(name).filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    value
}
