//! Stands for the compression of sections where the feature `zstd` is off: they are stored as they are.

/// Compresses nothing.
pub(super) struct Compressor;

impl Compressor {
    pub(super) fn new() -> Result<Self, String> {
        Ok(Self)
    }

    /// Replaces the content of `out` by `raw`: what is no smaller than that is stored uncompressed.
    pub(super) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        out.extend_from_slice(raw);
        Ok(())
    }
}

/// Refuses compressed payloads.
pub(super) struct Decompressor;

impl Decompressor {
    pub(super) fn new() -> Self {
        Self
    }

    pub(super) fn decompress(&mut self, _stored: &[u8], _most: usize, _out: &mut Vec<u8>) -> Result<(), String> {
        Err("this program was built without the feature `zstd` of highwater-snapshots".to_owned())
    }
}
