//! An interface for writing nested dicts and lists in any notation, and the output buffer used by its implementations.

use std::io::Write;
use std::path::PathBuf;

use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::ids::{FrameId, StackId, StringId};

/// Key of a value that may occur more than once in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shared {
    /// A string of the trace's tables.
    Text(StringId),
    /// The frame for a row of the source lines.
    Line(u32),
    /// The frame for an unresolved address.
    Address(FrameId),
    /// A stack as a list of frames.
    Frames(StackId),
    /// A stack as a list of strings, outermost first.
    Traceback(StackId),
    /// A pool id.
    Pair(u64, u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Plain {
    /// A non-negative integer.
    Number(u64),
    /// A negative integer.
    Negative(i64),
    /// A finite float.
    Float(f64),
    Truth(bool),
    None,
}

/// Writes values one after the other. In a dict, each value follows its key.
pub(super) trait Document {
    fn open_dict(&mut self) -> Result<()>;
    fn close_dict(&mut self) -> Result<()>;
    fn open_list(&mut self) -> Result<()>;
    fn close_list(&mut self) -> Result<()>;
    fn key(&mut self, name: &'static str) -> Result<()>;
    /// Writes a key that is not defined by the format.
    fn free_key(&mut self, name: &str) -> Result<()>;
    fn plain(&mut self, value: Plain) -> Result<()>;

    fn pair(&mut self, first: u64, second: u64) -> Result<()>;
    /// Writes a string defined by the format.
    fn word(&mut self, word: &'static str) -> Result<()>;
    /// Writes a string that is not shared.
    fn text(&mut self, text: &str) -> Result<()>;
    /// Writes a reference to the value stored as `value`. Returns `false`, without writing, if the value must be
    /// written in full.
    fn again(&mut self, value: Shared) -> Result<bool>;
    /// Remembers the last value written as `value`.
    fn keep(&mut self, value: Shared) -> Result<()>;
    fn base64(&mut self, prefix: &str, bytes: &[u8]) -> Result<()>;
    fn finish(&mut self) -> Result<()>;

    fn number(&mut self, value: u64) -> Result<()> {
        self.plain(Plain::Number(value))
    }

    /// Writes a string of the trace's tables, or a reference to it.
    fn named(&mut self, id: StringId, text: &str) -> Result<()> {
        if !self.again(Shared::Text(id))? {
            self.text(text)?;
            self.keep(Shared::Text(id))?;
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Output<W: Write> {
    out: W,
    gathered: Vec<u8>,
}

const PORTION: usize = 64 << 10;

impl<W: Write> Output<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, gathered: Vec::with_capacity(PORTION + 512) }
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= PORTION { self.pass_on() } else { Ok(()) }
    }

    /// Lets `fill` append to the buffer.
    pub(super) fn fill<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T> {
        let filled = fill(&mut self.gathered);
        self.put(&[])?;
        Ok(filled)
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.pass_on()?;
        self.out.flush().map_err(io_error)
    }

    pub(super) fn put_base64(&mut self, bytes: &[u8]) -> Result<()> {
        use base64::Engine as _;
        // A multiple of three bytes has no padding, so the encoded pieces can be concatenated.
        let mut text = vec![0; BASE64_PIECE / 3 * 4];
        for piece in bytes.chunks(BASE64_PIECE) {
            let encoded = base64::engine::general_purpose::STANDARD.encode_slice(piece, &mut text);
            let length = encoded.map_err(|why| Error::Encode { what: format!("base64: {why}") })?;
            self.put(&text[..length])?;
        }
        Ok(())
    }

    fn pass_on(&mut self) -> Result<()> {
        self.out.write_all(&self.gathered).map_err(io_error)?;
        self.gathered.clear();
        Ok(())
    }
}

/// Number of bytes encoded in base64 at once; a multiple of three.
const BASE64_PIECE: usize = 3 << 12;

fn io_error(source: std::io::Error) -> Error {
    Error::Io { doing: "write the export", source, path: PathBuf::from("(a stream)") }
}

/// Returns the length of `bytes` bytes in base64.
pub(super) fn base64_length(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}
