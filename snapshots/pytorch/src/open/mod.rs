//! Opens recordings of every kind, detecting the format from the contents.
//!
//! ```text
//!   file, bytes, stream  ──►  gzip?  ──►  .snap                      ──►  Trace
//!                                         page ──►  pickle, JSON  ──►  RawSnapshot  ──►  Trace
//!                                         profiles and logs of other tools          ──►  Trace
//! ```
//!
//! A snapshot exported by this program contains its recording, which is then read instead.
//!
//! Files are mapped, and streams are read once. Only a `.snap`, a profile or a database that is compressed or comes
//! through a pipe is loaded into memory as a whole. The decompressed size of a compressed file is never trusted.
//! Snapshots keep only their rows, and a file loaded as a whole may expand to at most [`FREE_EXPANSION`] bytes plus
//! [`MAX_EXPANSION`] times its compressed size.

mod file_format;
mod watch;
mod gunzip;

use std::io::{BufRead, BufReader, Chain, Cursor, Read};
use std::ops::ControlFlow;
use std::path::Path;

use self::file_format::{BYTE_ORDER_MARK, START_BYTES, Start};
use self::gunzip::Gunzip;
use self::watch::Watch;
use crate::json::{read_json, read_json_bytes};
use crate::page::read_page;
use crate::pickle::{read_pickle, read_pickle_from};
use crate::tools::{jax, nccl, nsys, rmm};
use crate::{RawSnapshot, assemble, recover};
use highwater_snapshots::error::{Error, Problem, Result};
#[cfg(not(target_family = "wasm"))]
use highwater_snapshots::format::Windows;
use highwater_snapshots::format::{self, Foreign, Progress};
use highwater_snapshots::mapped::Mapped;
use highwater_snapshots::trace::Trace;

pub use self::file_format::{FileFormat, FileKind};

/// A recording and the format of its file.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The recording, read completely.
    pub trace: Trace,
    /// Format of the file.
    pub format: FileFormat,
}

/// Number of bytes to which a compressed file that is read as a whole may expand regardless of its size.
pub const FREE_EXPANSION: u64 = 64 << 20;

/// Maximum ratio of the decompressed size of such a file, beyond [`FREE_EXPANSION`], to its compressed size. The
/// sections of a `.snap` are already compressed, so genuine files hardly expand at all, while databases shrink to about
/// a tenth.
pub const MAX_EXPANSION: u64 = 64;

const BUFFER: usize = 256 << 10;

/// Maximum number of bytes of gzip data decompressed after a snapshot's end, in order to verify the checksum.
const MAX_AFTER: u64 = 1 << 20;

