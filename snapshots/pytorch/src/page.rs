//! Reads the snapshot in a web page saved by PyTorch's `trace_plot` or `segment_plot`.
//!
//! The page's script has a list of files, each `{"name": "…", "base64": "…"}`, either assigned to `local_files` or
//! passed directly to `add_local_files`. The script is not run, and the rest of the page is ignored.

use std::io::{BufRead, BufReader, Read};

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::read::DecoderReader;

use super::raw::RawSnapshot;
use highwater_snapshots::error::{Error, Problem, Result};
use highwater_snapshots::format::Foreign;

/// A decoded file in a page.
pub type PageFile<'p> = BufReader<Decoded<'p>>;

/// Encoding of the files. Some encoders omit the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const BUFFER: usize = 1 << 16;

/// Reads the snapshot in a page: the first file for which `read` returns a snapshot. `read` must return `None` for
/// other files, whose names become problems of the snapshot.
///
/// # Errors
/// Returns an error if the page has no snapshot, or if `read` or reading `page` fails.
pub(crate) fn read_page(
    page: &mut dyn BufRead,
    read: &mut dyn FnMut(&mut PageFile<'_>) -> Result<Option<RawSnapshot>>,
) -> Result<RawSnapshot> {
    let start = page.fill_buf().map_err(Error::from_input)?.to_vec();
    let mut script = Script { page, offset: 0, recent: Vec::new() };
    let mut snapshot = None;
    let mut others = Others::default();
    while let Some(name) = script.next_file()? {
        let start_of_file = script.offset;
        let mut content = Content { script: &mut script, has_ended: false };
        if snapshot.is_none() {
            let mut file = BufReader::with_capacity(BUFFER, Decoded::new(&mut content));
            snapshot = read(&mut file).map_err(|error| within(error, start_of_file))?;
            if snapshot.is_none() {
                others.push(name);
            }
        } else {
            others.push(name);
        }
        // Skip the rest of the content, so that a name in it is not mistaken for another file.
        std::io::copy(&mut content, &mut std::io::sink()).map_err(Error::from_input)?;
    }
    let Some(mut snapshot) = snapshot else {
        if others.count == 0 {
            return Err(Foreign::or_unknown(&start).error());
        }
        let advice = "save the page with PyTorch's trace_plot or segment_plot, which embed the snapshot as base64";
        return Err(Error::NotRecording { found: format!("a page with {}", others.words("a snapshot")), advice });
    };
    if others.count > 0 {
        snapshot.problems.push(Problem::new(format!("the page has {}", others.words("read"))));
    }
    Ok(snapshot)
}

/// Converts an error in a file within a page. The base64 text of the file begins at byte `start` of the page.
fn within(error: Error, start: u64) -> Error {
    match error {
        Error::Damaged { offset, what } => {
            let what = format!("{what} (byte {offset} of the file in the page, whose base64 text begins there)");
            Error::Damaged { offset: start, what }
        }
        other => other,
    }
}

#[derive(Debug, Default)]
struct Others {
    count: u64,
    names: Vec<String>,
}

/// Maximum number of names listed.
const NAMED: usize = 4;

impl Others {
    fn push(&mut self, name: String) {
        self.count += 1;
        if self.names.len() < NAMED {
            self.names.push(name);
        }
    }

    /// Formats the files, such as "2 files that are not read ('a', 'b')".
    fn words(&self, what: &str) -> String {
        let (files, are) = if self.count == 1 { ("file", "is") } else { ("files", "are") };
        let more = if self.count > NAMED as u64 { ", …" } else { "" };
        format!("{} {files} that {are} not {what} ('{}'{more})", self.count, self.names.join("', '"))
    }
}

struct Script<'p> {
    page: &'p mut dyn BufRead,
    offset: u64,
    /// The preceding text, of up to twice [`REMEMBERED`] bytes, and at least [`REMEMBERED`] once that many were read.
    recent: Vec<u8>,
}

/// Number of bytes before a file's content that are searched for its name.
const REMEMBERED: usize = 512;

