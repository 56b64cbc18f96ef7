//! Plans the cheapest changes with which a step fits a budget. The budget can be dragged on the chart's axis, the
//! changes are switches, and the predicted curve is drawn over the measured one.

mod job;
mod budget;
mod budget_slider;
mod switches;
mod notes;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eframe::egui::{self, RichText, Role, Ui, WidgetInfo};
use highwater_analysis::Metric;
use highwater_snapshots::{count_of, format_bytes};

use crate::answers::plan::{Reach, RerunOf, Setup, name};
use crate::figures::planned::{self, Budget};
use crate::files::discard::discard;
use crate::gui::views::predicted::{CurveLook, CurveView};
use crate::gui::views::view::{Action, OfDevice, RecordingView, ViewContext, WriteTable, whole_table};
use crate::gui::widgets::{Query, Shades, answer_ui, computed, exact_height_ui, scrolling_ui, split_ui, theme};
use budget::{BudgetForm, default_budget, default_reserve};
use budget_slider::BudgetSlider;
use job::{Key, Outcome, Planned, Planner};
use switches::Switches;

const CHANGES_SHARE: f32 = 0.5;
/// Minimum and maximum width of the list of changes, in points.
const CHANGES_WIDTHS: [f32; 2] = [400.0, 640.0];
/// Number of events above which a result is freed on another thread.
const LARGE: usize = 100_000;
/// Opacity of a result for a previous budget.
const FORMER_OPACITY: f32 = 0.45;

const LOOK: CurveLook = CurveLook {
    drawn: [Metric::Requested, Metric::Reserved],
    predicted: "with the plan",
    limit: None,
    marked: Some(Metric::Reserved),
    top: None,
};

/// The state of the Plan view.
#[derive(Debug)]
pub struct PlanView {
    form: BudgetForm,
    slider: BudgetSlider,
    budget: Budget,
    /// The source of the budget; `None` if the user entered it.
    from: Option<&'static str>,
    /// Whether the user entered the part of the budget that other processes use.
    is_reserve_chosen: bool,
    switches: Switches,
    /// The changes selected by the user; `None` for those of the best plan.
    chosen: Option<Setup>,
    rerun: Option<RerunOf>,
    query: Query<Key, Outcome>,
    replays: Arc<AtomicUsize>,
    curve: CurveView,
}

computed!(PlanView: query, curve);

impl Default for PlanView {
    fn default() -> Self {
        let replays = Arc::default();
        Self {
            form: BudgetForm::default(),
            slider: BudgetSlider::default(),
            budget: Budget::default(),
            from: None,
            is_reserve_chosen: false,
            switches: Switches::default(),
            chosen: None,
            rerun: None,
            query: query(None, &replays),
            replays,
            curve: CurveView::default(),
        }
    }
}

fn query(rerun: Option<RerunOf>, replays: &Arc<AtomicUsize>) -> Query<Key, Outcome> {
    let mut planner = Planner::new(rerun, replays);
    Query::new("highwater-plan", move |key, cancel| planner.answer(key, cancel)).discarding(discard_outcome)
}

impl RecordingView for PlanView {
    fn view_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        self.refresh(ui.ctx(), context);
        if ui.available_width() >= theme::WHATIF_WIDE {
            self.answer_ui(ui, context);
            let width = (ui.available_width() * CHANGES_SHARE).clamp(CHANGES_WIDTHS[0], CHANGES_WIDTHS[1]);
            let changes_ui = |ui: &mut Ui, view: &mut Self| view.changes_ui(ui, context);
            let curve_ui = |ui: &mut Ui, view: &mut Self| view.curve_ui(ui, context);
            let least = theme::CURVE_MIN + 3.0 * theme::ROW_HEIGHT;
            let ((), action) = split_ui(ui, "plan", (width, least), self, changes_ui, curve_ui);
            return action.into_iter().collect();
        }
        let action = scrolling_ui(ui, "plan", |ui| {
            self.answer_ui(ui, context);
            self.budget_ui(ui, context);
            self.plans_ui(ui, context);
            self.switches_ui(ui, context);
            let height = theme::CURVE_MIN + 3.0 * theme::ROW_HEIGHT;
            let action = exact_height_ui(ui, height, |ui| self.curve_ui(ui, context));
            self.details_ui(ui);
            action
        });
        action.into_iter().collect()
    }

    fn table(&mut self, _: &ViewContext<'_>) -> Result<WriteTable, String> {
        let changes =
            self.planned().map(|planned| planned::changes_table(&planned.chosen.lines, planned.found.proof, false));
        whole_table(changes.map(|changes| changes.csv()), "the plan is")
    }

    fn panel(&self) -> (&'static str, f32) {
        ("plan", theme::ANSWERS_HEIGHT)
    }

    fn focus(&mut self) {
        self.form.focus();
    }
}

