//! The tabs of open files, with distinct names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use eframe::egui::{
    Button, Color32, CornerRadius, Frame, Id, Margin, Response, RichText, Role, ScrollArea, Stroke, TextStyle, Ui,
    WidgetInfo,
};

use crate::gui::widgets::{Shades, fitted};

/// Maximum width of a name in points; a longer name is shortened in the middle.
const MAX_NAME: f32 = 260.0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tab {
    pub name: String,
    /// The path of the file; `None` if the recording has no file.
    pub path: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TabAction {
    Show(usize),
    Close(usize),
}

/// A function that creates the action on the tab with an index.
type Request = fn(usize) -> TabAction;

/// Shows the tabs in one row, which can be scrolled if there are many.
pub(crate) fn tabs_ui(ui: &mut Ui, tabs: &[Tab], front: usize) -> Option<TabAction> {
    let mut action = None;
    let names = distinct_names(tabs);
    let former = ui.data(|data| data.get_temp::<usize>(Id::unique("front tab")));
    ScrollArea::horizontal().id_salt("tabs").auto_shrink([false, true]).show(ui, |ui| {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 2.0;
            for (row, (tab, name)) in tabs.iter().zip(&names).enumerate() {
                let is_front = row == front;
                let full = tab.path.as_deref().map_or_else(|| tab.name.clone(), |path| path.display().to_string());
                let (response, asked) = tab_ui(ui, name, is_front, &full);
                action = asked.map(|asked| asked(row)).or(action);
                if is_front && former != Some(front) {
                    response.scroll_to_me(None);
                }
            }
        });
    });
    ui.data_mut(|data| data.insert_temp(Id::unique("front tab"), front));
    action
}

/// Shows a tab with its close button; the current tab is underlined. Returns the action that a click requests.
fn tab_ui(ui: &mut Ui, name: &str, is_front: bool, full: &str) -> (Response, Option<Request>) {
    let shades = Shades::in_ui(ui);
    let fill = if is_front { shades.grid } else { Color32::TRANSPARENT };
    let frame = Frame::new().fill(fill).corner_radius(CornerRadius { sw: 0, se: 0, ..CornerRadius::same(4) });
    let shown = frame.inner_margin(Margin { left: 10, right: 4, top: 2, bottom: 2 }).show(ui, |ui| {
        let short = fitted(ui, name, &TextStyle::Button.resolve(ui.style()), MAX_NAME).unwrap_or_default();
        let text = RichText::new(short).color(if is_front { shades.strong } else { shades.faint });
        let tab = ui.add(Button::new(text).frame_when_inactive(false));
        tab.widget_info(|| WidgetInfo::selected(Role::Tab, true, is_front, name));
        let close = ui.add(Button::new(RichText::new("×").color(shades.faint).size(15.0)).frame_when_inactive(false));
        close.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Close {name}")));
        let closes = close.on_hover_text(format!("Close {name}")).clicked() || tab.middle_clicked();
        let shows = tab.clicked().then_some(TabAction::Show as Request);
        (tab.on_hover_text(full), closes.then_some(TabAction::Close as Request).or(shows))
    });
    if is_front {
        let place = shown.response.rect;
        ui.painter().hline(place.x_range(), place.bottom(), Stroke::new(2.0, ui.visuals().hyperlink_color));
    }
    shown.inner
}

/// Returns the name of each tab. Equal names are preceded by as many folders as are needed to distinguish them, or
/// followed by a number.
pub(crate) fn distinct_names(tabs: &[Tab]) -> Vec<String> {
    let mut names: Vec<String> = tabs.iter().map(|tab| tab.name.clone()).collect();
    let deepest = tabs.iter().filter_map(|tab| Some(tab.path.as_deref()?.components().count())).max().unwrap_or(0);
    for folders in 1..deepest {
        let shared = counts(&names);
        let mut is_done = true;
        for (name, tab) in names.iter_mut().zip(tabs) {
            if shared.get(name.as_str()).is_some_and(|count| *count > 1)
                && let Some(path) = &tab.path
            {
                *name = last_parts(path, folders + 1).unwrap_or_else(|| name.clone());
                is_done = false;
            }
        }
        if is_done {
            break;
        }
    }
    let shared = counts(&names);
    let mut seen: HashMap<String, usize> = HashMap::new();
    for name in &mut names {
        let number = seen.entry(name.clone()).and_modify(|number| *number += 1).or_insert(1);
        if shared.get(name.as_str()).is_some_and(|count| *count > 1) {
            *name = format!("{name} ({number})");
        }
    }
    names
}

fn counts(names: &[String]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name.clone()).or_insert(0) += 1;
    }
    counts
}

/// Returns the last `count` components of a path; `None` if it has fewer.
fn last_parts(path: &Path, count: usize) -> Option<String> {
    let parts: Vec<_> = path.components().collect();
    let last = parts.get(parts.len().checked_sub(count)?..)?;
    Some(last.iter().collect::<PathBuf>().display().to_string())
}

#[cfg(test)]
mod tests {
    use eframe::egui::accesskit::Toggled;
    use eframe::egui::{PointerButton, Vec2};
    use egui_kittest::Harness;
    use egui_kittest::kittest::{NodeT as _, Queryable as _};

    use super::*;

    fn tab(path: &str) -> Tab {
        let path = PathBuf::from(path);
        Tab { name: path.file_name().unwrap().to_string_lossy().into_owned(), path: Some(path) }
    }

    #[test]
    fn equal_names_are_distinguished_by_as_few_folders_as_suffice() {
        let tabs = [tab("/a/x/step.snap"), tab("/b/x/step.snap"), tab("/b/y/step.snap"), tab("/c/other.snap")];
        let expected = ["a/x/step.snap", "b/x/step.snap", "y/step.snap", "other.snap"];
        assert_eq!(distinct_names(&tabs), expected.map(|name| name.replace('/', std::path::MAIN_SEPARATOR_STR)));
        let same = Tab { name: "made".to_owned(), path: None };
        assert_eq!(distinct_names(&[same.clone(), same]), ["made (1)", "made (2)"]);
    }

    #[test]
    fn a_click_shows_and_the_cross_or_the_middle_button_closes() {
        let tabs: Vec<Tab> = (0..3).map(|n| tab(&format!("/runs/{n}/rank{n}.snap"))).collect();
        let actions = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let heard = std::rc::Rc::clone(&actions);
        let mut harness = Harness::builder()
            .with_size(Vec2::new(400.0, 40.0))
            .build_ui(move |ui| heard.borrow_mut().extend(tabs_ui(ui, &tabs, 1)));
        assert!(
            harness.get_by_role_and_label(Role::Tab, "rank1.snap").accesskit_node().toggled() == Some(Toggled::True)
        );
        harness.get_by_role_and_label(Role::Tab, "rank2.snap").click();
        harness.run_steps(2);
        harness.get_by_label("Close rank0.snap").click();
        harness.run_steps(2);
        harness.get_by_role_and_label(Role::Tab, "rank1.snap").click_button(PointerButton::Middle);
        harness.run_steps(2);
        assert_eq!(*actions.borrow(), [TabAction::Show(2), TabAction::Close(0), TabAction::Close(1)]);
    }
}
