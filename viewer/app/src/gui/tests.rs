//! A test harness for views, with a context built from a recording in text notation.

use std::sync::Arc;

use highwater_analysis::{Filter, Matches};
use highwater_notation::trace_from_text;

use crate::gui::views::view::{Action, Reason, ViewContext};
use crate::{Pin, Recording, Selection};

/// The input of a context, and the actions of a view.
pub(super) struct ViewHarness<V> {
    pub(super) recording: Arc<Recording>,
    pub(super) selection: Selection,
    pub(super) filter: Filter,
    pub(super) matches: Arc<Matches>,
    pub(super) view: V,
    pub(super) actions: Vec<Action>,
}

impl<V> ViewHarness<V> {
    pub(super) fn new(text: &str, view: V) -> Self {
        let recording = Arc::new(Recording::new("test", None, trace_from_text(text).expect("the text is a trace")));
        let selection = Selection::new(&recording);
        let matches = Arc::new(Matches::of(&recording.trace, &Filter::default()));
        Self { recording, selection, filter: Filter::default(), matches, view, actions: Vec::new() }
    }

    /// Shows the view with `show`, stores its actions, and pins a moment if it requests that.
    pub(super) fn play(&mut self, show: impl FnOnce(&mut V, &ViewContext<'_>) -> Vec<Action>) {
        let (trace, index) = (&self.recording.trace, &self.recording.devices[self.selection.device]);
        let metric = self.selection.metric;
        let (moment, reason) = match self.selection.pin {
            Some(pin) => (index.moment(trace, metric, pin.moment), Reason::Pinned),
            None => (index.peak(trace, metric), Reason::Peak),
        };
        let context = ViewContext {
            recording: &self.recording,
            selection: &self.selection,
            moment,
            reason,
            matches: &self.matches,
            filter: &self.filter,
            under: None,
            is_picture: false,
        };
        let actions = show(&mut self.view, &context);
        for action in &actions {
            let moment = match action {
                Action::Moment(moment) => *moment,
                Action::Event(event) => event.map_or(0, |event| event as usize + 1),
                _ => continue,
            };
            self.selection.pin = Some(Pin { block: None, moment });
        }
        self.actions.extend(actions);
    }

    pub(super) fn pin(&mut self, moment: usize) {
        self.selection.pin = Some(Pin { block: None, moment });
    }

    pub(super) fn narrow(&mut self, filter: &str) {
        self.filter = filter.parse().expect("the text is a filter");
        self.matches = Arc::new(Matches::of(&self.recording.trace, &self.filter));
    }
}
