//! Compares two recordings, or two moments of one recording. Linked timelines are above, the differences below.
//!
//! The app selects the recordings A and B; this module does not deal with files.

mod alignment;
mod choices;
mod headline;
mod sheets;
mod job;
mod pair;
mod flame;
mod below;
mod steering;

use std::sync::Arc;

use eframe::egui::{self, CentralPanel, Frame, Label, Margin, Panel, RichText, Role, Ui, WidgetInfo};
use highwater_analysis::{DiffAt, GroupKey, Metric, Moment};
use highwater_snapshots::format_count;

pub use alignment::Align;
pub(crate) use choices::{DiffAction, Files};
pub use choices::{DiffChoices, DiffLook};

use crate::figures::moment::total_name;
use crate::gui::filter::search::{self, Light};
use crate::gui::identity::Identity;
use crate::gui::views::timeline::{Paint, Timeline, TimelineStyle};
use crate::gui::widgets::{Computed, Memo, Query, Shades, choice_ui, computed, place_ui, theme};
use crate::report::compared;
use crate::{Axis, NO_TIMES, Recording, Selection, background};
use alignment::Alignment;
use below::Below;
use job::{Answer, Question, find};
use pair::{Pair, Shown, Side};

/// The two compared recordings, each with the index of its device.
type Of = [(Identity<Recording>, usize); 2];

/// The compared moments, or the reason one does not exist.
type Moments = Result<[Moment; 2], String>;

type AlignmentKey = (Of, Option<[Moment; 2]>, Align, Axis);

/// The state of the comparison view.
#[derive(Debug)]
pub struct DiffView {
    /// The settings of the comparison.
    pub choices: DiffChoices,
    pair: Pair,
    below: Below,
    query: Query<Question, Arc<Answer>>,
    moments: Memo<(Of, [DiffAt; 2], Metric), Moments>,
    alignment: Memo<AlignmentKey, Arc<Alignment>>,
    /// The blocks of the selected group on both sides.
    light: Light,
}

computed!(DiffView: pair, query, light);

impl DiffView {
    /// Creates a comparison of two recordings, or of one recording with itself, with their selections.
    pub fn new(recordings: [&Arc<Recording>; 2], selections: [&Selection; 2], choices: DiffChoices) -> Self {
        let axis = selections[0].axis();
        let side = |row: usize| {
            let mut side = Side::new(recordings[row], selections[row]);
            side.selection.set_axis(recordings[row], axis);
            side
        };
        Self {
            choices,
            pair: Pair::new([side(0), side(1)]),
            below: Below::default(),
            query: Query::new("highwater-diff", Answer::to).discarding(|answer| {
                // Names of many groups are freed on another thread, so that the window does not freeze.
                let _ = background::start("highwater-drop", move || drop(answer));
            }),
            moments: Memo::default(),
            alignment: Memo::default(),
            light: search::light(),
        }
    }

    /// Creates a comparison with the settings of [`DiffChoices::usual`], of the total selected in A.
    pub fn usual(recordings: [&Arc<Recording>; 2], selections: [&Selection; 2]) -> Self {
        let [a, b] = recordings;
        let choices = DiffChoices::usual([&**a, &**b], selections[0].metric);
        Self::new(recordings, selections, choices)
    }

    /// The search conditions for both sides, as typed.
    pub fn search_text(&self) -> &str {
        self.pair.sides[0].search.text()
    }

    /// Applies the search conditions `text` to both sides.
    pub fn search_for(&mut self, ctx: &egui::Context, recordings: [&Arc<Recording>; 2], text: &str) {
        for (side, recording) in self.pair.sides.iter_mut().zip(recordings) {
            side.search.set(ctx, recording, text);
        }
    }

    /// The selection of each side.
    pub fn selections(&self) -> [&Selection; 2] {
        let [a, b] = &self.pair.sides;
        [&a.selection, &b.selection]
    }

    /// The timelines of A and B.
    pub fn timelines(&self) -> [&Timeline; 2] {
        let [a, b] = &self.pair.sides;
        [&a.timeline, &b.timeline]
    }

    /// The displayed table as CSV, with exact figures; for the flame graph, the groups.
    ///
    /// # Errors
    /// Fails with a message if the difference is still being computed.
    pub fn csv(&self) -> Result<String, String> {
        let answer = self.query.answer().ok_or("the difference is still being computed; try again in a moment")?;
        Ok(self.below.csv(answer, self.choices.look))
    }

