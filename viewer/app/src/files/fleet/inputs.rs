//! Expands a list of files and folders to files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use highwater_snapshots::rotation::recording_of;
use highwater_snapshots::{RotatedFiles, natural};

use crate::files::file_name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    /// The path relative to the searched folder; the file name if the user named the file.
    pub(super) name: String,
    /// Whether the user named the file explicitly, so that it must be a recording.
    pub(super) is_named: bool,
}

/// Files that may be recordings, in natural order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    pub(super) name: String,
    pub(super) files: Vec<Input>,
    /// Number of skipped entries: hidden files, folders not named after a rank, and whatever is not a regular file.
    pub(super) skipped: usize,
}

impl Inputs {
    /// Lists the files of `folder`, and of subfolders named after a rank, such as `rank3`, `rank_3` or `rank=3`.
    ///
    /// # Errors
    /// Fails if a folder cannot be listed.
    pub fn of_folder(folder: &Path) -> io::Result<Self> {
        Self::of(&[folder.to_owned()])
    }

    /// Lists the files among `paths`, and the files in the folders among `paths`.
    ///
    /// # Errors
    /// Fails if a folder cannot be listed.
    pub fn of(paths: &[PathBuf]) -> io::Result<Self> {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let mut inputs = Self { name: names.join(", "), ..Self::default() };
        for path in paths {
            if path.is_dir() {
                inputs.list(path, "", &mut |name| is_of_rank(name))?;
            } else {
                let name = file_name(path);
                inputs.files.push(Input { path: path.clone(), name, is_named: true });
            }
        }
        inputs.files.sort_by(|a, b| natural::compare(&a.name, &b.name).then_with(|| a.path.cmp(&b.path)));
        inputs.files.dedup_by(|a, b| a.path == b.path);
        Ok(inputs)
    }

    /// Replaces the files of a rotation in a folder by the path that was given to the recorder, unless a file has that
    /// path, so that the recording can be followed from one file to the next.
    #[must_use]
    pub fn with_rotations_joined(mut self) -> Self {
        let (mut joined, mut alone) = (BTreeSet::new(), BTreeSet::new());
        self.files.retain_mut(|file| {
            let is_part = |all: &PathBuf| all.extension() == Some(OsStr::new("snap")) && !alone.contains(all);
            let Some(all) = recording_of(&file.path).filter(|all| !file.is_named && is_part(all)) else { return true };
            if !joined.contains(&all) && RotatedFiles::find(&all).is_none() {
                alone.insert(all);
                return true;
            }
            let start = file.name.len() - file_name(&file.path).len().min(file.name.len());
            file.name = format!("{}{}", &file.name[..start], file_name(&all));
            file.path.clone_from(&all);
            joined.insert(all)
        });
        self
    }

    /// Returns the name of the input.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the files, each with its name.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.files.iter().map(|file| (file.path.as_path(), file.name.as_str()))
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    fn list(&mut self, folder: &Path, before: &str, follows: &mut dyn FnMut(&OsStr) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let shown = format!("{before}{}", name.to_string_lossy());
            // Metadata of a symbolic link's target, not of the link.
            let facts = fs::metadata(&path);
            let is_hidden = name.to_string_lossy().starts_with('.');
            match facts {
                Ok(facts) if facts.is_dir() && follows(&name) => {
                    self.list(&path, &format!("{shown}/"), &mut |_| false)?;
                }
                Ok(facts) if facts.is_file() && !is_hidden => {
                    self.files.push(Input { path, name: shown, is_named: false });
                }
                _ => self.skipped += 1,
            }
        }
        Ok(())
    }
}

fn is_of_rank(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    let Some(number) = name.strip_prefix("rank") else { return false };
    let number = number.trim_start_matches(['_', '-', '.', '=']);
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_its_files_and_those_of_its_ranks() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b.snap", "a.txt", ".hidden", "rank1/x.snap", "rank_0/x.snap", "rank0/deep/y.snap", "other/z.snap"]
        {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let inputs = Inputs::of_folder(folder.path()).unwrap();
        let names: Vec<&str> = inputs.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a.txt", "b.snap", "rank1/x.snap", "rank_0/x.snap"]);
        assert_eq!(inputs.skipped, 3, "the hidden file, the folder in a rank's, and the folder of no rank");
        assert!(Inputs::of_folder(&folder.path().join("none")).unwrap().files[0].is_named);
        for path in ["rank1/x.0001.snap", "rank1/x.0002.snap", "c.0007.snap", "d.0001.snap", "d.snap", "e.0001.pickle"]
        {
            fs::write(folder.path().join(path), "").unwrap();
        }
        let joined = Inputs::of_folder(folder.path()).unwrap().with_rotations_joined();
        let names: Vec<&str> = joined.files.iter().map(|file| file.name.as_str()).collect();
        let expected = ["a.txt", "b.snap", "c.snap", "d.0001.snap", "d.snap", "e.0001.pickle"];
        let of_ranks = ["rank1/x.0001.snap", "rank1/x.0002.snap", "rank1/x.snap", "rank_0/x.snap"];
        assert_eq!(names, [&expected[..], &of_ranks].concat(), "not where the file itself is there");
        fs::remove_file(folder.path().join("rank1/x.snap")).unwrap();
        let joined = Inputs::of_folder(folder.path()).unwrap().with_rotations_joined();
        assert_eq!(joined.files[6].name, "rank1/x.snap");
        assert_eq!(joined.files[6].path, folder.path().join("rank1/x.snap"));
        assert_eq!(joined.files.len(), 8);
    }
}
