//! Answers questions in the background, and only the latest, so that no question delays a frame.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use eframe::egui;
use highwater_snapshots::yielding::yield_if_due;

use crate::background::{Lane, Urgency};

/// Answers questions, and may cache data for the next one; `None` means that the question was cancelled.
type Work<Q, A> = Box<dyn FnMut(Q, &Cancel) -> Option<A> + Send>;

/// Creates the initial state of work.
type Begin<Q, A> = Mutex<Box<dyn Fn() -> Work<Q, A> + Send>>;

/// A background thread and its state. It starts with the first question and ends when this is dropped.
pub(super) struct Worker<Q, A> {
    name: &'static str,
    urgency: Urgency,
    /// Creates the initial state of the work: at first, and again after a panic.
    begin: Arc<Begin<Q, A>>,
    link: Option<Link<Q, A>>,
    latest: Arc<AtomicU64>,
    /// The number of the last question, from 1.
    asked: u64,
    /// The number of the last question that is settled.
    settled: u64,
    failure: Option<String>,
}

struct Link<Q, A> {
    lane: Lane,
    work: Arc<Mutex<Work<Q, A>>>,
    outbox: Sender<(u64, Outcome<A>)>,
    answers: Receiver<(u64, Outcome<A>)>,
}

impl<Q, A> Link<Q, A> {
    fn new(name: &'static str, urgency: Urgency, work: Work<Q, A>) -> Self {
        let (outbox, answers) = channel();
        Self { lane: Lane::new(name, urgency), work: Arc::new(Mutex::new(work)), outbox, answers }
    }
}

/// The outcome of the work.
enum Outcome<A> {
    /// With an answer, unless it was cancelled.
    Done(Option<A>),
    /// With a panic.
    Broken,
}

/// The failure if the work panicked.
const BROKEN_OFF: &str = "internal error; please report it";

/// Tells the work whether its answer is still wanted.
#[derive(Debug)]
pub struct Cancel {
    latest: Arc<AtomicU64>,
    number: u64,
}

impl Cancel {
    /// Whether a later question was asked, or the worker was dropped.
    pub(crate) fn is_cancelled(&self) -> bool {
        // Work that looks whether it is cancelled can also be interrupted.
        yield_if_due();
        self.latest.load(Ordering::Relaxed) != self.number
    }
}

impl<Q, A> std::fmt::Debug for Worker<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).field("is_busy", &(self.asked != self.settled)).finish()
    }
}

impl<Q: Send + 'static, A: Send + 'static> Worker<Q, A> {
    /// A worker whose thread is called `name`. The captures of `work` are its cache; after a panic, it starts again
    /// with a copy of them as they are now.
    pub(super) fn new(name: &'static str, work: impl FnMut(Q, &Cancel) -> Option<A> + Clone + Send + 'static) -> Self {
        let begin = move || Box::new(work.clone()) as Work<Q, A>;
        let begin: Arc<Begin<Q, A>> = Arc::new(Mutex::new(Box::new(begin)));
        let urgency = Urgency::Other;
        Self { name, urgency, begin, link: None, latest: Arc::default(), asked: 0, settled: 0, failure: None }
    }

    /// The same, for work of this urgency.
    pub(super) fn with_urgency(mut self, urgency: Urgency) -> Self {
        self.urgency = urgency;
        self
    }

    /// Asks a question and cancels the previous one. `ctx` is woken when the answer is ready.
    pub(super) fn ask(&mut self, ctx: &egui::Context, question: Q) {
        self.asked += 1;
        self.latest.store(self.asked, Ordering::Relaxed);
        let Self { name, urgency, begin, link, .. } = self;
        let link = link.get_or_insert_with(|| Link::new(name, *urgency, begun(begin)));
        let begin = Arc::clone(begin);
        let (work, outbox, ctx) = (Arc::clone(&link.work), link.outbox.clone(), ctx.clone());
        let (number, latest) = (self.asked, Arc::clone(&self.latest));
        let job = move || {
            // Of several waiting questions only the last counts.
            if latest.load(Ordering::Relaxed) != number {
                return;
            }
            let cancel = Cancel { latest, number };
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = catch_unwind(AssertUnwindSafe(|| work(question, &cancel)));
            if answer.is_err() {
                // Its state may be inconsistent.
                *work = begun(&begin);
            }
            // The worker may be gone by now.
            let _ = outbox.send((number, answer.map_or(Outcome::Broken, Outcome::Done)));
            ctx.request_repaint();
        };
        if let Err(why) = link.lane.post(job) {
            self.fail(format!("cannot start a thread: {why}"));
        }
    }

    /// Cancels the last question.
    pub(super) fn cancel(&mut self) {
        self.asked += 1;
        (self.settled, self.failure) = (self.asked, None);
        self.latest.store(self.asked, Ordering::Relaxed);
    }

    /// Cancels the last question, and forgets the cache of the work.
    pub(super) fn restart(&mut self) {
        self.cancel();
        self.link = None;
    }

