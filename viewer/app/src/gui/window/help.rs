//! The list of keys, and the About window.

use eframe::egui::{Grid, Id, Key, Label, Modal, Modifiers, RichText, ScrollArea, Ui, vec2};

use crate::Command;
use crate::gui::widgets::{keys, theme};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Help {
    Keys,
    About,
}

/// Distance in points by which an arrow key scrolls.
const LINE: f32 = 40.0;
/// Scroll distance in points that certainly reaches either end of the list.
const ALL: f32 = 100_000.0;

const PURPOSE: &str = "Highwater shows where GPU memory goes: what was allocated, when, by which line of your program, \
                       and the composition of the peak.";

impl Help {
    /// Shows the help window. Returns whether it stays open.
    pub(crate) fn help_ui(self, ui: &Ui) -> bool {
        let mut is_open = true;
        let modal = Modal::new(Id::unique("help")).show(ui.ctx(), |ui| {
            ui.set_width(theme::HELP_WIDTH.min(ui.ctx().content_rect().width() - 60.0));
            match self {
                Self::Keys => keys_ui(ui),
                Self::About => about_ui(ui),
            }
            ui.add_space(6.0);
            if ui.button("Close").clicked() {
                is_open = false;
            }
        });
        is_open && !modal.should_close()
    }
}

fn keys_ui(ui: &mut Ui) {
    ui.heading("Keys");
    ui.weak("In tables, treemaps, flame graphs and maps: arrow keys move, Enter opens, Escape closes.");
    ui.add_space(4.0);
    let most = (ui.ctx().content_rect().height() - 180.0).max(120.0);
    let by = scrolled(ui, most);
    ScrollArea::vertical().max_height(most).auto_shrink([false, true]).show(ui, |ui| {
        ui.scroll_with_delta(vec2(0.0, -by));
        Grid::new("keys").num_columns(3).striped(true).spacing([14.0, 4.0]).show(ui, |ui| {
            for &command in Command::ALL.iter().filter(|command| command.is_offered()) {
                let shown: Vec<String> = keys::shown_keys(command).collect();
                ui.label(command.name());
                ui.label(RichText::new(shown.join(" or ")).strong());
                ui.add(Label::new(RichText::new(command.tooltip()).weak()).wrap());
                ui.end_row();
            }
        });
    });
}

/// Returns the distance in points by which the pressed keys scroll the list down; `page` is its visible height.
fn scrolled(ui: &Ui, page: f32) -> f32 {
    let pressed = |key| ui.input_mut(|input| input.count_and_consume_key(Modifiers::NONE, key)) as f32;
    let lines = pressed(Key::ArrowDown) - pressed(Key::ArrowUp);
    let pages = pressed(Key::PageDown) - pressed(Key::PageUp);
    let ends = pressed(Key::End) - pressed(Key::Home);
    lines * LINE + pages * page + ends * ALL
}

fn about_ui(ui: &mut Ui) {
    ui.heading(format!("Highwater {}", env!("CARGO_PKG_VERSION")));
    ui.label(PURPOSE);
    ui.weak(format!("Licence: {}", env!("CARGO_PKG_LICENSE")));
    ui.add_space(4.0);
    ui.label("Every view is also available as a command; see `highwater --help`.");
}