    /// The totals that both sides have.
    fn metrics(&self, recordings: [&Arc<Recording>; 2]) -> Vec<Metric> {
        let has = |side: usize, metric: Metric| {
            let index = &recordings[side].devices[self.pair.sides[side].selection.device];
            index.summary.peaks.iter().any(|peak| peak.metric == metric)
        };
        Metric::ALL.into_iter().filter(|metric| has(0, *metric) && has(1, *metric)).collect()
    }

    fn of(&self, recordings: [&Arc<Recording>; 2]) -> Of {
        [0, 1].map(|side| (Identity::of(recordings[side]), self.pair.sides[side].selection.device))
    }

    fn moments(&mut self, recordings: [&Arc<Recording>; 2]) -> Moments {
        let (of, at, metric) = (self.of(recordings), self.choices.at, self.choices.metric);
        let sides = &self.pair.sides;
        let one =
            |side: usize| find(recordings[side], sides[side].selection.device, (at[side], metric), ["A", "B"][side]);
        self.moments.get((of, at, metric), |_| one(0).and_then(|a| Ok([a, one(1)?]))).clone()
    }

    /// Handles computed results, switches to recordings that were read again, and starts missing queries.
    fn refresh(&mut self, ctx: &egui::Context, recordings: [&Arc<Recording>; 2]) -> Moments {
        for (side, recording) in self.pair.sides.iter_mut().zip(recordings) {
            if !side.is_of(recording) {
                side.renew(recording);
            }
            side.search.receive(ctx, recording);
        }
        let metrics = self.metrics(recordings);
        if !metrics.contains(&self.choices.metric) {
            self.choices.metric = metrics.first().copied().unwrap_or_default();
        }
        let moments = self.moments(recordings);
        if let Ok(moments) = moments {
            let (of, filter) = (self.of(recordings), self.pair.sides[0].search.filter().clone());
            let DiffChoices { ref keys, hides_internals, .. } = self.choices;
            self.query.ask(ctx, &Question { of, moments, keys: keys.clone(), filter, hides_internals });
        }
        if self.query.receive()
            && let Some(answer) = self.query.answer()
        {
            self.below.take(answer);
        }
        self.query.keep_if(|question| question.is_about(recordings));
        self.light(ctx, recordings);
        moments
    }

    /// Highlights the blocks of the selected group that match the search.
    fn light(&mut self, ctx: &egui::Context, recordings: [&Arc<Recording>; 2]) {
        let text = self.pair.sides[0].search.text();
        let chosen = self.below.chosen.zip(self.query.answer());
        let key = chosen.and_then(|(group, answer)| {
            let words = below::conditions_of(answer, group)?;
            let [Ok(a), Ok(b)] = words.map(|words| format!("{text} {words}").parse()) else { return None };
            Some(recordings.into_iter().map(Identity::of).zip([a, b]).collect::<search::LightKey>())
        });
        match key {
            Some(key) => self.light.ask(ctx, &key),
            None if self.light.asked().is_some() => self.light.cancel(),
            None => {}
        }
        self.light.receive();
    }

    fn looks(&self, paint: &Paint) -> [TimelineStyle; 2] {
        [0, 1].map(|side| {
            let lit = self.light.current();
            let matches = match lit {
                Some(lit) => &lit[side],
                None => self.pair.sides[side].search.matches(),
            };
            TimelineStyle {
                paint: Paint { is_hiding: paint.is_hiding && lit.is_none(), ..*paint },
                has_overview: false,
                matches: Arc::clone(matches),
            }
        })
    }

    fn alignment(&mut self, recordings: [&Arc<Recording>; 2], moments: Option<[Moment; 2]>) -> Arc<Alignment> {
        let (align, axis) = (self.choices.align, self.pair.sides[0].selection.axis());
        let key = (self.of(recordings), moments, align, axis);
        let selections = self.pair.sides.each_ref().map(|side| &side.selection);
        let at = moments.as_ref().map_or(&[][..], |moments| moments);
        let make = |_: &_| Arc::new(Alignment::of(recordings.map(|recording| &**recording), selections, at, align));
        Arc::clone(self.alignment.get(key, make))
    }

