//! Writes files in the format given by their extension, without leaving incomplete files. [`write_whole`] and
//! [`write_folder`] do this for any file or folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use flate2::write::GzEncoder;
use highwater_analysis::peak_stacks::StackFormat;
use highwater_snapshots::Error;

use super::failure::Failure;
use crate::files::is_stdin;

/// The kinds of files that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Highwater's format.
    Snap,
    /// PyTorch's snapshot as a pickle.
    Pickle,
    /// PyTorch's snapshot as JSON.
    Json,
    /// Stacks with their bytes at the peak.
    Stacks(StackFormat),
    /// Perfetto's trace.
    Perfetto,
    /// Chrome's trace, as profilers write it.
    Chrome,
}

impl Kind {
    /// Extensions without the dot; of two that match a name, the longer comes first.
    const ENDINGS: [(&'static str, Self); 11] = [
        ("snap", Self::Snap),
        ("pickle", Self::Pickle),
        ("pkl", Self::Pickle),
        ("trace.json", Self::Chrome),
        ("speedscope.json", Self::Stacks(StackFormat::Speedscope)),
        ("json", Self::Json),
        ("folded", Self::Stacks(StackFormat::Folded)),
        ("pprof", Self::Stacks(StackFormat::Pprof)),
        ("pb", Self::Stacks(StackFormat::Pprof)),
        ("perfetto-trace", Self::Perfetto),
        ("pftrace", Self::Perfetto),
    ];

    /// Returns whether the format can be written without having the whole recording in memory.
    pub fn is_streamed(self) -> bool {
        !matches!(self, Self::Pickle | Self::Json)
    }

    /// Returns the format's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snap => "snap",
            Self::Pickle => "PyTorch pickle",
            Self::Json => "PyTorch JSON",
            Self::Stacks(StackFormat::Folded) => "folded stacks",
            Self::Stacks(StackFormat::Speedscope) => "speedscope profile",
            Self::Stacks(StackFormat::Pprof) => "pprof profile",
            Self::Perfetto => "Perfetto trace",
            Self::Chrome => "Chrome trace",
        }
    }
}

/// A file to write: its path and format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The path as given.
    pub path: PathBuf,
    /// The format, determined by the file extension.
    pub kind: Kind,
    /// Whether the file is compressed with gzip.
    pub is_gzipped: bool,
}

impl Destination {
    /// Determines the format from the extension of `path`.
    ///
    /// # Errors
    /// Fails if the format is unsupported, or if `path` is `-`, is not a regular file, or is the same file as `input`.
    pub fn new(path: &Path, input: &Path) -> Result<Self, Failure> {
        if is_stdin(path) {
            return Err(usage("OUT is '-': name a file, whose extension selects the format".to_owned()));
        }
        let (kind, is_gzipped) = kind_of(path)?;
        if let Ok(facts) = std::fs::metadata(path) {
            if !facts.is_file() {
                return Err(usage(format!("{} exists but is not a regular file", path.display())));
            }
            let is_input = !is_stdin(input) && same(path, input);
            if is_input {
                return Err(usage(format!("IN and OUT are the same file: {}; name another OUT", path.display())));
            }
        }
        Ok(Self { path: path.to_owned(), kind, is_gzipped })
    }

    /// Writes the file with `write`, like [`write_whole`], and compresses it if requested.
    ///
    /// # Errors
    /// Fails if `write` does, or if the file cannot be written.
    pub fn write<T>(
        &self,
        write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Error>,
    ) -> Result<(T, u64), Failure> {
        write_whole(&self.path, |out| {
            if !self.is_gzipped {
                return write(out);
            }
            let mut packed = GzEncoder::new(out, Compression::default());
            let written = write(&mut packed)?;
            packed.finish().map_err(io_error)?;
            Ok(written)
        })
    }
}

/// Calls `write` to write the file `path` under a temporary name in the same folder, and renames the file when it is
/// complete. Returns the result of `write`, and the length of the file.
///
/// # Errors
/// Fails if `write` does, if the file cannot be written, or if the user stops the program; no partial file is left
/// then.
pub fn write_whole<T>(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Error>,
) -> Result<(T, u64), Failure> {
    unless_stopped(path, |stop| write_watched(path, Rights::OfNewFiles, stop, write))
}

/// Like [`write_whole`], but the file must exist and keeps its permissions, and the new one is on disk before it
/// replaces the old one.
///
/// # Errors
/// See [`write_whole`].
pub fn rewrite<T>(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Error>,
) -> Result<(T, u64), Failure> {
    unless_stopped(path, |stop| write_watched(path, Rights::Kept, stop, write))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    OfNewFiles,
    /// The permissions of the replaced file. Its content must not be lost even if the machine crashes.
    Kept,
}

