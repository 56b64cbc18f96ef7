//! Lays out a view in the available space, and makes it scroll where it needs more.

use eframe::egui::{ScrollArea, Ui, vec2};

/// Shows a view that is at least `least` points high, scrolling if there is less room. `id` must be unique.
pub fn least_height_ui<R>(ui: &mut Ui, id: &str, least: f32, show: impl FnOnce(&mut Ui) -> R) -> R {
    if ui.available_height() >= least {
        return show(ui);
    }
    let scroll = ScrollArea::vertical().id_salt(id).auto_shrink([false, false]);
    scroll.show(ui, |ui| exact_height_ui(ui, least, show)).inner
}

/// Shows a view that fills `width` and `height` points.
pub fn exact_height_ui<R>(ui: &mut Ui, height: f32, show: impl FnOnce(&mut Ui) -> R) -> R {
    let room = vec2(ui.available_width(), height);
    let show = |ui: &mut Ui| {
        ui.set_min_size(room);
        ui.set_max_height(height);
        show(ui)
    };
    ui.allocate_ui(room, show).inner
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
