//! The menus, and the bar below them with device, total, colours, axis and search.

use std::path::PathBuf;
use std::sync::Arc;

use eframe::egui::{Button, Context, Id, Popup, ScrollArea, Ui};
use highwater_analysis::{Metric, TreeKey};

use crate::figures::moment::total_name;
use crate::files::file_name;
use crate::gui::filter::search::{Search, SearchPlace};
use crate::gui::views::group_keys::{absent_reason, group_keys, key_label};
use crate::gui::views::timeline::Stacking;
use crate::gui::widgets::{ChoiceEntry, choice_ui, keys, theme};
use crate::gui::window::settings::Settings;
use crate::gui::window::tabs::{Tab, distinct_names};
use crate::{Axis, ColourBy, Command, NO_TIMES, Recording, Selection};

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
                    C::ShowKept,
                    C::ShowSegments,
                    C::ShowEvents,
                    C::ShowExplain,
                    C::ShowWhatIf,
                    C::ShowPlan,
                ],
                &[C::NextLook, C::NextKey, C::ToggleSide],
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
                    C::ColourByPool,
                ],
                &[C::DeeperScope, C::ShallowerScope, C::ToggleStacking],
            ],
        ),
        (
            "Go",
            &[
                &[C::Undo, C::Redo],
                &[C::GoToPeak, C::PreviousPeak, C::NextPeak, C::PreviousOom, C::NextOom],
                &[
                    C::PreviousStep,
                    C::NextStep,
                    C::GoToStep,
                    C::PreviousPart,
                    C::NextPart,
                    C::PreviousEvent,
                    C::NextEvent,
                ],
                &[C::PanLeft, C::PanRight, C::PanUp, C::PanDown],
                &[C::LargestBlock, C::BlockAbove, C::BlockBelow, C::ZoomToBlock, C::Unpin],
            ],
        ),
        ("Find", &[&[C::Search, C::ClearSearch, C::ToggleHide], &[C::MarkA, C::MarkB, C::ShowRange, C::Unmark]]),
        ("Help", &[&[C::Palette, C::ShowKeys], &[C::About]]),
    ]
};

pub(crate) enum Picked {
    Command(Command),
    File(PathBuf),
}

/// Shows the menus. Returns the selection. `recent` files are in the first menu.
pub(crate) fn menus_ui(ui: &mut Ui, recent: &[PathBuf], is_usable: impl Fn(Command) -> bool) -> Option<Picked> {
    let mut chosen = None;
    let opened: Option<usize> = ui.data_mut(|data| data.remove_temp(key_menu()));
    let wants_focus = Id::unique("a menu is opened by a key");
    for (row, (name, groups)) in MENUS.into_iter().enumerate() {
        let most = ui.ctx().content_rect().height() - theme::MENU_MARGIN;
        let commands_ui = |ui: &mut Ui| {
            ui.set_min_width(230.0);
            let mut is_first = true;
            for group in groups {
                let offered: Vec<Command> = group.iter().copied().filter(|command| command.is_offered()).collect();
                if !offered.is_empty() && !std::mem::take(&mut is_first) {
                    ui.separator();
                }
                for command in offered {
                    let key = keys::first(command);
                    let button = Button::new(command.name()).shortcut_text(key);
                    let response = ui.add_enabled(is_usable(command), button).on_hover_text(command.tooltip());
                    if response.enabled() && ui.data_mut(|data| data.remove_temp::<()>(wants_focus)).is_some() {
                        response.request_focus();
                    }
                    if response.clicked() {
                        chosen = Some(Picked::Command(command));
                        ui.close();
                    }
                    if command == Command::OpenFolder
                        && let Some(path) = recent_ui(ui, recent)
                    {
                        chosen = Some(Picked::File(path));
                        ui.close();
                    }
                }
            }
        };
        // In a low window the menu scrolls.
        let menu = ui.menu_button(name, |ui| {
            ScrollArea::vertical().max_height(most).min_scrolled_height(most).show(ui, commands_ui)
        });
        keys::note_menu(ui.ctx(), row, menu.inner.is_some());
        if opened == Some(row) {
            Popup::open_id(ui.ctx(), Popup::default_response_id(&menu.response));
            ui.data_mut(|data| data.insert_temp(wants_focus, ()));
            ui.ctx().request_repaint();
        }
    }
    chosen
}

/// Handles a key that opens a menu. Must be called before the keys of commands are handled, since shortcuts without Alt
/// would match too.
pub(crate) fn take_menu_key(ctx: &Context) {
    if let Some(row) = keys::opened_menu(ctx, &MENUS.map(|(name, _)| name)) {
        ctx.data_mut(|data| data.insert_temp(key_menu(), row));
    }
}

fn key_menu() -> Id {
    Id::unique("the menu that a key opens")
}

