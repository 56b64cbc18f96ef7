//! An open recording: its selection, its timeline and the other views.

use std::ops::Range;
use std::sync::Arc;

use eframe::egui::{self, CentralPanel, Frame, Margin, Panel, Ui};
use highwater_analysis::{Filter, Matches, Moment};

use crate::files::discard::discard;
use crate::files::follow::Following;
use crate::gui::filter::search::{self, Light, Search};
use crate::gui::identity::Identity;
use crate::gui::legend::{self, Asked, Shares};
use crate::gui::views::block::menu_ui;
use crate::gui::views::list::{Bottom, Side, Views};
use crate::gui::views::moment::{Choices, MomentPanel};
use crate::gui::views::peaks::Peaks;
use crate::gui::views::run::RunView;
use crate::gui::views::segments::SegmentsView;
use crate::gui::views::timeline::{Paint, Timeline, TimelineStyle, labelled_failure};
use crate::gui::views::view::{Action, Reason, Under, ViewContext, WriteTable};
use crate::gui::widgets::{Computed as _, computed, keys, labelled_button_ui, theme};
use crate::gui::window::file_style::FileStyle;
use crate::gui::window::settings::Settings;
use crate::gui::window::{status, top_bar};
use crate::history::History;
use crate::session::run::MAX_RESIDENT_EVENTS;
use crate::{ColourBy, Command, Recording, Selection};

/// The state of the view, which Undo restores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Visit {
    pub(super) selection: Selection,
    pub(super) search: String,
    /// The indices of the shown events, for a long recording that is shown in parts.
    pub(super) part: Range<u64>,
}

/// An open recording, with the state of its timeline, its search and its other views.
#[derive(Debug)]
pub struct OpenFile {
    /// The recording, or the loaded part of a long one.
    pub recording: Arc<Recording>,
    /// The selected device, total, visible range, block and marks.
    pub selection: Selection,
    /// The timeline of the recording, with its settings.
    pub timeline: Timeline,
    /// The search box.
    pub search: Search,
    pub(super) views: Views,
    shares: Shares,
    /// The blocks of the group selected in the Moment panel.
    light: Light,
    pub(super) history: History<Visit>,
    /// A message from a view for the app to show.
    pub(super) message: Option<String>,
    /// The state of following the file while its program writes it; `None` if the file is not followed.
    pub(super) following: Option<Following>,
    pub(super) peaks: Peaks,
    pub(super) run: RunView,
    /// The view that Undo or Redo restores once the part of the recording that it shows has been read.
    pub(super) returning: Option<Visit>,
    /// Maximum number of events in memory. A longer recording that is being followed is read in parts.
    pub(super) most_resident: u64,
}

computed!(OpenFile: run, search, shares, light, peaks, views, timeline);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Side,
    Below,
}

impl OpenFile {
    /// Opens the recording with a view of everything, or with the view settings of `look`.
    pub(crate) fn new(recording: Recording, look: Option<&FileStyle>) -> Self {
        let recording = Arc::new(recording);
        let mut selection = Selection::new(&recording);
        if let Some(look) = look {
            look.apply(&recording, &mut selection);
        }
        let mut views = Views::default();
        if recording.trace.is_state() {
            views.moment.choices = Choices::OF_STATE;
        }
        Self {
            history: History::new(Visit {
                selection: selection.clone(),
                search: String::new(),
                part: recording.events(),
            }),
            selection,
            timeline: Timeline::default(),
            search: Search::new(&recording),
            views,
            shares: Shares::default(),
            light: search::light(),
            message: None,
            following: None,
            peaks: Peaks::default(),
            run: RunView::default(),
            returning: None,
            most_resident: MAX_RESIDENT_EVENTS,
            recording,
        }
    }

