//! Reads a few lines around a line of a source file, if it is in the recording or available on this machine.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Number of lines shown before and after the relevant one.
const CONTEXT: u32 = 2;
/// Maximum number of bytes read to reach the line; longer files are unlikely to be written by hand.
const MAX_BYTES: u64 = 8 << 20;
/// Maximum number of characters shown per line.
const MAX_SIGNS: usize = 240;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// The number of the first line, counted from 1.
    pub first: u32,
    /// The lines; very long ones are shortened.
    pub lines: Vec<String>,
    /// Modification time of the file, in microseconds of Unix time; `None` if unknown, or if the text comes from the
    /// recording.
    pub changed_unix_us: Option<u64>,
}

/// The lines around line `line` of the file at `path`; `None` if the file or the line does not exist on this machine.
///
/// A recording may contain any path. Only absolute paths of regular files are opened, never network or device paths,
/// and no more is read than needed to reach the line.
pub(crate) fn excerpt(path: &str, line: u32) -> Option<Excerpt> {
    if !is_local(path) {
        return None;
    }
    let path = Path::new(path);
    // Before it is opened: opening a pipe would block.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    let facts = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let changed = facts.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let changed_unix_us = changed.and_then(|changed| u64::try_from(changed.as_micros()).ok());
    let excerpt = excerpt_from(BufReader::new(file.take(MAX_BYTES)), line)?;
    Some(Excerpt { changed_unix_us, ..excerpt })
}

pub(crate) fn excerpt_from(mut reader: impl BufRead, line: u32) -> Option<Excerpt> {
    if line == 0 {
        return None;
    }
    let first = line.saturating_sub(CONTEXT).max(1);
    for _ in 1..first {
        if reader.skip_until(b'\n').ok()? == 0 {
            return None;
        }
    }
    let mut lines = Vec::new();
    let mut bytes = Vec::new();
    for _ in first..=line.saturating_add(CONTEXT) {
        bytes.clear();
        // Limits reading of a line without an end.
        let most = 4 * MAX_SIGNS as u64;
        if reader.by_ref().take(most).read_until(b'\n', &mut bytes).ok()? == 0 {
            break;
        }
        if !bytes.ends_with(b"\n") && bytes.len() as u64 == most {
            reader.skip_until(b'\n').ok()?;
        }
        lines.push(shown(&bytes));
    }
    let is_there = lines.len() as u32 > line - first;
    is_there.then_some(Excerpt { first, lines, changed_unix_us: None })
}

/// Whether `path` is an absolute path on this machine, outside of network, device and kernel folders.
fn is_local(path: &str) -> bool {
    let is_of_network = ["//", "\\\\", "/net/", "/proc/", "/sys/", "/dev/"].iter().any(|start| path.starts_with(start));
    Path::new(path).is_absolute() && !is_of_network && !path.contains('\0')
}

/// A line as displayed: tabs become spaces, other control characters are removed, and very long lines are truncated.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).trim_end().replace('\t', "    ");
    text.chars().filter(|sign| !sign.is_control()).take(MAX_SIGNS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &[u8]) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.py");
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (folder, path)
    }

    #[test]
    fn the_line_is_shown_with_two_on_each_side_as_far_as_there_are_any() {
        let (_folder, path) = file(b"one\n\ttwo\nthree\nfour\nfive\nsix");
        let told = |line: u32| excerpt(&path, line).map(|found| (found.first, found.lines));
        assert_eq!(told(1), Some((1, ["one", "    two", "three"].map(String::from).to_vec())));
        assert_eq!(told(4).unwrap().1, ["    two", "three", "four", "five", "six"]);
        assert_eq!(told(6), Some((4, ["four", "five", "six"].map(String::from).to_vec())));
        assert_eq!((told(7), told(8), told(900), told(0), told(u32::MAX)), (None, None, None, None, None));
        assert!(excerpt(&path, 1).unwrap().changed_unix_us.is_some());
    }

    #[test]
    fn a_text_of_the_recording_is_shown_as_a_file_is() {
        let (_folder, path) = file(b"one\n\ttwo\nthree\nfour");
        let of_file = excerpt(&path, 2).unwrap();
        let of_text = excerpt_from(&b"one\n\ttwo\nthree\nfour"[..], 2).unwrap();
        assert_eq!(of_text, Excerpt { changed_unix_us: None, ..of_file });
        assert_eq!((excerpt_from(&b"one\n"[..], 2), excerpt_from(&b"one"[..], 0)), (None, None));
    }

    #[test]
    fn a_line_without_an_end_is_cut_and_what_is_no_text_does_no_harm() {
        let mut text = vec![b'x'; 100_000];
        text.extend_from_slice(b"\nnext\x07\xff\n");
        let (_folder, path) = file(&text);
        let found = excerpt(&path, 2).unwrap();
        assert_eq!(found.lines[0].len(), MAX_SIGNS);
        assert_eq!(found.lines[1], "next\u{fffd}");
    }

    #[test]
    fn only_regular_files_with_whole_paths_on_this_machine_are_opened() {
        let (folder, path) = file(b"one\n");
        assert!(excerpt(&path, 1).is_some());
        assert_eq!(excerpt(folder.path().to_str().unwrap(), 1), None, "a folder");
        for path in [
            "model.py",
            "../model.py",
            "//host/share/model.py",
            "\\\\host\\share\\model.py",
            "/dev/zero",
            "/proc/self/environ",
            "",
            "/gone.py",
        ] {
            assert_eq!(excerpt(path, 1), None, "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_place_of_a_file_does_not_wait_for_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        if std::process::Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()) {
            assert_eq!(excerpt(path.to_str().unwrap(), 1), None);
        }
    }
}
