//! Oom: an out-of-memory taken apart: the failed request drawn against what was free, why it did not fit, what would
//! have made it fit.

use eframe::egui::{
    Align2, Color32, FontId, Grid, Rect, RichText, Role, ScrollArea, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2,
    vec2,
};
use highwater_snapshots::Category;
use highwater_snapshots::analysis::addresses::Autopsy;
use highwater_snapshots::units::format_bytes;

use super::known::State;
use super::look::Paint;
use crate::gui::scene::Wish;
use crate::gui::theme::{self, Shades};

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Show this one of the failed requests.
    pub(super) oom: Option<usize>,
    /// Show what stands in the way.
    pub(super) show_relief: bool,
    pub(super) wish: Option<Wish>,
}

/// A line to go through the failed requests, of which `current` is shown.
pub(super) fn choice_ui(ui: &mut Ui, state: &State, current: Option<usize>) -> Asked {
    let mut asked = Asked::default();
    let count = state.ooms.len();
    if count == 0 {
        return asked;
    }
    let shades = Shades::in_ui(ui);
    let text = match current {
        Some(row) => format!("Out of memory {} of {count}", row + 1),
        None if count == 1 => "Out of memory once: show why".to_owned(),
        None => format!("Out of memory {count} times: show why"),
    };
    let mut go = |ui: &mut Ui, name: &str, row: Option<usize>, tooltip: &str| {
        let button = eframe::egui::Button::new(RichText::new(name).color(shades.warning));
        let response = ui.add_enabled(row.is_some(), button).on_hover_text(tooltip);
        if response.clicked() {
            asked.oom = row;
        }
    };
    go(ui, &text, Some(current.unwrap_or(0)), "Show the moment of the failed request, and why it did not fit.");
    if count > 1 {
        go(ui, "Previous", current.and_then(|row| row.checked_sub(1)), "Show the failed request before this one.");
        let next = current.map(|row| row + 1).filter(|row| *row < count);
        go(ui, "Next", next, "Show the failed request after this one.");
    }
    asked
}

/// The autopsy: words at the left, the request against the largest free ranges at the right.
pub(super) fn autopsy_ui(ui: &mut Ui, autopsy: &Autopsy, paint: &Paint<'_>, is_picture: bool) -> Asked {
    let mut asked = Asked::default();
    let frame = eframe::egui::Frame::group(ui.style());
    frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ScrollArea::vertical().id_salt("autopsy").max_height(theme::AUTOPSY_HEIGHT).show(ui, |ui| {
            let has_third = autopsy.relief.is_some() && ui.available_width() > theme::AUTOPSY_WIDE;
            ui.columns(if has_third { 3 } else { 2 }, |sides| match sides {
                [words, picture] => {
                    words_ui(words, autopsy);
                    relief_ui(words, autopsy, is_picture, &mut asked);
                    bars_ui(picture, autopsy, paint);
                }
                [words, picture, way_out] => {
                    words_ui(words, autopsy);
                    bars_ui(picture, autopsy, paint);
                    relief_ui(way_out, autopsy, is_picture, &mut asked);
                }
                _ => {}
            });
        });
    });
    asked
}

fn words_ui(ui: &mut Ui, autopsy: &Autopsy) {
    let bytes = format_bytes;
    let by = [&autopsy.op, &autopsy.scope].into_iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>();
    let by = if by.is_empty() { String::new() } else { format!(" for {}", by.join(" in ")) };
    ui.strong(format!("{} requested{by}: {}", bytes(autopsy.requested), autopsy.verdict.name()));
    for reason in &autopsy.reasons {
        ui.label(sentence(reason));
    }
    let or_unknown = |value: Option<u64>| value.map_or_else(|| "unknown".to_owned(), bytes);
    let stream = autopsy.likely_stream.map_or(String::new(), |stream| format!(", probably stream {}", stream.0));
    let rows = [
        ("rounded to", format!("{}, {} pool{stream}", bytes(autopsy.rounded), autopsy.pool)),
        ("needed from the driver", format!("{}, which had {}", bytes(autopsy.from_driver), bytes(autopsy.device_free))),
        ("allocated", format!("{} of {} reserved", bytes(autopsy.allocated), bytes(autopsy.reserved))),
        ("waiting for streams", bytes(autopsy.waiting)),
        ("free in its pool", bytes(autopsy.free_in_pool)),
        ("free elsewhere", bytes(autopsy.free_elsewhere)),
        ("outside the allocator", format!("{} of {}", or_unknown(autopsy.outside), or_unknown(autopsy.capacity))),
    ];
    Grid::new("autopsy facts").num_columns(2).spacing(vec2(12.0, 1.0)).show(ui, |ui| {
        for (name, value) in rows {
            ui.weak(name);
            ui.label(value);
            ui.end_row();
        }
    });
}

