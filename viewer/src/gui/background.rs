//! Background: one thread that answers the last question asked of it, so that the window never waits.

use std::sync::mpsc::{Receiver, Sender, channel};

/// A named thread that makes a `V` for a `K`. Of questions asked while it is busy only the last is answered.
#[derive(Debug)]
pub struct Background<K, V> {
    questions: Sender<K>,
    answers: Receiver<(K, V)>,
    asked: Option<K>,
    is_pending: bool,
}

impl<K: Clone + PartialEq + Send + 'static, V: Send + 'static> Background<K, V> {
    /// Starts the thread, which ends when this is dropped and its work is done. `wake` is called on it when an answer is
    /// ready; `work` may keep what helps it with the next question.
    pub fn start(
        name: &str,
        wake: impl Fn() + Send + 'static,
        mut work: impl FnMut(&K) -> V + Send + 'static,
    ) -> std::io::Result<Self> {
        let (questions, inbox) = channel::<K>();
        let (outbox, answers) = channel();
        let run = move || {
            while let Ok(first) = inbox.recv() {
                let last = inbox.try_iter().last().unwrap_or(first);
                let answer = work(&last);
                if outbox.send((last, answer)).is_err() {
                    return;
                }
                wake();
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { questions, answers, asked: None, is_pending: false })
    }

    /// Asks, unless it is what was asked last.
    pub fn ask(&mut self, question: &K) {
        if self.asked.as_ref() != Some(question) {
            self.asked = Some(question.clone());
            self.is_pending = self.questions.send(question.clone()).is_ok();
        }
    }

    /// The newest answer that has become ready, which may be to an earlier question than the last.
    pub fn take(&mut self) -> Option<(K, V)> {
        let newest = self.answers.try_iter().last()?;
        self.note(&newest.0);
        Some(newest)
    }

    /// Whether the last question is not answered yet.
    pub fn is_busy(&self) -> bool {
        self.is_pending
    }

    /// Waits for the answer to the last question; the newest ready one where nothing is pending. For tests and pictures
    /// without a window.
    pub fn wait(&mut self) -> Option<(K, V)> {
        let mut newest = self.take();
        while self.is_pending {
            match self.answers.recv() {
                Ok(answer) => {
                    self.note(&answer.0);
                    newest = Some(answer);
                }
                // The thread has failed: there is nothing to wait for.
                Err(_) => self.is_pending = false,
            }
        }
        newest
    }

    fn note(&mut self, answered: &K) {
        if self.asked.as_ref() == Some(answered) {
            self.is_pending = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_question_is_answered_and_no_question_twice() {
        let (gate, opened) = channel::<()>();
        let mut seen = Vec::new();
        let work = move |number: &u32| {
            // Holds the first question until all are asked.
            if seen.is_empty() {
                opened.recv().unwrap();
            }
            seen.push(*number);
            seen.clone()
        };
        let mut background = Background::start("test", || (), work).unwrap();
        assert!(!background.is_busy() && background.wait().is_none());
        for number in [1, 2, 3, 4, 4] {
            background.ask(&number);
        }
        assert!(background.is_busy());
        gate.send(()).unwrap();
        let (number, seen) = background.wait().unwrap();
        assert_eq!((number, seen.last()), (4, Some(&4)));
        assert!(seen.len() <= 2 + 1, "what was asked meanwhile is passed over: {seen:?}");
        assert!(!background.is_busy() && background.take().is_none());
        background.ask(&4);
        assert!(!background.is_busy(), "it was answered");
    }

    #[test]
    fn a_thread_that_fails_is_not_waited_for_for_ever() {
        let mut background = Background::start("failing", || (), |_: &u32| -> u32 { panic!("on purpose") }).unwrap();
        background.ask(&1);
        assert!(background.wait().is_none());
        assert!(!background.is_busy());
    }
}
