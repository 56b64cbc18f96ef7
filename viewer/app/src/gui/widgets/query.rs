//! A question of a view: asked again whenever its key changes, answered in the background.

use std::fmt;

use eframe::egui::{Context, Ui};

use crate::background::Urgency;
use crate::gui::widgets::worker::Worker;

pub use crate::gui::widgets::worker::Cancel;

/// A question and its latest answer. The key `K` is all that the answer `A` depends on. It refers to a recording by its
/// [`Identity`](crate::gui::identity::Identity), so that a closed recording is freed while its answer is still shown.
///
/// A view asks in every frame, which costs a comparison of keys, and shows the former answer until the next is there.
pub struct Query<K, A> {
    worker: Worker<K, (K, A)>,
    /// The key of the last question, if it is not to be repeated.
    asked: Option<K>,
    answer: Option<(K, A)>,
    /// Whether the answer has come since the view last received one.
    is_new: bool,
    /// Whether answers to earlier questions than the last are shown.
    shows_late: bool,
    /// Frees answers that are no longer shown.
    discard: fn(A),
}

impl<K: Clone + PartialEq + Send + 'static, A: Send + 'static> Query<K, A> {
    /// A question that `work` answers on a thread called `name`, or with `None` if it is cancelled. The captures of
    /// `work` are its cache; after a panic, it starts again with a copy of them as they are now.
    pub fn new(name: &'static str, mut work: impl FnMut(&K, &Cancel) -> Option<A> + Clone + Send + 'static) -> Self {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
        let work = move |key: K, cancel: &Cancel| work(&key, cancel).map(|answer| (key, answer));
        Self {
            worker: Worker::new(name, work),
            asked: None,
            answer: None,
            is_new: false,
            shows_late: false,
            discard: drop,
        }
    }

    /// The same, which also shows answers to earlier questions than the last: better late than never while one question
    /// follows another.
    pub(crate) fn showing_late(self) -> Self {
        Self { shows_late: true, ..self }
    }

    /// The same, with work of this urgency.
    pub(crate) fn with_urgency(self, urgency: Urgency) -> Self {
        Self { worker: self.worker.with_urgency(urgency), ..self }
    }

    /// The same, which frees answers with `discard`: of large ones, not while a frame waits.
    pub(crate) fn discarding(self, discard: fn(A)) -> Self {
        Self { discard, ..self }
    }

    /// Asks, unless `key` was asked last, and cancels the last question. `ctx` is woken when the answer is there.
    pub fn ask(&mut self, ctx: &Context, key: &K) {
        if self.asked.as_ref() != Some(key) {
            self.asked = Some(key.clone());
            self.worker.ask(ctx, key.clone());
        }
    }

    /// The key of the last question, unless it was cancelled.
    pub fn asked(&self) -> Option<&K> {
        self.asked.as_ref()
    }

    /// Takes over an answer that has come. Returns whether there is a new one since the last call.
    pub fn receive(&mut self) -> bool {
        let came = if self.shows_late { self.worker.take_newest() } else { self.worker.take() };
        self.keep(came);
        std::mem::take(&mut self.is_new)
    }

    /// Waits for the answer to the last question; the view receives it in its next frame. For tests, and for pictures
    /// without a window.
    pub fn wait(&mut self) {
        let came = self.worker.wait();
        self.keep(came);
    }

    fn keep(&mut self, came: Option<(K, A)>) {
        if came.is_some() {
            self.clear();
            (self.answer, self.is_new) = (came, true);
        }
    }

    /// The latest answer.
    pub fn answer(&self) -> Option<&A> {
        self.answer.as_ref().map(|(_, answer)| answer)
    }

    /// The latest answer, of which a view may take a part away.
    pub(crate) fn answer_mut(&mut self) -> Option<&mut A> {
        self.answer.as_mut().map(|(_, answer)| answer)
    }

    /// The key of the latest answer.
    pub fn answered(&self) -> Option<&K> {
        self.answer.as_ref().map(|(key, _)| key)
    }

    /// The answer to the last question, once it is there.
    pub fn current(&self) -> Option<&A> {
        self.answer().filter(|_| self.answered() == self.asked())
    }

    /// Takes an answer that has come away, once.
    pub fn take(&mut self) -> Option<A> {
        self.receive();
        self.answer.take().map(|(_, answer)| answer)
    }

    /// Forgets the answer, unless it is about what the view shows now.
    pub(crate) fn keep_if(&mut self, is_about: impl FnOnce(&K) -> bool) {
        if self.answered().is_some_and(|key| !is_about(key)) {
            self.clear();
        }
    }

    /// Cancels the last question, which can be repeated. The answer stays.
    pub(crate) fn cancel(&mut self) {
        self.asked = None;
        self.worker.cancel();
    }

    /// Forgets question and answer, and the cache of the work.
    pub fn forget(&mut self) {
        self.asked = None;
        self.clear();
        self.worker.restart();
    }

    /// Frees the answer.
    pub fn clear(&mut self) {
        self.is_new = false;
        if let Some((_, former)) = self.answer.take() {
            (self.discard)(former);
        }
    }

    /// Whether the last question has no answer yet.
    pub fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    /// The reason that there are no answers, if the work has failed.
    pub fn failure(&self) -> Option<&str> {
        self.worker.failure()
    }

    /// Shows, in place of an answer, what is being computed, or why there is none.
    pub(crate) fn pending_ui(&self, ui: &mut Ui, computing: &str) {
        ui.weak(self.failure().unwrap_or(computing));
    }

