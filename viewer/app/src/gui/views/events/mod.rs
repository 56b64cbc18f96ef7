//! The list of events, one row each, with search.

mod words;
mod list;
mod search;
mod columns;

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Arc;

use eframe::egui::{self, Key, Label, RichText, Role, TextEdit, Ui, WidgetInfo};
use highwater_snapshots::{EventId, Trace, count_of, format_count};

use crate::Recording;
use crate::figures::events::{EventFacts, events_table};
use crate::gui::identity::Identity;
use crate::gui::views::view::{Action, OfDevice, RecordingView, ViewContext, WriteTable};
use crate::gui::widgets::{Query, Shades, TableState, computed, table_ui, theme};
use columns::Sites;
use list::{Kinds, Listed, Wanted};
use search::{Found, Sought};
use words::Group;

const EVENTS_AT_ONCE: usize = 1 << 16;
/// Maximum number of call sites cached for visible rows.
const MAX_SITES: usize = 20_000;

/// Writes the listed events as CSV with exact figures, without keeping the whole text in memory.
fn write_csv(trace: &Trace, listed: &Listed, out: &mut dyn Write) -> io::Result<()> {
    let stacks = RefCell::default();
    events_table(trace, &[], &stacks).write_csv(out)?;
    (0..listed.len()).step_by(EVENTS_AT_ONCE).try_for_each(|first| {
        let ids: Vec<_> = (first..first + EVENTS_AT_ONCE).map_while(|row| listed.event(row)).collect();
        events_table(trace, &ids, &stacks).write_csv_rows(out)
    })
}

/// The state of the Events view.
#[derive(Debug)]
pub struct EventsView {
    kinds: Kinds,
    has_all_blocks: bool,
    text: String,
    table: TableState,
    list: Query<Wanted, Arc<Listed>>,
    search: Query<Sought, Found>,
    /// Whether to go to the first match once the search is complete.
    is_jumping: bool,
    is_focus_due: bool,
    /// The event at which the table is positioned.
    at: Option<EventId>,
    /// The displayed moment, and whether the user pinned it; if not, it is the peak.
    in_view: Option<(usize, bool)>,
    of: Identity<Recording>,
    sites: Sites,
}

computed!(EventsView: list, search);

impl Default for EventsView {
    fn default() -> Self {
        let mut memory = search::Memory::default();
        Self {
            kinds: Kinds::default(),
            has_all_blocks: false,
            text: String::new(),
            table: TableState::default(),
            list: Query::new("highwater-events", list::list),
            search: Query::new("highwater-find", move |sought, cancel| search::search(sought, &mut memory, cancel)),
            is_jumping: false,
            is_focus_due: false,
            at: None,
            in_view: None,
            of: Identity::default(),
            sites: Sites::default(),
        }
    }
}

impl RecordingView for EventsView {
    fn view_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        self.refresh(ui.ctx(), context);
        let mut actions = Vec::new();
        ui.horizontal_wrapped(|ui| self.kinds_ui(ui, context));
        ui.horizontal_wrapped(|ui| actions.extend(self.search_ui(ui)));
        ui.add_space(2.0);
        let Some(listed) = self.list.answer().map(Arc::clone) else {
            self.list.pending_ui(ui, "listing events");
            return actions;
        };
        let trace = &context.recording.trace;
        let mark = Shades::in_ui(ui).peak;
        let rows = columns::rows(context, &listed, self.search.answer(), &self.sites, mark);
        let touched = table_ui(ui, "Events", &rows, &mut self.table);
        drop(rows);
        if let Some(id) = touched.chosen.and_then(|row| listed.event(row)) {
            actions.push(self.go_to(id));
        }
        if let Some(id) = touched.opened.and_then(|row| listed.event(row)) {
            actions.extend(EventFacts::of(trace, id).and_then(|facts| facts.block).map(Action::Block));
        }
        actions
    }

    fn table(&mut self, context: &ViewContext<'_>) -> Result<WriteTable, String> {
        let is_known = self.of.is(context.recording) && !self.list.is_busy();
        let Some(listed) = self.list.answer().filter(|_| is_known) else {
            return Err("the list of events is still being computed; try again in a moment".to_owned());
        };
        let (recording, listed) = (Arc::clone(context.recording), Arc::clone(listed));
        Ok(Box::new(move |out| write_csv(&recording.trace, &listed, out)))
    }
}

impl EventsView {
    fn refresh(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        if !self.of.is(context.recording) {
            // Nothing is kept of a recording that was read again.
            self.of = Identity::of(context.recording);
            self.list.clear();
            (self.at, self.in_view) = (None, None);
            self.sites.get_mut().clear();
        }
        if self.sites.get_mut().len() > MAX_SITES {
            self.sites.get_mut().clear();
        }
        let matches = if self.has_all_blocks { Arc::default() } else { Arc::clone(context.matches) };
        self.list.ask(ctx, &Wanted { of: OfDevice::selected(context), kinds: self.kinds, matches });
        if self.list.receive() {
            self.stand();
        }
        self.refresh_search(ctx, context);
        // The pinned moment, else the peak: the table does not follow the pointer.
        let pinned = context.selection.pin.map(|pin| pin.moment);
        let peak = || context.index().peak(&context.recording.trace, context.selection.metric).position();
        let in_view = Some((pinned.unwrap_or_else(peak), pinned.is_some()));
        if self.in_view != in_view {
            self.in_view = in_view;
            self.at = pinned.and_then(event_of).or(self.at);
            self.stand();
        }
    }

