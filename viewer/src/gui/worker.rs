//! Worker: a named thread that answers the last question that it was asked, so that no question holds up a frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use eframe::egui;

/// Makes what answers questions; called on the thread, which keeps what it remembers between them.
type Make<Q, A> = fn() -> Box<dyn FnMut(Q, &Cancel) -> Option<A>>;

/// A thread and what it is doing. It starts with the first question and ends when this is dropped.
pub struct Worker<Q, A> {
    name: &'static str,
    make: Make<Q, A>,
    link: Option<Link<Q, A>>,
    latest: Arc<AtomicU64>,
    /// The number of the last question, from 1.
    asked: u64,
    /// The number of the last question that is settled.
    settled: u64,
    failure: Option<String>,
}

struct Link<Q, A> {
    questions: Sender<(u64, Q)>,
    answers: Receiver<(u64, Option<A>)>,
}

/// Tells work whether its answer is still wanted.
#[derive(Debug)]
pub struct Cancel {
    latest: Arc<AtomicU64>,
    number: u64,
}

impl Cancel {
    /// Whether a later question was asked, or nobody asks any more.
    pub fn is_cancelled(&self) -> bool {
        self.latest.load(Ordering::Relaxed) != self.number
    }
}

impl<Q, A> std::fmt::Debug for Worker<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).field("is_busy", &(self.asked != self.settled)).finish()
    }
}

impl<Q: Send + 'static, A: Send + 'static> Worker<Q, A> {
    /// A worker whose thread will be called `name`.
    pub fn new(name: &'static str, make: Make<Q, A>) -> Self {
        Self { name, make, link: None, latest: Arc::default(), asked: 0, settled: 0, failure: None }
    }

    /// Asks; what was asked before is given up. `ctx` is woken when the answer is there.
    pub fn ask(&mut self, ctx: &egui::Context, question: Q) {
        self.asked += 1;
        self.latest.store(self.asked, Ordering::Relaxed);
        if self.link.is_none() {
            match self.start(ctx.clone()) {
                Ok(link) => self.link = Some(link),
                Err(why) => return self.fail(format!("no thread could be started: {why}")),
            }
        }
        if self.link.as_ref().is_some_and(|link| link.questions.send((self.asked, question)).is_err()) {
            self.fail("the thread has ended".to_owned());
        }
    }

    /// Forgets what was asked.
    pub fn cancel(&mut self) {
        self.asked += 1;
        self.settled = self.asked;
        self.latest.store(self.asked, Ordering::Relaxed);
    }

    fn start(&self, ctx: egui::Context) -> std::io::Result<Link<Q, A>> {
        let (questions, inbox) = channel::<(u64, Q)>();
        let (outbox, answers) = channel();
        let (make, latest) = (self.make, Arc::clone(&self.latest));
        let work = move || {
            let mut answer = make();
            while let Ok(first) = inbox.recv() {
                let Some((number, question)) = std::iter::once(first).chain(inbox.try_iter()).last() else {
                    continue;
                };
                let cancel = Cancel { latest: Arc::clone(&latest), number };
                if outbox.send((number, answer(question, &cancel))).is_err() {
                    return;
                }
                ctx.request_repaint();
            }
        };
        std::thread::Builder::new().name(self.name.to_owned()).spawn(work)?;
        Ok(Link { questions, answers })
    }

    fn fail(&mut self, why: String) {
        (self.failure, self.settled, self.link) = (Some(why), self.asked, None);
    }

    /// The answer to the last question, once, when it is there.
    pub fn take(&mut self) -> Option<A> {
        loop {
            match self.link.as_ref()?.answers.try_recv() {
                Ok(next) => {
                    if let Some(answer) = self.settle(next) {
                        return Some(answer);
                    }
                }
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => {
                    self.fail("the thread broke off; please report it".to_owned());
                    return None;
                }
            }
        }
    }

    /// Waits for the answer to the last question. For tests, and for pictures without a window.
    pub fn wait(&mut self) -> Option<A> {
        while self.is_busy() {
            match self.link.as_ref()?.answers.recv() {
                Ok(next) => {
                    if let Some(answer) = self.settle(next) {
                        return Some(answer);
                    }
                }
                Err(_) => self.fail("the thread broke off; please report it".to_owned()),
            }
        }
        None
    }

    fn settle(&mut self, (number, answer): (u64, Option<A>)) -> Option<A> {
        let is_last = number == self.asked && self.settled != number;
        if is_last {
            self.settled = number;
        }
        answer.filter(|_| is_last)
    }

    /// Whether the last question has no answer yet.
    pub fn is_busy(&self) -> bool {
        self.asked != self.settled
    }

    /// Why there are no answers, if there is a reason.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl<Q, A> Drop for Worker<Q, A> {
    fn drop(&mut self) {
        // What is being worked on is not wanted any more.
        self.latest.store(u64::MAX, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_question_is_answered_and_former_ones_are_given_up() {
        let make: Make<u32, (u32, u32)> = || {
            let mut asked = 0;
            Box::new(move |question, cancel| {
                asked += 1;
                // The first question waits until it is not wanted any more.
                while question == 1 && !cancel.is_cancelled() {
                    std::thread::yield_now();
                }
                (!cancel.is_cancelled()).then_some((question, asked))
            })
        };
        let mut worker = Worker::new("test-worker", make);
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
    fn work_that_breaks_off_says_so_and_leaves_nobody_waiting() {
        let mut worker: Worker<(), ()> = Worker::new("test-worker", || Box::new(|(), _| panic!("as a test")));
        worker.ask(&egui::Context::default(), ());
        assert_eq!(worker.wait(), None);
        assert!(!worker.is_busy() && worker.failure().is_some_and(|why| why.contains("broke off")));
    }
}