    /// Replaces the recording by `recording`, a newer version from the same file. The view stays, but nothing is pinned
    /// or marked, since the blocks may be different ones.
    pub(crate) fn replace(&mut self, recording: Recording, is_in_front: bool) {
        let run = |recording: &Recording| recording.run.as_ref().map(Arc::as_ptr);
        let is_same_run = recording.run.is_some() && run(&recording) == run(&self.recording);
        if !is_same_run {
            self.run = RunView::default();
            self.returning = None;
        }
        self.selection = self.selection.carried_over(&self.recording, &recording);
        let former = std::mem::replace(&mut self.recording, Arc::new(recording));
        let freed = Arc::downgrade(&former);
        if is_in_front {
            // The old content stays until the new one is ready.
            self.timeline.renew(&self.recording);
        } else {
            self.timeline = Timeline::default();
            self.views.moment = MomentPanel::new(self.views.moment.choices);
            self.shares = Shares::default();
        }
        if self.recording.trace.is_state() && !former.trace.is_state() {
            self.views.moment.choices = Choices::OF_STATE;
        }
        discard(former, freed);
        self.search.renew(&self.recording);
        if !is_same_run {
            self.history = History::new(self.visit());
        }
        self.peaks = Peaks::default();
        // The results of these views are for the previous recording.
        self.views.segments = SegmentsView::default();
        self.views.plan.forget();
    }

    /// Returns the moment for the legend and the side panels, which do not follow the pointer: the pinned moment, or
    /// otherwise the peak.
    pub fn moment(&self) -> (Moment, Reason) {
        let trace = &self.recording.trace;
        let index = &self.recording.devices[self.selection.device];
        let metric = self.selection.metric;
        match self.selection.pin {
            Some(pin) => (index.moment(trace, metric, pin.moment), Reason::Pinned),
            None => (index.peak(trace, metric), Reason::Peak),
        }
    }

    /// Returns the moment for commands and for the views below the timeline: the moment under the pointer, or otherwise
    /// [`Self::moment`].
    pub(super) fn pointed_moment(&self) -> Moment {
        let index = &self.recording.devices[self.selection.device];
        match self.timeline.hover() {
            Some(hover) => index.moment(&self.recording.trace, self.selection.metric, hover.moment),
            None => self.moment().0,
        }
    }

    pub(super) fn visit(&self) -> Visit {
        let (selection, search) = (self.selection.clone(), self.search.text().to_owned());
        Visit { selection, search, part: self.recording.events() }
    }

    /// Reads new events while the file is being written.
    pub(crate) fn follow(&mut self, ctx: &egui::Context) {
        let wake = ctx.clone();
        self.following = Following::start(&self.recording, self.most_resident, move || wake.request_repaint());
    }

    /// Switches to another device.
    pub fn choose_device(&mut self, device: usize) {
        if device != self.selection.device {
            self.selection.set_device(&self.recording, device);
        }
    }

    /// Records the current view for Undo. `is_movement` is true for movements that may continue, such as dragging.
    pub(super) fn note(&mut self, is_movement: bool, seconds: f64) {
        if self.returning.is_some() {
            // The view that is being restored is not shown yet.
            return;
        }
        let visit = self.visit();
        self.history.note(&visit, is_movement, seconds);
    }

    /// Undoes the last change of the view, or redoes it.
    pub(super) fn travel(&mut self, ctx: &egui::Context, is_back: bool) {
        let visit = if is_back { self.history.back() } else { self.history.forward() };
        if let Some(visit) = visit {
            self.return_to(ctx, visit);
        }
    }

    /// Applies the search conditions `text`.
    pub fn search_for(&mut self, ctx: &egui::Context, text: &str) {
        self.search.set(ctx, &self.recording, text);
    }

