//! Detects whether bytes are a `.snap` file, and which format they resemble if not.

use crate::error::{Error, Problem, Result};

/// The first eight bytes of every file. As in PNG, a byte above 127, both kinds of line end and an end-of-file mark
/// show at once whether a copy changed the bytes.
pub const MAGIC: [u8; 8] = [0x89, b'H', b'W', b'S', b'\r', b'\n', 0x1a, b'\n'];

/// The major version that this program writes, and the newest that it reads.
pub const VERSION_MAJOR: u16 = 1;

/// The minor version that this program writes. Files of newer minor versions are read without their additions.
pub const VERSION_MINOR: u16 = 6;

/// The length of the preamble: magic, major and minor version, the CRC-32 of these twelve bytes.
pub const PREAMBLE_BYTES: usize = 16;

/// Whether `bytes` begin like a `.snap` file of any version.
pub fn is_snap(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The preamble of a file written by this program.
pub(super) fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut out = [0; PREAMBLE_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..10].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
    out[10..12].copy_from_slice(&VERSION_MINOR.to_le_bytes());
    let crc = crc32fast::hash(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Checks the preamble. Damage that leaves no doubt about the version is a problem, other damage an error.
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

/// The error for bytes without the magic: a damaged `.snap` file, or something else.
fn not_magic(bytes: &[u8]) -> Error {
    let damaged = |offset: u64, what: &str| Error::Damaged { offset, what: what.to_owned() };
    if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
        return damaged(bytes.len() as u64, "the file ends within its first eight bytes, before anything was recorded");
    }
    let head = &bytes[..bytes.len().min(12)];
    let has_name = head.windows(3).take(4).any(|name| name == &MAGIC[1..4]);
    let changed = bytes.iter().zip(&MAGIC).filter(|(a, b)| a != b).count();
    if has_name && head.contains(&b'\n') && changed > 2 {
        let what = "line ends or letters were changed, as copying a file as text does: \
                    copy it again in binary mode";
        return damaged(0, what);
    }
    let right = bytes.iter().zip(&MAGIC).filter(|(a, b)| a == b).count();
    if right >= 6 {
        return damaged(0, "the first eight bytes are almost those of a .snap file: they were changed after writing");
    }
    Error::UnknownFormat { found: sniff(bytes) }
}

/// Describes bytes that are not a `.snap` file: `a PNG picture`, `text ("Traceback …")`.
pub fn sniff(bytes: &[u8]) -> String {
    const STARTS: [(&[u8], &str); 17] = [
        (b"\x89PNG", "a PNG picture"),
        (b"\xff\xd8\xff", "a JPEG picture"),
        (b"\x7fELF", "an ELF program or library"),
        (b"\x1f\x8b", "gzip-compressed data"),
        (b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
        (b"BZh", "bzip2-compressed data"),
        (b"\xfd7zXZ", "xz-compressed data"),
        (b"PK\x03\x04", "a zip archive, which PyTorch checkpoints are too"),
        (b"SQLite format 3", "an SQLite database"),
        (b"PAR1", "a Parquet file"),
        (b"%PDF", "a PDF document"),
        (b"\xff\xfe", "UTF-16 text, which must be saved as UTF-8"),
        (b"\xfe\xff", "UTF-16 text, which must be saved as UTF-8"),
        (b"\x80\x02", "a Python pickle of protocol 2"),
        (b"\x80\x03", "a Python pickle of protocol 3"),
        (b"\x80\x04", "a Python pickle of protocol 4"),
        (b"\x80\x05", "a Python pickle of protocol 5"),
    ];
    if let Some((_, name)) = STARTS.iter().find(|(start, _)| bytes.starts_with(start)) {
        return (*name).to_owned();
    }
    let head = &bytes[..bytes.len().min(64)];
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        Err(error) if head.len() - error.valid_up_to() < 4 => std::str::from_utf8(&head[..error.valid_up_to()]).ok(),
        Err(_) => None,
    };
    let text = text.filter(|text| !text.chars().any(|c| c.is_control() && !c.is_whitespace())).map(str::trim_start);
    match text {
        Some(text) if text.starts_with(['{', '[']) => "JSON".to_owned(),
        Some(text) if text.starts_with('<') => "HTML or XML".to_owned(),
        Some(text) if !text.is_empty() => {
            let line: String = text.lines().next().unwrap_or("").chars().take(24).collect();
            format!("text (\"{line}\")")
        }
        _ => {
            let shown: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("the bytes {}", shown.join(" "))
        }
    }
}