/// Calls `write` to write the folder `path`, which must not exist or be empty, under a temporary name; it is renamed
/// when complete.
///
/// # Errors
/// Fails if `write` does, if the folder cannot be written, or if the user stops the program; no partial folder is left
/// then.
pub fn write_folder<T>(path: &Path, write: impl FnOnce(&Partial<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
    unless_stopped(path, |stop| {
        let failed = |why: io::Error| cannot_write(path, &why);
        let hidden = builder().tempdir_in(folder_of(path)).map_err(failed)?;
        // The temporary folder is private; the folder in it has the permissions of new folders.
        let whole = hidden.path().join("whole");
        std::fs::create_dir(&whole).map_err(failed)?;
        let written = write(&Partial { path, whole: &whole, stop })?;
        if path.exists() {
            std::fs::remove_dir(path).map_err(failed)?;
        }
        std::fs::rename(&whole, path).map_err(failed)?;
        Ok(written)
    })
}

/// A folder that is being written. Several threads may write its files at once.
#[derive(Debug)]
pub struct Partial<'a> {
    path: &'a Path,
    /// The temporary folder, which is renamed to `path` once all files are written.
    whole: &'a Path,
    stop: &'a Stop,
}

impl Partial<'_> {
    /// Creates the file `name` in the folder with `write`. Returns the file's length.
    ///
    /// # Errors
    /// Fails if `write` does, or if the file cannot be written.
    pub fn write(
        &self,
        name: &Path,
        write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), Error>,
    ) -> Result<u64, Failure> {
        let (shown, place) = (self.path.join(name), self.whole.join(name));
        let failed = |why: io::Error| cannot_write(&shown, &why);
        std::fs::create_dir_all(folder_of(&place)).map_err(failed)?;
        let mut file = File::create(&place).map_err(failed)?;
        write(&mut Watched { file: &mut file, stop: self.stop }).map_err(|error| not_written(&shown, error))?;
        file.metadata().map(|facts| facts.len()).map_err(failed)
    }
}

/// Runs `work` while watching for signals. If a signal arrived, reports a failure as stopped by the user.
fn unless_stopped<T>(path: &Path, work: impl FnOnce(&Stop) -> Result<T, Failure>) -> Result<T, Failure> {
    let stop = Stop::watch();
    let outcome = work(&stop);
    stop.stop();
    match (stop.signal(), outcome) {
        (Some(signal), Err(_)) => Err(Failure::Stopped { file: path.to_owned(), signal }),
        (_, outcome) => outcome,
    }
}

fn cannot_write(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    let folder = folder_of(path);
    if !folder.exists() {
        return Failure::Write(format!("cannot write {}: folder {} does not exist", path.display(), folder.display()));
    }
    Failure::Write(format!("cannot write {}: {why}", path.display()))
}