    /// Scrolls to the event at which the table is positioned, and selects its row if it is listed; without one, scrolls
    /// to the displayed moment.
    fn stand(&mut self) {
        self.table.chosen = None;
        let Some(listed) = self.list.answer() else { return };
        let Some(event) = self.at.or(self.in_view.and_then(|(moment, _)| event_of(moment))) else { return };
        match listed.row_of(event) {
            // The peak is scrolled to, and selected only if it is pinned.
            Ok(row) if self.at.is_some() => self.table.choose(row),
            Ok(row) | Err(row) => self.table.reveal(row.min(listed.len().saturating_sub(1))),
        }
    }

    fn refresh_search(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        let text = self.text.trim();
        let Some(listed) = self.list.answer().filter(|_| !text.is_empty()) else {
            if self.search.asked().is_some() {
                self.search.cancel();
            }
            self.search.clear();
            self.is_jumping = false;
            return;
        };
        let (recording, listed) = (Identity::of(context.recording), Identity::of(listed));
        let sought = Sought { recording, listed, text: text.to_owned() };
        self.search.ask(ctx, &sought);
        self.search.receive();
        self.search.keep_if(|found| *found == sought);
    }

    fn kinds_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        let has_uses = context.recording.trace.records_uses();
        for group in Group::ALL.iter().copied().filter(|group| has_uses || *group != Group::Uses) {
            let response = ui.selectable_label(self.kinds.contains(group), group.name());
            if response.on_hover_text(group.tooltip()).clicked() {
                self.kinds.toggle(group);
            }
        }
        if !context.matches.is_all() {
            let mut is_narrowed = !self.has_all_blocks;
            let label = ui.checkbox(&mut is_narrowed, "Only blocks that match the search");
            label.on_hover_text("Events without a block, such as segments and steps, are always listed.");
            self.has_all_blocks = !is_narrowed;
        }
        let count = self.list.answer().map_or(0, |listed| listed.len());
        let text = match self.list.is_busy() {
            true => "listing …".to_owned(),
            false => count_of(count as u64, "event"),
        };
        ui.add(Label::new(RichText::new(text).weak()).extend());
    }

    /// Returns an action if the user moves to an event.
    fn search_ui(&mut self, ui: &mut Ui) -> Option<Action> {
        let field = TextEdit::singleline(&mut self.text)
            .desired_width(220.0)
            .hint_text(theme::placeholder(ui, "Find in events"));
        let response = ui.add(field);
        response.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Find in events"));
        let response = response.on_hover_text(
            "Operation, module, category, kind, call site or mark; an event number, or b and a block number. Enter \
             goes to the next match, Shift+Enter to the previous one.",
        );
        if std::mem::take(&mut self.is_focus_due) {
            response.request_focus();
        }
        let (is_entered, is_back) = ui.input(|input| (input.key_pressed(Key::Enter), input.modifiers.shift));
        let is_entered = response.lost_focus() && is_entered;
        if is_entered {
            response.request_focus();
        }
        let is_idle = self.text.trim().is_empty();
        let is_previous = ui.add_enabled(!is_idle, egui::Button::new("Previous")).clicked();
        let is_next = ui.add_enabled(!is_idle, egui::Button::new("Next")).clicked();
        if !is_idle {
            ui.weak(self.count_text());
        }
        if is_idle || !(is_entered || is_previous || is_next || self.is_jumping) {
            return None;
        }
        let Some(found) = self.search.answer() else {
            // Asked before the search is done: go there when it is.
            self.is_jumping = true;
            return None;
        };
        let is_back = is_previous || is_entered && is_back;
        let from = self.table.chosen.or(self.table.first.checked_sub(1));
        self.is_jumping = false;
        let row = if is_back { found.previous(from) } else { found.next(from) }?;
        let id = self.list.answer()?.event(row)?;
        self.table.choose(row);
        Some(self.go_to(id))
    }

    fn count_text(&self) -> String {
        let Some(found) = self.search.answer() else { return self.search.failure().unwrap_or("searching").to_owned() };
        let rank = self.table.chosen.and_then(|row| found.rank(row));
        match (found.count, rank) {
            (0, _) => "nothing found".to_owned(),
            (count, Some(rank)) => format!("{} of {}", format_count(rank), format_count(count)),
            (1, None) => "1 found".to_owned(),
            (count, None) => format!("{} found", format_count(count)),
        }
    }

    /// Positions the table at an event, and returns the action that pins it.
    fn go_to(&mut self, id: EventId) -> Action {
        let moment = id.0 as usize + 1;
        (self.at, self.in_view) = (Some(id), Some((moment, true)));
        Action::Moment(moment)
    }
}

/// The event directly before a moment.
fn event_of(moment: usize) -> Option<EventId> {
    moment.checked_sub(1).map(EventId::from_index)
}

#[cfg(test)]
mod tests;
