//! Writes files: the format follows from the ending, and nothing is left of an incomplete file. [`write_whole`] writes
//! any file this way, [`write_folder`] any folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use flate2::write::GzEncoder;
use highwater_snapshots::Error;

use super::failure::Failure;
use crate::files::is_stdin;

/// The kinds of files that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Our own.
    Snap,
    /// PyTorch's snapshot as a pickle.
    Pickle,
    /// PyTorch's snapshot as JSON.
    Json,
    /// Stacks with their bytes.
    Folded,
}

impl Kind {
    /// The endings by which it is asked for, each without its dot.
    const ENDINGS: [(&'static str, Self); 5] = [
        ("snap", Self::Snap),
        ("pickle", Self::Pickle),
        ("pkl", Self::Pickle),
        ("json", Self::Json),
        ("folded", Self::Folded),
    ];

    /// Its name in the answer.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snap => "snap",
            Self::Pickle => "PyTorch pickle",
            Self::Json => "PyTorch JSON",
            Self::Folded => "folded stacks",
        }
    }
}

/// A file that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// As it was named.
    pub path: PathBuf,
    /// Its format.
    pub kind: Kind,
    /// Whether it is compressed.
    pub is_gzipped: bool,
}

impl Destination {
    /// Reads the ending of `path`, and refuses what cannot or should not be written while `input` is read.
    pub fn new(path: &Path, input: &Path) -> Result<Self, Failure> {
        if is_stdin(path) {
            return Err(usage("OUT is '-': name a file, whose ending says what to write".to_owned()));
        }
        let (kind, is_gzipped) = kind_of(path)?;
        if let Ok(facts) = std::fs::metadata(path) {
            if !facts.is_file() {
                return Err(usage(format!("{} exists but is not a regular file", path.display())));
            }
            let is_input = !is_stdin(input) && same(path, input);
            if is_input {
                return Err(usage(format!("IN and OUT are the same file: {}", path.display())));
            }
        }
        Ok(Self { path: path.to_owned(), kind, is_gzipped })
    }

    /// Lets `write` write the file, as [`write_whole`] does, and compresses it where that is asked for.
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

/// Lets `write` write the file `path`, in the same folder under another name; it gets its own name when it is complete.
/// Gives what `write` gives, and the file's length. Where that fails, or the user stops it, nothing is left.
pub fn write_whole<T>(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Error>,
) -> Result<(T, u64), Failure> {
    write_as(path, Rights::OfNewFiles, write)
}

/// As [`write_whole`], in place of a file that is there: with its rights, and only once the new one is on the disk.
pub fn rewrite<T>(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Error>,
) -> Result<(T, u64), Failure> {
    write_as(path, Rights::Kept, write)
}

/// Who may read and write a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    OfNewFiles,
    /// As before; what the file was must not be lost, even if the machine stops.
    Kept,
}

fn write_as<T>(
    path: &Path,
    rights: Rights,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, Error>,
) -> Result<(T, u64), Failure> {
    unless_stopped(path, |stop| write_watched(path, rights, stop, write))
}

/// Lets `write` write the folder `path`, which is not there or empty, under another name; it gets its own name when it is
/// complete. Where that fails, or the user stops it, nothing is left.
pub fn write_folder<T>(path: &Path, write: impl FnOnce(&Partial<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
    unless_stopped(path, |stop| {
        let failed = |why: io::Error| cannot_write(path, &why);
        let hidden = builder().tempdir_in(folder_of(path)).map_err(failed)?;
        // The hidden folder is for its owner alone; what is in it, for whom new folders are.
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

/// A folder that is being written. Its files may be written by several threads at once.
#[derive(Debug)]
pub struct Partial<'a> {
    /// As it will be called.
    path: &'a Path,
    /// As it is called meanwhile.
    whole: &'a Path,
    stop: &'a Stop,
}

impl Partial<'_> {
    /// Lets `write` write the file `name` in it; gives the file's length.
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

/// Does `work`, which looks at signals; what failed after one is the user's stopping.
fn unless_stopped<T>(path: &Path, work: impl FnOnce(&Stop) -> Result<T, Failure>) -> Result<T, Failure> {
    let stop = Stop::watch();
    let outcome = work(&stop);
    stop.let_go();
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
        error => cannot_write(path, &error),
    }
}

/// Returns the folder that contains a file or folder.
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
    // Where the name is a link, the file that it leads to is replaced, not the link.
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

/// A failure to write as one of reading and writing recordings.
pub fn io_error(source: io::Error) -> Error {
    Error::Io { doing: "write", source, path: PathBuf::new() }
}

/// Returns the kind of file and whether to compress it, by the ending of `path`.
fn kind_of(path: &Path) -> Result<(Kind, bool), Failure> {
    let ending = |path: &Path| path.extension().and_then(OsStr::to_str).unwrap_or_default().to_ascii_lowercase();
    let mut last = ending(path);
    let is_gzipped = last == "gz";
    if is_gzipped {
        last = ending(Path::new(path.file_stem().unwrap_or_default()));
    }
    if let Some((_, kind)) = Kind::ENDINGS.iter().find(|(known, _)| *known == last) {
        return Ok((*kind, is_gzipped));
    }
    let known: Vec<String> = Kind::ENDINGS.iter().map(|(ending, _)| format!(".{ending}")).collect();
    let known = format!("supported endings are {}, each optionally followed by .gz, and .parquet", known.join(", "));
    let path = path.display();
    Err(usage(match last.as_str() {
        "parquet" => format!("{path}: Parquet files are already compressed: omit .gz; {known}"),
        "" => format!("{path}: the file name has no ending, which selects the format; {known}"),
        other => format!("{path}: cannot write .{other}; {known}"),
    }))
}

/// Whether two names lead to one file that is there.
pub fn same(one: &Path, other: &Path) -> bool {
    match (std::fs::canonicalize(one), std::fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Makes files with the rights of any new file, not those of a secret.
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

/// A file that takes no more once the user has stopped the program.
struct Watched<'a> {
    file: &'a mut File,
    stop: &'a Stop,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stop.signal() {
            // Not `Interrupted`, at which `write_all` would try again.
            Some(_) => Err(io::Error::other("stopped")),
            None => self.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The signal by which the user asked the program to stop, while that is watched for.
#[derive(Clone, Debug, Default)]
struct Stop {
    signal: Arc<AtomicUsize>,
    /// Signals do what they do by default.
    is_over: Arc<AtomicBool>,
}

/// The state that signals change: one for the process.
static STOP: OnceLock<Stop> = OnceLock::new();

impl Stop {
    /// Watches from now on for the signals that end a program in an orderly way; none where there are no signals.
    fn watch() -> Self {
        let stop = STOP.get_or_init(|| {
            let stop = Self::default();
            #[cfg(unix)]
            for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
                // Where a signal cannot be caught, it ends the program as ever, and a partial file under a name of its
                // own is left.
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

    fn let_go(&self) {
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
        assert_eq!(kind("a.folded"), Some((Kind::Folded, false)));
        for (name, words) in
            [("a.csv", ".csv"), ("a.parquet.gz", "already compressed"), ("a", "no ending"), ("a.gz", "no ending")]
        {
            let why = kind_of(Path::new(name)).unwrap_err().to_string();
            assert!(why.contains(words) && why.contains(".pickle, .pkl, .json, .folded"), "{why}");
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
            // Here, and not in a test of its own: a signal reaches all tests of the process.
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
