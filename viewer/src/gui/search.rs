//! Search: the one box of conditions that all views follow, and which blocks meet them.

use std::sync::Arc;

use eframe::egui::{Context, Id, Key, Label, RichText, Role, TextEdit, Ui, WidgetInfo};
use highwater_analysis::{Filter, Matches};
use highwater_snapshots::units::{format_bytes, format_count};

use super::completions::{Completions, put_cursor};
use super::theme::{self, Shades};
use super::worker::Worker;
use crate::command::Command;
use crate::session::Recording;

/// What is searched for in one recording.
#[derive(Debug)]
pub struct Search {
    text: String,
    error: Option<String>,
    filter: Filter,
    matches: Arc<Matches>,
    worker: Worker<(Arc<Recording>, Filter), (Filter, Matches)>,
    /// The filter last asked for, until its matches are there.
    pending: Option<Filter>,
    /// Whether the matches are those of the recording before this one.
    is_stale: bool,
    wants_focus: bool,
    completions: Completions,
}

impl Search {
    /// No condition: all blocks of `recording` meet it.
    pub fn new(recording: &Recording) -> Self {
        let filter = Filter::default();
        let matches = Arc::new(Matches::of(&recording.trace, &filter));
        Self {
            text: String::new(),
            error: None,
            filter,
            matches,
            worker: Worker::new("highwater-search", |(recording, filter): (Arc<Recording>, Filter), _| {
                let matches = Matches::of(&recording.trace, &filter);
                Some((filter, matches))
            }),
            pending: None,
            is_stale: false,
            wants_focus: false,
            completions: Completions::default(),
        }
    }

    /// The conditions that views follow: those last typed that could be understood, once it is known who meets them.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The blocks that meet them.
    pub fn matches(&self) -> &Arc<Matches> {
        &self.matches
    }

    /// What was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the matches of what was typed are still being looked for.
    pub fn is_busy(&self) -> bool {
        self.pending.is_some() || self.is_stale || self.completions.is_busy()
    }

    /// Takes the keyboard when next shown.
    pub fn focus(&mut self) {
        self.wants_focus = true;
    }

    /// Searches for `text` in place of what was searched for. Where it cannot be understood the former conditions
    /// stay, and the box says what is wrong. `ctx` is woken when the matches are known.
    pub fn set(&mut self, ctx: &Context, recording: &Arc<Recording>, text: &str) {
        text.clone_into(&mut self.text);
        let filter: Filter = match text.parse() {
            Ok(filter) => filter,
            Err(why) => {
                self.error = Some(why);
                return;
            }
        };
        self.error = None;
        if *self.pending.as_ref().unwrap_or(&self.filter) != filter {
            self.worker.ask(ctx, (Arc::clone(recording), filter.clone()));
            self.pending = Some(filter);
        }
    }

    /// Adds a condition to those typed, unless it is there already.
    pub fn add(&mut self, ctx: &Context, recording: &Arc<Recording>, condition: &str) {
        if self.text.contains(condition) {
            return;
        }
        let text = format!("{} {condition}", self.text.trim_end());
        self.set(ctx, recording, text.trim_start());
    }

    /// Looks again who meets the conditions, in a recording that has taken the place of another.
    pub fn renew(&mut self, recording: &Recording) {
        self.worker.cancel();
        if let Some(filter) = self.pending.take() {
            self.filter = filter;
        }
        self.completions = Completions::default();
        self.is_stale = !self.filter.is_empty();
        if self.filter.is_empty() {
            self.matches = Arc::new(Matches::of(&recording.trace, &self.filter));
        }
    }

    /// Takes in matches that have become known, and asks for those of a recording that has taken another's place.
    pub fn receive(&mut self, ctx: &Context, recording: &Arc<Recording>) {
        if std::mem::take(&mut self.is_stale) {
            self.worker.ask(ctx, (Arc::clone(recording), self.filter.clone()));
            self.pending = Some(self.filter.clone());
        }
        let found = self.worker.take();
        self.keep(found);
    }

    /// Waits for the matches. For tests and pictures without a window.
    pub fn wait(&mut self) {
        self.completions.wait();
        let found = self.worker.wait();
        self.keep(found);
    }

    fn keep(&mut self, found: Option<(Filter, Matches)>) {
        if let Some((filter, matches)) = found {
            (self.filter, self.matches) = (filter, Arc::new(matches));
        }
        if self.pending.is_some() && !self.worker.is_busy() {
            self.pending = None;
            self.error = self.worker.failure().map(str::to_owned).or(self.error.take());
        }
    }

