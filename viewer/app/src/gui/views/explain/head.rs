//! The head of the explanation: size and moment of the peak, effect of the search conditions, and the grouping keys.

use eframe::egui::{Label, RichText, Role, Ui, WidgetInfo};
use highwater_analysis::{GroupKey, TreeKey};
use highwater_snapshots::units::format_bytes;

use super::MetricName;
use super::job::{Explained, Keys};
use crate::figures::moment::peak_name;
use crate::gui::legend::share;
use crate::gui::views::group_keys::group_keys;
use crate::gui::views::moment::key_ui;
use crate::gui::views::view::{Action, ViewContext};
use crate::gui::widgets::theme::Shades;
use crate::gui::widgets::words::{failed_requests, when};
use crate::session::Recording;

/// Shows the size and the moment of the peak.
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
        ui.label(RichText::new(name).size(18.0).strong());
        let when = if peak.is_state { String::new() } else { format!(", {}", when(peak)) };
        ui.weak(format!("{}{when}", peak.metric.words()));
        if can_click {
            let button = ui.small_button("Go there");
            button.widget_info(|| WidgetInfo::labeled(Role::Button, true, "Go to the explained peak"));
            if button.on_hover_text("Pin the moment of this peak, and show it in the timeline.").clicked() {
                action = Some(Action::Event(peak.number()));
            }
        }
        let chosen = context.selection.metric;
        if !chosen.is_of_blocks() {
            let (chosen, explained) = (chosen.words(), peak.metric.words());
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

/// Warns that requests failed on the device, so that the run may need more memory; with a link to the cause.
pub(super) fn failed_ui(ui: &mut Ui, explained: &Explained, can_click: bool) -> Option<Action> {
    let failed = explained.failed;
    if failed == 0 {
        return None;
    }
    let requests = failed_requests(failed);
    let mut action = None;
    ui.horizontal_wrapped(|ui| {
        let text = format!("Out of memory: {requests}, so the run may need more than was recorded.");
        ui.add(Label::new(RichText::new(text).color(Shades::in_ui(ui).warning)).wrap());
        if can_click {
            let button = ui.small_button("Show why it failed");
            let tooltip = "Show the failed request in Segments: its cause and possible fixes.";
            action = button.on_hover_text(tooltip).clicked().then_some(Action::Oom);
        }
    });
    action
}

/// Shows the effect of the search conditions on the peak, if there are any.
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
        let part = share(group.bytes_at_peak, peak.bytes);
        ui.label(format!("{bytes} of it ({part}) are in blocks that meet the conditions.{effect}"));
        if can_click {
            let button = ui.small_button("Go there");
            button.widget_info(|| WidgetInfo::labeled(Role::Button, true, "Go to the peak without such blocks"));
            if button.on_hover_text("Pin the moment of that peak.").clicked() {
                action = Some(Action::Event(group.without.number()));
            }
        }
    });
    action
}

/// Shows the choosers of the grouping keys.
pub(super) fn keys_ui(ui: &mut Ui, keys: &mut Keys, recording: &Recording) {
    ui.horizontal_wrapped(|ui| {
        ui.label("Groups");
        let all: Vec<GroupKey> = group_keys(recording.deepest_scope).collect();
        let mut first = Some(keys.first);
        chosen_ui(ui, ["by", "Explain by"], &mut first, all.iter().copied().map(Some), recording);
        keys.first = first.unwrap_or(keys.first);
        keys.second = keys.second.filter(|key| *key != keys.first);
        let others = all.iter().copied().filter(|key| *key != keys.first).map(Some);
        let others = std::iter::once(None).chain(others);
        chosen_ui(ui, ["then", "Explain also by"], &mut keys.second, others, recording);
    });
}

fn chosen_ui(
    ui: &mut Ui,
    words: [&str; 2],
    chosen: &mut Option<GroupKey>,
    keys: impl Iterator<Item = Option<GroupKey>>,
    recording: &Recording,
) {
    let keys: Vec<Option<TreeKey>> = keys.map(|key| key.map(TreeKey::By)).collect();
    let mut key = chosen.map(TreeKey::By);
    key_ui(ui, words, &mut key, &keys, &recording.absent);
    *chosen = match key {
        Some(TreeKey::By(key)) => Some(key),
        Some(TreeKey::Block) | None => None,
    };
}
