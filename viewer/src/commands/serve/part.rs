//! Sends the bytes of a recording that have been written, and determines whether more are expected.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use highwater_snapshots::format::{TAIL_BYTES, TAIL_MARKER};

use super::request::Request;
use super::response::{Body, Response};

/// Time after which an unchanged file is considered complete.
const FRESH: Duration = Duration::from_secs(600);

/// Time within which a recorder completes a file after it has started the next one.
const COMPLETION: Duration = Duration::from_secs(60);

/// Number of bytes at the start of a file that identify it.
const START: u64 = 4096;

/// Responds with the bytes of a recording from the start of the requested range to its present end. `is_growing` must
/// be determined before the call, so that the next request finds bytes written since then.
pub(super) fn send_part(path: &Path, is_growing: bool, request: &Request) -> io::Result<Response> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let (identity, known) = (identity_of(&mut file, START)?, request.file.as_deref());
    if let Some(known) = known.filter(|_| request.range.is_some_and(|(first, _)| first > 0)) {
        let is_shorter = request.range.is_some_and(|(first, _)| first > length);
        if is_shorter || identity_of(&mut file, bytes_of(known))? != known {
            return Ok(Response::explained(409, "the file was replaced or truncated\n"));
        }
    }
    let kind = "application/octet-stream";
    let response = match request.range {
        None => {
            file.seek(SeekFrom::Start(0))?;
            Response::new(200, kind, Body::File(file, length))
        }
        Some((first, _)) if first >= length => Response::refusal(204),
        Some((first, last)) => {
            let end = last.map_or(length, |last| last.saturating_add(1).min(length)).max(first);
            file.seek(SeekFrom::Start(first))?;
            let part = format!("bytes {first}-{}/{length}", end.saturating_sub(1));
            Response::new(206, kind, Body::File(file, end - first)).with("Content-Range", part)
        }
    };
    let growing = if is_growing { "yes" } else { "no" };
    Ok(response.with("Accept-Ranges", "bytes").with("Highwater-Growing", growing).with("Highwater-File", identity))
}

/// Returns whether `known`, a result of [`identity_of`], identifies the file.
pub(super) fn is_named(path: &Path, known: &str) -> bool {
    let bytes = bytes_of(known);
    File::open(path).and_then(|mut file| identity_of(&mut file, bytes)).is_ok_and(|identity| identity == known)
}

/// Returns the number of bytes at the start of the file that `known` covers.
fn bytes_of(known: &str) -> u64 {
    known.split('-').nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(START)
}

/// Identifies the file: by device and inode number, if the system has them, and by the checksum of its first bytes, at
/// most `most`.
fn identity_of(file: &mut File, most: u64) -> io::Result<String> {
    let mut start = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(most.min(START)).read_to_end(&mut start)?;
    #[cfg(unix)]
    let (device, number) = {
        use std::os::unix::fs::MetadataExt as _;
        let facts = file.metadata()?;
        (facts.dev(), facts.ino())
    };
    #[cfg(not(unix))]
    let (device, number) = (0, 0);
    Ok(format!("{device}-{number}-{}-{}", start.len(), crc32fast::hash(&start)))
}

/// Returns whether the file was changed so recently that its program may still be writing it.
pub(super) fn is_fresh(path: &Path) -> bool {
    was_changed_within(path, FRESH)
}

fn was_changed_within(path: &Path, time: Duration) -> bool {
    let changed = std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
    changed.is_some_and(|changed| changed.elapsed().is_ok_and(|age| age < time))
}

/// Returns whether the file is unfinished, and its program may still be writing it.
pub(super) fn is_being_written(path: &Path) -> bool {
    is_fresh(path) && is_finished(path).is_ok_and(|is_finished| !is_finished)
}

/// Returns whether the recorder may still complete this file of a rotation, although it is already writing the next
/// file.
pub(super) fn is_being_completed(path: &Path) -> bool {
    was_changed_within(path, COMPLETION) && is_finished(path).is_ok_and(|is_finished| !is_finished)
}

/// Returns whether the file ends like a complete recording.
fn is_finished(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES as u64)))?;
    file.read_to_end(&mut tail)?;
    Ok(tail.windows(TAIL_MARKER.len()).any(|part| part == TAIL_MARKER))
}
