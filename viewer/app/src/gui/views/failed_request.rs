//! The line above a timeline whose recording has a failed request: what was asked for, where, and what was free.

use eframe::egui::{Align, Frame, Label, Layout, Margin, RichText, Stroke, Ui};
use highwater_snapshots::EventId;
use highwater_snapshots::units::format_count;

use super::view::Action;
use crate::answers::request_failure::RequestFailure;
use crate::command::Command;
use crate::figures::requests::short_failure_text;
use crate::gui::widgets::keys;
use crate::gui::widgets::theme::Shades;
use crate::selection::Selection;
use crate::session::Recording;

/// Shows the failed request at the pinned moment, else the last of the selected device; nothing if none failed. Returns
/// what shows why it failed, if that is clicked.
pub(crate) fn failed_request_ui(ui: &mut Ui, recording: &Recording, selection: &Selection) -> Vec<Action> {
    let device = recording.devices[selection.device].device;
    let moments = || recording.regions.ooms.iter().filter(|(of, _)| *of == device).map(|(_, moment)| *moment);
    let pinned = selection.pin.map(|pin| pin.moment);
    let shown = moments().find(|moment| Some(*moment) == pinned).or_else(|| moments().next_back());
    let event = shown.and_then(|moment| moment.checked_sub(1)).map(EventId::from_index);
    let failure = event.and_then(|event| RequestFailure::of(&recording.trace, event));
    let Some((failure, moment)) = failure.zip(shown) else { return Vec::new() };
    let shades = Shades::in_ui(ui);
    let text = short_failure_text(&recording.trace, &failure);
    let title = match moments().count() {
        1 => "Out of memory".to_owned(),
        count => {
            let number = moments().take_while(|other| *other < moment).count() + 1;
            format!("Out of memory ({} of {})", format_count(number as u64), format_count(count as u64))
        }
    };
    let frame = Frame::new()
        .fill(shades.warning.gamma_multiply(0.1))
        .stroke(Stroke::new(1.0, shades.warning.gamma_multiply(0.5)))
        .corner_radius(4.0)
        .inner_margin(Margin::symmetric(8, 2));
    let mut actions = Vec::new();
    frame.show(ui, |ui| {
        ui.horizontal(|ui| {
            ui.label(RichText::new(title).strong().color(shades.warning));
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let tooltip = "Show the cause of the failure, and what would have prevented it.";
                if ui.button("Why it failed").on_hover_text(tooltip).clicked() {
                    actions = vec![Action::Moment(moment), Action::Oom];
                }
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                    let tooltip = format!("{text}\n{} goes to the next one.", keys::first(Command::NextOom));
                    ui.add(Label::new(&text).truncate()).on_hover_text(tooltip);
                });
            });
        });
    });
    actions
}
