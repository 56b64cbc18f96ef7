//! Opens recordings that are too long to be held in memory, to be read in parts.

use std::fs::File;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use highwater_snapshots::Error;
use highwater_snapshots::format::{ComputedStore, Progress, Windows, is_snap};

use crate::files::computed_cache::{ComputedCache, cache_folder};

/// Opens a `.snap` file, or the files of a rotation, of more than `most` events. `None` if it has no more, or is none.
/// If the summaries of more than `most` events have to be computed, they are kept in the user's cache folder.
///
/// # Errors
///
/// Fails if the recording cannot be read in parts, or with [`Error::Cancelled`] if `watch` breaks.
pub fn open_long(
    path: &Path,
    most: u64,
    watch: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
) -> Result<Option<Windows>, Error> {
    if let Some(rotated) = Windows::find_rotated(path) {
        let files: Vec<&Path> = rotated.files.iter().map(|(_, file)| file.as_path()).collect();
        let windows = Windows::open_rotated(&rotated, &*store(&files, most), watch)?;
        return Ok(Some(windows).filter(|windows| windows.events() > most));
    }
    if !begins_as_snap(path) {
        return Ok(None);
    }
    let file = File::open(path).map_err(|source| Error::Io { doing: "open", source, path: path.to_owned() })?;
    Windows::open_longer(Arc::new(file), most, &*store(&[path], most), watch)
}

/// The store of computed data for the recording in `files`.
fn store(files: &[&Path], most: u64) -> Box<dyn ComputedStore> {
    let cache = cache_folder().and_then(|folder| ComputedCache::new(&folder.join("summaries"), files, most).ok());
    match cache {
        Some(cache) => Box::new(cache),
        None => Box::new(()),
    }
}

fn begins_as_snap(file: &Path) -> bool {
    let mut start = [0; 8];
    // What is read from a pipe is gone.
    file.is_file() && File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && is_snap(&start)
}
