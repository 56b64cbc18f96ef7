//! The scripts by which a program begins and ends its recording, and its notes, in a folder that both processes use.

use std::io;
use std::path::{Path, PathBuf};

use highwater_app::files::computed_cache::cache_folder;
use tempfile::{Builder, TempDir};

use crate::python_package;

/// What each script begins with, after the lines that set its variables. A script that is run when `highwater attach`
/// no longer waits for it removes the folder.
const START: &str = "\
import os, shutil, sys
def is_awaited(name):
    try:
        os.remove(os.path.join(folder, name))
        return True
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return False
try:
    sys.path.insert(0, package)
";
const IMPORT: &str = "from highwater import _attached, _binary; _binary.given = binary; _attached";
/// No exception may reach the program.
const END: &str = "
except BaseException as error:
    try:
        with open(notes, 'a') as file:
            print('error', ' '.join(str(error).split()) or type(error).__name__, file=file)
    except OSError:
        pass
finally:
    if package in sys.path:
        sys.path.remove(package)
";

/// The folder of the scripts and of the program's notes.
#[derive(Debug)]
pub(super) struct Scripts {
    pid: u32,
    folder: TempDir,
    package: PathBuf,
}

impl Scripts {
    /// Makes the folder, and writes the Python package, so that the process can use both.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be written, or if the process does not see them.
    pub(super) fn for_process(pid: u32) -> io::Result<Self> {
        let folder = Builder::new().prefix("highwater-attach-").tempdir()?;
        if !is_seen_by(pid, folder.path()) {
            return Err(io::Error::other("it runs in a container or a chroot: run `highwater attach` there"));
        }
        let is_given = give_to_user_of(pid, folder.path())?;
        // The program uses the package until the end of the recording, whether or not this process still runs.
        let package = match cache_folder().filter(|_| !is_given) {
            Some(cache) => cache.join(format!("python-{}", env!("CARGO_PKG_VERSION"))),
            None => Builder::new().prefix("highwater-python-").tempdir()?.keep(),
        };
        python_package::write(&package, "")?;
        give_to_user_of(pid, &package)?;
        Ok(Self { pid, folder, package })
    }

    /// The script that begins a recording in `out` with these options of `record_memory_history`.
    pub(super) fn begin(&self, out: &Path, options: &str) -> io::Result<PathBuf> {
        let attach = format!("attach({}, notes, dict({options}))", text(out));
        self.write("begin", &format!("if is_awaited('begin'): {IMPORT}.{attach}"))
    }

    /// The script that ends the recording.
    pub(super) fn end(&self) -> io::Result<PathBuf> {
        self.write("end", &format!("is_awaited('end'); {IMPORT}.detach()"))
    }

    fn write(&self, name: &str, line: &str) -> io::Result<PathBuf> {
        let script = self.path(&format!("{name}.py"));
        let values = [self.folder.path(), &self.package, &self.path("notes"), &std::env::current_exe()?].map(text);
        let variables = format!("folder, package, notes, binary = {}\n", values.join(", "));
        std::fs::write(&script, format!("{variables}{START}    {line}{END}"))?;
        std::fs::write(self.path(name), "")?;
        give_to_user_of(self.pid, self.folder.path())?;
        Ok(script)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program's notes.
    pub(super) fn notes(&self) -> Notes {
        Notes::of(&std::fs::read_to_string(self.path("notes")).unwrap_or_default())
    }

    /// Withdraws a script that the program has not run yet: returns false if it has. The program removes the folder.
    pub(super) fn withdraw(&mut self, name: &str) -> bool {
        let is_withdrawn = std::fs::remove_file(self.path(name)).is_ok();
        if is_withdrawn {
            self.folder.disable_cleanup(true);
        }
        is_withdrawn
    }
}

/// The program's notes: `recording`, `written PATH`, `ended`, or `error TEXT`.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) is_recording: bool,
    pub(super) has_ended: bool,
    pub(super) written: Vec<PathBuf>,
    pub(super) error: Option<String>,
}

impl Notes {
    fn of(lines: &str) -> Self {
        let mut notes = Self::default();
        for line in lines.lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("recording", _) => notes.is_recording = true,
                ("ended", _) => notes.has_ended = true,
                ("written", path) => notes.written.push(PathBuf::from(path)),
                ("error", text) => notes.error = Some(text.to_owned()),
                _ => {}
            }
        }
        notes
    }
}

/// A path as text of Python.
pub(super) fn text(path: &Path) -> String {
    let escaped = path.to_string_lossy().replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
    format!("'{escaped}'")
}

/// Whether a process sees this folder under the same path, as far as this user may know.
#[cfg(unix)]
fn is_seen_by(pid: u32, folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let place = |path: &Path| std::fs::metadata(path).map(|facts| (facts.dev(), facts.ino()));
    let Ok(inside) = folder.strip_prefix("/") else { return true };
    match (place(folder), place(&PathBuf::from(format!("/proc/{pid}/root")).join(inside))) {
        (Ok(own), Ok(other)) => own == other,
        (_, Err(why)) => why.kind() != io::ErrorKind::NotFound,
        _ => true,
    }
}

/// Gives a folder to the user of a process where that is another one, as root can; returns whether it did.
#[cfg(unix)]
fn give_to_user_of(pid: u32, folder: &Path) -> io::Result<bool> {
    use std::os::unix::fs::{MetadataExt as _, chown};
    fn give(path: &Path, user: u32, group: u32) -> io::Result<()> {
        chown(path, Some(user), Some(group))?;
        if path.is_dir() {
            std::fs::read_dir(path)?.try_for_each(|entry| give(&entry?.path(), user, group))?;
        }
        Ok(())
    }
    let (own, process) = (std::fs::metadata("/proc/self")?, std::fs::metadata(format!("/proc/{pid}"))?);
    let is_given = own.uid() == 0 && process.uid() != 0;
    if is_given {
        give(folder, process.uid(), process.gid())?;
    }
    Ok(is_given)
}

#[cfg(not(unix))]
fn is_seen_by(_pid: u32, _folder: &Path) -> bool {
    true
}

#[cfg(not(unix))]
fn give_to_user_of(_pid: u32, _folder: &Path) -> io::Result<bool> {
    Ok(false)
}