    pub(crate) fn file_ui(&mut self, ui: &mut Ui, settings: &mut Settings) -> Option<Command> {
        let is_state = self.recording.trace.is_state();
        if self.timeline.frame().is_none() && !is_state {
            ui.ctx().request_discard("the sizes of the panels are not known yet");
        }
        self.take_part(ui.ctx());
        self.timeline.receive(ui.ctx());
        self.search.receive(ui.ctx(), &self.recording);
        self.go_to_awaited_peak();
        // A choice made for another file may not apply to this one.
        if self.recording.absent.reason(settings.paint.colour_by.0).is_some() {
            settings.paint.colour_by = ColourBy::default();
        }
        let mut chosen = None;
        let frame = Frame::side_top_panel(ui.style()).inner_margin(Margin::symmetric(8, 5));
        Panel::top("tools").frame(frame).show(ui, |ui| chosen = self.tools_ui(ui, settings));
        self.run_ui(ui);
        let activity = [self.timeline.is_busy(), self.following.is_some()];
        Panel::bottom("status").show(ui, |ui| {
            let clicked = status::status_ui(ui, &self.recording, self.selection.device, activity);
            chosen = chosen.or(clicked);
        });
        let mut actions = Vec::new();
        // In a narrow window, the view below takes the full width, otherwise only the timeline's.
        let is_narrow = ui.available_width() < theme::NARROW_WINDOW;
        if is_narrow {
            actions.extend(self.below_ui(ui, settings));
        }
        // For a recording without events, memory by group is as important as its addresses.
        let room = ui.available_width();
        let side = (room * theme::PANEL_PART).max(theme::PANEL_WIDTH);
        let (id, width) = if is_state { ("side of a state", room / 2.0) } else { ("side", side) };
        // An upright window, as on a phone, has room only below the timeline.
        let is_upright = room < theme::UPRIGHT_WINDOW && !is_state;
        let panel = match (settings.is_side_folded, is_upright) {
            (true, _) => Panel::right("folded side").exact_size(theme::FOLDED_SIDE).resizable(false),
            (false, true) => Panel::bottom("upright side").default_size(ui.available_height() * 0.4).min_size(120.0),
            (false, false) => Panel::right(id).default_size(width).min_size(240.0),
        };
        let margin = if settings.is_side_folded { 3 } else { 10 };
        panel.frame(Frame::side_top_panel(ui.style()).inner_margin(margin)).show(ui, |ui| {
            if !settings.is_side_folded {
                actions.extend(self.side_ui(ui, settings));
            } else if fold_ui(ui, "<") {
                settings.is_side_folded = false;
            }
        });
        if !is_narrow {
            actions.extend(self.below_ui(ui, settings));
        }
        CentralPanel::default().frame(Frame::central_panel(ui.style()).inner_margin(8)).show(ui, |ui| {
            if is_state {
                actions.extend(self.show(ui, Bottom::Segments));
                return;
            }
            actions.extend(self.legend_ui(ui, settings.paint.has_lines));
            let lit = self.lit(ui.ctx(), settings.side);
            let look = TimelineStyle {
                paint: Paint { is_hiding: settings.paint.is_hiding && lit.is_none(), ..settings.paint },
                has_overview: settings.bottom.is_none() && self.recording.run.is_none(),
                matches: lit.unwrap_or_else(|| Arc::clone(self.search.matches())),
            };
            let before = self.selection.pin;
            self.timeline.set_failure_cause(self.views.segments.failure_cause());
            let plot = self.timeline.timeline_ui(ui, &self.recording, &mut self.selection, &look);
            actions.extend(self.flags_ui(ui, settings));
            let target = self.timeline.menu_target();
            actions.extend(menu_ui(&plot, &self.recording, &mut self.selection, target));
            // A clicked block is shown at the side.
            if self.selection.pin != before && self.selection.pin.is_some_and(|pin| pin.block.is_some()) {
                settings.side = Side::Block;
            }
        });
        for action in actions {
            self.grant(ui.ctx(), action, settings);
        }
        let seconds = ui.input(|input| input.time);
        self.note(self.timeline.is_moving(), seconds);
        chosen
    }