    pub(crate) fn diff_ui(
        &mut self,
        ui: &mut Ui,
        recordings: [&Arc<Recording>; 2],
        files: &Files,
        paint: &mut Paint,
    ) -> Option<DiffAction> {
        let moments = self.refresh(ui.ctx(), recordings);
        let mut action = None;
        let frame = Frame::side_top_panel(ui.style()).inner_margin(Margin::symmetric(8, 5));
        Panel::top("compared").frame(frame).show(ui, |ui| {
            action = self.sides_ui(ui, recordings, files);
            self.tools_ui(ui, recordings, moments.clone().ok(), paint);
            self.headline_ui(ui, recordings, &moments);
        });
        let most = (ui.available_height() - theme::MIN_PAIR).max(theme::MIN_DIFFERENCE);
        let panel =
            Panel::bottom("difference").default_size(theme::DIFFERENCE_HEIGHT).size_range(theme::MIN_DIFFERENCE..=most);
        let found = panel.frame(Frame::side_top_panel(ui.style()).inner_margin(8)).resizable(true).show(ui, |ui| {
            ui.set_min_size(ui.available_size());
            self.below_ui(ui, recordings, &moments)
        });
        CentralPanel::default().frame(Frame::central_panel(ui.style()).inner_margin(8)).show(ui, |ui| {
            self.pair_ui(ui, recordings, moments.ok(), paint);
        });
        if let Some(words) = found.inner {
            let text = format!("{} {words}", self.search_text().trim_end());
            self.search_for(ui.ctx(), recordings, text.trim_start());
        }
        action
    }

    /// Shows the comparison without controls, for an exported picture. Returns whether all computations are finished.
    pub(crate) fn picture_ui(&mut self, ui: &mut Ui, recordings: [&Arc<Recording>; 2], paint: &Paint) -> bool {
        /// Share of the height used by the timelines.
        const UPPER: f32 = 0.74;
        self.pair.reading = 0.0;
        let moments = self.refresh(ui.ctx(), recordings);
        let alignment = self.alignment(recordings, moments.clone().ok());
        self.headline_ui(ui, recordings, &moments);
        ui.weak(&alignment.words);
        let whole = ui.available_rect_before_wrap();
        let (mut upper, mut lower) = (whole, whole);
        upper.max.y = whole.top() + whole.height() * UPPER;
        lower.min.y = upper.max.y + 6.0;
        place_ui(ui, "above", upper, |ui| self.pair_ui(ui, recordings, moments.clone().ok(), paint));
        if let Some(answer) = self.query.answer().map(Arc::clone) {
            place_ui(ui, "below", lower, |ui| self.below.picture_ui(ui, &answer));
        }
        let has_answer = self.query.answer().is_some() || moments.is_err();
        self.finish() && has_answer
    }

    fn sides_ui(&mut self, ui: &mut Ui, recordings: [&Arc<Recording>; 2], files: &Files) -> Option<DiffAction> {
        let mut action = None;
        ui.horizontal_wrapped(|ui| {
            for (side, recording) in recordings.into_iter().enumerate() {
                if side == 1 {
                    ui.separator();
                }
                action = choices::file_ui(ui, files, side).or(action);
                self.device_ui(ui, side, recording);
                let at = self.choices.at;
                if let Some(next) = choices::at_ui(ui, side, at[side], recording) {
                    self.choices.at[side] = next;
                    // The other recording follows while both have the same kind of moment.
                    if side == 0 && at[0] == at[1] && files.rows[0] != files.rows[1] {
                        self.choices.at[1] = next;
                    }
                }
            }
            ui.separator();
            if ui.button("Swap").on_hover_text("Swap A and B.").clicked() {
                action = Some(DiffAction::Swap);
            }
            if ui.button("Close").on_hover_text("Close the comparison.").clicked() {
                action = Some(DiffAction::Close);
            }
        });
        action
    }

    fn device_ui(&mut self, ui: &mut Ui, side: usize, recording: &Recording) {
        if recording.devices.len() < 2 {
            return;
        }
        let rows: Vec<usize> = (0..recording.devices.len()).collect();
        let now = self.pair.sides[side].selection.device;
        let label = format!("Device of {}", ["A", "B"][side]);
        if let Some(row) = choice_ui(ui, &label, &now, &rows, |row| recording.device_label(*row)) {
            self.pair.sides[side].selection.set_device(recording, row);
            self.pair.fit();
        }
    }

