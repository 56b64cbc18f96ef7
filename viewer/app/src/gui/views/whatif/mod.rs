//! Predicts memory with other allocator settings, on another device, or without some blocks: a form for the change,
//! peaks before and after, and the predicted curve over the measured one.

mod form;
mod job;
mod figures;
mod notes;

use std::sync::Arc;

use eframe::egui::{self, Label, RichText, Role, Ui, WidgetInfo, vec2};
use highwater_analysis::{LastUses, Metric};
use highwater_snapshots::Trace;

use crate::figures::predicted;
use crate::files::discard::discard;
use crate::gui::identity::Identity;
use crate::gui::views::predicted::{CurveLook, CurveView};
use crate::gui::views::view::{Action, OfDevice, RecordingView, ViewContext, WriteTable, whole_table};
use crate::gui::widgets::{Query, Shades, TableState, answer_ui, computed, scrolling_ui, split_ui, theme};
use form::{Act, Applied, Field, Form};
use job::{Key, Opening, Other, Outcome, Replayed};

pub(crate) use job::Predicted;

const FORM_SHARE: f32 = 0.43;

/// Opacity of a result that does not match the form.
const FORMER_OPACITY: f32 = 0.45;

const LOOK: CurveLook = CurveLook {
    drawn: [Metric::Allocated, Metric::Reserved],
    predicted: "what if",
    limit: None,
    marked: None,
    top: None,
};

/// The state of the What-if view.
#[derive(Debug)]
pub struct WhatIfView {
    form: Form,
    /// The form as last applied without errors, or the initial one.
    sent: Form,
    /// The change being replayed.
    applied: Applied,
    query: Query<Key, Outcome>,
    /// Whether the recording has use events for blocks of the device.
    has_uses: bool,
    peaks: TableState,
    tried: TableState,
    curve: CurveView,
    opener: Query<Opening, Predicted>,
}

computed!(WhatIfView: query, curve, opener);

impl Default for WhatIfView {
    fn default() -> Self {
        Self {
            form: Form::default(),
            sent: Form::default(),
            applied: Applied::default(),
            query: Query::new("highwater-what-if", job::replay).discarding(discard_outcome),
            has_uses: false,
            peaks: TableState::default(),
            tried: TableState::default(),
            curve: CurveView::default(),
            opener: Query::new("highwater-predicted", Predicted::of),
        }
    }
}

impl RecordingView for WhatIfView {
    fn view_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        self.refresh(ui.ctx(), context);
        if ui.available_width() >= theme::WHATIF_WIDE {
            return self.columns_ui(ui, context);
        }
        scrolling_ui(ui, "what if", |ui| self.column_ui(ui, context))
    }

    fn table(&mut self, _: &ViewContext<'_>) -> Result<WriteTable, String> {
        whole_table(self.csv(), "the prediction is")
    }

    fn panel(&self) -> (&'static str, f32) {
        ("what if", theme::ANSWERS_HEIGHT)
    }

    fn focus(&mut self) {
        self.form.focus();
    }
}

impl WhatIfView {
    /// Takes a predicted recording to open, once it is ready.
    pub(crate) fn take_predicted(&mut self) -> Option<Predicted> {
        self.opener.take()
    }

    fn csv(&self) -> Option<String> {
        self.replayed().map(|replayed| figures::figures_csv(replayed))
    }

