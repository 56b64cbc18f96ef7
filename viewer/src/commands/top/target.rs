//! The target to watch: a file, the recordings of a folder, or those that a process writes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use highwater_app::files::file_name;
use highwater_app::files::fleet::Inputs;
use highwater_snapshots::RotatedFiles;
use highwater_snapshots::format::Windows;
use highwater_snapshots::rotation::recording_of;

use crate::output::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A file, or the files of a rotation.
    File(PathBuf),
    /// The recordings in a folder, one for each rank or process.
    Folder(PathBuf),
    /// The recordings that a process and its children write.
    Process(u32),
}

impl Target {
    /// Determines whether `given` is a file, a folder or a process.
    ///
    /// # Errors
    /// Fails if there is no such file, folder or process, or if the process writes no recording.
    pub(super) fn of(given: &Path) -> Result<Self, Failure> {
        if Windows::find_rotated(given).is_some() || given.is_file() {
            return Ok(Self::File(given.to_owned()));
        }
        if given.is_dir() {
            return Ok(Self::Folder(given.to_owned()));
        }
        let Some(process) = given.to_str().and_then(|text| text.parse().ok()) else {
            let text =
                "no such file, folder or process; name a recording, a folder of recordings, or a process by its id";
            return Err(Failure::Usage(format!("cannot watch {}: {text}", given.display())));
        };
        if recordings_of(process)?.is_empty() {
            return Err(Failure::Usage(format!(
                "process {process} is not writing a recording; `highwater attach {process}` records a running PyTorch \
                 program, and `highwater run -- PROGRAM` one from its start"
            )));
        }
        Ok(Self::Process(process))
    }

    /// Returns the present recordings, each with its name.
    ///
    /// # Errors
    /// Fails if the folder or the process cannot be read.
    pub(super) fn recordings(&self) -> Result<Vec<(PathBuf, String)>, Failure> {
        Ok(match self {
            Self::File(path) => vec![(path.clone(), file_name(path))],
            Self::Folder(folder) => {
                let inputs = Inputs::of_folder(folder)
                    .map_err(|why| Failure::Usage(format!("cannot list {}: {why}", folder.display())))?
                    .with_rotations_joined();
                let recordings = inputs.files().filter(|(path, _)| is_recording(path));
                recordings.map(|(path, name)| (path.to_owned(), name.to_owned())).collect()
            }
            Self::Process(process) => {
                let paths = recordings_of(*process)?;
                let whole =
                    |path: PathBuf| recording_of(&path).filter(|all| RotatedFiles::find(all).is_some()).unwrap_or(path);
                let paths: BTreeSet<PathBuf> = paths.into_iter().map(whole).collect();
                paths.into_iter().map(|path| (path.clone(), file_name(&path))).collect()
            }
        })
    }
}

/// Whether a file in a folder is assumed to be a recording, by its extension.
fn is_recording(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ["snap", "pickle", "pkl", "gz"].contains(&ending)
}

/// The `.snap` files that a process, or one of its descendants, has open.
#[cfg(target_os = "linux")]
fn recordings_of(process: u32) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut found = BTreeSet::new();
    let mut next = vec![process];
    while let Some(one) = next.pop() {
        let folder = PathBuf::from(format!("/proc/{one}"));
        let opened = match std::fs::read_dir(folder.join("fd")) {
            Ok(opened) => opened,
            // Children come and go.
            Err(_) if one != process => continue,
            Err(why) if why.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(Failure::Usage(format!(
                    "cannot inspect process {process}: it belongs to another user; name the file that it writes"
                )));
            }
            Err(_) => return Err(Failure::Usage(format!("'{process}': no such process or file"))),
        };
        let links = opened.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        found.extend(links.filter(|path| path.extension().is_some_and(|ending| ending == "snap") && path.is_file()));
        let threads = std::fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
        let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        children.for_each(|text| next.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok())));
    }
    Ok(found)
}

#[cfg(not(target_os = "linux"))]
fn recordings_of(process: u32) -> Result<BTreeSet<PathBuf>, Failure> {
    Err(Failure::Usage(format!(
        "cannot inspect process {process}: this system does not list its files; name the file that it writes"
    )))
}