    /// Shows the open view below the timeline, or the names of the available views if none is open.
    fn below_ui(&mut self, ui: &mut Ui, settings: &mut Settings) -> Vec<Action> {
        let is_state = self.recording.trace.is_state();
        let Some(bottom) = settings.bottom.filter(|bottom| *bottom != Bottom::Segments || !is_state) else {
            let frame = Frame::side_top_panel(ui.style()).inner_margin(Margin::symmetric(8, 3));
            let names_ui = |ui: &mut Ui| Bottom::names_ui(ui, None);
            let chosen = (!is_state).then(|| Panel::bottom("closed views").frame(frame).show(ui, names_ui).inner);
            settings.bottom = chosen.flatten().or(settings.bottom);
            return Vec::new();
        };
        let (context, views) = self.scene(Place::Below);
        let shows_failure = bottom == Bottom::Segments && views.segments.shows_failure(&context);
        let (id, height) = bottom.of(views).panel();
        let least_timeline = if shows_failure { theme::TIMELINE_ABOVE_FAILURE } else { theme::MIN_TIMELINE };
        let most = (ui.available_height() - least_timeline).max(120.0);
        let failure = (ui.ctx().content_rect().height() * theme::FAILURE_PART).min(most);
        let (id, height) = if shows_failure { ("failure", failure) } else { (id, height) };
        let panel = Panel::bottom(id).default_size(height).size_range(100.0..=most);
        let panel = panel.frame(Frame::side_top_panel(ui.style()).inner_margin(8)).resizable(true);
        panel.show(ui, |ui| self.bottom_ui(ui, bottom, settings)).inner
    }

    fn tools_ui(&mut self, ui: &mut Ui, settings: &mut Settings) -> Option<Command> {
        let position = self.moment().0.position();
        let Self { recording, selection, search, .. } = self;
        top_bar::tools_ui(ui, (recording, selection, search), settings, position)
    }

    fn side_ui(&mut self, ui: &mut Ui, settings: &mut Settings) -> Vec<Action> {
        ui.set_min_size(ui.available_size());
        ui.horizontal(|ui| {
            settings.side = Side::names_ui(ui, Some(settings.side)).unwrap_or(settings.side);
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                settings.is_side_folded |= fold_ui(ui, ">");
            });
        });
        ui.separator();
        let (context, views) = self.scene(Place::Side);
        if context.recording.trace.is_state() {
            return settings.side.of(views).view_ui(ui, &context);
        }
        // All recordings with events share the choices.
        views.moment.choices = settings.choices;
        let actions = settings.side.of(views).view_ui(ui, &context);
        settings.choices = views.moment.choices;
        actions
    }

    fn bottom_ui(&mut self, ui: &mut Ui, bottom: Bottom, settings: &mut Settings) -> Vec<Action> {
        // The panel keeps its height, whatever its content.
        ui.set_min_size(ui.available_size());
        ui.horizontal(|ui| {
            settings.bottom = Bottom::names_ui(ui, Some(bottom)).or(settings.bottom);
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                if ui.small_button("x").on_hover_text("Close the view below the timeline.").clicked() {
                    settings.bottom = None;
                }
            });
        });
        self.show(ui, bottom)
    }

    fn show(&mut self, ui: &mut Ui, bottom: Bottom) -> Vec<Action> {
        let (context, views) = self.scene(Place::Below);
        bottom.of(views).view_ui(ui, &context)
    }

    /// Returns a function that writes the table of a view as CSV and can be called on any thread.
    ///
    /// # Errors
    /// Fails with a message if there is no such view, or if it has no table or has not computed it yet.
    pub(super) fn table(&mut self, view: &str) -> Result<WriteTable, String> {
        let (context, views) = self.scene(Place::Side);
        views.named(view).ok_or_else(|| format!("there is no view {view}"))?.table(&context)
    }

    /// Returns the input of the views at `place`, and the state of all views.
    fn scene(&mut self, place: Place) -> (ViewContext<'_>, &mut Views) {
        let (moment, reason) = self.moment();
        let moment = if place == Place::Side { moment } else { self.pointed_moment() };
        let Self { recording, selection, timeline, search, views, .. } = self;
        let (matches, filter, under) = (search.matches(), search.filter(), Under::of(timeline));
        let context = ViewContext { recording, selection, moment, reason, matches, filter, under, is_picture: false };
        (context, views)
    }

    /// Returns the blocks to highlight: those of the group selected in the Moment panel, if the panel is open.
    fn lit(&mut self, ctx: &egui::Context, side: Side) -> Option<Arc<Matches>> {
        let condition = self.views.moment.chosen_condition().filter(|_| side == Side::Moment);
        let filter =
            condition.and_then(|condition| format!("{} {condition}", self.search.text()).parse::<Filter>().ok());
        match filter {
            Some(filter) => self.light.ask(ctx, &vec![(Identity::of(&self.recording), filter)]),
            None if self.light.asked().is_some() => self.light.cancel(),
            None => {}
        }
        self.light.receive();
        self.light.current()?.first().cloned()
    }

    /// Makes the labels of a failed request and of a peak with leaks open their analysis, unless that is already open.
    fn flags_ui(&self, ui: &Ui, settings: &Settings) -> Vec<Action> {
        let [failure, peak] = self.timeline.flags();
        let moment = labelled_failure(&self.recording, &self.selection);
        let hint = "Show the cause of the failure, and what would have prevented it.";
        if let Some(moment) = moment.filter(|_| settings.bottom != Some(Bottom::Segments))
            && flag_ui(ui, failure, "Why it failed", hint)
        {
            return vec![Action::Moment(moment), Action::Oom];
        }
        let index = &self.recording.devices[self.selection.device];
        let is_leak = index.leaked(&self.recording.trace, self.selection.metric).is_some();
        let hint = "Show the lines that keep memory from step to step, in Statistics.";
        let peak = peak.filter(|_| is_leak && moment.is_none() && settings.side != Side::Statistics);
        if flag_ui(ui, peak, "Show leaks", hint) { vec![Action::Leaks] } else { Vec::new() }
    }

    /// Shows the legends of colours and lines, at the moment of the panels. A click on a colour selects its blocks, or
    /// all blocks if they are already selected.
    fn legend_ui(&mut self, ui: &mut Ui, has_lines: bool) -> Option<Action> {
        let (moment, reason) = self.moment();
        let (position, mut when) = (moment.position(), legend::at_text(&moment, reason == Reason::Peak));
        if reason == Reason::Peak && self.recording.run.is_some() {
            "At the peak of this part:".clone_into(&mut when);
        }
        // A low timeline needs the space.
        let is_low = ui.available_height() < theme::MIN_WITH_TOTALS;
        if let Some(picture) = self.timeline.picture() {
            let asked = Asked::new(&self.recording, &self.selection, position, &picture.colouring);
            self.shares.ask(ui.ctx(), &asked);
        }
        let clicked = self.shares.legend_ui(ui, if is_low { 1 } else { 2 }, &when);
        if !is_low {
            self.timeline.totals_ui(ui, &self.recording, &self.selection, has_lines, (position, &when));
        }
        ui.add_space(2.0);
        let is_selected = |condition: &String| self.search.text() == condition;
        clicked.map(|condition| Action::Only(if is_selected(&condition) { String::new() } else { condition }))
    }
}