    /// Shows the form on the left and the results on the right; scrolls if the height is insufficient.
    fn columns_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        let width = (ui.available_width() * FORM_SHARE).clamp(theme::FORM_WIDTHS[0], theme::FORM_WIDTHS[1]);
        let form_ui = |ui: &mut Ui, view: &mut Self| {
            view.form_ui(ui, context);
            ui.add_space(6.0);
            view.notes_ui(ui)
        };
        let outcome_ui = |ui: &mut Ui, view: &mut Self| {
            view.grey_out_former(ui);
            [view.verdict_ui(ui, context), view.details_ui(ui, context)]
        };
        let (action, others) = split_ui(ui, "what if", (width, theme::WHATIF_MIN), self, form_ui, outcome_ui);
        action.into_iter().chain(others.into_iter().flatten()).collect()
    }

    /// Shows everything in one column; the verdict and its figures come first, visible without scrolling.
    fn column_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        let verdict_ui = |ui: &mut Ui| {
            self.grey_out_former(ui);
            self.verdict_ui(ui, context)
        };
        let mut actions: Vec<Action> = ui.scope(verdict_ui).inner.into_iter().collect();
        ui.separator();
        self.form_ui(ui, context);
        ui.separator();
        let room = vec2(ui.available_width(), theme::CURVE_MIN + 2.0 * theme::ROW_HEIGHT);
        ui.scope(|ui| {
            ui.set_max_height(room.y);
            if self.former_input().is_some() {
                ui.multiply_opacity(FORMER_OPACITY);
            }
            actions.extend(self.details_ui(ui, context));
        });
        actions.extend(self.notes_ui(ui));
        actions
    }

    fn notes_ui(&self, ui: &mut Ui) -> Option<Action> {
        let replayed = self.replayed()?;
        notes::notes_ui(ui, &replayed.applied, replayed)
    }

    fn replayed(&self) -> Option<&Arc<Replayed>> {
        self.query.answer()?.as_ref().ok()
    }

    fn form_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        let problem = (!self.has_uses).then(|| no_uses(&context.recording.trace));
        match self.form.form_ui(ui, problem, self.query.is_busy()) {
            Some(Act::Apply) => self.apply(ui.ctx(), context),
            Some(Act::Reset) => {
                self.form = Form::default();
                self.apply(ui.ctx(), context);
            }
            None => {}
        }
    }

    fn apply(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        let device = context.index().device;
        if let Some(applied) = self.form.apply(&context.recording.trace, device, self.has_uses) {
            self.applied = applied;
            self.sent = self.form.clone();
            self.ask(ctx, context);
        }
    }

    /// Describes the change of the displayed result, if the form contains another change or another change is being
    /// replayed; otherwise returns `None`.
    fn former_input(&self) -> Option<&str> {
        let shown = &self.query.answered()?.applied;
        let is_former = !self.form.is_same(&self.sent) || shown.words != self.applied.words;
        is_former.then_some(if shown.words.is_empty() { "the recorded run" } else { &shown.words })
    }

    /// If the result does not match the form, shows a warning and greys out everything below it.
    fn grey_out_former(&self, ui: &mut Ui) {
        if let Some(input) = self.former_input() {
            let why = if self.form.has_mistakes() { "the input is invalid" } else { "the input has changed" };
            let text = RichText::new(format!("Result for {input}: {why}"));
            ui.add(Label::new(text.color(Shades::in_ui(ui).warning)).wrap());
            ui.multiply_opacity(FORMER_OPACITY);
        }
    }

    /// Shows the verdict on the change and the peaks; without a change, what would help.
    fn verdict_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Option<Action> {
        let Some(outcome) = self.query.answer() else {
            self.query.spinning_ui(ui, "Replaying the recording…");
            return None;
        };
        match outcome.clone() {
            Err(why) => {
                let words =
                    RichText::new(format!("The recording cannot be replayed: {why}.")).color(Shades::in_ui(ui).warning);
                ui.add(Label::new(words).wrap());
                None
            }
            Ok(replayed) => match replayed.other() {
                Some(other) => self.changed_ui(ui, context, (&replayed, &other)),
                None => {
                    answer_ui(ui, &predicted::what_helps(&replayed.prediction), Shades::in_ui(ui).strong);
                    ui.add(Label::new(RichText::new(predicted::unchanged(&replayed.prediction)).weak()).wrap());
                    None
                }
            },
        }
    }

    /// Shows the curves of the change; without a change, the settings tried.
    fn details_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Option<Action> {
        // A click on settings starts a replay, and until it is done this table stays.
        let replayed = Arc::clone(self.replayed()?);
        match replayed.other() {
            Some(other) => {
                let limit = other.changed.capacity.map(|bytes| ("capacity", bytes));
                self.curve.curve_ui(ui, context, other.run, &CurveLook { limit, ..LOOK })
            }
            None => {
                ui.weak("Recorded requests, replayed with common settings. Click a row to see its peaks and curve.");
                if let Some(settings) = figures::tried_ui(ui, &replayed, &mut self.tried) {
                    self.form.set(Field::Settings, &settings);
                    self.apply(ui.ctx(), context);
                }
                None
            }
        }
    }

    fn changed_ui(
        &mut self,
        ui: &mut Ui,
        context: &ViewContext<'_>,
        (replayed, other): (&Arc<Replayed>, &Other<'_>),
    ) -> Option<Action> {
        let applied = &replayed.applied;
        let has_capacity = applied.change.capacity.is_some();
        let verdict = predicted::verdict(&replayed.prediction, other.changed, &applied.words, has_capacity);
        let shades = Shades::in_ui(ui);
        let colour = if other.changed.oom.is_some() { shades.warning } else { shades.strong };
        answer_ui(ui, &verdict, colour);
        ui.horizontal_wrapped(|ui| {
            let name = || format!("{}, what if {}", context.recording.name, applied.words);
            let mut open = |ui: &mut Ui, words: &str, label: &str, tooltip: &str, compares: bool| {
                let button = ui.add_enabled(!self.opener.is_busy(), egui::Button::new(words).small());
                button.widget_info(|| WidgetInfo::labeled(Role::Button, true, label));
                if button.on_hover_text(tooltip).clicked() {
                    let trace = Identity::of(other.run.trace());
                    self.opener.cancel();
                    self.opener.ask(ui.ctx(), &Opening { name: name(), trace, compares });
                }
            };
            let tooltip = "Open the predicted recording in a new tab, with all views.";
            open(ui, "Open as a recording", "Open the prediction as a recording", tooltip, false);
            let tooltip = "Compare the recording with the prediction side by side.";
            open(ui, "Compare", "Compare the recording with the prediction", tooltip, true);
            if self.opener.is_busy() {
                ui.spinner();
            }
        });
        figures::peaks_ui(ui, replayed, other, &mut self.peaks)
    }

    /// Starts a new query if the recording or device has changed, and handles finished results.
    fn refresh(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        let of = OfDevice::selected(context);
        if self.query.asked().is_none_or(|asked| asked.of != of) {
            self.has_uses = LastUses::of(&context.recording.trace, context.index().device).is_some();
            if !self.has_uses && !self.applied.change.until_last_use.is_empty() {
                self.applied = Applied::default();
            }
            self.ask(ctx, context);
        }
        if self.query.receive() {
            (self.peaks, self.tried) = (TableState::default(), TableState::default());
        }
        // Results for another recording or device must not be shown for this one.
        self.query.keep_if(|shown| shown.of == of);
    }

    fn ask(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        self.query.ask(ctx, &Key { of: OfDevice::selected(context), applied: self.applied.clone() });
    }
}

/// Frees a replay. A large one is freed on another thread, so that the window does not freeze.
fn discard_outcome(outcome: Outcome) {
    if let Ok(former) = outcome {
        let freed = Arc::downgrade(&former);
        discard(former, freed);
    }
}

/// Returns the reason blocks cannot be freed after their last use.
fn no_uses(trace: &Trace) -> &'static str {
    if trace.header.recorder == "PyTorch" {
        "Not available: PyTorch does not record when blocks are used."
    } else {
        "Not available: the recording has no uses of blocks; record with --uses."
    }
}

#[cfg(test)]
mod tests;
