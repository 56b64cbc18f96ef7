//! Head: how high the peak is and when, what the conditions leave of it, and by what groups are told apart.

use eframe::egui::{ComboBox, RichText, Role, Ui, WidgetInfo};
use highwater_snapshots::analysis::{GroupKey, TreeKey};
use highwater_snapshots::units::format_bytes;

use super::MetricName;
use super::job::{Explained, Keys};
use crate::gui::legend::share;
use crate::gui::moment::key_label;
use crate::gui::scene::{Scene, Wish};
use crate::gui::words::when;

/// Shows how high the peak is, and when.
pub(super) fn head_ui(
    ui: &mut Ui,
    scene: &Scene<'_>,
    explained: &Explained,
    is_busy: bool,
    can_click: bool,
) -> Option<Wish> {
    let peak = &explained.explanation.peak;
    let mut wish = None;
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new(format!("Peak {}", format_bytes(peak.bytes))).size(18.0).strong());
        ui.weak(format!("{}, {}", peak.metric.words(), when(peak)));
        if can_click {
            let button = ui.small_button("Go there");
            button.widget_info(|| WidgetInfo::labeled(Role::Button, true, "Go to the explained peak"));
            if button.on_hover_text("Pin the moment of this peak, and show it in the timeline.").clicked() {
                wish = Some(Wish::Moment(peak.position()));
            }
        }
        let chosen = scene.selection.metric;
        if !chosen.is_of_blocks() {
            let (chosen, explained) = (chosen.words(), peak.metric.words());
            ui.weak(format!("({chosen} is no sum over blocks: the peak of {explained} is explained)"));
        }
        if is_busy {
            ui.spinner();
            ui.weak("working it out anew");
        }
    });
    wish
}

/// Shows what the conditions leave of the peak, where there are any.
pub(super) fn filtered_ui(ui: &mut Ui, explained: &Explained, can_click: bool) -> Option<Wish> {
    let (peak, group) = (&explained.explanation.peak, explained.explanation.filtered.as_ref()?);
    let mut wish = None;
    ui.horizontal_wrapped(|ui| {
        ui.label(format!(
            "{} of it ({}) are in blocks that meet the conditions. Without all such blocks the peak would be {}, {} less: \
             {}.",
            format_bytes(group.bytes_at_peak),
            share(group.bytes_at_peak, peak.bytes),
            format_bytes(group.without.bytes),
            format_bytes(group.saved_bytes(peak)),
            when(&group.without),
        ));
        if can_click {
            let button = ui.small_button("Go there");
            button.widget_info(|| WidgetInfo::labeled(Role::Button, true, "Go to the peak without such blocks"));
            if button.on_hover_text("Pin the moment at which the peak would be then.").clicked() {
                wish = Some(Wish::Moment(group.without.position()));
            }
        }
    });
    wish
}

/// Lets the user choose by what groups are told apart.
pub(super) fn keys_ui(ui: &mut Ui, keys: &mut Keys) {
    ui.horizontal_wrapped(|ui| {
        ui.label("Groups");
        let mut first = Some(keys.first);
        key_ui(ui, ("by", "Explain by"), &mut first, &GroupKey::ALL.iter().copied().map(Some).collect::<Vec<_>>());
        keys.first = first.unwrap_or(keys.first);
        let others = GroupKey::ALL.iter().copied().filter(|key| *key != keys.first).map(Some);
        let others: Vec<Option<GroupKey>> = std::iter::once(None).chain(others).collect();
        keys.second = keys.second.filter(|key| *key != keys.first);
        key_ui(ui, ("and", "Explain also by"), &mut keys.second, &others);
    });
}

fn key_ui(ui: &mut Ui, (word, label): (&str, &str), chosen: &mut Option<GroupKey>, keys: &[Option<GroupKey>]) {
    let name = |key: Option<GroupKey>| key.map_or("nothing else", |key| key_label(TreeKey::By(key)));
    let now = name(*chosen);
    let shown = ComboBox::from_id_salt(label).selected_text(format!("{word} {now}")).height(400.0).show_ui(ui, |ui| {
        for &key in keys {
            ui.selectable_value(chosen, key, name(key));
        }
    });
    shown.response.widget_info(|| WidgetInfo::labeled(Role::ComboBox, true, format!("{label} {now}")));
}