impl PlanView {
    /// Creates a view for a budget of `bytes`.
    pub fn for_budget(bytes: u64) -> Self {
        Self::of(Budget { bytes, reserve: 0 }, None)
    }

    /// Uses `rerun` to run built-in steps again; other recordings are replayed.
    pub fn with_rerun(self, rerun: Option<RerunOf>) -> Self {
        Self { rerun, query: query(rerun, &self.replays), ..self }
    }

    /// Creates a view with the same budget and changes, for an exported picture.
    pub fn same(&self) -> Self {
        let view = match self.from {
            Some(_) => Self { chosen: self.chosen.clone(), switches: self.switches.clone(), ..Self::default() },
            None => Self {
                switches: self.switches.clone(),
                is_reserve_chosen: self.is_reserve_chosen,
                ..Self::of(self.budget, self.chosen.clone())
            },
        };
        view.with_rerun(self.rerun)
    }

    fn of(budget: Budget, chosen: Option<Setup>) -> Self {
        let mut form = BudgetForm::default();
        if budget.bytes > 0 {
            form.set(budget);
        }
        Self { form, budget, chosen, ..Self::default() }
    }

    /// Drops the recording, so that its memory is freed. The budget is kept.
    pub fn forget(&mut self) {
        self.query.forget();
        self.chosen = None;
    }

    fn planned(&self) -> Option<&Planned> {
        self.query.answer()?.as_ref().ok()
    }