    /// Shows the box and what came of it; gives the text to search for when it was changed.
    pub fn search_ui(&mut self, ui: &mut Ui, recording: &Arc<Recording>, is_hiding: &mut bool) -> Option<String> {
        let mut text = self.text.clone();
        let id = Id::unique("search").with(&recording.name);
        if let Some((completed, cursor)) = self.completions.keys(ui, id, &text) {
            put_cursor(ui, id, &completed, cursor);
            text = completed;
        }
        let hint = theme::placeholder(ui, "Search: category=activation size>=1MiB");
        let field = TextEdit::singleline(&mut text).id(id).hint_text(hint).desired_width(theme::SEARCH_WIDTH);
        // Tab takes what is offered, and leaves the field where nothing is.
        let field = field.lock_focus(self.completions.is_offering());
        let output = field.show(ui);
        let cursor = output.cursor_range.map(|range| range.primary.index.0);
        let field = output.response.response;
        field.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Search"));
        if std::mem::take(&mut self.wants_focus) {
            field.request_focus();
        }
        if field.has_focus() && ui.input(|input| input.key_pressed(Key::Escape)) {
            ui.memory_mut(|memory| memory.surrender_focus(id));
        }
        if let Some((completed, cursor)) = self.completions.completions_ui(ui, &field, recording, (&text, cursor)) {
            put_cursor(ui, id, &completed, cursor);
            field.request_focus();
            text = completed;
        }
        let mut wanted = (text != self.text).then_some(text);
        if !field.has_focus() {
            field.on_hover_text(EXPLAINED);
        }
        if !self.text.is_empty() {
            if ui.small_button("x").on_hover_text(Command::ClearSearch.tooltip()).clicked() {
                wanted = Some(String::new());
            }
            let toggle = ui.toggle_value(is_hiding, "hide the rest");
            toggle.on_hover_text(Command::ToggleHide.tooltip());
        }
        self.outcome_ui(ui);
        wanted
    }

    /// How many blocks meet the conditions, or what is wrong with them.
    fn outcome_ui(&self, ui: &mut Ui) {
        if let Some(why) = self.error.as_ref().filter(|_| !self.completions.is_offering()) {
            // On one line, so that what is below stays where it is while one types.
            let words = RichText::new(why).color(Shades::in_ui(ui).warning);
            let room = ui.available_size_before_wrap().x.max(theme::LEAST_LABEL);
            ui.scope(|ui| {
                ui.set_max_width(room);
                ui.add(Label::new(words).truncate()).on_hover_text(why);
            });
        } else if self.pending.is_some() {
            ui.spinner();
        } else if !self.filter.is_empty() {
            let (blocks, bytes) = (self.matches.blocks(), self.matches.requested());
            let count = if blocks == 1 { "1 block".to_owned() } else { format!("{} blocks", format_count(blocks)) };
            let text = RichText::new(&count).color(Shades::in_ui(ui).faint);
            let response = ui.label(text);
            response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("Found {count}")));
            response
                .on_hover_text(format!("{count} meet the conditions; they requested {} in total", format_bytes(bytes)));
        }
    }
}

/// The language, in short.
const EXPLAINED: &str = "Conditions that blocks must all meet; all views follow.\n\
    Keys: category, op, scope, phase, pool, lifetime, stack, frame, size, allocated, step, stream, device.\n\
    Operators: = != ~ (contains) !~ < <= > >=. Several values: category=gradient,activation";

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::BlockId;
    use highwater_snapshots::text::trace_from_text;

    fn recording() -> Arc<Recording> {
        let text = "alloc a 10 activation\nalloc g 20 gradient\nalloc h 30 gradient";
        Arc::new(Recording::new("test", None, trace_from_text(text).unwrap()))
    }

    #[test]
    fn the_last_conditions_that_make_sense_are_followed() {
        let recording = recording();
        let (mut search, ctx) = (Search::new(&recording), Context::default());
        assert_eq!(search.matches().blocks(), 3);
        search.set(&ctx, &recording, "category=gradient");
        assert!(search.filter().is_empty(), "it is not known yet who meets them");
        search.wait();
        assert_eq!((search.matches().blocks(), search.matches().contains(BlockId(0))), (2, false));
        search.set(&ctx, &recording, "category=");
        assert!(search.error.is_some() && search.matches().blocks() == 2);
        search.set(&ctx, &recording, "");
        search.wait();
        assert!(search.error.is_none() && search.matches().is_all());
    }

    #[test]
    fn conditions_are_added_once() {
        let recording = recording();
        let (mut search, ctx) = (Search::new(&recording), Context::default());
        for condition in ["category=gradient", "size>=30", "category=gradient"] {
            search.add(&ctx, &recording, condition);
            search.wait();
        }
        assert_eq!(search.text(), "category=gradient size>=30");
        assert_eq!(search.matches().blocks(), 1);
    }
}
