//! Caches computed summaries of long recordings in the user's cache folder, so that only the first opening reads all
//! events.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use highwater_snapshots::Error;
use highwater_snapshots::byte_source::ByteSource;
use highwater_snapshots::format::{ComputedStore, Progress, Windows, is_snap};

use flate2::Crc;

const MAX_ENTRIES: usize = 64;

const MAX_BYTES: u64 = 1 << 30;

/// Number of bytes at the end of a recording that are checksummed to detect changes.
const COMPARED_BYTES: u64 = 1 << 16;

#[derive(Debug)]
pub(crate) struct ComputedCache {
    entry: PathBuf,
    /// The required first bytes of the entry. An entry that starts differently is from another version of the program,
    /// or for an earlier state of the recording.
    head: Vec<u8>,
    most_events: u64,
}

impl ComputedCache {
    /// Finds the cache entry in `folder` for the recording in `files`. The cache is used if summaries of more than
    /// `most_events` events have to be computed.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub(crate) fn new(folder: &Path, files: &[&Path], most_events: u64) -> io::Result<Self> {
        let mut head = format!("summaries of highwater {}\n", env!("CARGO_PKG_VERSION"));
        let mut names = DefaultHasher::new();
        for file in files {
            let path = fs::canonicalize(file)?;
            path.hash(&mut names);
            head.push_str(&format!("{path:?} {}\n", identity(&path)?));
        }
        head.push('\n');
        let entry = folder.join(format!("{:016x}.summaries", names.finish()));
        Ok(Self { entry, head: head.into_bytes(), most_events })
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let mut file = File::open(&self.entry)?;
        let mut start = vec![0; self.head.len()];
        file.read_exact(&mut start)?;
        if start != self.head {
            return Ok(None);
        }
        let mut rest = Vec::new();
        file.read_to_end(&mut rest)?;
        // Entries that were used last are kept longest.
        drop(file.set_modified(SystemTime::now()));
        Ok(Some(rest))
    }

    fn write(&self, computed: &[u8]) -> io::Result<()> {
        let folder = self.entry.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&self.head)?;
        file.write_all(computed)?;
        file.persist(&self.entry)?;
        keep_to(folder, MAX_ENTRIES, MAX_BYTES)
    }
}

impl ComputedStore for ComputedCache {
    fn is_for(&self, events: u64) -> bool {
        events > self.most_events
    }

    fn load(&self) -> Option<Vec<u8>> {
        self.read().ok().flatten()
    }

    fn save(&self, computed: &[u8]) {
        // A cache that cannot be written only costs time at the next opening.
        drop(self.write(computed));
    }
}

/// Identifies a file in its present state by its length, modification time and the checksum of its end.
fn identity(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let facts = file.metadata()?;
    let modified = facts.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    file.seek(SeekFrom::Start(facts.len().saturating_sub(COMPARED_BYTES)))?;
    let mut end = Vec::new();
    file.take(COMPARED_BYTES).read_to_end(&mut end)?;
    let mut crc = Crc::new();
    crc.update(&end);
    Ok(format!("{} {modified} {:08x}", facts.len(), crc.sum()))
}

/// Removes the least recently used entries until at most `most` entries with at most `bytes` bytes in total remain.
fn keep_to(folder: &Path, most: usize, bytes: u64) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        entries.push((facts.modified()?, facts.len(), entry.path()));
    }
    entries.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0_u64;
    for (number, (_, length, path)) in entries.into_iter().enumerate() {
        sum = sum.saturating_add(length);
        if number >= most || sum > bytes {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Returns this program's folder in the user's cache folder, if there is one.
pub fn cache_folder() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    if let Some(folder) = absolute("XDG_CACHE_HOME") {
        return Some(folder.join("highwater"));
    }
    if cfg!(windows) {
        return Some(absolute("LOCALAPPDATA")?.join("highwater").join("cache"));
    }
    let in_home = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    Some(absolute("HOME")?.join(in_home).join("highwater"))
}

/// Opens a `.snap` file, or the files of a rotation, with more than `most` events; `None` for a shorter recording or
/// another format. Stores summaries of more than `most` computed events in the user's cache folder.
///
/// # Errors
/// Fails if the recording cannot be read in parts. Returns [`Error::Cancelled`] if `watch` breaks.
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
    let file: Arc<dyn ByteSource> = Arc::new(file);
    if Windows::count_events(Arc::clone(&file)).is_none_or(|events| events <= most) {
        return Ok(None);
    }
    Windows::open_files(vec![(String::new(), file)], &*store(&[path], most), watch).map(Some)
}

fn store(files: &[&Path], most: u64) -> Box<dyn ComputedStore> {
    let cache = cache_folder().and_then(|folder| ComputedCache::new(&folder.join("summaries"), files, most).ok());
    match cache {
        Some(cache) => Box::new(cache),
        None => Box::new(()),
    }
}

/// Returns whether a regular file starts like a `.snap` file.
pub fn begins_as_snap(file: &Path) -> bool {
    let mut start = [0; 8];
    // Data read from a pipe cannot be read again.
    file.is_file() && File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && is_snap(&start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(folder: &Path, files: &[&Path]) -> ComputedCache {
        ComputedCache::new(&folder.join("cache"), files, 10).unwrap()
    }

    #[test]
    fn what_is_saved_is_loaded_until_the_recording_changes() {
        let folder = tempfile::tempdir().unwrap();
        let recordings = ["a.snap", "b.snap"].map(|name| folder.path().join(name));
        let files: Vec<&Path> = recordings.iter().map(PathBuf::as_path).collect();
        recordings.iter().for_each(|file| fs::write(file, "first").unwrap());
        let before = cache(folder.path(), &files);
        assert!(before.is_for(11) && !before.is_for(10));
        assert_eq!(before.load(), None);
        before.save(b"computed");
        assert_eq!(cache(folder.path(), &files).load().as_deref(), Some(&b"computed"[..]));
        assert_eq!(cache(folder.path(), &files[1..]).load(), None, "of other files");
        fs::write(&recordings[1], "other").unwrap();
        let after = cache(folder.path(), &files);
        assert_eq!(after.load(), None, "as long, but changed");
        after.save(b"again");
        assert_eq!(after.load().as_deref(), Some(&b"again"[..]));
        assert_eq!(before.load(), None);
        assert_eq!(fs::read_dir(folder.path().join("cache")).unwrap().count(), 1, "the former entry is replaced");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = ComputedCache::new(file.path(), &[file.path()], 0).unwrap();
        cache.save(b"computed");
        assert_eq!(cache.load(), None);
    }

    #[test]
    fn entries_used_longest_ago_are_removed_beyond_the_limits() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a", "b", "c", "d"];
        for (name, second) in names.iter().zip([3, 1, 4, 2]) {
            let path = folder.path().join(name);
            fs::write(&path, "12345").unwrap();
            let time = UNIX_EPOCH + std::time::Duration::from_secs(1000 + second);
            File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }
        let left = || names.into_iter().filter(|name| folder.path().join(name).exists()).collect::<String>();
        keep_to(folder.path(), 3, 1000).unwrap();
        assert_eq!(left(), "acd");
        keep_to(folder.path(), 3, 12).unwrap();
        assert_eq!(left(), "ac");
    }
}
