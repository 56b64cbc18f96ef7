//! Plans the cheapest changes with which a step fits a budget: a handle for the budget on the chart's axis, the changes as
//! switches, and the predicted curve over the measured one.

mod job;
mod budget;
mod handle;
mod switches;
mod notes;
mod others;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use eframe::egui::{self, ScrollArea, Ui};
use highwater_analysis::Metric;
use highwater_snapshots::units::{format_bytes, format_required_bytes};

use crate::answers::plan::{Reach, RerunOf, Setup, name};
use crate::figures::moment::count_of;
use crate::figures::planned::{self, Budget};
use crate::files::discard::discard;
use crate::gui::view_context::{Action, ViewContext};
use crate::gui::views::predicted::{CurveLook, CurveView};
use crate::gui::widgets::note::answer_ui;
use crate::gui::widgets::room::{exact_height_ui, split_ui};
use crate::gui::widgets::theme::{self, Shades};
use crate::gui::widgets::worker::Worker;
use crate::session::Recording;
use budget::{BudgetForm, default_budget, default_reserve};
use handle::Handle;
use job::{Answer, Asked, Key, Planned, Planner};
use switches::Switches;

/// Share of the width that the changes take, and its limits in points.
const CHANGES_SHARE: f32 = 0.5;
/// See [`CHANGES_SHARE`].
const CHANGES_WIDTHS: [f32; 2] = [400.0, 640.0];
/// Events of a result that takes long to free.
const LARGE: usize = 100_000;
/// Opacity of a result for another budget.
const FORMER_OPACITY: f32 = 0.45;

/// The look of the curves.
const LOOK: CurveLook = CurveLook {
    drawn: [Metric::Requested, Metric::Reserved],
    predicted: "with the plan",
    limit: None,
    marked: Some(Metric::Requested),
    top: None,
};

/// State of the view.
#[derive(Debug)]
pub struct PlanView {
    form: BudgetForm,
    handle: Handle,
    budget: Budget,
    /// Where the budget comes from, if the user has not chosen it.
    from: Option<&'static str>,
    /// Whether the user has chosen the part of the budget for what others use.
    is_reserve_chosen: bool,
    /// The changes of the plan in view.
    switches: Switches,
    /// The changes that the user has chosen instead of those of the search.
    chosen: Option<Setup>,
    /// Runs steps again, where that is possible.
    rerun: Option<RerunOf>,
    worker: Worker<Asked, Answer>,
    /// The recording and device of the last question.
    asked: Option<(Weak<Recording>, usize)>,
    replays: Arc<AtomicUsize>,
    shown: Option<Answer>,
    curve: CurveView,
}

impl Default for PlanView {
    fn default() -> Self {
        Self {
            form: BudgetForm::default(),
            handle: Handle::default(),
            budget: Budget::default(),
            from: None,
            is_reserve_chosen: false,
            switches: Switches::default(),
            chosen: None,
            rerun: None,
            worker: worker(None),
            asked: None,
            replays: Arc::default(),
            shown: None,
            curve: CurveView::default(),
        }
    }
}

fn worker(rerun: Option<RerunOf>) -> Worker<Asked, Answer> {
    let mut planner = Planner::new(rerun);
    Worker::new("highwater-plan", move |asked, cancel| planner.answer(asked, cancel))
}

impl PlanView {
    /// A view for a budget of `bytes`.
    pub fn for_budget(bytes: u64) -> Self {
        Self::of(Budget { bytes, reserve: 0 }, None)
    }

    /// The same, which runs steps again with `rerun` where that is possible, and else replays recordings.
    pub fn with_rerun(self, rerun: Option<RerunOf>) -> Self {
        Self { rerun, worker: worker(rerun), ..self }
    }

    /// A view of the same budget and changes, for a picture.
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

    /// Whether anything is being computed.
    pub fn is_busy(&self) -> bool {
        self.worker.is_busy() || self.curve.is_busy()
    }

    /// Waits until it is ready. For tests, and for pictures without a window.
    pub fn wait(&mut self) {
        if let Some(answer) = self.worker.wait() {
            self.take(answer);
        }
        self.curve.wait();
    }

    /// Moves the keyboard focus to the budget.
    pub fn focus(&mut self) {
        self.form.focus();
    }

