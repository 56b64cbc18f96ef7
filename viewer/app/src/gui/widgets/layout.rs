//! Lays out a view in the available space. A view that needs more space scrolls.

use std::fmt;
use std::hash::Hash;

use eframe::egui::{Rect, ScrollArea, Sense, Stroke, Ui, UiBuilder, pos2, vec2};

use crate::gui::widgets::theme::Shades;

/// Shows a view with a minimum height of `least` points. With less space, shows a scroll bar. `id` must be unique.
pub(crate) fn least_height_ui<R>(ui: &mut Ui, id: &str, least: f32, show: impl FnOnce(&mut Ui) -> R) -> R {
    if ui.available_height() >= least {
        return show(ui);
    }
    scrolling_ui(ui, id, |ui| exact_height_ui(ui, least, show))
}

/// Shows a view that scrolls. `id` must be unique.
pub(crate) fn scrolling_ui<R>(ui: &mut Ui, id: impl Hash + fmt::Debug, show: impl FnOnce(&mut Ui) -> R) -> R {
    ScrollArea::vertical().id_salt(id).auto_shrink([false, false]).show(ui, show).inner
}

/// Shows a view at `place`. `id` must be unique.
pub(crate) fn place_ui<R>(ui: &mut Ui, id: impl Hash + fmt::Debug, place: Rect, show: impl FnOnce(&mut Ui) -> R) -> R {
    ui.scope_builder(UiBuilder::new().id_salt(id).max_rect(place), show).inner
}

/// Shows a view that fills the available width and `height` points.
pub(crate) fn exact_height_ui<R>(ui: &mut Ui, height: f32, show: impl FnOnce(&mut Ui) -> R) -> R {
    let room = vec2(ui.available_width(), height);
    let show = |ui: &mut Ui| {
        ui.set_min_size(room);
        ui.set_max_height(height);
        show(ui)
    };
    ui.allocate_ui(room, show).inner
}

/// Shows two columns, separated by a line. `left` is `width` points wide and scrolls; `right` is at least `least`
/// points high, with a scroll bar if there is less space. `id` must be unique.
pub(crate) fn split_ui<S, L, R>(
    ui: &mut Ui,
    id: &str,
    (width, least): (f32, f32),
    state: &mut S,
    left: impl FnOnce(&mut Ui, &mut S) -> L,
    right: impl FnOnce(&mut Ui, &mut S) -> R,
) -> (L, R) {
    let at = ui.next_widget_position();
    let whole = Rect::from_min_max(at, ui.max_rect().max.max(at + vec2(200.0, 120.0)));
    ui.allocate_rect(whole, Sense::hover());
    let middle = whole.left() + width + 8.0;
    let mut column = |name: &str, rect: Rect| ui.new_child(UiBuilder::new().id_salt((id, name)).max_rect(rect));
    let mut left_ui = column("left", whole.with_max_x(middle - 8.0));
    let mut right_ui = column("right", Rect::from_min_max(pos2(middle + 8.0, whole.top()), whole.max));
    let shown = scrolling_ui(&mut left_ui, (id, "left"), |ui| left(ui, state));
    ui.painter().vline(middle, whole.y_range(), Stroke::new(1.0, Shades::in_ui(ui).grid));
    let beside = if whole.height() >= least {
        right(&mut right_ui, state)
    } else {
        scrolling_ui(&mut right_ui, (id, "right"), |ui| {
            ui.set_max_height(least);
            right(ui, state)
        })
    };
    (shown, beside)
}

#[cfg(test)]
mod tests {
    use egui_kittest::Harness;

    use super::*;

    #[test]
    fn a_view_has_all_the_room_or_what_it_needs() {
        for (height, expected) in [(500.0, 500.0), (120.0, 200.0)] {
            let mut harness = Harness::builder().with_size(vec2(300.0, height)).build_ui_state(
                |ui, seen: &mut f32| least_height_ui(ui, "view", 200.0, |ui| *seen = ui.available_height()),
                0.0,
            );
            harness.run_steps(2);
            assert!((*harness.state() - expected).abs() < 20.0, "{} of {height}", harness.state());
        }
    }
}