const KEY: &[u8] = b"base64";

impl Script<'_> {
    fn next_file(&mut self) -> Result<Option<String>> {
        self.recent.clear();
        while let Some(byte) = self.byte()? {
            if byte != KEY[KEY.len() - 1] || !self.recent.ends_with(KEY) {
                continue;
            }
            if self.opens_content()? {
                return Ok(Some(name_in(&self.recent)));
            }
        }
        Ok(None)
    }

    /// Returns whether the key is followed by `": "`, with or without spaces, so that content begins.
    fn opens_content(&mut self) -> Result<bool> {
        if matches!(self.peek()?, Some(b'"' | b'\'')) {
            self.byte()?;
        }
        let mut had_colon = false;
        while let Some(byte) = self.peek()? {
            match byte {
                b':' if !had_colon => had_colon = true,
                b'"' if had_colon => {
                    self.byte()?;
                    return Ok(true);
                }
                byte if byte.is_ascii_whitespace() => {}
                _ => return Ok(false),
            }
            self.byte()?;
        }
        Ok(false)
    }

    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            match self.page.fill_buf() {
                Ok(bytes) => return Ok(bytes.first().copied()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::from_input(error)),
            }
        }
    }

    fn byte(&mut self) -> Result<Option<u8>> {
        let byte = self.peek()?;
        if let Some(byte) = byte {
            self.page.consume(1);
            self.offset += 1;
            if self.recent.len() >= 2 * REMEMBERED {
                self.recent.drain(..REMEMBERED);
            }
            self.recent.push(byte);
        }
        Ok(byte)
    }
}

/// Returns the string after the last key `name` in `before`.
fn name_in(before: &[u8]) -> String {
    let text = String::from_utf8_lossy(before);
    let after = text.rsplit_once("name").map_or("", |(_, after)| after);
    let value = after.split_once(':').map_or("", |(_, value)| value.trim_start());
    let name = value.strip_prefix('"').and_then(|value| value.split('"').next()).unwrap_or("");
    if name.is_empty() { "without a name".to_owned() } else { name.to_owned() }
}

/// The base64 text of a file in a page, up to the closing quote, without whitespace and backslashes.
struct Content<'s, 'p> {
    script: &'s mut Script<'p>,
    has_ended: bool,
}

impl Read for Content<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        while !self.has_ended && !out.is_empty() {
            let there = self.script.page.fill_buf()?;
            if there.is_empty() {
                let what = "the page ends within the snapshot: copy the file again".to_owned();
                return Err(std::io::Error::other(Error::Damaged { offset: self.script.offset, what }));
            }
            let mut used = 0;
            let mut taken = 0;
            for (&byte, place) in there.iter().zip(0..) {
                used = place + 1;
                self.has_ended = byte == b'"';
                if self.has_ended {
                    break;
                }
                if !matches!(byte, b'\\' | b' ' | b'\t' | b'\r' | b'\n') {
                    let Some(slot) = out.get_mut(taken) else {
                        used = place;
                        break;
                    };
                    *slot = byte;
                    taken += 1;
                }
            }
            self.script.page.consume(used);
            self.script.offset += used as u64;
            if taken > 0 {
                return Ok(taken);
            }
        }
        Ok(0)
    }
}

/// The decoded bytes of a file in a page.
pub struct Decoded<'p> {
    bytes: DecoderReader<'static, GeneralPurpose, Box<dyn Read + 'p>>,
    decoded: u64,
}

impl<'p> Decoded<'p> {
    fn new(content: impl Read + 'p) -> Self {
        Self { bytes: DecoderReader::new(Box::new(content), &BASE64), decoded: 0 }
    }
}

impl Read for Decoded<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.bytes.read(out).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => {
                let what = format!("the file in the page is not base64: {error}");
                std::io::Error::other(Error::Damaged { offset: self.decoded, what })
            }
            _ => error,
        })?;
        self.decoded += read as u64;
        Ok(read)
    }
}

impl std::fmt::Debug for Decoded<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoded").finish_non_exhaustive()
    }
}
