//! Background queries of views. A query is restarted whenever its key changes, and answered on a background thread, so
//! that it never delays a frame.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use eframe::egui::{Context, Ui};
use highwater_snapshots::yielding::yield_if_due;

use crate::background::{Lane, Urgency};

/// A function that answers a query, and may cache data for the next one; `None` means that the query was cancelled.
type Work<K, A> = Box<dyn FnMut(&K, &Cancel) -> Option<A> + Send>;

/// A function that creates the work, with an empty cache.
type Begin<K, A> = Mutex<Box<dyn Fn() -> Work<K, A> + Send>>;

/// The id of a query, its key, and its answer. The answer is `None` if the query was cancelled, and an error if the
/// work panicked.
type Outcome<K, A> = (u64, K, Result<Option<A>, ()>);

const BROKEN_OFF: &str = "internal error; please report it";

#[derive(Debug)]
pub(crate) struct Cancel {
    latest: Arc<AtomicU64>,
    number: u64,
}

impl Cancel {
    /// Whether a later query was started, or this one was dropped.
    pub(crate) fn is_cancelled(&self) -> bool {
        // Work that checks for cancellation can also be interrupted.
        yield_if_due();
        self.latest.load(Ordering::Relaxed) != self.number
    }
}

struct Link<K, A> {
    lane: Lane,
    work: Arc<Mutex<Work<K, A>>>,
    outbox: Sender<Outcome<K, A>>,
    inbox: Receiver<Outcome<K, A>>,
}

impl<K, A> Link<K, A> {
    fn new(name: &'static str, urgency: Urgency, work: Work<K, A>) -> Self {
        let (outbox, inbox) = channel();
        Self { lane: Lane::new(name, urgency), work: Arc::new(Mutex::new(work)), outbox, inbox }
    }
}

/// A query and its latest answer. The answer `A` depends only on the key `K`. The key refers to a recording by its
/// [`Identity`](crate::gui::identity::Identity), so that the memory of a closed recording is freed while its answer is
/// still shown.
///
/// A view calls [`ask`](Self::ask) in every frame, which only compares keys, and shows the previous answer until the
/// next one is ready. The thread starts with the first query and ends when the `Query` is dropped.
pub(crate) struct Query<K, A> {
    name: &'static str,
    urgency: Urgency,
    /// Whether answers to queries other than the last are also shown.
    shows_late: bool,
    /// Frees answers that are no longer shown.
    discard: fn(A),
    /// Creates the function that computes answers: at the start, and again after a panic.
    begin: Arc<Begin<K, A>>,
    link: Option<Link<K, A>>,
    /// The id of the last query, for [`Cancel`].
    latest: Arc<AtomicU64>,
    /// The id of the last query, from 1.
    number: u64,
    /// The id of the last query that was answered or cancelled.
    settled: u64,
    failure: Option<String>,
    /// The key of the last query; `None` if there is none, or if it was cancelled.
    asked: Option<K>,
    answer: Option<(K, A)>,
    /// Whether an answer has arrived since the view last called `receive`.
    is_new: bool,
}

impl<K: Clone + PartialEq + Send + 'static, A: Send + 'static> Query<K, A> {
    /// Creates a query that `work` answers on a thread called `name`; `work` returns `None` if cancelled. The values
    /// that it captures are its cache; after a panic, it starts again with a copy of their initial state.
    pub(crate) fn new(name: &'static str, work: impl FnMut(&K, &Cancel) -> Option<A> + Clone + Send + 'static) -> Self {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
        let begin = move || Box::new(work.clone()) as Work<K, A>;
        Self {
            name,
            urgency: Urgency::Other,
            shows_late: false,
            discard: drop,
            begin: Arc::new(Mutex::new(Box::new(begin))),
            link: None,
            latest: Arc::default(),
            number: 0,
            settled: 0,
            failure: None,
            asked: None,
            answer: None,
            is_new: false,
        }
    }

