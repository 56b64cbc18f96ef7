//! What proves a plan, the lines that apply it, what it assumes, and what limits it.

use eframe::egui::{Role, TextEdit, TextStyle, Ui, WidgetInfo};
use highwater_snapshots::units::{format_bytes, format_exact_bytes};

use super::job::{Found, Key, Planned};
use crate::answers::plan::Plan;
use crate::figures::planned::{self, Budget, NOT_OPTIMAL, Proof};
use crate::gui::widgets::note::{note_ui, warning_ui};

/// Shows how the answer is proven, and the least that can be reached.
pub(super) fn proof_ui(ui: &mut Ui, found: &Found, key: &Key) {
    let (search, budget) = (&found.search, key.budget);
    if let Some(text) = planned::less_work(search) {
        note_ui(ui, &text);
    }
    let Some(plan) = search.plans.first() else { return nothing_ui(ui, found, budget) };
    if !search.fits_as_is {
        proven_ui(ui, plan, key);
    }
    if !search.is_optimal {
        warning_ui(ui, NOT_OPTIMAL);
    }
    note_ui(ui, &planned::least(&search.minimum));
}

fn proven_ui(ui: &mut Ui, plan: &Plan, key: &Key) {
    if key.chosen.is_none() {
        note_ui(ui, &planned::proven(Proof::Replayed, plan, key.budget));
    }
}

/// Shows what the lowest peak consists of, and what would be enough.
fn nothing_ui(ui: &mut Ui, found: &Found, budget: Budget) {
    let minimum = &found.search.minimum;
    let large_enough = planned::large_enough(minimum, budget);
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

/// Shows the lines to paste, with a button that copies them; nothing if there are none.
pub(super) fn code_ui(ui: &mut Ui, code: &[String]) {
    if code.is_empty() {
        return;
    }
    let text = code.join("\n");
    let title = ui.horizontal(|ui| {
        let title = ui.strong("To apply it");
        let copy = ui.small_button("Copy").on_hover_text("Copy these lines.");
        copy.widget_info(|| WidgetInfo::labeled(Role::Button, true, "Copy the lines that apply the plan"));
        if copy.clicked() {
            ui.ctx().copy_text(text.clone());
        }
        title.id
    });
    let mut lines = text.as_str();
    let shown = TextEdit::multiline(&mut lines).font(TextStyle::Monospace).desired_width(f32::INFINITY);
    ui.add(shown.desired_rows(code.len())).labelled_by(title.inner);
}

/// Shows what the plan assumes, and what limits it.
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
                 gives exact figures, and tries more changes."
            ),
        );
    }
    for text in &planned.chosen.assumptions {
        warning_ui(ui, &format!("Assumed: {text}."));
    }
    for text in &planned.found.warnings {
        warning_ui(ui, text);
    }
}
