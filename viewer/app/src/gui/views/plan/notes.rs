//! The notes on a plan: how it was verified, the code that applies it, its assumptions and its limits.

use eframe::egui::{TextEdit, TextStyle, Ui};
use highwater_snapshots::{format_bytes, format_exact_bytes};

use super::job::{Found, Key, Planned};
use crate::answers::plan::{Code, NOTE};
use crate::figures::planned::{self, Budget, NOT_OPTIMAL};
use crate::gui::widgets::{assumption_ui, labelled_button_ui, note_ui, quiet_ui, warning_ui};

pub(super) fn proof_ui(ui: &mut Ui, found: &Found, key: &Key) {
    let (search, budget) = (&found.search, key.budget);
    if let Some(text) = planned::less_work(search) {
        note_ui(ui, &text);
    }
    let Some(plan) = search.plans.first() else { return nothing_ui(ui, found, budget) };
    if !search.fits_as_is && key.chosen.is_none() {
        note_ui(ui, &planned::proven(found.proof, &search.reach, plan, budget));
    }
    if !search.is_optimal {
        warning_ui(ui, NOT_OPTIMAL);
    }
    note_ui(ui, &planned::least(search));
}

fn nothing_ui(ui: &mut Ui, found: &Found, budget: Budget) {
    let minimum = &found.search.minimum;
    let large_enough = planned::large_enough(&found.search, budget);
    let sharding = planned::sharding(&found.at_minimum, minimum, budget);
    for text in large_enough.into_iter().chain(sharding) {
        note_ui(ui, &text);
    }
    let parts: Vec<String> =
        found.at_minimum.iter().map(|(name, bytes)| format!("{name} {}", format_bytes(*bytes))).collect();
    if !parts.is_empty() {
        note_ui(ui, &format!("Its peak consists of: {}.", parts.join(", ")));
    }
}

/// Shows the code that applies the plan in sections, each with a button to copy it.
pub(super) fn code_ui(ui: &mut Ui, code: &Code) {
    let environment = ("Set in the environment", "the environment of the plan", code.environment_words());
    let lines = ("To apply it", "the lines that apply the plan", code.lines.clone());
    for (title, what, lines) in [environment, lines] {
        if !lines.is_empty() {
            lines_ui(ui, (title, what), &lines);
        }
    }
}

/// Shows `lines` under a title, with a button that copies them; `what` names them in the button's tooltip.
fn lines_ui(ui: &mut Ui, (title, what): (&str, &str), lines: &[String]) {
    let text = lines.join("\n");
    let title = ui.horizontal(|ui| {
        let title = ui.strong(title);
        if labelled_button_ui(ui, "Copy", &format!("Copy {what}"), "Copy these lines.") {
            ui.ctx().copy_text(text.clone());
        }
        title.id
    });
    let mut shown = text.as_str();
    let field = TextEdit::multiline(&mut shown).font(TextStyle::Monospace).desired_width(f32::INFINITY);
    ui.add(field.desired_rows(lines.len())).labelled_by(title.inner);
}

pub(super) fn notes_ui(ui: &mut Ui, planned: &Planned, budget: Budget) {
    if planned.found.can_rerun {
        let reserve = match budget.reserve {
            0 => String::new(),
            bytes => format!(" --reserve {}", format_exact_bytes(bytes)),
        };
        let budget = format_exact_bytes(budget.bytes);
        note_ui(
            ui,
            &format!(
                "Recorded by `highwater record`: `highwater plan FILE --budget {budget}{reserve}` runs the step again, \
                 beyond a request that failed, gives exact figures, and tries more changes."
            ),
        );
    }
    for text in &planned.chosen.assumptions {
        assumption_ui(ui, text);
    }
    for text in &planned.found.warnings {
        if text.starts_with(NOTE) { quiet_ui(ui, text) } else { warning_ui(ui, text) }
    }
}