    fn fail(&mut self, why: String) {
        (self.failure, self.settled, self.link) = (Some(why), self.asked, None);
    }

    /// Takes the answer to the last question, once, when it is ready.
    pub(super) fn take(&mut self) -> Option<A> {
        let (number, answer) = self.newest()?;
        (number == self.asked).then_some(answer)
    }

    /// Takes the newest answer, once, which may be to an earlier question than the last: for results that are
    /// better shown late than never while one question follows another.
    pub(super) fn take_newest(&mut self) -> Option<A> {
        self.newest().map(|(_, answer)| answer)
    }

    fn newest(&mut self) -> Option<(u64, A)> {
        let mut newest = None;
        while let Some(next) = self.link.as_ref().and_then(|link| link.answers.try_recv().ok()) {
            newest = self.take_outcome(next).or(newest);
        }
        newest
    }

    /// Waits for the answer to the last question. For tests, and for pictures without a window.
    pub(super) fn wait(&mut self) -> Option<A> {
        let mut newest = None;
        while self.is_busy() {
            let Ok(next) = self.link.as_ref()?.answers.recv() else { break };
            newest = self.take_outcome(next);
        }
        newest.map(|(_, answer)| answer)
    }

    /// Records the outcome of a question. Returns the answer, if there is one, with the question's number.
    fn take_outcome(&mut self, (number, outcome): (u64, Outcome<A>)) -> Option<(u64, A)> {
        if number <= self.settled {
            return None;
        }
        let answer = match outcome {
            Outcome::Done(answer) => answer,
            Outcome::Broken => {
                if number == self.asked {
                    self.fail(BROKEN_OFF.to_owned());
                }
                return None;
            }
        };
        if answer.is_some() || number == self.asked {
            (self.settled, self.failure) = (number, None);
        }
        Some((number, answer?))
    }

    /// Whether the last question has no answer yet.
    pub(super) fn is_busy(&self) -> bool {
        self.asked != self.settled
    }

    /// The reason that there are no answers, if the worker has failed.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

fn begun<Q, A>(begin: &Begin<Q, A>) -> Work<Q, A> {
    begin.lock().unwrap_or_else(PoisonError::into_inner)()
}

impl<Q, A> Drop for Worker<Q, A> {
    fn drop(&mut self) {
        // The work in progress is no longer wanted.
        self.latest.store(u64::MAX, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_question_is_answered_and_former_ones_are_given_up() {
        let mut asked = 0;
        let mut worker = Worker::new("test-worker", move |question: u32, cancel: &Cancel| {
            asked += 1;
            // The first question waits until it is not wanted any more.
            while question == 1 && !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            (!cancel.is_cancelled()).then_some((question, asked))
        });
        let ctx = egui::Context::default();
        assert!(!worker.is_busy() && worker.take().is_none());
        worker.ask(&ctx, 1);
        worker.ask(&ctx, 2);
        let (question, asked) = worker.wait().unwrap();
        assert_eq!(question, 2);
        assert!(asked <= 2);
        assert!(!worker.is_busy() && worker.take().is_none(), "an answer is given once");
        worker.ask(&ctx, 1);
        worker.cancel();
        assert!(!worker.is_busy() && worker.wait().is_none());
    }

    #[test]
    fn an_answer_to_an_earlier_question_is_given_only_to_who_wants_it() {
        for is_wanted in [true, false] {
            let (open, gate) = channel();
            let (begin, begun) = channel();
            let gate = Arc::new(Mutex::new(gate));
            let mut worker = Worker::new("test-worker", move |question: u32, _: &Cancel| {
                begin.send(question).unwrap();
                gate.lock().unwrap().recv().unwrap();
                Some(question)
            });
            let ctx = egui::Context::default();
            worker.ask(&ctx, 1);
            assert_eq!(begun.recv().unwrap(), 1);
            worker.ask(&ctx, 2);
            open.send(()).unwrap();
            assert_eq!(begun.recv().unwrap(), 2, "the first is answered");
            let early = if is_wanted { worker.take_newest() } else { worker.take() };
            assert_eq!(early, is_wanted.then_some(1));
            assert!(worker.is_busy());
            open.send(()).unwrap();
            assert_eq!(worker.wait(), Some(2));
        }
    }

    #[test]
    fn work_that_breaks_off_says_so_and_leaves_nobody_waiting() {
        let mut asked = 0;
        let mut worker = Worker::new("test-worker", move |should_break: bool, _: &Cancel| {
            asked += 1;
            assert!(!should_break, "as a test");
            Some(asked)
        });
        let ctx = egui::Context::default();
        worker.ask(&ctx, true);
        assert_eq!(worker.wait(), None);
        assert!(!worker.is_busy() && worker.failure().is_some_and(|why| why.contains("internal error")));
        worker.ask(&ctx, false);
        assert_eq!(worker.wait(), Some(1), "another thread begins anew");
        assert_eq!(worker.failure(), None);
    }
}