    /// The same, with a spinner.
    pub(crate) fn spinning_ui(&self, ui: &mut Ui, computing: &str) {
        ui.horizontal(|ui| {
            if self.failure().is_none() {
                ui.spinner();
            }
            self.pending_ui(ui, computing);
        });
    }
}

impl<K, A> fmt::Debug for Query<K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("worker", &self.worker).field("is_answered", &self.answer.is_some()).finish()
    }
}

#[cfg(test)]
thread_local! {
    /// Number of queries that were made on this thread.
    pub(crate) static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Content that is computed in the background: that of a query, or of a view with all its queries, by `computed`.
pub trait Computed {
    /// Whether any of it is still being computed.
    fn is_busy(&self) -> bool;

    /// Waits until it is computed; the next frame shows it. For tests, and for pictures without a window.
    fn wait(&mut self);

    /// Waits, and returns whether nothing had to be waited for, so that the last frame is complete.
    fn finish(&mut self) -> bool {
        let is_complete = !self.is_busy();
        self.wait();
        is_complete
    }

    /// Number of queries that are listed.
    #[cfg(test)]
    fn queries(&self) -> usize;
}

impl<K: Clone + PartialEq + Send + 'static, A: Send + 'static> Computed for Query<K, A> {
    fn is_busy(&self) -> bool {
        self.is_busy()
    }

    fn wait(&mut self) {
        self.wait();
    }

    #[cfg(test)]
    fn queries(&self) -> usize {
        1
    }
}

impl<T: Computed> Computed for [T; 2] {
    fn is_busy(&self) -> bool {
        self.iter().any(T::is_busy)
    }

    fn wait(&mut self) {
        self.iter_mut().for_each(T::wait);
    }

    #[cfg(test)]
    fn queries(&self) -> usize {
        self.iter().map(T::queries).sum()
    }
}

/// Lists the fields of a view that are [`Computed`], which makes it so: `computed!(View: list, search)`.
macro_rules! computed {
    ($view:ty: $($field:ident),+) => {
        impl $crate::gui::widgets::query::Computed for $view {
            fn is_busy(&self) -> bool {
                [$($crate::gui::widgets::query::Computed::is_busy(&self.$field)),+].contains(&true)
            }

            fn wait(&mut self) {
                $($crate::gui::widgets::query::Computed::wait(&mut self.$field);)+
            }

            #[cfg(test)]
            fn queries(&self) -> usize {
                [$($crate::gui::widgets::query::Computed::queries(&self.$field)),+].iter().sum()
            }
        }
    };
}

pub(crate) use computed;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    #[test]
    fn questions_asked_meanwhile_are_passed_over_and_none_is_asked_twice() {
        let (open, gate) = channel::<()>();
        let (gate, mut seen) = (Arc::new(Mutex::new(gate)), Vec::new());
        let mut query = Query::new("test-query", move |number: &u32, _: &Cancel| {
            // Holds the first question until all are asked.
            if seen.is_empty() {
                gate.lock().unwrap().recv().unwrap();
            }
            seen.push(*number);
            Some(seen.clone())
        });
        let ctx = Context::default();
        for number in [1, 2, 3, 4, 4] {
            query.ask(&ctx, &number);
        }
        assert!(query.is_busy() && !query.receive());
        open.send(()).unwrap();
        query.wait();
        assert!(!query.is_busy() && query.receive() && !query.receive(), "an answer is new once");
        let seen = query.current().unwrap();
        assert_eq!((query.answered(), seen.last()), (Some(&4), Some(&4)));
        assert!(seen.len() <= 2, "what was asked meanwhile is passed over: {seen:?}");
        query.ask(&ctx, &4);
        assert!(!query.is_busy(), "it was answered already");
        query.cancel();
        assert!(query.current().is_none() && query.answer().is_some(), "the answer stays");
        query.ask(&ctx, &4);
        query.wait();
        assert_eq!(query.take().map(|seen| seen.len() <= 3), Some(true), "it was asked again");
    }

    #[test]
    fn a_failed_question_is_not_asked_again_until_it_is_cancelled() {
        let mut query = Query::new("test-query", |should_break: &bool, _: &Cancel| {
            assert!(!should_break, "as a test");
            Some(())
        });
        let ctx = Context::default();
        query.ask(&ctx, &true);
        query.wait();
        assert!(!query.is_busy() && query.failure().is_some());
        query.ask(&ctx, &true);
        assert!(!query.is_busy(), "it would fail again");
        query.cancel();
        assert_eq!(query.failure(), None);
    }

    #[test]
    fn answers_that_are_replaced_forgotten_or_about_something_else_are_discarded() {
        static DISCARDED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
        let work = |number: &u32, _: &Cancel| Some(*number);
        let mut query = Query::new("test-query", work).discarding(|number| DISCARDED.lock().unwrap().push(number));
        let ctx = Context::default();
        for number in 1..=3 {
            query.ask(&ctx, &number);
            query.wait();
        }
        query.keep_if(|number| *number == 3);
        assert_eq!(query.answer(), Some(&3));
        query.keep_if(|number| *number != 3);
        assert!(query.answer().is_none() && !query.receive(), "what is forgotten is not new");
        query.ask(&ctx, &4);
        query.wait();
        query.forget();
        assert_eq!((*DISCARDED.lock().unwrap()).as_slice(), [1, 2, 3, 4]);
    }
}
