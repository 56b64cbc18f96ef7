//! Background work with a single result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use crate::background;

/// Background work in progress. Dropping this value does not cancel the work.
#[derive(Debug)]
pub struct Pending<T> {
    /// The operation in error messages, such as `cannot write the file`.
    failure: &'static str,
    outcome: Receiver<Result<T, String>>,
}

impl<T: Send + 'static> Pending<T> {
    /// Starts `work` on a thread called `name`. The thread calls `wake` when the work is done. If the work panics, or
    /// the thread cannot be started, the error begins with `failure`.
    pub fn start(
        name: &str,
        failure: &'static str,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
        wake: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (sender, outcome) = channel();
        let failed = sender.clone();
        let work = move || {
            // A panic drops the sender; the receiver may have been dropped as well.
            let _ = catch_unwind(AssertUnwindSafe(move || sender.send(work())));
            wake();
        };
        if let Err(why) = background::start(name, work) {
            let _ = failed.send(Err(format!("{failure}: {why}")));
        }
        Self { failure, outcome }
    }

    /// Creates work that is already done, with result `outcome`.
    pub fn done(outcome: T) -> Self {
        let (sender, receiver) = channel();
        // Cannot fail, since the receiver exists.
        let _ = sender.send(Ok(outcome));
        Self { failure: "", outcome: receiver }
    }

    /// Takes the result once the work is done; `None` before that. Must not be called again after that, since it would
    /// report an internal error.
    pub fn poll(&self) -> Option<Result<T, String>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(format!("{}: internal error; please report it", self.failure))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_one_outcome_and_a_panic_is_one() {
        let of = |work: fn() -> Result<u32, String>| {
            let (wake, woken) = channel();
            let pending = Pending::start("test-pending", "cannot count", work, move || wake.send(()).unwrap());
            woken.recv().unwrap();
            pending.poll()
        };
        assert_eq!(of(|| Ok(1)), Some(Ok(1)));
        assert_eq!(of(|| Err("the disk is full".to_owned())), Some(Err("the disk is full".to_owned())));
        let broken = "cannot count: internal error; please report it".to_owned();
        assert_eq!(of(|| panic!("as a test")), Some(Err(broken)));
    }
}
