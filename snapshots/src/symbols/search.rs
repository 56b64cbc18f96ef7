//! Finds the file with line information for a binary: the binary itself, or a separate debug file.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::copies::Copies;
use super::debug_info::DebugInfo;
use super::finding::{Cause, Found, Missing};
use super::line::Binary;
use super::object_file::{Facts, Unread, checksum, hex, inspect};

/// The folder of separate debug files in Linux distributions.
pub const SYSTEM_DEBUG_FOLDER: &str = "/usr/lib/debug";

#[derive(Debug, Default)]
pub(super) struct Places {
    /// Folders that contain debug files under names such as `.build-id/ab/cdef.debug`, or the name in a debug link.
    pub(super) debug_folders: Vec<PathBuf>,
    /// Folders with binaries and debug files under any name.
    pub(super) copies: Copies,
    /// The start time of the recording; `None` if unknown.
    pub(super) began: Option<SystemTime>,
}

impl Places {
    pub(super) fn open(&self, binary: &Binary) -> Result<(DebugInfo, Found), Missing> {
        let mut tried = Vec::new();
        let mut cause = Cause::NotThere;
        let mut own = None;
        match inspect(&binary.path) {
            Ok(_) if binary.build_id.is_empty() && self.is_changed(&binary.path) => {
                tried.push(
                    "the file there was changed after the recording began, and without a build id it may have been rebuilt; \
                     link with --build-id"
                        .to_owned(),
                );
                cause = Cause::Rebuilt;
            }
            Ok(facts) if facts.build_id == binary.build_id => own = Some(facts),
            Ok(facts) => {
                let (now, then) = (hex(&facts.build_id), hex(&binary.build_id));
                tried.push(format!("the file was rebuilt: it has build id {now}, and the recorded file had {then}"));
                cause = Cause::Rebuilt;
            }
            Err(Unread::Unopened(why)) => tried.push(why),
            Err(Unread::Unparsed(why)) => {
                tried.push(why);
                cause = Cause::Unreadable;
            }
        }
        let is_certain = !binary.build_id.is_empty();
        let found = |path: PathBuf, has_lines| Found { path, has_lines, is_certain };
        let copy = || self.copies.get(&binary.build_id).filter(|_| is_certain).cloned();
        let found = match own {
            Some(own) if own.has_lines => found(binary.path.clone(), true),
            own => match (self.separate_file(binary, own.as_ref()), copy(), own) {
                (Some(path), ..) => found(path, true),
                (None, Some(copy), None) => found(copy.path, copy.has_lines),
                (None, Some(copy), Some(_)) if copy.has_lines => found(copy.path, true),
                (None, _, Some(_)) => found(binary.path.clone(), false),
                (None, None, None) => {
                    if is_certain {
                        let (id, folders) = (hex(&binary.build_id), &self.debug_folders);
                        tried.push(format!("no debug file with build id {id} in {folders:?}"));
                    }
                    return Err(Missing { cause, what: tried.join("; ") });
                }
            },
        };
        match DebugInfo::open(&found.path) {
            Ok(info) => Ok((info, found)),
            Err(error) => {
                let what = format!("cannot read {}: {error}", found.path.display());
                Err(Missing { cause: Cause::Unreadable, what })
            }
        }
    }

    /// Returns whether a file was changed after the start of the recording; `false` if either time is unknown.
    fn is_changed(&self, path: &Path) -> bool {
        let changed = std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
        changed.zip(self.began).is_some_and(|(changed, began)| changed > began)
    }

    /// Returns the debug file of `binary`. Searches by build id, then by the name in the debug link.
    fn separate_file(&self, binary: &Binary, own: Option<&Facts>) -> Option<PathBuf> {
        let id = hex(&binary.build_id);
        let belongs =
            |path: &PathBuf| inspect(path).is_ok_and(|facts| facts.has_lines && facts.build_id == binary.build_id);
        if binary.build_id.len() > 1 {
            let name = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
            if let Some(found) = self.debug_folders.iter().map(|folder| folder.join(&name)).find(belongs) {
                return Some(found);
            }
        }
        let (name, sum) = own?.debug_link.as_ref()?;
        let folder = binary.path.parent()?;
        let mut places = vec![folder.join(name), folder.join(".debug").join(name)];
        let below_root = folder.strip_prefix("/").unwrap_or(folder);
        places.extend(self.debug_folders.iter().map(|folder| folder.join(below_root).join(name)));
        // A file without a build id is known by its checksum.
        let matches = |path: &PathBuf| belongs(path) && (!binary.build_id.is_empty() || checksum(path) == Some(*sum));
        places.into_iter().find(matches)
    }
}
