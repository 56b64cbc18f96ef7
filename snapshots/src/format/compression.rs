//! Compresses sections with the zstd library. Where C cannot be compiled, `compression_web.rs` replaces this file.

/// The zstd level. Higher levels hardly reduce the size of event columns.
const LEVEL: i32 = 3;

pub(super) struct Compressor(zstd::bulk::Compressor<'static>);

impl Compressor {
    pub(super) fn new() -> Result<Self, String> {
        zstd::bulk::Compressor::new(LEVEL).map(Self).map_err(|error| error.to_string())
    }

    /// Replaces the content of `out` by a zstd frame that contains `raw`.
    pub(super) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        out.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        self.0.compress_to_buffer(raw, out).map(drop).map_err(|error| error.to_string())
    }
}

pub(super) struct Decompressor(zstd::bulk::Decompressor<'static>);

impl Decompressor {
    pub(super) fn new() -> Self {
        Self(zstd::bulk::Decompressor::default())
    }

    /// Replaces the content of `out` by the decompressed zstd frames in `stored`, at most `most` bytes.
    pub(super) fn decompress(&mut self, stored: &[u8], most: usize, out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        out.reserve_exact(most);
        self.0.decompress_to_buffer(stored, out).map(drop).map_err(|error| error.to_string())
    }
}