/// Draws the menu of recent files. Returns the file chosen in this frame, if any.
fn recent_ui(ui: &mut Ui, recent: &[PathBuf]) -> Option<PathBuf> {
    let tab = |path: &PathBuf| {
        let name = file_name(path);
        Tab { name, path: Some(path.clone()) }
    };
    let names = distinct_names(&recent.iter().map(tab).collect::<Vec<_>>());
    let mut chosen = None;
    ui.add_enabled_ui(!recent.is_empty(), |ui| {
        ui.menu_button("Recent files", |ui| {
            for (path, name) in recent.iter().zip(&names) {
                if ui.button(name).on_hover_text(path.display().to_string()).clicked() {
                    chosen = Some(path.clone());
                }
            }
        });
    });
    chosen
}

/// Shows the tool bar. Its search counts blocks at the moment after `position` events. Returns a clicked command.
pub(crate) fn tools_ui(
    ui: &mut Ui,
    (recording, selection, search): (&Arc<Recording>, &mut Selection, &mut Search),
    settings: &mut Settings,
    position: usize,
) -> Option<Command> {
    let mut chosen = None;
    // In a narrow window, the names of lists are in their tooltips, so that everything fits into one line.
    let is_narrow = ui.available_width() < theme::NARROW_WINDOW;
    // In an upright window, as on a phone, one line does not have enough room.
    let is_upright = ui.available_width() < theme::UPRIGHT_WINDOW;
    let tools = |ui: &mut Ui| {
        let has_events = !recording.trace.is_state();
        for command in [Command::GoToPeak, Command::FitAll].into_iter().filter(|_| has_events) {
            let key = keys::first(command);
            let name = if command == Command::GoToPeak { "Peak" } else { "Everything" };
            let button = ui.add(Button::new(name).shortcut_text(key)).on_hover_text(command.tooltip());
            chosen = Some(command).filter(|_| button.clicked()).or(chosen);
        }
        if has_events {
            ui.separator();
        }
        if recording.devices.len() > 1 {
            let name = |row: &usize| recording.device_label(*row);
            let rows: Vec<usize> = (0..recording.devices.len()).collect();
            if let Some(row) = named_ui(ui, ("Device", is_narrow), &selection.device, &rows, name) {
                selection.set_device(recording, row);
            }
        }
        let metrics = metrics_of(recording, selection.device);
        let name = |metric: &Metric| total_name(*metric);
        if let Some(metric) = named_ui(ui, ("Total", is_narrow), &selection.metric, &metrics, name) {
            selection.set_metric(recording, metric);
        }
        let colours: Vec<ColourBy> = group_keys(recording.deepest_scope).map(ColourBy).collect();
        let entry = |by: &ColourBy| {
            let key = TreeKey::By(by.0);
            ChoiceEntry { name: key_label(key), problem: absent_reason(&recording.absent, key) }
        };
        if let Some(by) = named_ui(ui, ("Colour by", is_narrow), &settings.paint.colour_by, &colours, entry) {
            settings.paint.colour_by = by;
        }
        if has_events {
            let name = |stacking: &Stacking| if *stacking == Stacking::Age { "age" } else { "colour" }.to_owned();
            let all = [Stacking::Age, Stacking::Colour];
            if let Some(next) = named_ui(ui, ("Stack by", is_narrow), &settings.paint.stacking, &all, name) {
                settings.paint.stacking = next;
            }
            if !is_narrow {
                ui.label("Across");
            }
        }
        let axes = [(Axis::Event, "events"), (Axis::Time, "time")];
        for (axis, name) in axes.into_iter().filter(|_| has_events) {
            let is_there = axis == Axis::Event || recording.trace.has_times();
            let button = Button::selectable(selection.axis() == axis, name);
            let response = ui.add_enabled(is_there, button).on_disabled_hover_text(NO_TIMES);
            if response.on_hover_text(Command::ToggleAxis.tooltip()).clicked() {
                selection.set_axis(recording, axis);
            }
        }
        let at = SearchPlace { device: selection.device, metric: selection.metric, position };
        if let Some(text) = search.search_ui(ui, recording, Some(at), &mut settings.paint.is_hiding) {
            search.set(ui.ctx(), recording, &text);
        }
    };
    if is_upright {
        ui.horizontal_wrapped(tools)
    } else {
        ui.horizontal(tools)
    };
    chosen
}

/// Shows a list after its name. If there is little space, the name is in the tooltip.
fn named_ui<T: Clone + PartialEq, E: Into<ChoiceEntry>>(
    ui: &mut Ui,
    (name, is_narrow): (&str, bool),
    now: &T,
    all: &[T],
    entry: impl Fn(&T) -> E,
) -> Option<T> {
    if !is_narrow {
        ui.label(name);
    }
    choice_ui(ui, name, now, all, entry)
}

pub(crate) fn metrics_of(recording: &Recording, device: usize) -> Vec<Metric> {
    recording.devices[device].summary.peaks.iter().map(|peak| peak.metric).collect()
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
