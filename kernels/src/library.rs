//! Finds and loads CUDA's libraries.
//!
//! NVRTC and cuBLASLt are loaded by full path if a folder is given or known, and their functions are looked up in the
//! loaded library, because the loader would prefer the system's version of a bare name. The driver belongs to the
//! kernel module, so only the loader can find the matching one.
#![expect(unsafe_code, reason = "loads CUDA's libraries")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::driver;
use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_LAZY};

use crate::cublaslt::CublasLt;
use crate::error::{Error, Result, ToResult};
use crate::nvrtc::Nvrtc;

/// Environment variable with folders to search first, separated by colons.
pub const PATH_VARIABLE: &str = "HIGHWATER_CUDA_PATH";

/// Folders where toolkits are usually installed, searched in addition to those in environment variables.
const USUAL_FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];

/// Major versions to try when a library is loaded by name, in order.
const VERSIONS: [&str; 2] = ["13", "12"];

/// Checks that the driver library is installed.
///
/// # Errors
/// Returns [`Error::NoDriver`] if it is not.
pub fn driver() -> Result<()> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    // SAFETY: the check only loads the library; its constructors are the driver's own.
    let is_present = || unsafe { driver::sys::is_culib_present() };
    if *FOUND.get_or_init(is_present) { Ok(()) } else { Err(Error::NoDriver) }
}

/// Loads the kernel compiler.
///
/// # Errors
/// Returns [`Error::NoCompiler`] if it is not installed.
pub(crate) fn nvrtc() -> Result<&'static Nvrtc> {
    static FOUND: OnceLock<Option<Nvrtc>> = OnceLock::new();
    let load = || load("libnvrtc.so", Some("libnvrtc-builtins.so"), Nvrtc::of);
    FOUND.get_or_init(load).as_ref().ok_or(Error::NoCompiler)
}

/// Loads the matrix multiplication library.
///
/// # Errors
/// Returns [`Error::NoProducts`] if it is not installed.
pub(crate) fn cublaslt() -> Result<&'static CublasLt> {
    static FOUND: OnceLock<Option<CublasLt>> = OnceLock::new();
    FOUND.get_or_init(|| load("libcublasLt.so", None, CublasLt::of)).as_ref().ok_or(Error::NoProducts)
}

/// Checks that the kernel compiler is installed, and loads it.
///
/// # Errors
/// Returns [`Error::NoCompiler`] if it is not.
pub fn compiler() -> Result<()> {
    nvrtc().map(|_| ())
}

/// Versions of CUDA's libraries on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The newest CUDA version that the driver supports, as major and minor version.
    pub driver: (u32, u32),
    /// The major and minor version of NVRTC.
    pub compiler: (u32, u32),
    /// The major and minor version of cuBLASLt.
    pub products: (u32, u32),
}

impl Versions {
    /// Loads all libraries and queries their versions.
    ///
    /// # Errors
    /// Fails if a library is missing, or if NVRTC or cuBLASLt is of a later major version than the driver supports.
    pub fn find() -> Result<Self> {
        driver()?;
        let mut driver = 0;
        // SAFETY: the pointer is valid for writing an integer.
        unsafe { driver::sys::cuDriverGetVersion(&raw mut driver) }.result().context("cuDriverGetVersion")?;
        let driver = (driver.unsigned_abs() / 1000, driver.unsigned_abs() % 1000 / 10);
        let versions = Self { driver, compiler: nvrtc()?.version()?, products: cublaslt()?.version() };
        for (library, version) in [("NVRTC", versions.compiler), ("cuBLASLt", versions.products)] {
            if version.0 > driver.0 {
                return Err(Error::TooNew { library, version, driver });
            }
        }
        Ok(versions)
    }
}

/// Loads the first library called `name` that has all functions of the table built by `table`. If `first` is given, the
/// library with that name in the same folder is loaded before it. The library stays loaded.
fn load<T>(name: &str, first: Option<&str>, table: fn(&Loaded) -> Option<T>) -> Option<T> {
    let by_loader = VERSIONS.map(|version| PathBuf::from(format!("{name}.{version}")));
    let named = named_folders().into_iter().flat_map(|folder| files(&folder, name));
    let usual = usual_folders().into_iter().flat_map(|folder| files(&folder, name));
    named.chain(by_loader).chain(usual).find_map(|path| {
        let folder = path.parent().filter(|folder| folder.is_absolute());
        if let Some(path) = folder.zip(first).and_then(|(folder, first)| files(folder, first).into_iter().next()) {
            std::mem::forget(open(&path));
        }
        let library = open(&path)?;
        let table = table(&library)?;
        std::mem::forget(library);
        Some(table)
    })
}

fn open(path: &Path) -> Option<Loaded> {
    // SAFETY: loading runs the library's constructors, which are CUDA's own.
    unsafe { Loaded::open(Some(path), RTLD_LAZY | RTLD_GLOBAL) }.ok()
}

/// Returns the files in `folder` named `name` with a version suffix, newest first.
fn files(folder: &Path, name: &str) -> Vec<PathBuf> {
    let Ok(folder) = std::path::absolute(folder) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let fits = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.strip_prefix(name).is_some_and(|rest| rest.starts_with(".1"))
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(fits).collect();
    files.sort_by_key(|path| std::cmp::Reverse(path.file_name().map(|name| (name.len(), name.to_owned()))));
    files
}

fn named_folders() -> Vec<PathBuf> {
    std::env::var_os(PATH_VARIABLE).map(|paths| std::env::split_paths(&paths).collect()).unwrap_or_default()
}

/// Folders of toolkits, and of an active conda environment, whose PyTorch package includes the libraries.
fn usual_folders() -> Vec<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    let conda = std::env::var_os("CONDA_PREFIX").map(|prefix| Path::new(&prefix).join("lib"));
    homes.map(|home| Path::new(&home).join("lib64")).chain(conda).chain(USUAL_FOLDERS.map(PathBuf::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_file_of_a_library_comes_first_with_its_full_path() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in
            ["libnvrtc.so.12", "libnvrtc.so.13.0.88", "libnvrtc.so", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0"]
        {
            std::fs::write(folder.path().join(name), b"").expect("a file");
        }
        let found = files(folder.path(), "libnvrtc.so");
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap_or_default().to_string_lossy()).collect();
        assert_eq!(names, ["libnvrtc.so.13.0.88", "libnvrtc.so.13", "libnvrtc.so.12"]);
        assert!(found.iter().all(|path| path.is_absolute()), "the loader would search for a bare name");
        assert_eq!(files(folder.path(), "libnvrtc-builtins.so").len(), 1);
    }
}
