//! The blocks of the chosen group, highlighted in both timelines.

use std::sync::Arc;

use eframe::egui::Context;
use highwater_analysis::{Filter, Matches};

use crate::gui::widgets::worker::Worker;
use crate::session::Recording;

/// The highlighted blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Address of the answer that has the group.
    pub(super) answer: usize,
    /// The group's row in the answer.
    pub(super) group: usize,
    /// The conditions of both sides.
    pub(super) filters: [Filter; 2],
}

#[derive(Clone, Debug)]
struct Question {
    key: Key,
    recordings: [Arc<Recording>; 2],
}

#[derive(Debug)]
struct Lit {
    key: Key,
    matches: [Arc<Matches>; 2],
}

/// The highlighted blocks, found on a background thread.
#[derive(Debug)]
pub(super) struct Light {
    worker: Worker<Question, Lit>,
    asked: Option<Key>,
    lit: Option<Lit>,
}

impl Default for Light {
    fn default() -> Self {
        let work = |Question { key, recordings }: Question, _: &_| {
            let of = |side: usize| Arc::new(Matches::of(&recordings[side].trace, &key.filters[side]));
            let (a, b) = rayon::join(|| of(0), || of(1));
            Some(Lit { key, matches: [a, b] })
        };
        Self { worker: Worker::new("highwater-diff-light", work), asked: None, lit: None }
    }
}

impl Light {
    /// Highlights these blocks, or none in particular. `ctx` is woken when they are found.
    pub(super) fn follow(&mut self, ctx: &Context, recordings: [&Arc<Recording>; 2], key: Option<Key>) {
        self.keep();
        if key == self.asked {
            return;
        }
        self.asked.clone_from(&key);
        self.worker.cancel();
        match key {
            Some(key) => self.worker.ask(ctx, Question { key, recordings: recordings.map(Arc::clone) }),
            None => self.lit = None,
        }
    }

    /// The highlighted blocks of both sides, if there are any and they are found.
    pub(super) fn matches(&self) -> Option<&[Arc<Matches>; 2]> {
        self.lit.as_ref().filter(|lit| self.asked.as_ref() == Some(&lit.key)).map(|lit| &lit.matches)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    pub(super) fn wait(&mut self) {
        if let Some(lit) = self.worker.wait() {
            self.lit = Some(lit);
        }
    }

    fn keep(&mut self) {
        if let Some(lit) = self.worker.take() {
            self.lit = Some(lit);
        }
    }
}
