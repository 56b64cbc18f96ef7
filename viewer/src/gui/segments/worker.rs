//! Worker: a named thread that answers the last question put to it, so that the window never waits.

use std::sync::mpsc::{Receiver, Sender, channel};

/// Questions go in, the answer to the latest comes out.
#[derive(Debug)]
pub(super) struct Worker<Q, A> {
    questions: Sender<Q>,
    answers: Receiver<(Q, A)>,
    asked: Option<Q>,
    is_busy: bool,
}

impl<Q: Clone + PartialEq + Send + 'static, A: Send + 'static> Worker<Q, A> {
    /// Starts the thread. `wake` is called on it when an answer is ready.
    pub(super) fn start(
        name: &str,
        wake: impl Fn() + Send + 'static,
        mut answer: impl FnMut(&Q) -> A + Send + 'static,
    ) -> std::io::Result<Self> {
        let (questions, inbox) = channel::<Q>();
        let (outbox, answers) = channel();
        let work = move || {
            while let Ok(first) = inbox.recv() {
                // Only the last question is still of interest.
                let question = inbox.try_iter().last().unwrap_or(first);
                let answer = answer(&question);
                if outbox.send((question, answer)).is_err() {
                    return;
                }
                wake();
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Self { questions, answers, asked: None, is_busy: false })
    }

    /// Asks, unless that was asked last.
    pub(super) fn ask(&mut self, question: Q) {
        if self.asked.as_ref() != Some(&question) {
            self.asked = Some(question.clone());
            self.is_busy = self.questions.send(question).is_ok();
        }
    }

    /// The newest answer that has become ready.
    pub(super) fn take(&mut self) -> Option<(Q, A)> {
        let answer = self.answers.try_iter().last()?;
        self.note(&answer.0);
        Some(answer)
    }

    /// Waits for the answer to the last question, unless it has been taken. For tests, and pictures without a window.
    pub(super) fn wait(&mut self) -> Option<(Q, A)> {
        let mut last = self.take();
        while self.is_busy {
            let Ok(answer) = self.answers.recv() else {
                self.is_busy = false;
                break;
            };
            self.note(&answer.0);
            last = Some(answer);
        }
        last
    }

    /// Whether the last question has no answer yet.
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy
    }

    fn note(&mut self, answered: &Q) {
        if self.asked.as_ref() == Some(answered) {
            self.is_busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_question_is_answered_however_many_came_before() {
        let mut worker = Worker::start("test", || {}, |question: &u32| question * 2).unwrap();
        for question in 0..100 {
            worker.ask(question);
        }
        assert_eq!(worker.wait(), Some((99, 198)));
        assert!(!worker.is_busy());
        worker.ask(99);
        assert_eq!((worker.is_busy(), worker.wait()), (false, None), "it was answered already");
    }
}
