//! The slider for the budget: a handle on the byte axis, which is dragged or moved by the keyboard.

use eframe::egui::{
    Align2, CursorIcon, FontId, Key, Rect, Role, Sense, Shape, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2,
};
use highwater_snapshots::{format_bytes, format_exact_bytes};

use super::budget::next_device;
use crate::gui::views::timeline::PlotFrame;
use crate::gui::widgets::{Shades, pressed_keys, theme};

const HEIGHT: f32 = 18.0;
/// Maximum distance from the budget's line at which the pointer can drag it, in points.
const NEAR: f32 = 4.0;

#[derive(Debug, Default)]
pub(super) struct BudgetSlider {
    /// The upper end of the axis while the handle is dragged, so that the axis does not move with it.
    pub(super) fixed_top: Option<f64>,
}

impl BudgetSlider {
    /// Shows the handle for a budget of `bytes` at the left edge of `frame`. Returns the budget if it was moved.
    pub(super) fn slider_ui(&mut self, ui: &mut Ui, frame: &PlotFrame, bytes: u64) -> Option<u64> {
        let y = frame.screen_y(bytes as f64).clamp(frame.rect.top(), frame.rect.bottom());
        let is_above = bytes as f64 > frame.view.y.end;
        let grip = Rect::from_min_max(
            pos2(frame.rect.left() - theme::AXIS_WIDTH + 2.0, y - HEIGHT / 2.0),
            pos2(frame.rect.left() - 2.0, y + HEIGHT / 2.0),
        );
        let line = Rect::from_x_y_ranges(frame.rect.x_range(), y - NEAR..=y + NEAR);
        // The line below the handle takes the pointer, the handle also the keyboard.
        let along = ui.interact(line, ui.scope_id().with("budget line"), Sense::DRAG);
        let response = ui.interact(grip, ui.scope_id().with("budget"), Sense::click_and_drag());
        let text = format_bytes(bytes);
        let label = format!("Budget {text}: drag, or Up, Down, Page Up and Page Down");
        along.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, format!("Line of the budget, {text}")));
        response.widget_info(|| WidgetInfo::labeled(Role::Slider, true, &label));
        if response.hovered() || along.hovered() || response.dragged() || along.dragged() {
            ui.set_cursor_icon(CursorIcon::ResizeVertical);
        }
        let shades = Shades::in_ui(ui);
        let colour = shades.capacity().color;
        let painter = ui.painter();
        painter.rect_filled(grip, 4.0, colour);
        let tip = frame.rect.left() + 5.0;
        let arrow = if is_above {
            let middle = grip.center().x;
            vec![
                pos2(middle - 6.0, grip.top() + 1.0),
                pos2(middle, grip.top() - 6.0),
                pos2(middle + 6.0, grip.top() + 1.0),
            ]
        } else {
            vec![pos2(grip.right() - 1.0, y - 6.0), pos2(tip, y), pos2(grip.right() - 1.0, y + 6.0)]
        };
        painter.add(Shape::convex_polygon(arrow, colour, Stroke::NONE));
        let font = FontId::proportional(11.5);
        let short = Some(text).filter(|text| text.len() <= 10).unwrap_or_else(|| format_exact_bytes(bytes));
        painter.text(grip.center(), Align2::CENTER_CENTER, short, font, theme::ink(colour));
        if response.has_focus() {
            let stroke = Stroke::new(1.5, shades.strong);
            painter.rect_stroke(grip.expand2(vec2(1.0, 1.0)), 4.0, stroke, StrokeKind::Outside);
        }
        let dragged = response.dragged() || along.dragged();
        self.fixed_top = dragged.then(|| self.fixed_top.unwrap_or(frame.view.y.end));
        if dragged {
            let at = response.interact_pointer_pos().or(along.interact_pointer_pos())?;
            let y = at.y.clamp(frame.rect.top(), frame.rect.bottom());
            let moved = rounded(frame.bytes_at(y), step(frame));
            return (moved != bytes).then_some(moved);
        }
        let pressed = pressed_keys(ui, &response, [false, true])?;
        let steps = pressed(Key::ArrowUp) - pressed(Key::ArrowDown);
        let devices = pressed(Key::PageUp) - pressed(Key::PageDown);
        let moved = match (steps, devices) {
            (0, 0) => return None,
            (0, devices) => next_device(bytes, devices > 0)?,
            (steps, _) => {
                let step = step(frame);
                let next = (bytes / step) as i64 + steps + i64::from(steps < 0 && !bytes.is_multiple_of(step));
                (next.max(1) as u64).saturating_mul(step)
            }
        };
        (moved != bytes).then_some(moved)
    }
}

/// The step in bytes: the bytes of one point, rounded up to a power of two.
fn step(frame: &PlotFrame) -> u64 {
    (frame.units_per_point()[1].max(1.0) as u64).next_power_of_two()
}

/// At least one step.
fn rounded(bytes: f64, step: u64) -> u64 {
    let steps = (bytes / step as f64).round().max(1.0) as u64;
    steps.saturating_mul(step)
}