/// Makes the label at `place` clickable. Returns whether it was clicked.
fn flag_ui(ui: &Ui, place: Option<egui::Rect>, name: &'static str, hint: &str) -> bool {
    let Some(place) = place else { return false };
    let response = ui.interact(place, ui.scope_id().with(name), egui::Sense::click());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, name));
    response.on_hover_cursor(egui::CursorIcon::PointingHand).on_hover_text(hint).clicked()
}

/// The button that collapses the side panel, or expands it. Returns whether it was clicked.
fn fold_ui(ui: &mut Ui, sign: &str) -> bool {
    let hint = format!("{} ({})", Command::ToggleSide.tooltip(), keys::first(Command::ToggleSide));
    labelled_button_ui(ui, sign, Command::ToggleSide.name(), &hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gui::views::diff::DiffView;
    use crate::gui::widgets::query::MADE;

    #[test]
    fn every_query_of_every_view_is_listed() {
        let before = MADE.get();
        let recording = Recording::new("test", None, highwater_snapshots::Trace::default());
        let file = OpenFile::new(recording, None);
        assert_eq!(file.queries(), MADE.get() - before, "a query is missing in a list `computed!`");
        let before = MADE.get();
        let (recordings, selections) = ([&file.recording; 2], [&file.selection; 2]);
        let view = DiffView::usual(recordings, selections);
        assert_eq!(view.queries(), MADE.get() - before, "a query is missing in a list `computed!`");
        assert!(file.queries() > 15 && view.queries() > 10, "{} and {}", file.queries(), view.queries());
    }
}