/// Opens the recording at `path`. `watch` receives the progress, as in [`open_bytes`]. `path` may also be that of a
/// rotated recording, which consists of several files (see [`Windows::find_rotated`]) and is read without calling
/// `watch`.
///
/// If another program truncates the file meanwhile, this process is killed, as with any memory mapping. A recorder only
/// ever appends.
///
/// # Errors
/// Returns an error if the file cannot be read, or in the cases of [`open_bytes`].
pub fn open_file(path: &Path, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Opened> {
    #[cfg(not(target_family = "wasm"))]
    if let Some(files) = Windows::find_rotated(path) {
        let trace = Windows::open_rotated(&files, &(), &mut |_| ControlFlow::Continue(()))?.whole()?;
        return Ok(Opened { trace, format: FileFormat { kind: FileKind::Snap, is_gzipped: false } });
    }
    let opened = match Mapped::open(path)? {
        Mapped::Bytes(map) => open_bytes(&map, &mut |now: Progress| {
            map.forget_before(now.bytes_read);
            watch(now)
        }),
        Mapped::Stream(file) => open_stream(file, watch),
    };
    opened.map_err(|error| error.with_path(path))
}

/// Opens the recording in `bytes`. `watch` is called at least every few mebibytes with the progress, in bytes of the
/// file. It stops reading by returning [`ControlFlow::Break`].
///
/// # Errors
/// Returns an error if the bytes are not a recording or are damaged, and [`Error::Cancelled`] if `watch` stops reading.
pub fn open_bytes(bytes: &[u8], watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Opened> {
    let kind = match Start::of(bytes) {
        Start::Kind(kind @ (FileKind::Snap | FileKind::Pickle | FileKind::Json | FileKind::Jax | FileKind::Nsys)) => {
            kind
        }
        _ => return open_input(&mut &*bytes, bytes.len() as u64, watch),
    };
    let read = match kind {
        FileKind::Snap => format::read_bytes_with(bytes, watch),
        FileKind::Pickle => read_pickle(bytes, watch).map(trace_of),
        FileKind::Jax => jax::read(bytes, watch),
        FileKind::Nsys => nsys::read(bytes, watch),
        _ => read_json_bytes(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes), watch).map(trace_of),
    };
    let trace = read.map_err(|error| recognized(error, kind, bytes))?;
    Ok(Opened { trace, format: FileFormat { kind, is_gzipped: false } })
}

/// Replaces the error of reading a file that was assumed to be a recording of `kind`, but begins like a file of another
/// kind.
fn recognized(error: Error, kind: FileKind, start: &[u8]) -> Error {
    match (kind, &error) {
        (
            FileKind::Pickle | FileKind::Json,
            Error::NotRecording { .. } | Error::Damaged { .. } | Error::Refused { .. },
        ) => Foreign::of(start).map_or(error, Foreign::error),
        _ => error,
    }
}

/// Opens the recording read from `input`, whose length is unknown, reporting to `watch` as [`open_bytes`] does.
///
/// # Errors
/// Returns an error if reading `input` fails, or in the cases of [`open_bytes`].
pub fn open_stream(mut input: impl Read, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Opened> {
    open_input(&mut input, u64::MAX, watch)
}

/// Opens the recording read from `input`, whose length is `bytes`, reporting to `watch` as [`open_bytes`] does.
///
/// # Errors
/// Returns an error if reading `input` fails, or in the cases of [`open_bytes`].
pub fn open_sized(
    mut input: impl Read,
    bytes: u64,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Opened> {
    open_input(&mut input, bytes, watch)
}

/// An input whose first bytes were already inspected.
type Input<'i> = Chain<Cursor<Vec<u8>>, BufReader<&'i mut dyn Read>>;

fn open_input(
    input: &mut dyn Read,
    bytes: u64,
    listener: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Opened> {
    let watch = Watch::new(bytes, listener);
    let mut input = watch.counting(input);
    let opened = look_at(&mut input).and_then(|(start, input)| match Start::of(&start) {
        Start::Gzip => open_gzip(input, &watch),
        other => {
            let kind = kind_of(other, &start)?;
            let read = read(kind, input, &watch, false);
            let trace = read.map_err(|error| recognized(error.unwrapped(), kind, &start))?;
            Ok(Opened { trace, format: FileFormat { kind, is_gzipped: false } })
        }
    });
    opened.map_err(Error::unwrapped)
}

fn open_gzip(input: Input<'_>, watch: &Watch<'_>) -> Result<Opened> {
    let mut decompressed = Gunzip::new(input, watch);
    let (start, input) = look_at(&mut decompressed)?;
    let kind = match Start::of(&start) {
        Start::Kind(kind) => kind,
        Start::Protocol(found) => return Err(Error::Protocol { found }),
        _ if start.is_empty() => return Err(empty_gzip()),
        _ => return Err(Foreign::or_unknown(&start).in_gzip().error()),
    };
    let read = read(kind, input, watch, true);
    let trace = read.map_err(|error| recognized(error.unwrapped(), kind, &start))?;
    Ok(Opened { trace, format: FileFormat { kind, is_gzipped: true } })
}

/// Returns the error for gzip data without contents, such as the compressed copy of an empty file.
fn empty_gzip() -> Error {
    let advice = "record again, and compress the file after the recording is finished";
    Error::NotRecording { found: "empty gzip data".to_owned(), advice }
}

/// Returns the first bytes of `input`, and `input` from its start.
fn look_at(input: &mut dyn Read) -> Result<(Vec<u8>, Input<'_>)> {
    let mut start = Vec::new();
    let taken = input.take(START_BYTES as u64).read_to_end(&mut start);
    taken.map_err(Error::from_input)?;
    let rest = BufReader::with_capacity(BUFFER, input);
    Ok((start.clone(), Cursor::new(start).chain(rest)))
}

fn kind_of(start: Start, bytes: &[u8]) -> Result<FileKind> {
    match start {
        Start::Kind(kind) => Ok(kind),
        Start::Protocol(found) => Err(Error::Protocol { found }),
        // The reader of `.snap` files gives the most specific error.
        _ => match format::read_bytes(bytes) {
            Err(error) => Err(error),
            Ok(_) => Ok(FileKind::Snap),
        },
    }
}

fn read(kind: FileKind, mut input: Input<'_>, watch: &Watch<'_>, is_gzipped: bool) -> Result<Trace> {
    let mut pass = |progress| watch.pass_events(progress);
    let mut count = |events| watch.pass_events(Progress { events, ..Progress::default() });
    match kind {
        FileKind::Snap => return read_snap(input, watch, is_gzipped),
        FileKind::Rmm => return rmm::read(input, &mut count),
        FileKind::Nccl => return nccl::read(input, &mut count),
        FileKind::Jax | FileKind::Nsys => {
            let (bytes, damage) = read_whole(input, watch, is_gzipped)?;
            if let Some(Problem { offset, what, .. }) = damage {
                return Err(Error::Damaged { offset: offset.unwrap_or(0), what });
            }
            return if kind == FileKind::Jax { jax::read(&bytes, &mut pass) } else { nsys::read(&bytes, &mut pass) };
        }
        FileKind::Pickle | FileKind::Json | FileKind::Page => {}
    }
    let read = match kind {
        FileKind::Page => read_page(&mut input, &mut |file| read_within(file, watch)),
        FileKind::Json => read_text(&mut input, watch),
        _ => read_pickle_from(&mut input, None, &mut pass),
    };
    let mut raw = read.map_err(|error| place_in_gzip(error.unwrapped(), is_gzipped))?;
    if is_gzipped {
        raw.problems.extend(check_rest(&mut input));
    }
    Ok(trace_of(raw))
}

/// Returns the recording embedded in a snapshot, if this program wrote the snapshot and its events are unchanged;
/// otherwise the trace assembled from the snapshot.
fn trace_of(mut raw: RawSnapshot) -> Trace {
    match recover(&raw) {
        Some(Ok(trace)) => return trace,
        Some(Err(problem)) => raw.problems.push(problem),
        None => {}
    }
    assemble(raw)
}

/// Reads a recording in JSON, which may begin with a byte order mark.
fn read_text(input: &mut impl BufRead, watch: &Watch<'_>) -> Result<RawSnapshot> {
    let start = input.fill_buf().map_err(Error::from_input)?;
    if start.starts_with(BYTE_ORDER_MARK) {
        input.consume(BYTE_ORDER_MARK.len());
    }
    read_json(input, &mut |progress| watch.pass_events(progress))
}

/// Reads a file within a page; `None` if the file is not a snapshot.
fn read_within(file: &mut impl BufRead, watch: &Watch<'_>) -> Result<Option<RawSnapshot>> {
    let start = file.fill_buf().map_err(Error::from_input)?;
    match Start::of(start) {
        Start::Kind(FileKind::Pickle) => {
            read_pickle_from(file, None, &mut |progress| watch.pass_events(progress)).map(Some)
        }
        Start::Kind(FileKind::Json) => read_text(file, watch).map(Some),
        Start::Protocol(found) => Err(Error::Protocol { found }),
        _ => Ok(None),
    }
}

/// Reads a `.snap` file, for which all bytes must be in memory. If gzip data is truncated or damaged, reads the data
/// before the damage.
fn read_snap(input: Input<'_>, watch: &Watch<'_>, is_gzipped: bool) -> Result<Trace> {
    let (bytes, damage) = read_whole(input, watch, is_gzipped)?;
    let trace = format::read_bytes_with(&bytes, &mut |progress| watch.pass(progress))?;
    Ok(if damage.is_some() { trace.edited(|trace| trace.problems.extend(damage)) } else { trace })
}

/// Returns all bytes of the input. Of gzip data that is truncated or damaged, returns the bytes before the damage, and
/// describes the damage.
fn read_whole(mut input: Input<'_>, watch: &Watch<'_>, is_gzipped: bool) -> Result<(Vec<u8>, Option<Problem>)> {
    let mut bytes = Vec::new();
    loop {
        match input.by_ref().take(BUFFER as u64).read_to_end(&mut bytes) {
            Ok(0) => return Ok((bytes, None)),
            Ok(_) => {}
            Err(error) => match Error::from_input(error) {
                Error::Damaged { offset, what } if is_gzipped => return Ok((bytes, Some(Problem::at(offset, what)))),
                other => return Err(other),
            },
        }
        let most = watch.bytes_read().saturating_mul(MAX_EXPANSION).saturating_add(FREE_EXPANSION);
        if is_gzipped && bytes.len() as u64 > most {
            let what =
                format!("the gzip data expands to more than {MAX_EXPANSION} times its size, which no recording does");
            return Err(Error::Damaged { offset: watch.bytes_read(), what });
        }
    }
}

/// Decompresses the remaining gzip data to verify its checksum. Returns the problem found, if any.
fn check_rest(input: &mut impl Read) -> Option<Problem> {
    let rest = std::io::copy(&mut input.take(MAX_AFTER), &mut std::io::sink());
    match Error::from_input(rest.err()?) {
        Error::Damaged { offset, what } => Some(Problem::at(offset, format!("after the snapshot: {what}"))),
        other => Some(Problem::new(format!("after the snapshot: {other}"))),
    }
}

/// Adds a note to an error that its offset counts decompressed bytes, not bytes of the file.
fn place_in_gzip(error: Error, is_gzipped: bool) -> Error {
    match error {
        Error::Damaged { offset, what } if is_gzipped && !what.contains("gzip data") => {
            Error::Damaged { offset, what: format!("{what} (counted in the decompressed gzip data)") }
        }
        other => other,
    }
}
