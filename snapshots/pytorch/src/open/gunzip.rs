//! Decompresses gzip files as they are read.

use std::io::{BufRead, Error as IoError, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;

use super::watch::Watch;
use highwater_snapshots::error::Error;

/// The decompressed bytes of a gzip file, all of its members concatenated.
pub(super) struct Gunzip<'a, R> {
    bytes: MultiGzDecoder<R>,
    watch: Watch<'a>,
}

impl<'a, R: BufRead> Gunzip<'a, R> {
    /// Decompresses `input`. `watch` provides the offset in the file for errors.
    pub(super) fn new(input: R, watch: &Watch<'a>) -> Self {
        Self { bytes: MultiGzDecoder::new(input), watch: watch.clone() }
    }
}

impl<R: BufRead> Read for Gunzip<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.bytes.read(out).map_err(|error| {
            let is_ours = error.get_ref().is_some_and(|inner| inner.is::<Error>());
            let what = match error.kind() {
                _ if is_ours => return error,
                ErrorKind::UnexpectedEof => "the gzip data ends early: copy the file again".to_owned(),
                ErrorKind::InvalidInput | ErrorKind::InvalidData => format!("the gzip data is damaged ({error})"),
                _ => return error,
            };
            IoError::other(Error::Damaged { offset: self.watch.bytes_read(), what })
        })
    }
}
