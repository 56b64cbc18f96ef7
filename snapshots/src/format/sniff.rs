//! Detects whether bytes are a `.snap` file.

use super::foreign::Foreign;
use crate::error::{Error, Problem, Result};

/// The first eight bytes of every file. As in PNG, they contain a byte above 127, both kinds of line endings and an
/// end-of-file character, which reveal whether a transfer changed the bytes.
pub const MAGIC: [u8; 8] = [0x89, b'H', b'W', b'S', b'\r', b'\n', 0x1a, b'\n'];

/// The major version that this program writes, and the only one that it reads.
pub const VERSION_MAJOR: u16 = 1;

/// The minor version that this program writes. Files of newer minor versions are read without their additions.
pub const VERSION_MINOR: u16 = 8;

/// The length of the preamble: the magic, major and minor version, and the CRC-32 of these twelve bytes.
pub const PREAMBLE_BYTES: usize = 16;

/// Whether `bytes` start with the magic of `.snap` files, of any version.
pub fn is_snap(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

pub(super) fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut out = [0; PREAMBLE_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..10].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
    out[10..12].copy_from_slice(&VERSION_MINOR.to_le_bytes());
    let crc = crc32fast::hash(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Checks the preamble. Damage is reported as a problem if the version is still certain, and as an error otherwise.
pub(super) fn check_preamble(bytes: &[u8]) -> Result<Option<Problem>> {
    if bytes.is_empty() {
        return Err(Error::Empty);
    }
    if !is_snap(bytes) {
        return Err(not_magic(bytes));
    }
    let Some(bytes) = bytes.get(..PREAMBLE_BYTES) else {
        let what = format!("the file ends after {} bytes, before anything was recorded", bytes.len());
        return Err(Error::Damaged { offset: bytes.len() as u64, what });
    };
    let major = u16::from_le_bytes([bytes[8], bytes[9]]);
    let is_whole = crc32fast::hash(&bytes[..12]).to_le_bytes() == bytes[12..];
    match (major == VERSION_MAJOR, is_whole) {
        (true, true) => Ok(None),
        (true, false) => Ok(Some(Problem::at(8, "the version does not fit its checksum: one of them is damaged"))),
        (false, true) => Err(Error::Version { found: major, supported: VERSION_MAJOR }),
        (false, false) => {
            let what = format!("version {major} does not fit its checksum: the file was changed after it was written");
            Err(Error::Damaged { offset: 8, what })
        }
    }
}

/// Returns the error for bytes without the magic, which are a damaged `.snap` file or another kind of file.
fn not_magic(bytes: &[u8]) -> Error {
    let damaged = |offset: u64, what: &str| Error::Damaged { offset, what: what.to_owned() };
    if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
        return damaged(bytes.len() as u64, "the file ends within its first eight bytes, before anything was recorded");
    }
    let head = &bytes[..bytes.len().min(12)];
    let has_name = head.windows(3).take(4).any(|name| name == &MAGIC[1..4]);
    let changed = bytes.iter().zip(&MAGIC).filter(|(a, b)| a != b).count();
    if has_name && head.contains(&b'\n') && changed > 2 {
        let what = "line endings or characters were changed, as when a file is copied in text mode: copy it again in \
                    binary mode";
        return damaged(0, what);
    }
    let right = bytes.iter().zip(&MAGIC).filter(|(a, b)| a == b).count();
    if right >= 6 {
        return damaged(0, "the first eight bytes are almost those of a .snap file: they were changed after writing");
    }
    Foreign::or_unknown(bytes).error()
}
