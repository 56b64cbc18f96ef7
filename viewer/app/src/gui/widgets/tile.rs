//! A labelled rectangle of a treemap or flame graph, and keyboard navigation between such rectangles.

use eframe::egui::{
    Color32, FontId, Key, Modifiers, Painter, Rect, Response, Stroke, StrokeKind, TextFormat, Ui, pos2, vec2,
};
use highwater_snapshots::line_text::LineText;

use crate::gui::widgets::fit::{self, fitted};
use crate::gui::widgets::keys::pressed_keys;
use crate::gui::widgets::theme::{self, Shades};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Emphasis {
    pub(crate) is_hovered: bool,
    pub(crate) is_chosen: bool,
}

/// Paints a tile, with its label at the top if the label fits.
pub(crate) fn paint(ui: &Ui, rect: Rect, fill: Color32, texts: [&str; 2], emphasis: Emphasis) {
    /// Space left free between neighbours.
    const GAP: f32 = 0.5;
    let shades = Shades::in_ui(ui);
    let inner = rect.shrink(GAP.min(rect.width() / 4.0).min(rect.height() / 4.0));
    let painter = ui.painter().with_clip_rect(rect.intersect(ui.clip_rect()));
    painter.rect_filled(inner, 1.0, fill);
    if emphasis.is_hovered || emphasis.is_chosen {
        let stroke = Stroke::new(if emphasis.is_chosen { 2.0 } else { 1.0 }, shades.peak);
        painter.rect_stroke(inner, 1.0, stroke, StrokeKind::Inside);
    }
    let ink = theme::ink(fill);
    let mut top = inner.top() + 1.0;
    for text in texts.into_iter().filter(|text| !text.is_empty()).flat_map(|text| rows(ui, inner, text)) {
        let Some(height) = line(ui, &painter, inner, top, &text, ink) else { return };
        top += height;
    }
}

/// Returns a name followed by an amount, which is omitted if both do not fit.
pub(crate) fn with_amount(ui: &Ui, rect: Rect, name: &str, amount: &str) -> String {
    let both = format!("{name}  {amount}");
    if fits(ui, rect, &both) { both } else { name.to_owned() }
}

pub(crate) fn fits(ui: &Ui, rect: Rect, text: &str) -> bool {
    fit::width(ui, text, &FontId::proportional(12.0)) <= rect.width() - 2.0 * MARGIN
}

/// Space to the left and right of a label.
const MARGIN: f32 = 3.0;

/// Returns the rows of a label. A source line that is too wide is split into two rows if they fit: file and line number
/// above the function.
fn rows(ui: &Ui, rect: Rect, text: &str) -> Vec<String> {
    let font = FontId::proportional(12.0);
    let line = LineText::parse(text);
    let room = rect.width() - 2.0 * MARGIN;
    let is_cut = || fitted(ui, text, &font, room).is_none_or(|shown| *shown != *text);
    if line.line == 0 || line.function.is_empty() || rect.height() < 3.0 * theme::TILE_HEADER || !is_cut() {
        return vec![text.to_owned()];
    }
    vec![LineText { function: "", ..line }.to_string(), line.function.to_owned()]
}

/// Paints one row of text at `top`, shortened to the rectangle's width. Returns its height, or `None` if it does not
/// fit.
fn line(ui: &Ui, painter: &Painter, rect: Rect, top: f32, text: &str, ink: Color32) -> Option<f32> {
    let room = rect.width() - 2.0 * MARGIN;
    if room < theme::MIN_LABEL {
        return None;
    }
    let format = TextFormat::simple(FontId::proportional(12.0), ink);
    let text = fitted(ui, text, &format.font_id, room)?;
    let galley = fit::line(painter, text, format, room);
    let size = galley.size();
    if top + size.y > rect.bottom() + 1.5 {
        return None;
    }
    painter.galley(pos2(rect.left() + MARGIN, top), galley, ink);
    Some(size.y)
}

/// The navigation keys pressed while a picture has the keyboard focus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Number of steps to the right and down.
    pub(crate) by: [i32; 2],
    pub(crate) enters: bool,
    pub(crate) leaves: bool,
    pub(crate) filters: bool,
}

pub(crate) fn walked(ui: &Ui, response: &Response) -> Walked {
    let Some(pressed) = pressed_keys(ui, response, [true; 2]) else { return Walked::default() };
    let by = |more: Key, less: Key| (pressed(more) - pressed(less)) as i32;
    Walked {
        by: [by(Key::ArrowRight, Key::ArrowLeft), by(Key::ArrowDown, Key::ArrowUp)],
        filters: ui.input_mut(|input| input.consume_key(Modifiers::SHIFT, Key::Enter)),
        enters: pressed(Key::Enter) > 0,
        leaves: pressed(Key::Backspace) > 0,
    }
}

pub(crate) fn focus_frame(ui: &Ui, response: &Response) {
    if response.has_focus() {
        let stroke = Stroke::new(1.0, Shades::in_ui(ui).faint);
        ui.painter().rect_stroke(response.rect.expand2(vec2(1.0, 1.0)), 2.0, stroke, StrokeKind::Outside);
    }
}
