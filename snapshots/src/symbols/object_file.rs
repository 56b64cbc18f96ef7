//! Object file: what a binary, library or debug file says of itself, without a look at its code.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use object::Object;

/// What a file says of itself.
pub(super) struct Facts {
    pub(super) build_id: Vec<u8>,
    pub(super) has_lines: bool,
    /// The name of its separate debug file, and that file's checksum.
    pub(super) debug_link: Option<(PathBuf, u32)>,
}

pub(super) fn inspect(path: &Path) -> Result<Facts, String> {
    let file = File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
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
    read().map_err(|error| format!("cannot read {}: {error}", path.display()))
}

pub(super) fn checksum(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    let mut sum = crc32fast::Hasher::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece).ok()? {
            0 => return Some(sum.finalize()),
            count => sum.update(&piece[..count]),
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "(none)".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
