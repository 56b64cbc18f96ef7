//! The known contents of device memory. They come from small copies and fills, and are valid until a kernel runs.
//!
//! A kernel may write anywhere, so the contents of memory are unknown after it ran. Reads then return zeros, never the
//! values of an earlier tensor at the same address.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum size in bytes of copies whose contents are stored.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// Known bytes by address. Ranges do not overlap.
#[derive(Debug)]
struct Contents(BTreeMap<usize, Vec<u8>>);

impl Contents {
    fn forget(&mut self, start: usize, bytes: usize) {
        let end = start.saturating_add(bytes);
        let overlaps = |(at, stored): (&usize, &Vec<u8>)| (at + stored.len() > start).then_some(*at);
        while let Some(at) = self.0.range(..end).next_back().and_then(overlaps) {
            self.0.remove(&at);
        }
    }

    fn write(&mut self, start: usize, bytes: &[u8]) {
        self.forget(start, bytes.len());
        if !bytes.is_empty() && bytes.len() <= MAX_BYTES {
            self.0.insert(start, bytes.to_vec());
        }
    }

    fn read(&self, start: usize, bytes: usize) -> Option<Vec<u8>> {
        let (at, stored) = self.0.range(..=start).next_back()?;
        Some(stored.get(start - at..)?.get(..bytes)?.to_vec())
    }
}

static KNOWN: Mutex<Contents> = Mutex::new(Contents(BTreeMap::new()));

/// Whether any contents are known. It is checked first, so that a kernel launch usually takes no lock.
static ANY: AtomicBool = AtomicBool::new(false);

fn known() -> MutexGuard<'static, Contents> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Discards all contents, since the kernel may have overwritten them.
#[inline]
pub(crate) fn kernel_ran() {
    if ANY.load(Ordering::Relaxed) {
        known().0.clear();
        ANY.store(false, Ordering::Relaxed);
    }
}

pub(crate) fn forget(start: usize, bytes: usize) {
    if ANY.load(Ordering::Relaxed) {
        known().forget(start, bytes);
    }
}

/// Stores bytes that were copied to `start` as known contents. If there are more than [`MAX_BYTES`], forgets the range.
pub(crate) fn written(start: usize, bytes: &[u8]) {
    known().write(start, bytes);
    ANY.store(true, Ordering::Relaxed);
}

/// Returns the bytes of a range; `None` unless all of them are known.
pub(crate) fn read(start: usize, bytes: usize) -> Option<Vec<u8>> {
    if ANY.load(Ordering::Relaxed) { known().read(start, bytes) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_known_until_a_part_of_it_is_forgotten() {
        let mut contents = Contents(BTreeMap::new());
        contents.write(1000, &[1, 2, 3, 4]);
        assert_eq!(contents.read(1001, 2), Some(vec![2, 3]));
        assert_eq!(contents.read(1001, 4), None, "not all of it is known");
        assert_eq!(contents.read(999, 2), None);
        contents.write(1002, &[9]);
        assert_eq!((contents.read(1000, 1), contents.read(1002, 1)), (None, Some(vec![9])));
        contents.write(1000, &[7, 7]);
        contents.forget(0, 1001);
        assert_eq!((contents.read(1001, 1), contents.read(1002, 1)), (None, Some(vec![9])));
        contents.write(0, &vec![1; MAX_BYTES + 1]);
        assert_eq!(contents.read(0, 1), None, "too large to be kept");
    }
}
