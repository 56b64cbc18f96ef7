//! The colours and sizes of the app, for dark and light windows.

mod palette;
mod shades;
mod sizes;

use eframe::egui::{self, Color32, Stroke};

pub(crate) use palette::*;
pub(crate) use shades::Shades;
use shades::contrast_id;
pub(crate) use sizes::*;

/// Sets fonts, spacing and widget colours of both themes, optionally with high contrast.
pub(crate) fn install(ctx: &egui::Context, has_contrast: bool) {
    ctx.data_mut(|data| data.insert_temp(contrast_id(), has_contrast));
    for theme in [egui::Theme::Dark, egui::Theme::Light] {
        let is_dark = theme == egui::Theme::Dark;
        let shades = Shades::of(theme);
        let shades = if has_contrast { shades.in_contrast(is_dark) } else { shades };
        ctx.style_mut_of(theme, |style| {
            style.visuals = if is_dark { egui::Visuals::dark() } else { egui::Visuals::light() };
            style.spacing.item_spacing = egui::vec2(8.0, 4.0);
            style.spacing.button_padding = egui::vec2(7.0, 3.0);
            style.spacing.scroll = egui::style::ScrollStyle::solid();
            style.interaction.selectable_labels = true;
            style.interaction.tooltip_delay = 0.35;
            style.visuals.extreme_bg_color = shades.canvas;
            style.visuals.warn_fg_color = shades.warning;
            style.visuals.weak_text_color = Some(shades.faint);
            style.visuals.widgets.noninteractive.fg_stroke.color = shades.text();
            style.visuals.hyperlink_color = shades.lines[3];
            // Switches that are off contrast with the window as much as their marks contrast with them.
            style.visuals.widgets.inactive.bg_fill = shades.switch;
            style.visuals.widgets.inactive.fg_stroke.color = shades.strong;
            style.spacing.scroll.fade.strength = 0.9;
            if has_contrast {
                style.visuals.panel_fill = shades.canvas;
                style.visuals.window_fill = shades.canvas;
                style.visuals.override_text_color = Some(shades.strong);
                for widget in [&mut style.visuals.widgets.inactive, &mut style.visuals.widgets.noninteractive] {
                    widget.bg_stroke = Stroke::new(1.0, shades.faint);
                }
            }
        });
    }
}

/// The placeholder of an empty field, in a faint italic font.
pub(crate) fn placeholder(ui: &egui::Ui, text: &str) -> egui::RichText {
    egui::RichText::new(text).italics().color(Shades::in_ui(ui).faint.gamma_multiply(0.75))
}

pub(crate) fn swatch_ui(ui: &mut egui::Ui, colour: Color32) {
    let (rect, _) = ui.allocate_exact_size(egui::vec2(SWATCH, SWATCH), egui::Sense::hover());
    ui.painter().rect_filled(rect, 2.0, colour);
}