    /// Also shows answers to earlier queries, for views with queries that follow each other quickly.
    pub(crate) fn showing_late(mut self) -> Self {
        self.shows_late = true;
        self
    }

    pub(crate) fn with_urgency(mut self, urgency: Urgency) -> Self {
        self.urgency = urgency;
        self
    }

    /// Frees answers with `discard`. Set this for large answers, whose freeing would block a frame.
    pub(crate) fn discarding(mut self, discard: fn(A)) -> Self {
        self.discard = discard;
        self
    }

    /// Starts a query and cancels the previous one, unless both have the same key. `ctx` is repainted when the answer
    /// arrives.
    pub(crate) fn ask(&mut self, ctx: &Context, key: &K) {
        if self.asked.as_ref() == Some(key) {
            return;
        }
        self.asked = Some(key.clone());
        self.count();
        let Self { name, urgency, begin, link, latest, number, .. } = self;
        let link = link.get_or_insert_with(|| Link::new(name, *urgency, begun(begin)));
        let (work, outbox, begin) = (Arc::clone(&link.work), link.outbox.clone(), Arc::clone(begin));
        let (key, ctx) = (key.clone(), ctx.clone());
        let cancel = Cancel { latest: Arc::clone(latest), number: *number };
        let job = move || {
            // Of several waiting queries, only the last counts.
            if cancel.is_cancelled() {
                return;
            }
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = catch_unwind(AssertUnwindSafe(|| work(&key, &cancel)));
            if answer.is_err() {
                // The state of the work may be inconsistent.
                *work = begun(&begin);
            }
            // The query may have been dropped.
            let _ = outbox.send((cancel.number, key, answer.map_err(drop)));
            ctx.request_repaint();
        };
        if let Err(why) = link.lane.post(job) {
            self.fail(format!("cannot start a thread: {why}"));
        }
    }

    /// Assigns the next id to a query, which cancels the previous query.
    fn count(&mut self) {
        self.number += 1;
        self.latest.store(self.number, Ordering::Relaxed);
    }

    fn fail(&mut self, why: String) {
        (self.failure, self.settled, self.link) = (Some(why), self.number, None);
    }

    /// The key of the last query; `None` if there is none, or if it was cancelled.
    pub(crate) fn asked(&self) -> Option<&K> {
        self.asked.as_ref()
    }

    /// Receives an answer that has arrived. Returns whether there is a new answer since the last call.
    pub(crate) fn receive(&mut self) -> bool {
        while let Some(outcome) = self.link.as_ref().and_then(|link| link.inbox.try_recv().ok()) {
            self.take_outcome(outcome, self.shows_late);
        }
        std::mem::take(&mut self.is_new)
    }

    /// Waits for the answer to the last query. The view receives the answer in its next frame. For tests, and for
    /// pictures without a window.
    pub(crate) fn wait(&mut self) {
        while self.is_busy()
            && let Some(outcome) = self.link.as_ref().and_then(|link| link.inbox.recv().ok())
        {
            self.take_outcome(outcome, false);
        }
    }

    /// Stores the result of a query. The result of an earlier query is stored only if `shows_late`.
    fn take_outcome(&mut self, (number, key, outcome): Outcome<K, A>, shows_late: bool) {
        let is_last = number == self.number;
        match outcome {
            _ if number <= self.settled => {}
            Ok(None) if !is_last => {}
            Ok(answer) => {
                (self.settled, self.failure) = (number, None);
                if let Some(answer) = answer.filter(|_| is_last || shows_late) {
                    self.clear();
                    (self.answer, self.is_new) = (Some((key, answer)), true);
                }
            }
            Err(()) if is_last => self.fail(BROKEN_OFF.to_owned()),
            Err(()) => {}
        }
    }

    /// Returns the latest answer, possibly to an earlier query.
    pub(crate) fn answer(&self) -> Option<&A> {
        self.answer.as_ref().map(|(_, answer)| answer)
    }

