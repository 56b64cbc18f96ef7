//! Reads the headers of a binary, library or debug file: format, build id, and segments.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use object::Object;

/// The identity of a binary or debug file.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) build_id: Vec<u8>,
    pub(super) has_lines: bool,
    /// The name of its separate debug file, and the checksum of that file.
    pub(super) debug_link: Option<(PathBuf, u32)>,
}

#[derive(Debug)]
pub(super) enum Unread {
    /// The file does not exist or cannot be opened.
    Unopened(String),
    /// The file is not a binary, or is damaged.
    Unparsed(String),
}

pub(super) fn inspect(path: &Path) -> Result<Facts, Unread> {
    let file = open(path).map_err(|why| Unread::Unopened(format!("cannot open {}: {why}", path.display())))?;
    let cache = object::ReadCache::new(file);
    let read = || -> object::Result<Facts> {
        let object = object::File::parse(&cache)?;
        let link =
            object.gnu_debuglink()?.map(|(name, sum)| (PathBuf::from(String::from_utf8_lossy(name).into_owned()), sum));
        Ok(Facts {
            build_id: object.build_id()?.unwrap_or_default().to_vec(),
            has_lines: object.section_by_name(".debug_info").is_some(),
            debug_link: link,
        })
    };
    read().map_err(|error| Unread::Unparsed(format!("cannot read {}: {error}", path.display())))
}

/// Opens a regular file. Other files are rejected, since opening a pipe named by a recording would block.
fn open(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() { File::open(path) } else { Err(io::Error::other("not a regular file")) }
}

/// The checksum of a file, as stored in debug links; `None` if the file cannot be read.
pub(super) fn checksum(path: &Path) -> Option<u32> {
    let mut file = open(path).ok()?;
    let mut sum = crc32fast::Hasher::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece).ok()? {
            0 => return Some(sum.finalize()),
            count => sum.update(&piece[..count]),
        }
    }
}

/// A build id in hexadecimal; `(none)` if it is empty.
pub(super) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "(none)".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
