//! Document: nested dicts and lists as they are written, whatever the notation; and the buffer before the stream.

use std::io::Write;
use std::path::PathBuf;

use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::ids::{FrameId, StackId, StringId};

/// A value that may stand in a file more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shared {
    /// A text of the trace's tables.
    Text(StringId),
    /// The frame that a row of the source lines makes.
    Line(u32),
    /// The frame that an unresolved address makes.
    Address(FrameId),
    /// A stack as a list of frames.
    Frames(StackId),
    /// A stack as a list of texts, outermost first.
    Traceback(StackId),
    /// A pool's two numbers.
    Pair(u64, u64),
}

/// Writes one value after the other. In a dict each value comes after its key.
pub(super) trait Document {
    /// Begins a dict.
    fn open_dict(&mut self) -> Result<()>;
    /// Ends the innermost dict.
    fn close_dict(&mut self) -> Result<()>;
    /// Begins a list.
    fn open_list(&mut self) -> Result<()>;
    /// Ends the innermost list.
    fn close_list(&mut self) -> Result<()>;
    /// The key of the value that comes next.
    fn key(&mut self, name: &'static str) -> Result<()>;
    /// The same, for a key that is no word of the format.
    fn free_key(&mut self, name: &str) -> Result<()>;
    /// A whole number from 0.
    fn number(&mut self, value: u64) -> Result<()>;
    /// A whole number below 0.
    fn negative(&mut self, value: i64) -> Result<()>;
    /// A finite number.
    fn float(&mut self, value: f64) -> Result<()>;
    /// True or false.
    fn truth(&mut self, value: bool) -> Result<()>;
    /// Nothing.
    fn none(&mut self) -> Result<()>;
    /// Two numbers.
    fn pair(&mut self, first: u64, second: u64) -> Result<()>;
    /// A word of the format.
    fn word(&mut self, word: &'static str) -> Result<()>;
    /// A text that stands here alone.
    fn text(&mut self, text: &str) -> Result<()>;
    /// Writes the value that was kept as `value` again; `false`, and nothing written, where it is to be written in full.
    fn again(&mut self, value: Shared) -> Result<bool>;
    /// Keeps what was written last as `value`.
    fn keep(&mut self, value: Shared) -> Result<()>;
    /// A text of `prefix` and `bytes` in base64.
    fn base64(&mut self, prefix: &str, bytes: &[u8]) -> Result<()>;
    /// Ends the document, once its one value is complete.
    fn finish(&mut self) -> Result<()>;

    /// A text of the trace's tables, kept.
    fn named(&mut self, id: StringId, text: &str) -> Result<()> {
        if !self.again(Shared::Text(id))? {
            self.text(text)?;
            self.keep(Shared::Text(id))?;
        }
        Ok(())
    }
}

/// Bytes gathered before they go to the stream.
#[derive(Debug)]
pub(super) struct Output<W: Write> {
    out: W,
    gathered: Vec<u8>,
}

/// So many bytes go to the stream at once.
const PORTION: usize = 64 << 10;

impl<W: Write> Output<W> {
    /// Writes to `out`.
    pub(super) fn new(out: W) -> Self {
        Self { out, gathered: Vec::with_capacity(PORTION + 512) }
    }

    /// Takes bytes.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= PORTION { self.pass_on() } else { Ok(()) }
    }

    /// Lets `fill` append to the bytes gathered.
    pub(super) fn fill<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T> {
        let filled = fill(&mut self.gathered);
        self.put(&[])?;
        Ok(filled)
    }

    /// Passes everything on and flushes the stream.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.pass_on()?;
        self.out.flush().map_err(io_error)
    }

    /// Takes `bytes` in base64.
    pub(super) fn put_base64(&mut self, bytes: &[u8]) -> Result<()> {
        use base64::Engine as _;
        // A multiple of three bytes has no padding, so the pieces join without a seam.
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

/// Bytes that are turned into base64 at once; a multiple of three.
const BASE64_PIECE: usize = 3 << 12;

fn io_error(source: std::io::Error) -> Error {
    Error::Io { doing: "write the export", source, path: PathBuf::from("(a stream)") }
}

/// The length of `bytes` bytes in base64.
pub(super) fn base64_length(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}
