//! Sequential access to the bytes of a pickle, in memory or from a stream.

use std::io::{ErrorKind, Read};

/// Bytes read sequentially. Methods return `None` if the input ends too early.
pub(super) trait Source {
    fn byte(&mut self) -> Option<u8>;

    fn bytes(&mut self, count: usize) -> Option<&[u8]>;

    /// Returns the buffered bytes without consuming them. More bytes may follow.
    fn ahead(&self) -> &[u8];

    fn begins_with(&mut self, text: &[u8]) -> bool;

    fn take(&mut self, count: usize);

    /// Returns the number of bytes consumed.
    fn position(&self) -> u64;

    /// Returns the I/O error that ended the input, if any.
    fn failure(&mut self) -> Option<std::io::Error> {
        None
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InMemory<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> InMemory<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }
}

impl Source for InMemory<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    #[inline(always)]
    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let end = self.position.checked_add(count)?;
        let bytes = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(bytes)
    }

    #[inline(always)]
    fn ahead(&self) -> &[u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    fn begins_with(&mut self, text: &[u8]) -> bool {
        self.ahead().starts_with(text)
    }

    #[inline(always)]
    fn take(&mut self, count: usize) {
        self.position = (self.position + count).min(self.bytes.len());
    }

    fn position(&self) -> u64 {
        self.position as u64
    }
}

#[derive(Debug)]
pub(super) struct Stream<R> {
    input: R,
    buffer: Vec<u8>,
    next: usize,
    /// Number of bytes consumed before those in the buffer.
    before: u64,
    failure: Option<std::io::Error>,
}

/// Number of bytes read at once. The buffer grows beyond twice this size only by bytes actually read, whatever length
/// the file claims.
const PORTION: usize = 256 << 10;

impl<R: Read> Stream<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), next: 0, before: 0, failure: None }
    }

    /// Reads until at least `count` bytes are buffered.
    #[cold]
    fn fill(&mut self, count: usize) -> Option<()> {
        self.before += self.next as u64;
        self.buffer.drain(..self.next);
        self.next = 0;
        while self.buffer.len() < count {
            let had = self.buffer.len();
            self.buffer.resize(had + PORTION, 0);
            let read = self.input.read(&mut self.buffer[had..]);
            self.buffer.truncate(had + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error);
                    return None;
                }
            }
        }
        Some(())
    }
}

impl<R: Read> Source for Stream<R> {
    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        if self.next == self.buffer.len() {
            self.fill(1)?;
        }
        let byte = *self.buffer.get(self.next)?;
        self.next += 1;
        Some(byte)
    }

    #[inline(always)]
    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        if self.buffer.len() - self.next < count {
            self.fill(count)?;
        }
        let bytes = self.buffer.get(self.next..self.next + count)?;
        self.next += count;
        Some(bytes)
    }

    #[inline(always)]
    fn ahead(&self) -> &[u8] {
        self.buffer.get(self.next..).unwrap_or_default()
    }

    fn begins_with(&mut self, text: &[u8]) -> bool {
        let is_buffered = self.buffer.len() - self.next >= text.len() || self.fill(text.len()).is_some();
        is_buffered && self.ahead().starts_with(text)
    }

    #[inline(always)]
    fn take(&mut self, count: usize) {
        self.next = (self.next + count).min(self.buffer.len());
    }

    fn position(&self) -> u64 {
        self.before + self.next as u64
    }

    fn failure(&mut self) -> Option<std::io::Error> {
        self.failure.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte at a time.
    struct Drops<'a>(&'a [u8]);

    impl Read for Drops<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let Some((&first, rest)) = self.0.split_first() else { return Ok(0) };
            out[0] = first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn memory_and_streams_give_the_same_bytes_and_end_alike() {
        fn walk(mut source: impl Source) -> Vec<u64> {
            assert_eq!(source.byte(), Some(1));
            assert_eq!(source.bytes(3), Some(&[2, 3, 4][..]));
            assert_eq!(source.bytes(0), Some(&[][..]));
            let before = source.position();
            assert_eq!(source.bytes(2), None, "only one is left");
            vec![before, source.failure().map_or(0, |_| 1)]
        }
        let bytes = [1, 2, 3, 4, 5];
        assert_eq!(walk(InMemory::new(&bytes)), [4, 0]);
        assert_eq!(walk(Stream::new(Drops(&bytes))), [4, 0]);
    }

    #[test]
    fn a_length_that_only_claims_takes_no_memory() {
        let mut source = Stream::new(&[0_u8; 100][..]);
        assert_eq!(source.bytes(usize::MAX / 2), None);
        assert!(source.buffer.capacity() < 4 * PORTION);
    }
}
