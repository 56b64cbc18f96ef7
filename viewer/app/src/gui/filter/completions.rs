//! Completions for the search box, selected by arrow keys and Tab, or by mouse.

use std::sync::Arc;

use eframe::egui::text::{CCursor, CCursorRange};
use eframe::egui::text_edit::TextEditState;
use eframe::egui::{Button, Id, Key, Modifiers, Popup, PopupCloseBehavior, Rect, Response, Role, Ui, WidgetInfo};
use highwater_analysis::complete::{Completion, complete};
use highwater_analysis::vocabulary::Vocabulary;

use crate::Recording;
use crate::gui::identity::Identity;
use crate::gui::widgets::{Query, computed, theme};

#[derive(Debug)]
pub(crate) struct Completions {
    vocabulary: Query<Identity<Recording>, Arc<Vocabulary>>,
    found: Vec<Completion>,
    /// The text and cursor position for which completions were computed.
    known: Option<(String, usize)>,
    chosen: Option<usize>,
    is_dismissed: bool,
    /// The rectangle of the list when it was last shown.
    place: Option<Rect>,
}

computed!(Completions: vocabulary);

impl Default for Completions {
    fn default() -> Self {
        Self {
            vocabulary: Query::new("highwater-words", |recording: &Identity<Recording>, _| {
                Some(Arc::new(Vocabulary::of(&recording.get()?.trace)))
            }),
            found: Vec::new(),
            known: None,
            chosen: None,
            is_dismissed: false,
            place: None,
        }
    }
}

impl Completions {
    pub(crate) fn is_offering(&self) -> bool {
        !self.found.is_empty() && !self.is_dismissed
    }

    /// Whether Tab accepts a completion. In an empty field without a selected completion, Tab moves the focus instead.
    pub(crate) fn takes_tab(&self, text: &str) -> bool {
        self.is_offering() && (self.chosen.is_some() || !text.is_empty())
    }

    /// Handles the keys that select a completion, before the text field receives them. Returns the completed text and
    /// the byte position of the cursor in it.
    pub(crate) fn keys(&mut self, ui: &Ui, field: Id, text: &str) -> Option<(String, usize)> {
        let is_open = self.is_offering() && ui.memory(|memory| memory.has_focus(field));
        if !is_open {
            return None;
        }
        let pressed = |key| ui.input_mut(|input| input.consume_key(Modifiers::NONE, key));
        let last = self.found.len() - 1;
        if pressed(Key::ArrowDown) {
            self.chosen = Some(self.chosen.map_or(0, |row| (row + 1).min(last)));
        }
        if pressed(Key::ArrowUp) {
            self.chosen = self.chosen.and_then(|row| row.checked_sub(1));
        }
        let is_taken = self.takes_tab(text) && pressed(Key::Tab) || self.chosen.is_some() && pressed(Key::Enter);
        is_taken.then(|| self.put(text, self.chosen.unwrap_or(0))).flatten()
    }

    /// Shows the completions below `field` while the field has the keyboard focus. The field contains `text`, with the
    /// cursor at character `cursor`. Returns the completed text, and the byte position of the cursor after it.
    pub(crate) fn completions_ui(
        &mut self,
        ui: &Ui,
        field: &Response,
        recording: &Arc<Recording>,
        (text, cursor): (&str, Option<usize>),
    ) -> Option<(String, usize)> {
        // A click on the list takes the focus from the field before the click is handled.
        let is_clicked = self.place.is_some_and(|place| {
            ui.input(|input| {
                let is_there = input.pointer.interact_pos().is_some_and(|at| place.contains(at));
                is_there && (input.pointer.any_down() || input.pointer.any_released())
            })
        });
        if !field.has_focus() && !is_clicked {
            self.place = None;
            self.found.clear();
            (self.is_dismissed, self.chosen, self.known) = (false, None, None);
            return None;
        }
        self.vocabulary.ask(ui.ctx(), &Identity::of(recording));
        if self.vocabulary.receive() {
            self.known = None;
        }
        let vocabulary = self.vocabulary.answer()?;
        let byte = match (cursor, &self.known) {
            (None, Some((_, byte))) => *byte,
            (cursor, _) => text.char_indices().nth(cursor.unwrap_or(0)).map_or(text.len(), |(byte, _)| byte),
        };
        if self.known.as_ref().is_none_or(|(known, at)| known != text || *at != byte) {
            self.found = complete(text, byte, vocabulary);
            self.known = Some((text.to_owned(), byte));
            (self.chosen, self.is_dismissed) = (None, false);
        }
        let mut taken = None;
        let popup = Popup::from_response(field)
            .open(self.is_offering())
            .close_behavior(PopupCloseBehavior::IgnoreClicks)
            .width(theme::COMPLETIONS_WIDTH);
        let shown = popup.show(|ui| {
            ui.set_width(theme::COMPLETIONS_WIDTH);
            for (row, completion) in self.found.iter().enumerate() {
                let what = completion.what.clone();
                let button =
                    Button::selectable(self.chosen == Some(row), &completion.text).shortcut_text(what).truncate();
                let response = ui.add_sized([ui.available_width(), theme::ROW_HEIGHT], button);
                let label = format!("Complete with {}", completion.text);
                response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &label));
                if response.clicked() {
                    taken = Some(row);
                }
            }
            ui.weak("Up and Down select, Tab completes, Escape closes");
        });
        self.place = shown.map(|shown| shown.response.rect);
        taken.and_then(|row| self.put(text, row))
    }

    /// Returns `text` with completion `row` applied, and the byte position of the cursor after it.
    fn put(&mut self, text: &str, row: usize) -> Option<(String, usize)> {
        let Completion { range, text: word, .. } = self.found.get(row)?;
        let (before, after) = (text.get(..range.start)?, text.get(range.end..)?);
        let cursor = before.len() + word.len();
        self.chosen = None;
        Some((format!("{before}{word}{after}"), cursor))
    }
}

/// Puts the cursor of `field` at byte `byte` of `text`.
pub(crate) fn put_cursor(ui: &Ui, field: Id, text: &str, byte: usize) {
    let character = text.get(..byte).map_or(0, |before| before.chars().count());
    let mut state = TextEditState::load(ui.ctx(), field).unwrap_or_default();
    state.cursor.set_char_range(Some(CCursorRange::one(CCursor::new(character))));
    state.store(ui.ctx(), field);
}
