//! The line above a timeline whose recording has a failed request: what was asked for, where, and what was free.

use eframe::egui::Ui;
use highwater_snapshots::EventId;
use highwater_snapshots::units::format_count;

use super::view::Action;
use crate::answers::request_failure::RequestFailure;
use crate::command::Command;
use crate::figures::requests::short_failure_text;
use crate::gui::widgets::banner::Banner;
use crate::gui::widgets::keys;
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