    /// The latest answer, mutable, so that the view can move values out of it.
    pub(crate) fn answer_mut(&mut self) -> Option<&mut A> {
        self.answer.as_mut().map(|(_, answer)| answer)
    }

    pub(crate) fn answered(&self) -> Option<&K> {
        self.answer.as_ref().map(|(key, _)| key)
    }

    /// The answer to the last query; `None` while it is being computed, or if the query was cancelled.
    pub(crate) fn current(&self) -> Option<&A> {
        self.answer().filter(|_| self.answered() == self.asked())
    }

    /// Removes and returns the answer, so that the next call returns only a new one.
    pub(crate) fn take(&mut self) -> Option<A> {
        self.receive();
        self.answer.take().map(|(_, answer)| answer)
    }

    /// Drops the answer, unless `is_about` returns true for its key.
    pub(crate) fn keep_if(&mut self, is_about: impl FnOnce(&K) -> bool) {
        if self.answered().is_some_and(|key| !is_about(key)) {
            self.clear();
        }
    }

    /// Cancels the last query, so that it can be repeated. Keeps the latest answer.
    pub(crate) fn cancel(&mut self) {
        self.asked = None;
        self.count();
        (self.settled, self.failure) = (self.number, None);
    }

    /// Drops the query, its answer, and the cache of the work.
    pub(crate) fn forget(&mut self) {
        self.cancel();
        self.clear();
        self.link = None;
    }

    /// Drops the answer. Frees its memory in the background.
    pub(crate) fn clear(&mut self) {
        self.is_new = false;
        if let Some((_, former)) = self.answer.take() {
            (self.discard)(former);
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.number != self.settled
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Shows a message about the running computation, or the reason there is no answer.
    pub(crate) fn pending_ui(&self, ui: &mut Ui, computing: &str) {
        ui.weak(self.failure().unwrap_or(computing));
    }

    /// Shows a spinner and a message about the running computation, or the reason there is no answer.
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
        let is_busy = self.number != self.settled;
        let mut query = f.debug_struct("Query");
        query.field("name", &self.name).field("is_busy", &is_busy).field("is_answered", &self.answer.is_some());
        query.finish()
    }
}

impl<K, A> Drop for Query<K, A> {
    fn drop(&mut self) {
        // Cancels the work in progress.
        self.latest.store(u64::MAX, Ordering::Relaxed);
    }
}

fn begun<K, A>(begin: &Begin<K, A>) -> Work<K, A> {
    begin.lock().unwrap_or_else(PoisonError::into_inner)()
}

#[cfg(test)]
thread_local! {
    /// Number of queries created on this thread.
    pub(crate) static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Content that is computed in the background by a query, or by several queries of a view (see `computed`).
pub trait Computed {
    /// Returns whether any part of the content is still being computed.
    fn is_busy(&self) -> bool;

    /// Waits until the content is computed. The next frame shows it. For tests, and for pictures without a window.
    fn wait(&mut self);

    /// Waits, and returns whether everything was already computed, so that the last frame was complete.
    fn finish(&mut self) -> bool {
        let is_complete = !self.is_busy();
        self.wait();
        is_complete
    }

    /// Number of queries in the content.
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

/// Implements [`Computed`] for a view, given its fields that are `Computed`, as in `computed!(View: list, search)`.
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
mod tests;

#[derive(Clone, Debug)]
pub(crate) struct Memo<K, V>(Option<(K, V)>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: PartialEq, V> Memo<K, V> {
    pub(crate) fn known(&self) -> Option<&V> {
        self.0.as_ref().map(|(_, value)| value)
    }

    /// The value for `key`; computed by `make` unless the key is that of the cached value.
    pub(crate) fn get(&mut self, key: K, make: impl FnOnce(&K) -> V) -> &V {
        let known = self.0.take().filter(|(known, _)| *known == key);
        let (_, value) = self.0.insert(known.unwrap_or_else(|| {
            let value = make(&key);
            (key, value)
        }));
        value
    }
}
