//! Files that are embedded in the binary for other programs, and written to a folder once.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes `content` to `path`, unless a file of the same length exists. The name identifies the content, but a disk may
/// have been full. Other processes see either the complete file or none.
pub(crate) fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|facts| facts.len() == content.len() as u64) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_put_once_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache/file");
        put(&path, b"content").unwrap();
        let written = || fs::metadata(&path).unwrap().modified().unwrap();
        let before = written();
        put(&path, b"content").unwrap();
        assert_eq!(written(), before, "it was there");
        fs::write(&path, b"conte").unwrap();
        put(&path, b"content").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
    }
}