    fn changes_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        self.budget_ui(ui, context);
        self.plans_ui(ui, context);
        self.switches_ui(ui, context);
        self.details_ui(ui);
    }

    fn answer_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        let shades = Shades::in_ui(ui);
        let Some((key, outcome)) = self.query.answered().zip(self.query.answer()) else {
            return self.query.spinning_ui(ui, &self.progress());
        };
        // It may be for another budget, or for other changes than those in view.
        let is_former = (key.budget, &key.chosen) != (self.budget, &self.chosen);
        let planned = match outcome {
            Ok(planned) => planned,
            Err(why) => return answer_ui(ui, &format!("No plan: {why}."), shades.warning),
        };
        let Planned { found, chosen } = planned;
        let (search, budget) = (&found.search, key.budget);
        let (text, fits) = match key.chosen {
            None => (planned::answer(search, budget), search.fits()),
            Some(_) if chosen.trial.fits => {
                let fits = (search.reach == Reach::End).then_some(true);
                (planned::fits(&chosen.setup, &chosen.trial, search, budget), fits)
            }
            Some(_) => (does_not_fit(chosen, &search.reach, budget), Some(false)),
        };
        let is_chosen = key.chosen.is_some();
        ui.scope(|ui| {
            if is_former {
                ui.multiply_opacity(FORMER_OPACITY);
            }
            // All answers begin with the verdict and the budget.
            let budget = budget.text();
            let (verdict, rest) = text.split_at(text.find(&budget).map_or(0, |at| at + budget.len()));
            ui.horizontal(|ui| {
                let colour = if fits == Some(true) { shades.strong } else { shades.warning };
                let response = ui.label(RichText::new(verdict).size(theme::ANSWER_SIZE).color(colour));
                response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &text));
                answer_ui(ui, rest.trim_start_matches([':', ';', ' ']), shades.strong);
            });
        });
        if is_chosen {
            let back = ui.small_button("Back to the plan").on_hover_text("Make the changes that the search found.");
            if back.clicked() {
                self.chosen = None;
                self.ask(ui.ctx(), context);
            }
        }
    }

    fn progress(&self) -> String {
        let replays = self.replays.load(Ordering::Relaxed) as u64;
        format!("Planning for {}: {}…", format_bytes(self.budget.bytes), count_of(replays, "replay"))
    }

    fn budget_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        let entered = ui.horizontal_wrapped(|ui| {
            let entered = self.form.budget_ui(ui);
            if self.query.is_busy() && self.query.answer().is_some() {
                ui.spinner();
                ui.weak(self.progress());
            }
            entered
        });
        self.form.mistake_ui(ui);
        if let Some(from) = self.from.filter(|_| !context.recording.trace.is_state()) {
            ui.weak(format!("Suggested: {}, {from}.", format_bytes(self.budget.bytes)));
        }
        if !self.is_reserve_chosen
            && let Some(text) = planned::counted_outside(self.budget.reserve)
        {
            ui.weak(text);
        }
        if let Some(budget) = entered.inner.filter(|budget| *budget != self.budget) {
            self.set_budget(ui.ctx(), context, budget);
        }
    }

    fn set_budget(&mut self, ctx: &egui::Context, context: &ViewContext<'_>, budget: Budget) {
        self.is_reserve_chosen |= budget.reserve != self.budget.reserve;
        (self.budget, self.from, self.chosen) = (budget, None, None);
        self.ask(ctx, context);
    }

    fn switches_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        let Some(Ok(Planned { found, chosen })) = self.query.answer() else { return };
        let is_current = chosen.setup == self.switches.setup();
        if self.switches.switches_ui(ui, is_current.then_some(&**chosen), found) {
            self.chosen = Some(self.switches.setup()).filter(|setup| *setup != found.setup());
            self.ask(ui.ctx(), context);
        }
    }

    fn plans_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        let Some(Ok(planned)) = self.query.answer() else { return };
        if let Some(setup) = switches::others_ui(ui, &planned.found, &self.switches.setup()) {
            self.switches = self.switches.renewed(&setup);
            self.chosen = Some(setup).filter(|setup| *setup != planned.found.setup());
            self.ask(ui.ctx(), context);
        }
    }

    fn details_ui(&self, ui: &mut Ui) {
        let Some((key, Ok(planned))) = self.query.answered().zip(self.query.answer()) else { return };
        notes::proof_ui(ui, &planned.found, key);
        notes::code_ui(ui, &planned.chosen.code);
        notes::notes_ui(ui, planned, key.budget);
    }

    fn curve_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Option<Action> {
        let planned = self.query.answer()?.as_ref().ok()?;
        let look = CurveLook { limit: Some(("budget", self.budget.bytes)), top: self.slider.fixed_top, ..LOOK };
        let action = self.curve.curve_ui(ui, context, &planned.chosen.run, &look);
        let moved = self.curve.frame().and_then(|frame| self.slider.slider_ui(ui, frame, self.budget.bytes));
        if let Some(bytes) = moved.filter(|bytes| *bytes > self.budget.reserve) {
            let budget = Budget { bytes, ..self.budget };
            self.form.set(budget);
            self.set_budget(ui.ctx(), context, budget);
        }
        action
    }

    /// Starts a new query if the recording or device has changed, and handles finished results.
    fn refresh(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        if self.query.asked().is_none_or(|asked| asked.of != OfDevice::selected(context)) {
            if self.query.asked().is_some() {
                self.forget();
            }
            let former = self.budget;
            if former.bytes == 0 || self.from.is_some() {
                let (bytes, from) = default_budget(context);
                (self.budget.bytes, self.from) = (bytes, Some(from));
            }
            if !self.is_reserve_chosen {
                self.budget.reserve = default_reserve(context, self.from.is_some());
            }
            if self.budget != former {
                self.form.set(self.budget);
            }
            self.ask(ctx, context);
        }
        if self.query.receive()
            && let Some((Key { chosen: None, .. }, planned)) = self.query.answered().zip(self.planned())
        {
            self.switches = self.switches.renewed(&planned.chosen.setup);
        }
    }

    fn ask(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        self.query.ask(ctx, &Key { of: OfDevice::selected(context), budget: self.budget, chosen: self.chosen.clone() });
    }
}

fn discard_outcome(outcome: Outcome) {
    if let Ok(former) = outcome
        && former.chosen.run.events() > LARGE
    {
        let freed = Arc::downgrade(&former.chosen.run);
        discard(former.chosen, freed);
    }
}

fn does_not_fit(chosen: &job::Chosen, reach: &Reach, budget: Budget) -> String {
    format!(
        "Does not fit in {} with {}: {}{}.",
        budget.text(),
        name(&chosen.setup),
        planned::peaks(&chosen.trial),
        planned::up_to(reach)
    )
}

#[cfg(test)]
mod tests;
