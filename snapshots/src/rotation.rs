//! The files of a rotated recording, such as `run.0001.snap`, `run.0002.snap` and so on.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the header fact that contains the number of the file. The first file of a run has no such fact.
pub const PART: &str = "part";

/// Returns the path of the `number`th file of the recording `path`.
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    with_part(path, &format!("{number:04}"))
}

/// Returns the number of the file `other` within the recording `path`; `None` if it is not one of its files.
pub fn number_of(path: &Path, other: &Path) -> Option<u32> {
    let number = Path::new(other.file_stem()?).extension()?.to_str()?.parse().ok()?;
    (numbered(path, number).file_name() == other.file_name()).then_some(number)
}

/// Returns `path` with `part` inserted before the extension, so that `step.snap` becomes `step.rank3.snap`.
pub fn with_part(path: &Path, part: &str) -> PathBuf {
    let mut name = OsString::from(path.file_stem().unwrap_or(OsStr::new("recording")));
    name.push(format!(".{part}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

/// Returns the path of the rotated recording that contains `file`; `None` if the file name has no number.
pub fn recording_of(file: &Path) -> Option<PathBuf> {
    let name = Path::new(file.file_stem()?);
    let stem = Path::new(name.file_stem()?);
    let path = file.with_file_name(match file.extension() {
        Some(ending) => stem.with_added_extension(ending),
        None => stem.to_owned(),
    });
    number_of(&path, file).map(|_| path)
}

/// Extensions of files that may be recordings.
const RECORDINGS: [&str; 6] = ["snap", "pickle", "pkl", "json", "html", "gz"];

/// The existing files of a rotation, starting after the last gap in their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatedFiles {
    /// The path that was passed to the recorder, such as `run.snap`.
    pub path: PathBuf,
    /// The files in order, each with its number.
    pub files: Vec<(u32, PathBuf)>,
    /// The numbers of existing earlier files that are ignored because later files are missing.
    pub left_out: Vec<u32>,
}

impl RotatedFiles {
    /// Finds the files of the rotation that `path` names: the path that was passed to the recorder, if there is no file
    /// of that name; a pattern with `*` for the number; or a folder that contains only these recordings and no other
    /// folders. `None` if `path` does not name a rotation.
    pub fn find(path: &Path) -> Option<Self> {
        if path.is_dir() {
            let entries = || Some(fs::read_dir(path).ok()?.flatten().map(|entry| entry.path()));
            let all = entries()?
                .find_map(|file| recording_of(&file).filter(|all| all.extension() == Some("snap".as_ref())))?;
            let is_other = |file: PathBuf| {
                let ending = file.extension().and_then(OsStr::to_str).unwrap_or_default();
                (file.is_dir() || RECORDINGS.contains(&ending)) && number_of(&all, &file).is_none()
            };
            return (!entries()?.any(is_other)).then(|| Self::of(&all)).flatten();
        }
        if path.exists() {
            return None;
        }
        let name = path.file_name()?.to_str()?;
        let without_star = name.replacen("*.", "", 1);
        Self::of(&path.with_file_name(without_star))
    }

    /// Returns the path of the rotated recording that contains all `files`, in any order. `None` if the files do not
    /// belong together, or if there are fewer than two.
    pub fn all_of(files: &[PathBuf]) -> Option<PathBuf> {
        let recording = recording_of(files.first().filter(|_| files.len() > 1)?)?;
        let is_part = |file: &PathBuf| file.parent() == recording.parent() && number_of(&recording, file).is_some();
        let is_snap = recording.extension() == Some("snap".as_ref());
        (is_snap && files.iter().all(is_part)).then_some(recording)
    }

    fn of(path: &Path) -> Option<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let entries = fs::read_dir(folder).ok()?.flatten();
        let number = |file: PathBuf| Some((number_of(path, &file)?, path.with_file_name(file.file_name()?)));
        let mut files: Vec<(u32, PathBuf)> = entries.filter_map(|entry| number(entry.path())).collect();
        files.sort_unstable();
        files.last()?;
        let gap = files.windows(2).rposition(|pair| pair[1].0 > pair[0].0 + 1);
        let last = files.split_off(gap.map_or(0, |gap| gap + 1));
        let left_out = files.into_iter().map(|(number, _)| number).collect();
        Some(Self { path: path.to_owned(), files: last, left_out })
    }

    /// Describes the missing and ignored files in a sentence; `None` if the recording is complete from its first file.
    pub fn gap(&self) -> Option<String> {
        let (first, name) = (self.files.first()?.0, numbered(&self.path, self.files.first()?.0));
        let name = name.file_name()?.to_string_lossy().into_owned();
        let files = |first: u32, last: u32| match first == last {
            true => format!("file {first} of the recording is missing"),
            false => format!("files {first} to {last} of the recording are missing"),
        };
        match self.left_out.last() {
            Some(last) => Some(format!(
                "{}: the recording begins with {name}, and the files before the gap are skipped",
                files(last + 1, first - 1)
            )),
            None if first > 1 => Some(format!(
                "{}: the recording begins with {name}, and the blocks live then are its baseline",
                files(1, first - 1)
            )),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_rotation_has_a_number_of_at_least_four_digits() {
        assert_eq!(numbered(Path::new("runs/step.snap"), 7), Path::new("runs/step.0007.snap"));
        assert_eq!(numbered(Path::new("step"), 2), Path::new("step.0002"));
        let number = |other: &str| number_of(Path::new("runs/step.snap"), Path::new(other));
        assert_eq!(number("runs/step.0012.snap"), Some(12));
        assert_eq!(number("runs/step.12345.snap"), Some(12345));
        assert_eq!(number("runs/step.12.snap"), None);
        assert_eq!(number("runs/other.0012.snap"), None);
        assert_eq!(recording_of(Path::new("runs/a.rank1.0012.snap")), Some("runs/a.rank1.snap".into()));
        assert_eq!(recording_of(Path::new("runs/step.snap")), None);
    }

    #[test]
    fn the_files_after_the_last_gap_are_one_recording() {
        let folder = std::env::temp_dir().join(format!("highwater-rotation-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("run.snap");
        let make = |numbers: &[u32]| numbers.iter().for_each(|number| fs::write(numbered(&path, *number), "").unwrap());
        make(&[1, 2, 4, 5, 6]);
        let found = RotatedFiles::find(&path).unwrap();
        assert_eq!(found.files.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [4, 5, 6]);
        assert_eq!(found.left_out, [1, 2]);
        assert!(
            found
                .gap()
                .unwrap()
                .starts_with("file 3 of the recording is missing: the recording begins with run.0004.snap")
        );
        assert_eq!(RotatedFiles::find(&folder), Some(found.clone()), "a folder with nothing else");
        assert_eq!(RotatedFiles::find(&folder.join("run.*.snap")), Some(found), "a pattern");
        make(&[3]);
        assert_eq!(RotatedFiles::find(&path).unwrap().gap(), None);
        fs::remove_file(numbered(&path, 1)).unwrap();
        let gap = RotatedFiles::find(&path).unwrap().gap().unwrap();
        assert!(
            gap.starts_with("file 1 of the recording is missing: the recording begins with run.0002.snap"),
            "{gap}"
        );
        let names = [2, 3].map(|number| numbered(&path, number));
        assert_eq!(RotatedFiles::all_of(&names), Some(path.clone()));
        assert_eq!(RotatedFiles::all_of(&names[..1]), None, "a single file is opened by itself");
        fs::write(&path, "").unwrap();
        assert_eq!(RotatedFiles::find(&path), None, "the file itself is there");
        fs::remove_file(&path).unwrap();
        fs::write(folder.join("other.snap"), "").unwrap();
        assert_eq!(RotatedFiles::find(&folder), None, "a folder of several recordings");
        fs::remove_file(folder.join("other.snap")).unwrap();
        fs::write(folder.join("rank0.pickle"), "").unwrap();
        assert_eq!(RotatedFiles::find(&folder), None, "a folder with recordings of another kind");
        let pickles = [1, 2].map(|number| folder.join(format!("mem.000{number}.pickle")));
        assert_eq!(RotatedFiles::all_of(&pickles), None, "only .snap files are rotated");
        fs::remove_dir_all(&folder).unwrap();
    }
}
