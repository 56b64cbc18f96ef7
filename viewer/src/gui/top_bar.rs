//! TopBar: menus, and below them what is shown and how: device, total, colours, axis, filter.

use std::sync::Arc;

use eframe::egui::{Button, ComboBox, Role, Ui, WidgetInfo};
use highwater_snapshots::analysis::Metric;

use super::colouring::ColourBy;
use super::keys;
use super::search::Search;
use super::timeline::Stacking;
use crate::command::Command;
use crate::selection::{Axis, Selection};
use crate::session::Recording;

/// The menus: what each is called, and its commands in groups.
const MENUS: [(&str, &[&[Command]]); 6] = {
    use Command as C;
    [
        (
            "File",
            &[
                &[C::Open, C::OpenFolder, C::Reload, C::ToggleFollow, C::Close],
                &[C::ShowRanks, C::NextFile, C::PreviousFile, C::Compare],
                &[C::SavePicture, C::Screenshot, C::CopyTable, C::SaveTable, C::SaveBelow],
                &[C::Quit],
            ],
        ),
        (
            "View",
            &[
                &[
                    C::ShowMoment,
                    C::ShowBlock,
                    C::ShowStatistics,
                    C::ShowSegments,
                    C::ShowEvents,
                    C::ShowExplain,
                    C::ShowWhatIf,
                ],
                &[C::NextLook, C::NextKey],
                &[C::FitAll, C::ZoomIn, C::ZoomOut, C::ZoomInBytes, C::ZoomOutBytes, C::ToggleFit],
                &[C::ToggleAxis, C::NextMetric, C::NextDevice, C::ToggleLines],
                &[C::ToggleTheme, C::ToggleContrast, C::ScaleUp, C::ScaleDown, C::ScaleReset],
            ],
        ),
        (
            "Colour",
            &[
                &[
                    C::ColourByCategory,
                    C::ColourByScope,
                    C::ColourByOp,
                    C::ColourByCallSite,
                    C::ColourByLifetime,
                    C::ColourByStream,
                ],
                &[C::DeeperScope, C::ShallowerScope, C::ToggleStacking],
            ],
        ),
        (
            "Go",
            &[
                &[C::Undo, C::Redo],
                &[C::GoToPeak, C::PreviousPeak, C::NextPeak, C::PreviousOom, C::NextOom],
                &[C::PreviousStep, C::NextStep, C::PreviousEvent, C::NextEvent],
                &[C::PanLeft, C::PanRight, C::PanUp, C::PanDown],
                &[C::LargestBlock, C::BlockAbove, C::BlockBelow, C::ZoomToBlock, C::Unpin],
            ],
        ),
        ("Find", &[&[C::Search, C::ClearSearch, C::ToggleHide], &[C::MarkA, C::MarkB, C::ShowRange, C::Unmark]]),
        ("Help", &[&[C::Palette]]),
    ]
};

/// Shows the menus; gives the command that was chosen.
pub fn menus_ui(ui: &mut Ui, is_usable: impl Fn(Command) -> bool) -> Option<Command> {
    let mut chosen = None;
    for (name, groups) in MENUS {
        ui.menu_button(name, |ui| {
            ui.set_min_width(230.0);
            for (row, group) in groups.iter().enumerate() {
                if row > 0 {
                    ui.separator();
                }
                for &command in *group {
                    let key = command.keys().first().copied().map(keys::shown).unwrap_or_default();
                    let button = Button::new(command.name()).shortcut_text(key);
                    let response = ui.add_enabled(is_usable(command), button).on_hover_text(command.tooltip());
                    if response.clicked() {
                        chosen = Some(command);
                        ui.close();
                    }
                }
            }
        });
    }
    chosen
}

/// What the user changed in the tool bar.
pub enum Change {
    /// Another device, by row.
    Device(usize),
    /// Another total.
    Metric(Metric),
    /// Other colours.
    ColourBy(ColourBy),
    /// Another order of the stack.
    Stacking(Stacking),
    /// Another axis.
    Axis(Axis),
    /// Other conditions.
    Search(String),
    /// A command.
    Run(Command),
}

