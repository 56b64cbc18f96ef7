//! A line above the timeline that reports a problem of the run: a failed request, or a leak.

use eframe::egui::{Align, Frame, Label, Layout, Margin, RichText, Stroke, Ui};
use highwater_snapshots::{EventId, format_bytes, format_count};

use super::view::Action;
use crate::answers::request_failure::RequestFailure;
use crate::figures::leaks::leak_lines;
use crate::figures::requests::short_failure_text;
use crate::gui::widgets::{Shades, keys};
use crate::{Command, Recording, Selection};

/// The text of the line, and its button.
struct Banner<'a> {
    title: &'a str,
    text: &'a str,
    /// Text appended in the tooltip.
    hint: &'a str,
    /// The button's name and tooltip.
    button: (&'a str, &'a str),
}

impl Banner<'_> {
    /// Shows the line. Returns whether the button was clicked.
    fn banner_ui(&self, ui: &mut Ui) -> bool {
        let shades = Shades::in_ui(ui);
        let frame = Frame::new()
            .fill(shades.warning.gamma_multiply(0.1))
            .stroke(Stroke::new(1.0, shades.warning.gamma_multiply(0.5)))
            .corner_radius(4.0)
            .inner_margin(Margin::symmetric(8, 2));
        let line_ui = |ui: &mut Ui| {
            ui.label(RichText::new(self.title).strong().color(shades.warning));
            let rest = ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let (name, tooltip) = self.button;
                let is_clicked = ui.button(name).on_hover_text(tooltip).clicked();
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                    let tooltip = [self.text, self.hint].join("\n");
                    ui.add(Label::new(self.text).truncate()).on_hover_text(tooltip.trim_end());
                });
                is_clicked
            });
            rest.inner
        };
        frame.show(ui, |ui| ui.horizontal(line_ui).inner).inner
    }
}

/// Shows the failed request at the pinned moment, else the last one of the selected device; nothing if none failed.
/// Returns the action of a click.
pub(crate) fn failed_request_ui(ui: &mut Ui, recording: &Recording, selection: &Selection) -> Vec<Action> {
    let device = recording.devices[selection.device].device;
    let moments = || recording.regions.ooms.iter().filter(|(of, _)| *of == device).map(|(_, moment)| *moment);
    let pinned = selection.pin.map(|pin| pin.moment);
    let shown = moments().find(|moment| Some(*moment) == pinned).or_else(|| moments().next_back());
    let event = shown.and_then(|moment| moment.checked_sub(1)).map(EventId::from_index);
    let failure = event.and_then(|event| RequestFailure::of(&recording.trace, event));
    let Some((failure, moment)) = failure.zip(shown) else { return Vec::new() };
    let totals = recording.devices[selection.device].series.before_position(&recording.trace, moment);
    let text = short_failure_text(&recording.trace, &failure, totals.reserved.saturating_sub(totals.active));
    let title = match moments().count() {
        1 => "Out of memory".to_owned(),
        count => {
            let number = moments().take_while(|other| *other < moment).count() + 1;
            format!("Out of memory ({} of {})", format_count(number as u64), format_count(count as u64))
        }
    };
    let hint = format!("{} goes to the next one.", keys::first(Command::NextOom));
    let button = ("Why it failed", "Show the cause of the failure, and what would have prevented it.");
    let is_clicked = Banner { title: &title, text: &text, hint: &hint, button }.banner_ui(ui);
    if is_clicked { vec![Action::Moment(moment), Action::Oom] } else { Vec::new() }
}

/// Shows the leaks of the selected device, once they are computed; nothing if there are none, or if a request failed,
/// which has its own line. Returns the action of a click.
pub(crate) fn leaks_ui(ui: &mut Ui, recording: &Recording, selection: &Selection) -> Option<Action> {
    let index = &recording.devices[selection.device];
    let leaks = index.known_leaks().filter(|_| recording.regions.ooms.iter().all(|(of, _)| *of != index.device))?;
    let lines = leak_lines(&leaks.lines, "step");
    let (first, others) = lines.split_first()?;
    let kept = format_bytes(leaks.lines[0].kept.bytes);
    let more = if others.is_empty() { String::new() } else { format!(" · {}", others.join(" · ")) };
    let text = format!("{first}; {kept} are still live at the end{more}");
    let button = ("Show leaks", "Show the lines that keep memory from step to step, in Statistics.");
    Banner { title: "Leak", text: &text, hint: "", button }.banner_ui(ui).then_some(Action::Leaks)
}
