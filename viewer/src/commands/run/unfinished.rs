//! Removes the temporary files of processes that were killed while they wrote a recording.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::report::files_of_run;
use super::signals::{is_running, send};

/// How long the conversion of a killed process may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// SIGTERM, at which a conversion ends and leaves no file.
const TERMINATE: i32 = 15;

/// Removes what processes of the run with this folder of claims have begun to write beside its recordings, unless they
/// still run. The names of these files begin with that of the folder, and the process id.
pub(super) fn remove(file: &Path, claims: &Path) {
    let prefix = format!(".{}-", claims.file_name().unwrap_or_default().display());
    let files = files_of_run(file, claims);
    let beside = if file.is_dir() { Some(file) } else { file.parent() };
    let mut folders: Vec<&Path> = files.iter().filter_map(|file| file.parent()).chain(beside).collect();
    folders.sort();
    folders.dedup();
    let left = || folders.iter().flat_map(|folder| of_ended_processes(folder, &prefix)).collect::<Vec<_>>();
    let begun = Instant::now();
    // A conversion goes on after the process that has started it.
    loop {
        let converting = conversions(&left());
        if converting.is_empty() || begun.elapsed() > PATIENCE {
            break;
        }
        converting.into_iter().for_each(|pid| send(pid, TERMINATE));
        std::thread::sleep(Duration::from_millis(20));
    }
    left().into_iter().for_each(|path| drop(std::fs::remove_file(path)));
}

fn of_ended_processes(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let has_ended = |name: &str| {
        let pid = name.strip_prefix(prefix).and_then(|rest| rest.split('-').next()?.parse().ok());
        pid.is_some_and(|pid| !is_running(pid))
    };
    entries.filter(|entry| entry.file_name().to_str().is_some_and(has_ended)).map(|entry| entry.path()).collect()
}

fn conversions(files: &[PathBuf]) -> Vec<u32> {
    if files.is_empty() {
        return Vec::new();
    }
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names_one = |pid: &u32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments);
        let mut words = arguments.split('\0').skip(1);
        words.next() == Some("convert") && words.any(|word| files.iter().any(|file| file == Path::new(word)))
    };
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(names_one).collect()
}
