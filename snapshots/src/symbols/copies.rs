//! Finds binaries and debug files in a folder by their build ids, under any file name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::object_file::inspect;

/// Maximum number of levels of subfolders to search.
const MAX_DEPTH: usize = 2;

/// Maximum number of files to inspect, in all folders together.
const MAX_FILES: usize = 20_000;

/// The binaries in some folders by build id. The folders are scanned on first use.
#[derive(Debug, Default)]
pub(super) struct Copies {
    folders: Vec<PathBuf>,
    by_build_id: OnceLock<HashMap<Vec<u8>, Copy>>,
}

#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) path: PathBuf,
    pub(super) has_lines: bool,
}

impl Copies {
    pub(super) fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders, by_build_id: OnceLock::new() }
    }

    /// Returns the best file with this build id: one with line information, or otherwise the first one by name.
    pub(super) fn get(&self, build_id: &[u8]) -> Option<&Copy> {
        self.by_build_id.get_or_init(|| index(&self.folders)).get(build_id)
    }
}

fn index(folders: &[PathBuf]) -> HashMap<Vec<u8>, Copy> {
    let mut files = Vec::new();
    for folder in folders {
        collect(folder, MAX_DEPTH, &mut files);
    }
    let mut found: HashMap<Vec<u8>, Copy> = HashMap::new();
    for path in files {
        let Ok(facts) = inspect(&path) else { continue };
        if facts.build_id.is_empty() {
            continue;
        }
        let copy = Copy { path, has_lines: facts.has_lines };
        match found.get_mut(&facts.build_id) {
            Some(known) if copy.has_lines && !known.has_lines => *known = copy,
            Some(_) => {}
            None => drop(found.insert(facts.build_id, copy)),
        }
    }
    found
}

/// Appends the files in `folder` and its subfolders to a depth of `depth`, ordered by name.
fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    // A folder that cannot be read has nothing to offer.
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if files.len() >= MAX_FILES {
            return;
        }
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, files);
            }
        } else {
            files.push(path);
        }
    }
}
