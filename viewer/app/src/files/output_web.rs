//! Writes tables and pictures to the browser's downloads.

use std::io::Write;
use std::path::Path;

use highwater_snapshots::Error;
use wasm_bindgen::prelude::wasm_bindgen;

use super::failure::Failure;

#[wasm_bindgen]
extern "C" {
    /// Offers a file with these bytes for download.
    #[wasm_bindgen(js_namespace = highwater)]
    fn download(name: &str, bytes: &[u8]);
}

/// Writes the file `path` with `write`, and downloads it once it is complete. Returns the result of `write`, and the
/// file's length.
///
/// # Errors
/// Fails if `write` does.
pub fn write_whole<T>(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Error>,
) -> Result<(T, u64), Failure> {
    let mut bytes = Vec::new();
    let failed = |why| Failure::Write(format!("cannot write {}: {why}", path.display()));
    let written = write(&mut bytes).map_err(failed)?;
    download(&path.to_string_lossy(), &bytes);
    Ok((written, bytes.len() as u64))
}
