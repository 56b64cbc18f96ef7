//! Compresses sections with ruzstd, which is written in Rust. It is slower than the C library, and has one level.

use ruzstd::decoding::FrameDecoder;
use ruzstd::encoding::{CompressionLevel, compress};

pub(super) struct Compressor;

impl Compressor {
    pub(super) fn new() -> Result<Self, String> {
        Ok(Self)
    }

    /// Replaces the content of `out` by a zstd frame that contains `raw`.
    pub(super) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        compress(raw, out, CompressionLevel::Fastest);
        Ok(())
    }
}

pub(super) struct Decompressor(FrameDecoder);

impl Decompressor {
    pub(super) fn new() -> Self {
        Self(FrameDecoder::new())
    }

    /// Replaces the content of `out` by the decompressed zstd frames in `stored`, at most `most` bytes.
    pub(super) fn decompress(&mut self, stored: &[u8], most: usize, out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        out.resize(most, 0);
        let written = self.0.decode_all(stored, out).map_err(|error| error.to_string())?;
        out.truncate(written);
        Ok(())
    }
}
