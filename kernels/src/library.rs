//! Finds and loads CUDA's libraries before cudarc uses them, since cudarc panics if one is missing.
//!
//! cudarc loads a library by its bare name on first use. If the loader does not find it under that name, this module
//! searches folders for it and loads it by its path, after which the loader knows the name.
#![expect(unsafe_code, reason = "loads CUDA's libraries")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::{cublaslt, driver, nvrtc};
use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_LAZY};

use crate::error::{Error, Result};

/// Environment variable with folders to search first, separated by colons.
pub const PATH_VARIABLE: &str = "HIGHWATER_CUDA_PATH";

/// Folders where toolkits are usually installed, searched in addition to those in environment variables.
const USUAL_FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];

/// A CUDA library.
struct Library {
    /// Prefixes of its file names, in loading order: dependencies first.
    names: &'static [&'static str],
    is_present: fn() -> bool,
    missing: Error,
}

/// Checks that the driver library is installed.
///
/// # Errors
/// [`Error::NoDriver`] if it is not.
pub fn driver() -> Result<()> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    // SAFETY: the check only loads the library; its constructors are the driver's own.
    let is_present = || unsafe { driver::sys::is_culib_present() };
    // The driver belongs to the kernel module: only the loader knows which one matches.
    if *FOUND.get_or_init(is_present) { Ok(()) } else { Err(Error::NoDriver) }
}

/// Checks that the kernel compiler is installed, and loads it.
///
/// # Errors
/// [`Error::NoCompiler`] if it is not.
pub fn compiler() -> Result<()> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    // SAFETY: as for the driver.
    let is_present = || unsafe { nvrtc::sys::is_culib_present() };
    Library { names: &["libnvrtc-builtins.so", "libnvrtc.so"], is_present, missing: Error::NoCompiler }.find(&FOUND)
}

/// Checks that the matrix multiplication library is installed, and loads it.
///
/// # Errors
/// [`Error::NoProducts`] if it is not.
pub fn products() -> Result<()> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    // SAFETY: as for the driver.
    let is_present = || unsafe { cublaslt::sys::is_culib_present() };
    Library { names: &["libcublasLt.so"], is_present, missing: Error::NoProducts }.find(&FOUND)
}

impl Library {
    fn find(self, found: &OnceLock<bool>) -> Result<()> {
        let is_found = *found.get_or_init(|| {
            // Folders named by the user take precedence over the loader's own search.
            named_folders().iter().for_each(|folder| self.load_from(folder));
            if !(self.is_present)() {
                usual_folders().iter().for_each(|folder| self.load_from(folder));
            }
            (self.is_present)()
        });
        if is_found { Ok(()) } else { Err(self.missing) }
    }

    fn load_from(&self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // Newest version first: by length, then by name.
        files.sort_by_key(|path| std::cmp::Reverse(path.file_name().map(|name| (name.len(), name.to_owned()))));
        for name in self.names {
            let fits = |path: &&PathBuf| {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                file.strip_prefix(name).is_some_and(|rest| rest.starts_with(".1"))
            };
            if let Some(path) = files.iter().find(fits) {
                // SAFETY: loading runs the library's constructors, which are CUDA's own.
                if let Ok(library) = unsafe { Loaded::open(Some(path), RTLD_LAZY | RTLD_GLOBAL) } {
                    // Stays loaded, since its functions are called from here on.
                    std::mem::forget(library);
                }
            }
        }
    }
}

fn named_folders() -> Vec<PathBuf> {
    std::env::var_os(PATH_VARIABLE).map(|paths| std::env::split_paths(&paths).collect()).unwrap_or_default()
}

fn usual_folders() -> Vec<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    homes.map(|home| Path::new(&home).join("lib64")).chain(USUAL_FOLDERS.map(PathBuf::from)).collect()
}
