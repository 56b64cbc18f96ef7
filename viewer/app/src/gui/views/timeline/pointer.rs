//! Handles hover, wheel, drag and click on the timeline.

use std::ops::Range;

use eframe::egui::{self, RectAlign, Response, Tooltip, Ui};
use highwater_analysis::{bytes_of, leading_frame};
use highwater_snapshots::{BlockId, EventId, count_of, format_bytes, format_nanos};

use super::frame::PlotFrame;
use super::{Hover, Timeline, marks};
use crate::gui::colouring::{Entry, short_line};
use crate::gui::widgets::{Shades, life, moment_text, swatch_ui, theme, title};
use crate::{Pin, Recording, Selection, drawn_metric};

/// Wheel distance in points that doubles or halves the visible range.
const WHEEL_OCTAVE: f32 = 160.0;

impl Timeline {
    pub(super) fn point(
        &mut self,
        ui: &Ui,
        response: &Response,
        frame: &PlotFrame,
        recording: &Recording,
        selection: &mut Selection,
    ) {
        self.measure(ui, response, frame, recording, selection);
        let is_panning = self.ruler.is_none() && response.dragged_by(egui::PointerButton::Primary)
            || response.dragged_by(egui::PointerButton::Middle);
        if is_panning {
            self.is_moving = true;
            let [per_x, per_y] = frame.units_per_point();
            let moved = response.drag_delta();
            selection.pan(recording, [-f64::from(moved.x) * per_x, f64::from(moved.y) * per_y]);
            ui.ctx().set_cursor_icon(egui::CursorIcon::Grabbing);
        }
        let is_used = ui.input(|input| {
            let has_moved = input.events.iter().any(|event| matches!(event, egui::Event::PointerMoved(_)));
            has_moved || input.pointer.any_down() || input.smooth_scroll_delta() != egui::Vec2::ZERO
        });
        self.is_resting &= !is_used;
        let hovered = response.hover_pos().filter(|_| !response.dragged() && !self.is_resting);
        let inside = selection.whole(recording).x;
        let hovered = hovered.filter(|at| inside.contains(&frame.x_at(at.x)));
        self.hover = hovered.and_then(|at| self.under(at, frame));
        if response.secondary_clicked() {
            self.menu_target = self.hover;
        }
        let is_block = |block: BlockId| self.hover.is_some_and(|hover| hover.block == Some(block));
        if self.hovered_outline.as_ref().is_some_and(|(block, _)| !is_block(*block)) {
            self.hovered_outline = None;
        }
        let Some(at) = response.hover_pos() else { return };
        self.is_moving |= wheel(ui, at, frame, recording, selection);
        let Some(hover) = self.hover else { return };
        if response.clicked() {
            selection.pin = Some(Pin { block: hover.block, moment: hover.moment });
        }
        if response.double_clicked()
            && let Some(block) = hover.block
        {
            selection.go_to_block(recording, block);
        }
        if self.hovered_outline.is_none()
            && let Some(block) = hover.block
        {
            let covered = self.detail.as_ref().map(|shown| shown.picture.covered_by(block));
            self.hovered_outline = Some((block, covered.unwrap_or_default()));
        }
        let colouring = self.picture().map(|picture| &picture.colouring);
        let entry =
            hover.block.zip(colouring).and_then(|(block, colouring)| colouring.entries.get(colouring.entry(block)));
        // A menu refers to the item that was under the pointer, or lies over it.
        if response.context_menu_opened() || egui::Popup::is_any_open(ui.ctx()) {
            return;
        }
        let mut tooltip = Tooltip::always_open(
            ui.ctx().clone(),
            ui.layer_id(),
            response.id.with("under the pointer"),
            egui::PopupAnchor::Pointer,
        );
        // On the side with more room within the timeline, so that it covers no other panel.
        if at.x > frame.rect.center().x {
            tooltip.popup = tooltip.popup.align(RectAlign::BOTTOM_END);
        }
        let width = (frame.rect.width() / 2.0).clamp(theme::MIN_TOOLTIP_WIDTH, theme::TOOLTIP_WIDTH);
        tooltip.gap(16.0).show(|ui| {
            ui.set_max_width(width);
            hover_ui(ui, recording, selection, hover, entry);
        });
    }

