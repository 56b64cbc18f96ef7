//! The top of the explanation: the size and the moment of the peak, the effect of the search conditions, and the keys.

use eframe::egui::{Label, RichText, Ui};
use highwater_analysis::GroupKey;
use highwater_snapshots::{format_bytes, format_share};

use super::job::{Explained, Keys};
use crate::Recording;
use crate::figures::moment::{peak_name, total_name};
use crate::gui::views::group_keys::{self, absent_reason, group_keys};
use crate::gui::views::view::{Action, ViewContext};
use crate::gui::widgets::{Shades, failed_requests, labelled_button_ui, theme, when};

pub(super) fn head_ui(
    ui: &mut Ui,
    context: &ViewContext<'_>,
    explained: &Explained,
    is_busy: bool,
    can_click: bool,
) -> Option<Action> {
    let peak = &explained.explanation.peak;
    let mut action = None;
    ui.horizontal_wrapped(|ui| {
        let name = format!("{} {}", peak_name(peak), format_bytes(peak.bytes));
        ui.label(RichText::new(name).size(theme::ANSWER_SIZE).strong());
        let when = if peak.is_state { String::new() } else { format!(", {}", when(peak)) };
        let of_all = if context.recording.run.is_some() { " in the whole recording" } else { "" };
        ui.weak(format!("{}{of_all}{when}", total_name(peak.metric)));
        if can_click {
            let tooltip = "Pin the moment of this peak, and show it in the timeline.";
            if labelled_button_ui(ui, "Go there", "Go to the explained peak", tooltip) {
                action = Some(Action::Event(peak.number()));
            }
        }
        let chosen = context.selection.metric;
        if !chosen.is_of_blocks() {
            let (chosen, explained) = (total_name(chosen), total_name(peak.metric));
            ui.weak(format!("({chosen} is not a sum over blocks; the peak of {explained} is explained instead)"));
        }
        if let Some(text) = &explained.elsewhere {
            ui.weak(text);
        }
        if is_busy {
            ui.spinner();
            ui.weak("updating…");
        }
    });
    action
}

/// Warns that requests failed on the device, with a link to the analysis.
pub(super) fn failed_ui(ui: &mut Ui, explained: &Explained, can_click: bool) -> Option<Action> {
    let failed = explained.failed;
    if failed == 0 {
        return None;
    }
    let requests = failed_requests(failed);
    let mut action = None;
    ui.horizontal_wrapped(|ui| {
        let text = format!("Out of memory: {requests}, so the run may need more than was recorded.");
        ui.add(Label::new(RichText::new(text).color(Shades::in_ui(ui).failure())).wrap());
        if can_click {
            let button = ui.small_button("Show why it failed");
            let tooltip = "Show the failed request in Segments: its cause and possible fixes.";
            action = button.on_hover_text(tooltip).clicked().then_some(Action::Oom);
        }
    });
    action
}

pub(super) fn filtered_ui(ui: &mut Ui, explained: &Explained, can_click: bool) -> Option<Action> {
    let (peak, group) = (&explained.explanation.peak, explained.explanation.filtered.as_ref()?);
    let mut action = None;
    ui.horizontal_wrapped(|ui| {
        let [bytes, without, saved] =
            [group.bytes_at_peak, group.without.bytes, group.saved_bytes(peak)].map(format_bytes);
        let effect = match peak.is_state {
            true => String::new(),
            false => {
                let when = when(&group.without);
                format!(" Without all such blocks the peak would be {without}, {saved} less: {when}.")
            }
        };
        let part = format_share(group.bytes_at_peak, peak.bytes);
        ui.label(format!("Of the peak, {bytes} ({part}) are in blocks that meet the conditions.{effect}"));
        if can_click {
            let label = "Go to the peak without such blocks";
            if labelled_button_ui(ui, "Go there", label, "Pin the moment of that peak.") {
                action = Some(Action::Event(group.without.number()));
            }
        }
    });
    action
}

pub(super) fn keys_ui(ui: &mut Ui, keys: &mut Keys, recording: &Recording) {
    ui.horizontal_wrapped(|ui| {
        ui.label("Groups");
        let all: Vec<GroupKey> = group_keys(recording.deepest_scope).collect();
        let (labels, chosen) = (["Explain by", "Explain also by"], (&mut keys.first, &mut keys.second));
        group_keys::keys_ui(ui, labels, chosen, &all, |key| absent_reason(&recording.absent, key));
    });
}
