//! Caches compiled kernels on disk, so that each is compiled once per machine.
//!
//! File names contain a digest of everything that the contents depend on, namely the source, the headers, the options
//! and the compiler. A file starts with a digest of its image, so that a truncated or damaged file counts as missing.
//! Files are written under a temporary name and renamed, so that two processes may write at once.

use std::path::PathBuf;

use crate::compile::{self, compile, options};
use crate::error::{Error, Result};
use crate::source::{HEADERS, Unit, file};

/// Environment variable with the folder to use instead of the user's cache folder. If it is empty, nothing is cached.
pub const CACHE_VARIABLE: &str = "HIGHWATER_KERNEL_CACHE";

/// Returns the machine code of `unit` for an architecture. Reads it from disk or compiles and caches it.
///
/// # Errors
/// Fails if NVRTC is missing or the unit does not compile.
pub fn load(unit: Unit, arch: &str) -> Result<Vec<u8>> {
    let Some(folder) = folder() else { return Ok(compile(unit, arch)?.image) };
    let path = folder.join(format!("{}-{arch}-{:032x}.cubin", unit.file, key(unit, arch)?));
    if let Some(image) = std::fs::read(&path).ok().and_then(|bytes| checked(&bytes)) {
        return Ok(image);
    }
    let image = compile(unit, arch)?.image;
    // A cache that cannot be written only costs time at the next start.
    drop(store(&path, &image));
    Ok(image)
}

/// Returns the folder for compiled kernels; `None` if [`CACHE_VARIABLE`] is empty, or if it is unset and there is no
/// home folder.
pub fn folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(CACHE_VARIABLE) {
        return (!named.is_empty()).then(|| named.into());
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("highwater").join("kernels"))
}

fn key(unit: Unit, arch: &str) -> Result<u128> {
    let mut digest = Digest::new();
    digest.add(env!("CARGO_PKG_VERSION"));
    digest.add(&compile::version()?);
    options(unit, arch).iter().for_each(|option| digest.add(option));
    HEADERS.iter().for_each(|&(name, text)| {
        digest.add(name);
        digest.add(text);
    });
    digest.add(file(unit.file).map_or("", |file| file.text));
    Ok(digest.0)
}

fn checked(bytes: &[u8]) -> Option<Vec<u8>> {
    let (head, image) = bytes.split_first_chunk::<16>()?;
    let mut digest = Digest::new();
    digest.add_bytes(image);
    (u128::from_le_bytes(*head) == digest.0).then(|| image.to_vec())
}

fn store(path: &std::path::Path, image: &[u8]) -> Result<()> {
    let failed = |why| Error::Cache { path: path.to_owned(), why };
    let mut digest = Digest::new();
    digest.add_bytes(image);
    let mut bytes = digest.0.to_le_bytes().to_vec();
    bytes.extend_from_slice(image);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&beside, bytes).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}

/// A 128-bit FNV-1a digest (Fowler, Noll and Vo, 1991), for file names. Does not protect against forgery.
struct Digest(u128);

impl Digest {
    fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    /// Adds a text, preceded by its length to separate it from the next text.
    fn add(&mut self, text: &str) {
        self.add_bytes(&(text.len() as u64).to_le_bytes());
        self.add_bytes(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_image_reads_back_and_a_damaged_one_counts_as_absent() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("deep").join("unit.cubin");
        let image: Vec<u8> = (0..10_000).map(|i| i as u8).collect();
        store(&path, &image).expect("the folder can be written");
        let bytes = std::fs::read(&path).expect("it was written");
        assert_eq!(checked(&bytes).as_deref(), Some(&image[..]));
        assert_eq!(checked(&bytes[..bytes.len() - 1]), None);
        assert_eq!(checked(&bytes[..7]), None);
        let mut changed = bytes;
        changed[5000] ^= 1;
        assert_eq!(checked(&changed), None);
        let files = std::fs::read_dir(path.parent().expect("it has one")).expect("it is there").count();
        assert_eq!(files, 1, "nothing is left beside it");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let error = store(&file.path().join("unit.cubin"), &[1]).expect_err("a file is no folder");
        assert!(error.to_string().contains("unit.cubin"), "{error}");
    }
}
