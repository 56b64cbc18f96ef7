//! Replays the values that a program reads from device memory. A first run computes small tensors on the host and
//! writes these values to a file in order; the recorded run reads them from the file.
#![expect(unsafe_code, reason = "reads a buffer of another language")]

use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::abi::{INVALID_VALUE, SUCCESS, answer, functions};
use crate::settings::settings;

/// The bytes of a read, and whether they were computed rather than assumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_known: bool,
}

/// The kinds of entries in the file. Each entry is stored after the length of the read.
const NONE: u8 = 0;
const ASSUMED: u8 = 1;
const KNOWN: u8 = 2;

thread_local! {
    /// The value for the next read by this thread.
    static NEXT: RefCell<Option<Answer>> = const { RefCell::new(None) };
}

#[derive(Debug)]
enum Run {
    /// Neither a first nor a second run, so that values are neither written nor read.
    Plain,
    First(File),
    /// A recorded run, with the unread rest of the file.
    Second(Vec<u8>),
}

static RUN: LazyLock<Mutex<Run>> = LazyLock::new(|| {
    let run = match (&settings().writes_answers, &settings().reads_answers) {
        (Some(path), _) => File::create(path).map_or(Run::Plain, Run::First),
        (None, Some(path)) => std::fs::read(path).map_or(Run::Plain, Run::Second),
        (None, None) => Run::Plain,
    };
    Mutex::new(run)
});

fn entry(length: usize, answer: Option<&Answer>) -> Vec<u8> {
    let kind = match answer {
        None => NONE,
        Some(Answer { is_known: false, .. }) => ASSUMED,
        Some(Answer { is_known: true, .. }) => KNOWN,
    };
    let mut entry = (length as u64).to_le_bytes().to_vec();
    entry.push(kind);
    entry.extend(answer.map_or(&[][..], |answer| &answer.bytes));
    entry
}

/// Takes the next entry if it is for a read of `length` bytes; otherwise the runs differ, and all entries are dropped.
fn take(left: &mut Vec<u8>, length: usize) -> Option<Answer> {
    let (head, rest) = left.split_at_checked(9)?;
    let is_same = head[..8] == (length as u64).to_le_bytes();
    let of = if head[8] == NONE { 0 } else { length };
    if !is_same || rest.len() < of {
        left.clear();
        return None;
    }
    let answer = (head[8] != NONE).then(|| Answer { bytes: rest[..of].to_vec(), is_known: head[8] == KNOWN });
    left.drain(..9 + of);
    answer
}

/// Takes the value for a read of `length` bytes, if there is one. A first run also writes it to the file.
pub(crate) fn next(length: usize) -> Option<Answer> {
    let set = NEXT.take().filter(|answer| answer.bytes.len() >= length);
    match &mut *RUN.lock().unwrap_or_else(PoisonError::into_inner) {
        Run::Plain => set.map(|answer| Answer { bytes: answer.bytes[..length].to_vec(), ..answer }),
        Run::First(file) => {
            let answer = set.map(|answer| Answer { bytes: answer.bytes[..length].to_vec(), ..answer });
            // Without the file, the second run reads zeros.
            let _ = file.write_all(&entry(length, answer.as_ref()));
            answer
        }
        Run::Second(left) => take(left, length),
    }
}

functions! {
    /// Sets the value for the next read by this thread, which does not get it if it reads more than `length` bytes.
    fn highwater_simulate_answer(bytes: *const u8, length: usize, is_known: i32) {
        if bytes.is_null() { return INVALID_VALUE; }
        // SAFETY: the caller's buffer of this length.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, length) }.to_vec();
        NEXT.set(Some(Answer { bytes, is_known: is_known != 0 }));
        SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_again_in_order_until_the_runs_differ() {
        let answer = |bytes: &[u8], is_known| Answer { bytes: bytes.to_vec(), is_known };
        let (first, second) = (answer(&[1, 2], true), answer(&[3], false));
        let whole = [entry(2, Some(&first)), entry(4, None), entry(1, Some(&second)), entry(8, None)].concat();
        let mut left = whole.clone();
        assert_eq!(take(&mut left, 2), Some(first));
        assert_eq!(take(&mut left, 4), None);
        assert_eq!(take(&mut left, 1), Some(second));
        assert_eq!((take(&mut left, 8), take(&mut left, 8)), (None, None));
        let mut left = whole;
        assert_eq!((take(&mut left, 3), left.len()), (None, 0), "the runs differ");
        for end in 0..9 {
            assert_eq!(take(&mut vec![1; end], 1), None);
        }
    }
}