    /// Forgets the recording, so that its memory is freed. The budget stays.
    pub fn forget(&mut self) {
        (self.worker, self.asked, self.chosen) = (worker(self.rerun), None, None);
        self.discard_shown();
    }

    /// The changes in view as CSV; `None` until they are computed.
    pub fn csv(&self) -> Option<String> {
        let planned = self.shown.as_ref()?.outcome.as_ref().ok()?;
        Some(others::changes_csv(&planned.chosen))
    }

    /// Shows the view in the available space; scrolls if that is too small. Returns the user's requests.
    pub fn plan_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        self.refresh(ui.ctx(), context);
        if ui.available_width() >= theme::WHATIF_WIDE {
            self.answer_ui(ui, context);
            let width = (ui.available_width() * CHANGES_SHARE).clamp(CHANGES_WIDTHS[0], CHANGES_WIDTHS[1]);
            let changes_ui = |ui: &mut Ui, view: &mut Self| view.changes_ui(ui, context);
            let curve_ui = |ui: &mut Ui, view: &mut Self| view.curve_ui(ui, context);
            let least = theme::CURVE_LEAST + 3.0 * theme::ROW_HEIGHT;
            let ((), action) = split_ui(ui, "plan", (width, least), self, changes_ui, curve_ui);
            return action.into_iter().collect();
        }
        let scroll = ScrollArea::vertical().id_salt("plan").auto_shrink([false, false]);
        let action = scroll.show(ui, |ui| {
            self.answer_ui(ui, context);
            self.budget_ui(ui, context);
            self.switches_ui(ui, context);
            let height = theme::CURVE_LEAST + 3.0 * theme::ROW_HEIGHT;
            let action = exact_height_ui(ui, height, |ui| self.curve_ui(ui, context));
            self.details_ui(ui, context);
            action
        });
        action.inner.into_iter().collect()
    }

    /// Everything about the changes: the budget, the switches, other plans, the lines to paste, notes.
    fn changes_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        self.budget_ui(ui, context);
        self.switches_ui(ui, context);
        self.details_ui(ui, context);
    }

    /// The answer, or what is being done for it.
    fn answer_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        let shades = Shades::in_ui(ui);
        let Some(answer) = &self.shown else {
            let text = self.worker.failure().map_or_else(|| self.progress(), str::to_owned);
            ui.horizontal(|ui| {
                if self.worker.failure().is_none() {
                    ui.spinner();
                }
                ui.weak(text);
            });
            return;
        };
        let is_former = self.is_former(answer);
        let planned = match &answer.outcome {
            Ok(planned) => planned,
            Err(why) => return answer_ui(ui, &format!("No plan: {why}."), shades.warning),
        };
        let Planned { found, chosen } = planned;
        let (search, budget) = (&found.search, answer.key.budget);
        let (text, fits) = match answer.key.chosen {
            None => (planned::answer(search, budget), search.fits()),
            Some(_) if chosen.trial.fits => {
                let fits = (search.reach == Reach::End).then_some(true);
                (planned::fits(&chosen.setup, &chosen.trial, search, budget), fits)
            }
            Some(_) => (does_not_fit(chosen, search.reach, budget), Some(false)),
        };
        let is_chosen = answer.key.chosen.is_some();
        ui.scope(|ui| {
            if is_former {
                ui.multiply_opacity(FORMER_OPACITY);
            }
            answer_ui(ui, &text, if fits == Some(true) { shades.strong } else { shades.warning });
        });
        if is_chosen {
            let back = ui.small_button("Back to the plan").on_hover_text("Make the changes that the search found.");
            if back.clicked() {
                self.chosen = None;
                self.ask(ui.ctx(), context);
            }
        }
    }

    /// What is being computed, in words.
    fn progress(&self) -> String {
        let replays = self.replays.load(Ordering::Relaxed) as u64;
        format!("Planning for {}: {}…", format_required_bytes(self.budget.bytes), count_of(replays, "replay"))
    }

    /// Whether `answer` is for another budget or for other changes than those in view.
    fn is_former(&self, answer: &Answer) -> bool {
        (answer.key.budget, &answer.key.chosen) != (self.budget, &self.chosen)
    }

    fn budget_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        let entered = ui.horizontal_wrapped(|ui| {
            let entered = self.form.budget_ui(ui);
            if self.worker.is_busy() && self.shown.is_some() {
                ui.spinner();
                ui.weak(self.progress());
            }
            entered
        });
        self.form.mistake_ui(ui);
        if let Some(from) = self.from {
            ui.weak(format!("Suggested: {}, {from}.", format_required_bytes(self.budget.bytes)));
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
        let Some(Answer { outcome: Ok(Planned { found, chosen }), .. }) = &self.shown else { return };
        let is_current = chosen.setup == self.switches.setup();
        if self.switches.switches_ui(ui, is_current.then_some(&**chosen), found) {
            self.chosen = Some(self.switches.setup()).filter(|setup| *setup != found.setup());
            self.ask(ui.ctx(), context);
        }
    }

    /// Other plans, the lines to paste, and notes.
    fn details_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) {
        let Some(answer) = &self.shown else { return };
        let Ok(planned) = &answer.outcome else { return };
        notes::proof_ui(ui, &planned.found, &answer.key);
        let picked = others::others_ui(ui, &planned.found, &self.switches.setup());
        notes::code_ui(ui, &planned.chosen.code);
        notes::notes_ui(ui, planned, answer.key.budget);
        if let Some(setup) = picked {
            self.switches = self.switches.renewed(&setup);
            self.chosen = Some(setup).filter(|setup| *setup != planned.found.setup());
            self.ask(ui.ctx(), context);
        }
    }

    /// The curves with the budget's handle.
    fn curve_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Option<Action> {
        let planned = self.shown.as_ref()?.outcome.as_ref().ok()?;
        let look = CurveLook { limit: Some(("budget", self.budget.bytes)), top: self.handle.fixed_top(), ..LOOK };
        let action = self.curve.curve_ui(ui, context, &planned.chosen.run, &look);
        let moved = self.curve.frame().and_then(|frame| self.handle.handle_ui(ui, frame, self.budget.bytes));
        if let Some(bytes) = moved.filter(|bytes| *bytes > self.budget.reserve) {
            let budget = Budget { bytes, ..self.budget };
            self.form.set(budget);
            self.set_budget(ui.ctx(), context, budget);
        }
        action
    }

    /// Asks again for another recording or device, and takes over finished results.
    fn refresh(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        let (of, device) = (Arc::downgrade(context.recording), context.selection.device);
        let is_same = |(asked, on): &(Weak<_>, usize)| Weak::ptr_eq(asked, &of) && *on == device;
        if !self.asked.as_ref().is_some_and(is_same) {
            if self.asked.is_some() {
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
        if let Some(answer) = self.worker.take() {
            self.take(answer);
        }
    }

    fn ask(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        let (of, device) = (Arc::downgrade(context.recording), context.selection.device);
        self.asked = Some((Weak::clone(&of), device));
        let key = Key { of, device, budget: self.budget, chosen: self.chosen.clone() };
        let replays = Arc::clone(&self.replays);
        self.worker.ask(ctx, Asked { recording: Arc::clone(context.recording), key, replays });
    }

    fn take(&mut self, answer: Answer) {
        if let Answer { outcome: Ok(planned), key: Key { chosen: None, .. } } = &answer {
            self.switches = self.switches.renewed(&planned.chosen.setup);
        }
        self.discard_shown();
        self.shown = Some(answer);
    }

    /// Frees the result in view: a large one on another thread, so that the window does not freeze.
    fn discard_shown(&mut self) {
        if let Some(Answer { outcome: Ok(former), .. }) = self.shown.take()
            && former.chosen.run.events() > LARGE
        {
            let held = Arc::downgrade(&former.chosen.run);
            discard(former.chosen, held);
        }
    }
}

/// Returns that the chosen changes do not fit, as a sentence.
fn does_not_fit(chosen: &job::Chosen, reach: Reach, budget: Budget) -> String {
    format!(
        "Does not fit in {} with {}: {} requested and {} reserved at the peak{}.",
        budget.text(),
        name(&chosen.setup),
        format_bytes(chosen.trial.requested),
        format_bytes(chosen.trial.reserved),
        planned::up_to(reach)
    )
}

#[cfg(test)]
mod tests;
