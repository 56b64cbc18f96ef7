//! The memory curve of a recording that is still being read, shown until its timeline is ready.

use eframe::egui::{Align2, FontId, Mesh, Rect, Role, Sense, Shape, Stroke, Ui, WidgetInfo, pos2};
use highwater_snapshots::format_bytes;

use crate::files::preview::Preview;
use crate::gui::widgets::Shades;

/// Free space above the curve, as a fraction of its height.
const HEADROOM: f64 = 0.12;

/// Shows the memory in use in the part of recording `name` that has been read, on an axis for all of its events.
pub(crate) fn preview_ui(ui: &mut Ui, name: &str, preview: &Preview) {
    let shades = Shades::in_ui(ui);
    let (rect, response) = ui.allocate_exact_size(ui.available_size(), Sense::hover());
    let words = preview.words();
    response.widget_info(|| WidgetInfo::labeled(Role::Image, true, format!("First picture of {name}: {words}")));
    let painter = ui.painter().with_clip_rect(rect);
    painter.rect_filled(rect, 0.0, shades.canvas);
    let (whole, floor, peak) = (preview.whole() as f64, preview.floor() as f64, preview.peak());
    let top = (peak.max(1) as f64) * (1.0 + HEADROOM);
    let x = |events: u64| rect.left() + (events as f64 / whole).min(1.0) as f32 * rect.width();
    let y = |level: i64| rect.bottom() - ((level as f64 - floor) / top) as f32 * rect.height();
    let (mut mesh, mut left) = (Mesh::default(), rect.left());
    for point in &preview.points {
        // The range between minimum and maximum within a point is lighter than the area below the minimum.
        let right = x(point.end).max(left);
        let (low, high) = (y(point.levels.lowest), y(point.levels.highest));
        let bar = |top: f32, bottom: f32| Rect::from_min_max(pos2(left, top), pos2(right, bottom));
        mesh.add_colored_rect(bar(high, low), shades.faint.gamma_multiply(0.45));
        mesh.add_colored_rect(bar(low, rect.bottom()), shades.faint.gamma_multiply(0.8));
        left = right;
    }
    painter.add(Shape::mesh(mesh));
    painter.vline(left, rect.y_range(), Stroke::new(1.0, shades.grid));
    if peak > 0 {
        let line = y(preview.floor().saturating_add_unsigned(peak));
        painter.hline(rect.left()..=left, line, Stroke::new(1.0, shades.peak));
        let text = format!("peak so far {}", format_bytes(peak));
        let text = painter.layout_no_wrap(text, FontId::proportional(13.0), shades.strong);
        let at = pos2((left - text.size().x - 6.0).max(rect.left() + 6.0), line - text.size().y - 2.0);
        painter.galley(at, text, shades.strong);
    }
    let at = rect.left_top() + eframe::egui::vec2(10.0, 8.0);
    let text = format!("reading {name}… {:.0}%", preview.fraction * 100.0);
    painter.text(at, Align2::LEFT_TOP, text, FontId::proportional(15.0), shades.faint);
}