    fn tools_ui(
        &mut self,
        ui: &mut Ui,
        recordings: [&Arc<Recording>; 2],
        moments: Option<[Moment; 2]>,
        paint: &mut Paint,
    ) {
        ui.horizontal_wrapped(|ui| {
            let metrics = self.metrics(recordings);
            ui.label("Total");
            let name = |metric: &Metric| total_name(*metric);
            if let Some(metric) = choice_ui(ui, "Compared total", &self.choices.metric, &metrics, name) {
                self.choices.metric = metric;
            }
            ui.label("Across");
            for (axis, name) in [(Axis::Event, "events"), (Axis::Time, "time")] {
                let is_chosen = self.pair.sides[0].selection.axis() == axis;
                let is_there = axis == Axis::Event || recordings.iter().all(|one| one.trace.has_times());
                let button = ui.add_enabled(is_there, egui::Button::selectable(is_chosen, name));
                if button.on_disabled_hover_text(NO_TIMES).clicked() && !is_chosen {
                    self.set_axis(recordings, moments, axis);
                }
            }
            ui.label("Align");
            let name = |align: &Align| align.name().to_owned();
            if let Some(align) = choice_ui(ui, "Align", &self.choices.align, Align::ALL, name) {
                self.choices.align = align;
                self.pair.fit();
            }
            ui.separator();
            let text = self.pair.sides[0].search.search_ui(ui, recordings[0], None, &mut paint.is_hiding);
            if let Some(text) = text {
                self.search_for(ui.ctx(), recordings, &text);
            }
            let of_b = &self.pair.sides[1].search;
            if !of_b.filter().is_empty() {
                ui.weak(format!("in A, {} in B", format_count(of_b.matches().blocks())));
            }
        });
    }

    fn pair_ui(&mut self, ui: &mut Ui, recordings: [&Arc<Recording>; 2], moments: Option<[Moment; 2]>, paint: &Paint) {
        let (alignment, looks) = (self.alignment(recordings, moments), self.looks(paint));
        let shown = Shown { recordings, alignment: &alignment, moments, metric: self.choices.metric };
        self.pair.pair_ui(ui, &shown, &looks);
    }

    /// Returns conditions to add to the search.
    fn below_ui(&mut self, ui: &mut Ui, recordings: [&Arc<Recording>; 2], moments: &Moments) -> Option<String> {
        ui.horizontal_wrapped(|ui| {
            for &look in DiffLook::ALL {
                let response = ui.selectable_label(self.choices.look == look, look.name());
                if response.on_hover_text(look.tooltip()).clicked() {
                    self.choices.look = look;
                }
            }
            if matches!(self.choices.look, DiffLook::Groups | DiffLook::Flame) {
                ui.separator();
                choices::keys_ui(ui, &mut self.choices.keys, recordings);
                if self.choices.keys.contains(&GroupKey::Stack) {
                    ui.checkbox(&mut self.choices.hides_internals, "Hide internals").on_hover_text(
                        "Hide frames of the allocator and the framework, and native frames below Python.",
                    );
                }
            }
            if self.query.is_busy() {
                ui.weak("comparing");
            }
        });
        let answer = self.query.answer().filter(|_| moments.is_ok()).map(Arc::clone)?;
        self.below.below_ui(ui, &answer, self.choices.look)
    }

    fn headline_ui(&self, ui: &mut Ui, recordings: [&Arc<Recording>; 2], moments: &Moments) {
        let moments = match (moments, self.query.failure()) {
            (Ok(moments), None) => moments,
            (Err(why), _) => return drop(ui.colored_label(Shades::in_ui(ui).warning, why)),
            (_, Some(why)) => return drop(ui.colored_label(Shades::in_ui(ui).warning, why)),
        };
        let names = recordings.map(|recording| recording.name.as_str());
        let names = if names[0] == names[1] { ["A", "B"] } else { names };
        let bytes = moments.map(|moment| moment.bytes);
        ui.horizontal(|ui| {
            let text = headline::difference_text(names, bytes, self.choices.at == [DiffAt::Peak; 2]);
            let response = ui.label(RichText::new(text).strong().size(theme::ANSWER_SIZE));
            let ([a, b, delta], metric) = (compared(bytes), total_name(self.choices.metric));
            let words = format!("A {a}  ·  B {b}  ·  B − A: {delta} {metric}");
            response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &words));
            let Some(answer) = self.query.answer() else { return };
            let diff = &answer.comparison.diff;
            if let Some(words) = &self.below.match_kind {
                ui.colored_label(Shades::in_ui(ui).warning, words);
            }
            if answer.is_filtered {
                let [a, b, delta] = compared(diff.bytes);
                ui.label(format!("In blocks that match the search: A {a}, B {b}, {delta}"));
            } else {
                ui.add(Label::new(RichText::new(headline::parts_text(diff)).size(14.0)).truncate());
            }
        });
    }
}