fn not_written(path: &Path, error: Error) -> Failure {
    match error {
        Error::Io { source, .. } => cannot_write(path, &source),
        Error::Damaged { .. } => Failure::Damaged(format!("cannot write {}: {error}", path.display())),
        error => cannot_write(path, &error),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_watched<T>(
    path: &Path,
    rights: Rights,
    stop: &Stop,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Error>,
) -> Result<(T, u64), Failure> {
    let failed = |why: &dyn std::fmt::Display| cannot_write(path, why);
    // If the name is a symbolic link, its target is replaced, not the link.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut partial = builder().tempfile_in(folder_of(&target)).map_err(|why| failed(&why))?;
    let mut file = Watched { file: partial.as_file_mut(), stop };
    let written = write(&mut file).map_err(|error| not_written(path, error))?;
    let length = partial.as_file().metadata().map_err(|why| failed(&why))?.len();
    if rights == Rights::Kept {
        let before = std::fs::metadata(&target).map_err(|why| failed(&why))?;
        partial.as_file().set_permissions(before.permissions()).map_err(|why| failed(&why))?;
        partial.as_file().sync_all().map_err(|why| failed(&why))?;
    }
    partial.persist(&target).map_err(|why| failed(&why.error))?;
    Ok((written, length))
}

fn usage(text: String) -> Failure {
    Failure::Usage(text)
}

/// Converts an I/O error of writing into an [`Error`].
pub fn io_error(source: io::Error) -> Error {
    Error::Io { doing: "write", source, path: PathBuf::new() }
}

fn kind_of(path: &Path) -> Result<(Kind, bool), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let is_gzipped = name.ends_with(".gz");
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    // The first of the extensions that match is the longest.
    let has = |ending: &str| name.strip_suffix(ending).is_some_and(|rest| rest.ends_with('.'));
    if let Some((_, kind)) = Kind::ENDINGS.iter().find(|(ending, _)| has(ending)) {
        return Ok((*kind, is_gzipped));
    }
    let last = Path::new(name).extension().and_then(OsStr::to_str).unwrap_or_default();
    let known: Vec<String> = Kind::ENDINGS.iter().map(|(ending, _)| format!(".{ending}")).collect();
    let known = format!("supported extensions are {}, each optionally followed by .gz, and .parquet", known.join(", "));
    let path = path.display();
    Err(usage(match last {
        "parquet" if is_gzipped => format!("{path}: Parquet files are already compressed: omit .gz; {known}"),
        "" => format!("{path}: the file name has no extension, which selects the format; {known}"),
        other => format!("{path}: cannot write .{other}; {known}"),
    }))
}

/// Returns whether two paths refer to the same existing file.
pub fn same(one: &Path, other: &Path) -> bool {
    match (std::fs::canonicalize(one), std::fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Creates temporary files with the permissions of ordinary new files.
fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".highwater-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder
}

/// A file whose writes fail after the user has stopped the program.
struct Watched<'a> {
    file: &'a mut File,
    stop: &'a Stop,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stop.signal() {
            // Not `Interrupted`, after which `write_all` would retry.
            Some(_) => Err(io::Error::other("stopped")),
            None => self.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The signal with which the user stopped the program during an export.
#[derive(Clone, Debug, Default)]
struct Stop {
    signal: Arc<AtomicUsize>,
    /// Whether signals have their default effect again, because watching ended.
    is_over: Arc<AtomicBool>,
}

static STOP: OnceLock<Stop> = OnceLock::new();

impl Stop {
    /// Starts watching for the signals that terminate a program; does nothing on systems without signals.
    fn watch() -> Self {
        let stop = STOP.get_or_init(|| {
            let stop = Self::default();
            #[cfg(unix)]
            for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
                // A signal that cannot be caught ends the program as usual, and a partial file under its temporary name
                // is left.
                let _ = signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop.is_over));
                let _ = signal_hook::flag::register_usize(signal, Arc::clone(&stop.signal), signal as usize);
            }
            stop
        });
        stop.signal.store(0, Ordering::SeqCst);
        stop.is_over.store(false, Ordering::SeqCst);
        stop.clone()
    }

    fn signal(&self) -> Option<u8> {
        match self.signal.load(Ordering::SeqCst) {
            0 => None,
            signal => Some(signal as u8),
        }
    }

    fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_says_what_to_write() {
        let kind = |name: &str| kind_of(Path::new(name)).ok();
        assert_eq!(kind("a.snap"), Some((Kind::Snap, false)));
        assert_eq!(kind("run.1.PKL"), Some((Kind::Pickle, false)));
        assert_eq!(kind("a.json.gz"), Some((Kind::Json, true)));
        assert_eq!(kind("a.folded"), Some((Kind::Stacks(StackFormat::Folded), false)));
        assert_eq!(kind("step.trace.JSON.gz"), Some((Kind::Chrome, true)));
        assert_eq!(kind("mytrace.json"), Some((Kind::Json, false)));
        assert_eq!(kind("peak.pb.gz"), Some((Kind::Stacks(StackFormat::Pprof), true)));
        for (name, words) in
            [("a.csv", ".csv"), ("a.parquet.gz", "already compressed"), ("a", "no extension"), ("a.gz", "no extension")]
        {
            let why = kind_of(Path::new(name)).unwrap_err().to_string();
            assert!(
                why.contains(words) && why.contains(".pickle, .pkl, .trace.json, .speedscope.json, .json, .folded"),
                "{why}"
            );
        }
    }

    #[test]
    fn what_is_not_finished_leaves_nothing_and_keeps_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        std::fs::write(&path, "old").unwrap();
        let destination = Destination::new(&path, Path::new("-")).unwrap();
        let failed = destination.write(|out| {
            out.write_all(b"half").map_err(io_error)?;
            Err::<(), _>(io_error(io::Error::other("the disk is full")))
        });
        let why = failed.unwrap_err().to_string();
        assert!(why.contains("out.json: the disk is full"), "{why}");
        let is_untouched =
            || std::fs::read(&path).unwrap() == b"old" && std::fs::read_dir(folder.path()).unwrap().count() == 1;
        assert!(is_untouched());
        #[cfg(unix)]
        {
            // Tested here and not separately, since a signal reaches all tests of the process.
            let stopped = destination.write(|out| {
                out.write_all(b"half").map_err(io_error)?;
                signal_hook::low_level::raise(signal_hook::consts::SIGTERM).map_err(io_error)?;
                out.write_all(b"whole").map_err(io_error)
            });
            let why = stopped.unwrap_err();
            assert!(matches!(why, Failure::Stopped { signal: 15, .. }) && is_untouched(), "{why}");
        }
        let ((), length) = destination.write(|out| out.write_all(b"whole").map_err(io_error)).unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), length), (b"whole".to_vec(), 5));
    }
}
