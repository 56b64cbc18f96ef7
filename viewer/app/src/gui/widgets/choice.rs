//! Drop-down lists. Entries that do not apply to a recording are disabled, and show the reason.

use eframe::egui::{Button, ComboBox, Role, TextStyle, Ui, WidgetInfo};

use crate::gui::widgets::fit::fitted;

/// Maximum width of the name of the selected entry, in points. Longer names are shortened in the middle.
const MAX_NAME: f32 = 170.0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChoiceEntry {
    pub name: String,
    /// The reason that the entry is disabled; `None` if it can be selected.
    pub problem: Option<&'static str>,
}

impl From<String> for ChoiceEntry {
    fn from(name: String) -> Self {
        Self { name, problem: None }
    }
}

/// Shows the entries of an open list and stores the user's selection in `chosen`.
pub(crate) fn entries_ui<T: Clone + PartialEq, E: Into<ChoiceEntry>>(
    ui: &mut Ui,
    chosen: &mut T,
    all: &[T],
    entry: impl Fn(&T) -> E,
) {
    for value in all {
        let ChoiceEntry { name, problem } = entry(value).into();
        let response = ui.add_enabled(problem.is_none(), Button::selectable(chosen == value, name));
        if response.clicked() {
            *chosen = value.clone();
        }
        if let Some(problem) = problem {
            response.on_disabled_hover_text(problem);
        }
    }
}

/// Shows a list with the accessibility label `label`. Returns the selected entry after a change.
pub(crate) fn choice_ui<T: Clone + PartialEq, E: Into<ChoiceEntry>>(
    ui: &mut Ui,
    label: &str,
    now: &T,
    all: &[T],
    entry: impl Fn(&T) -> E,
) -> Option<T> {
    let mut next = now.clone();
    let name = entry(now).into().name;
    let font = TextStyle::Button.resolve(ui.style());
    let fits = fitted(ui, &name, &font, MAX_NAME).unwrap_or_default();
    let list = ComboBox::from_id_salt(label).selected_text(&*fits).width(0.0).height(400.0);
    let shown = list.show_ui(ui, |ui| entries_ui(ui, &mut next, all, &entry));
    shown.response.widget_info(|| WidgetInfo::labeled(Role::ComboBox, true, format!("{label} {name}")));
    if shown.inner.is_none() {
        shown.response.on_hover_text(format!("{label}: {name}"));
    }
    (next != *now).then_some(next)
}

/// Shows a button with a menu of values for the field `name`, each with a description. Returns the selected value.
pub(crate) fn value_menu_ui(ui: &mut Ui, name: &str, values: &[(&'static str, &'static str)]) -> Option<&'static str> {
    let mut chosen = None;
    let menu = ui.menu_button("Choose", |ui| {
        for (value, about) in values {
            if ui.button(*value).on_hover_text(*about).clicked() {
                chosen = Some(*value);
                ui.close();
            }
        }
    });
    let is_usable = ui.is_enabled();
    menu.response.widget_info(|| WidgetInfo::labeled(Role::Button, is_usable, format!("Choose: {name}")));
    chosen
}

pub(crate) fn tabs_ui<T: Copy + PartialEq>(
    ui: &mut Ui,
    all: &[T],
    front: Option<T>,
    name: impl Fn(T) -> &'static str,
    tooltip: impl Fn(T) -> &'static str,
) -> Option<T> {
    let mut chosen = None;
    ui.horizontal(|ui| {
        for &view in all {
            if ui.selectable_label(front == Some(view), name(view)).on_hover_text(tooltip(view)).clicked() {
                chosen = Some(view);
            }
        }
    });
    chosen
}

/// The element of `all` after `now`, wrapping around.
pub(crate) fn next_of<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let row = all.iter().position(|other| *other == now).map_or(0, |row| (row + 1) % all.len().max(1));
    all.get(row).copied().unwrap_or(now)
}