    /// Handles the ruler, which is drawn by dragging with Shift and shows the distance on both axes until the button is
    /// released.
    fn measure(
        &mut self,
        ui: &Ui,
        response: &Response,
        frame: &PlotFrame,
        recording: &Recording,
        selection: &Selection,
    ) {
        let place = |at: egui::Pos2| [frame.x_at(at.x), frame.bytes_at(at.y)];
        let is_begun =
            response.drag_started_by(egui::PointerButton::Primary) && ui.input(|input| input.modifiers.shift);
        if is_begun {
            self.ruler = ui.input(|input| input.pointer.press_origin()).map(place);
        }
        let pointer = response.interact_pointer_pos().filter(|_| response.dragged());
        let Some((from, to)) = self.ruler.zip(pointer.map(place)) else {
            self.ruler = None;
            return;
        };
        let bytes = format_bytes((to[1] - from[1]).abs() as u64);
        let moments = [from[0], to[0]].map(|x| selection.moment_at(&recording.trace, x));
        let events = count_of(moments[0].abs_diff(moments[1]) as u64, "event");
        let time = |moment: usize| {
            let event = moment.checked_sub(1).map(EventId::from_index);
            event.and_then(|event| recording.trace.time_of(event)).unwrap_or(0)
        };
        let lasted = time(moments[0]).abs_diff(time(moments[1]));
        let lasted = recording.trace.has_times().then(|| format!("  ·  {}", format_nanos(lasted)));
        let words = format!("{bytes}  ·  {events}{}", lasted.unwrap_or_default());
        marks::paint_ruler(ui.painter(), frame, [from, to], &words, &Shades::in_ui(ui));
    }

    /// Returns the moment and the block at a position on the screen, from the displayed picture; `None` outside the
    /// picture.
    pub fn under(&self, at: egui::Pos2, frame: &PlotFrame) -> Option<Hover> {
        let (x, bytes) = (frame.x_at(at.x), frame.bytes_at(at.y));
        let shown = self.shown_at(x)?;
        let share = |value: f64, of: &Range<f64>| (value - of.start) / (of.end - of.start);
        let (column, block) = shown.picture.at(share(x, &shown.view.x), share(bytes, &shown.view.y))?;
        Some(Hover { moment: column.moment, block, total: column.bytes })
    }
}

/// Zooms the axis around the pointer; with Alt, the bytes; with Ctrl, or by pinching, both. Horizontal scrolling moves
/// along the axis. Returns whether there was any such input.
pub(crate) fn wheel(
    ui: &Ui,
    at: egui::Pos2,
    frame: &PlotFrame,
    recording: &Recording,
    selection: &mut Selection,
) -> bool {
    let (turned, pinched, is_alt) =
        ui.input(|input| (input.smooth_scroll_delta(), input.zoom_delta(), input.modifiers.alt));
    let center = [frame.x_at(at.x), frame.bytes_at(at.y)];
    if pinched != 1.0 {
        let factor = 1.0 / f64::from(pinched);
        selection.zoom(recording, [factor, factor], center);
    } else if turned.y != 0.0 {
        let factor = f64::from((-turned.y / WHEEL_OCTAVE).exp2());
        selection.zoom(recording, if is_alt { [1.0, factor] } else { [factor, 1.0] }, center);
    }
    if turned.x != 0.0 {
        selection.pan(recording, [-f64::from(turned.x) * frame.units_per_point()[0], 0.0]);
    }
    pinched != 1.0 || turned != egui::Vec2::ZERO
}

pub(super) fn hover_ui(ui: &mut Ui, recording: &Recording, selection: &Selection, hover: Hover, entry: Option<&Entry>) {
    let trace = &recording.trace;
    let metric = drawn_metric(selection.metric);
    if let Some(id) = hover.block {
        let block = trace.blocks.get(id);
        ui.horizontal(|ui| {
            if let Some(entry) = entry {
                swatch_ui(ui, entry.colour);
            }
            ui.strong(format!("{}  {}", format_bytes(bytes_of(trace, metric, id)), title(recording, id)));
        });
        if block.scope.is_some() {
            ui.label(trace.tables.scope_path(block.scope));
        }
        if let Some(line) = leading_frame(&trace.tables, block.stack) {
            ui.label(short_line(&line.text(&trace.tables)));
        }
        ui.label(life(trace, id));
        ui.add_space(6.0);
    }
    let moment = recording.devices[selection.device].moment(trace, metric, hover.moment);
    ui.label(format!("{} {metric} in all", format_bytes(hover.total)));
    ui.weak(moment_text(&moment));
}
