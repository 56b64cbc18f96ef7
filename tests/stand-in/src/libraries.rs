//! Creates a folder with the stand-in under the names of CUDA's libraries, for the loader.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compiler::host_compiler;

/// The names of the libraries that cudarc loads on Linux.
const NAMES: [&str; 3] = ["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"];

/// The name that Cargo gives to this crate's library.
const OWN_NAME: &str = "libhighwater_stand_in.so";

/// Creates a folder, beside the running test, with the stand-in under the names of CUDA's libraries except those in
/// `missing`. Returns its path.
///
/// # Errors
/// Fails if the stand-in cannot be used: on another system, without a C++ compiler, or if its library was not built.
pub fn install(missing: &[&str]) -> Result<PathBuf, String> {
    if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        return Err("the stand-in for CUDA's libraries works on 64-bit Linux only".to_owned());
    }
    let compiler = host_compiler();
    let has_compiler = Command::new(&compiler).arg("--version").output().is_ok_and(|run| run.status.success());
    if !has_compiler {
        return Err(format!(
            "the stand-in for CUDA's libraries needs a C++ compiler, and {} does not run; install g++, or name one in CXX",
            compiler.display()
        ));
    }
    let library = built_library()?;
    let folder =
        library.with_file_name(["stand-in"].iter().chain(missing).copied().collect::<Vec<_>>().join("-without-"));
    std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    for name in NAMES.into_iter().filter(|name| !missing.contains(name)) {
        link(&library, &folder.join(name))?;
    }
    Ok(folder)
}

/// Finds the library of this crate: next to the test, one folder up, or for an example, next to its tests.
fn built_library() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|why| format!("this program's own path: {why}"))?;
    let folders = test.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let found = folders.map(|folder| folder.join(OWN_NAME)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{OWN_NAME} is not beside {}, nor one folder up", test.display()))
}

/// Creates the link `place` to `library`. Other tests may create the same link at the same time.
fn link(library: &Path, place: &Path) -> Result<(), String> {
    if std::fs::read_link(place).is_ok_and(|there| there == library) {
        return Ok(());
    }
    let thread = format!("{:?}", std::thread::current().id()).replace(|c: char| !c.is_alphanumeric(), "");
    let beside = place.with_extension(format!("{}-{thread}", std::process::id()));
    let made = std::os::unix::fs::symlink(library, &beside).and_then(|()| std::fs::rename(&beside, place));
    made.map_err(|why| format!("{}: {why}", place.display()))
}