/// What the tool bar shows.
pub struct Shown<'a> {
    /// The recording.
    pub recording: &'a Arc<Recording>,
    /// What is looked at.
    pub selection: &'a Selection,
    /// What colours mean.
    pub colour_by: ColourBy,
    /// The order of the stack.
    pub stacking: Stacking,
    /// The box of conditions.
    pub search: &'a mut Search,
    /// Whether blocks that do not meet them are hidden.
    pub is_hiding: &'a mut bool,
}

/// Shows the tool bar; gives what was changed.
pub fn tools_ui(ui: &mut Ui, shown: &mut Shown<'_>) -> Option<Change> {
    let mut change = None;
    let recording = shown.recording;
    let mut offer = |next: Change| change = Some(next);
    ui.horizontal_wrapped(|ui| {
        for command in [Command::GoToPeak, Command::FitAll] {
            let key = keys::shown(command.keys()[0]);
            let name = if command == Command::GoToPeak { "Peak" } else { "Everything" };
            let button = ui.add(Button::new(name).shortcut_text(key)).on_hover_text(command.tooltip());
            if button.clicked() {
                offer(Change::Run(command));
            }
        }
        ui.separator();
        if recording.devices.len() > 1 {
            let name = |row: usize| recording.device_label(row);
            let rows: Vec<usize> = (0..recording.devices.len()).collect();
            if let Some(row) = choice_ui(ui, "Device", shown.selection.device, &rows, name) {
                offer(Change::Device(row));
            }
        }
        let metrics = metrics_of(recording, shown.selection.device);
        let name = |metric: Metric| metric.name().replace('_', " ");
        if let Some(metric) = choice_ui(ui, "Total", shown.selection.metric, &metrics, name) {
            offer(Change::Metric(metric));
        }
        if let Some(by) = choice_ui(ui, "Colour by", shown.colour_by, &colourings_of(recording), ColourBy::label) {
            offer(Change::ColourBy(by));
        }
        let name = |stacking: Stacking| if stacking == Stacking::Age { "age" } else { "colour" }.to_owned();
        if let Some(next) = choice_ui(ui, "Stack by", shown.stacking, &[Stacking::Age, Stacking::Colour], name) {
            offer(Change::Stacking(next));
        }
        ui.label("Across");
        for (axis, name) in [(Axis::Event, "events"), (Axis::Time, "time")] {
            let response = ui.selectable_label(shown.selection.axis() == axis, name);
            if response.on_hover_text(Command::ToggleAxis.tooltip()).clicked() {
                offer(Change::Axis(axis));
            }
        }
        ui.separator();
        if let Some(text) = shown.search.search_ui(ui, recording, shown.is_hiding) {
            offer(Change::Search(text));
        }
    });
    change
}

/// The totals that a device has.
pub fn metrics_of(recording: &Recording, device: usize) -> Vec<Metric> {
    recording.devices[device].summary.peaks.iter().map(|peak| peak.metric).collect()
}

/// What a recording's blocks can be coloured by.
fn colourings_of(recording: &Recording) -> Vec<ColourBy> {
    let scopes = (1..=recording.deepest_scope).map(ColourBy::Scope);
    let rest = [ColourBy::Op, ColourBy::CallSite, ColourBy::Lifetime, ColourBy::Stream];
    std::iter::once(ColourBy::Category).chain(scopes).chain(rest).collect()
}

/// A named list of which one is chosen; gives another one when the user takes it.
fn choice_ui<T: Copy + PartialEq>(
    ui: &mut Ui,
    name: &str,
    now: T,
    all: &[T],
    label: impl Fn(T) -> String,
) -> Option<T> {
    let mut next = now;
    ui.label(name);
    let list = ComboBox::from_id_salt(name).selected_text(label(now)).width(0.0);
    let shown = list.show_ui(ui, |ui| {
        for &value in all {
            ui.selectable_value(&mut next, value, label(value));
        }
    });
    let described = format!("{name} {}", label(now));
    shown.response.widget_info(|| WidgetInfo::labeled(Role::ComboBox, true, &described));
    (next != now).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_one_place_in_the_menus() {
        for &command in Command::ALL {
            let places = MENUS.iter().flat_map(|(_, groups)| groups.iter().flat_map(|group| group.iter()));
            assert_eq!(places.filter(|other| **other == command).count(), 1, "{}", command.name());
        }
    }
}