/// What would have to go, by name.
fn relief_ui(ui: &mut Ui, autopsy: &Autopsy, is_picture: bool, asked: &mut Asked) {
    let bytes = format_bytes;
    let Some(relief) = &autopsy.relief else { return };
    ui.horizontal_wrapped(|ui| {
        ui.strong(format!("In the way: {}", bytes(relief.bytes)));
        let tooltip = "Show the range in the map: the fewest bytes of neighbouring live blocks without which it fits.";
        if is_picture {
            return;
        }
        if ui.small_button("Show in the map").on_hover_text(tooltip).clicked() {
            asked.show_relief = true;
        }
        if let Some(block) = relief.blocks.first()
            && ui.small_button("Show its first block").clicked()
        {
            asked.wish = Some(Wish::Block(*block));
        }
    });
    for group in &relief.groups {
        let known = |row: usize| group.key.get(row).filter(|part| *part != "(none)");
        let mut named = known(0).cloned().unwrap_or_default();
        named.extend(known(1).map(|op| format!(" of {op}")));
        named.extend(known(2).map(|scope| format!(" in {scope}")));
        let blocks = if group.blocks == 1 { "1 block".to_owned() } else { format!("{} blocks", group.blocks) };
        ui.horizontal(|ui| {
            let category = group.key.first().and_then(|name| Category::from_name(name));
            theme::swatch_ui(ui, category.map_or(theme::NEUTRAL, theme::category));
            ui.label(format!("{}, {blocks}: {named}", bytes(group.bytes)));
        });
    }
    if relief.rest_bytes > 0 {
        ui.weak(format!("{} in further groups", bytes(relief.rest_bytes)));
    }
}

/// A bar for the request and one for each of the largest free ranges, to one scale.
fn bars_ui(ui: &mut Ui, autopsy: &Autopsy, paint: &Paint<'_>) {
    let shades = &paint.shades;
    ui.weak("The request, and the largest free ranges of its pool, to one scale:");
    let longest = autopsy.holes.first().map_or(0, |hole| hole.bytes).max(autopsy.rounded).max(1);
    let several = autopsy.holes.iter().any(|hole| Some(hole.home) != autopsy.holes.first().map(|first| first.home));
    bar_ui(
        ui,
        (autopsy.rounded, longest),
        shades.warning,
        &format!("{} requested", format_bytes(autopsy.rounded)),
        shades,
    );
    for hole in &autopsy.holes {
        let home = if several { format!(", {}", hole.home.text()) } else { String::new() };
        let text = format!("{} free at {:#x}{home}", format_bytes(hole.bytes), hole.address);
        bar_ui(ui, (hole.bytes, longest), shades.bar, &text, shades);
    }
    let device = format!("{} free on the device", format_bytes(autopsy.device_free));
    bar_ui(ui, (autopsy.device_free.min(longest), longest), Color32::TRANSPARENT, &device, shades);
    if autopsy.holes.is_empty() {
        ui.weak("Nothing is free in segments of its pool.");
    }
}

fn bar_ui(ui: &mut Ui, (bytes, longest): (u64, u64), colour: Color32, text: &str, shades: &Shades) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), theme::ROW_HEIGHT - 2.0), Sense::hover());
    let width = (rect.width() * (bytes as f64 / longest as f64) as f32).max(1.0);
    let bar = Rect::from_min_size(rect.min, vec2(width, rect.height()));
    let painter = ui.painter().with_clip_rect(rect);
    painter.rect_filled(bar, 0.0, colour);
    painter.rect_stroke(bar, 0.0, Stroke::new(1.0, shades.strong), StrokeKind::Inside);
    let font = FontId::proportional(12.0);
    let galley = painter.layout_no_wrap(text.to_owned(), font.clone(), shades.strong);
    // Beside the bar where there is room, else on it.
    let (x, ink) = if width + galley.size().x + 8.0 < rect.width() {
        (bar.right() + 6.0, shades.strong)
    } else {
        (rect.left() + 6.0, if colour == shades.warning { shades.canvas } else { shades.strong })
    };
    painter.text(pos2(x, rect.center().y), Align2::LEFT_CENTER, text, font, ink);
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, text));
    response.on_hover_text(text);
}

/// With a capital at the beginning and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().map(|letter| letter.to_uppercase().collect()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
