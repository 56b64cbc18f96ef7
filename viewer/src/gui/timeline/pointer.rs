//! Pointer: what is under it, and what wheel, drag and click do.

use std::ops::Range;

use eframe::egui::{self, Response, Tooltip, Ui};
use highwater_snapshots::units::{format_bytes, format_count, format_nanos};
use highwater_snapshots::{BlockId, EventId};

use super::frame::PlotFrame;
use super::{Hover, Timeline, marks};
use crate::gui::block;
use crate::gui::theme::{self, Shades};
use crate::selection::{Pin, Selection};
use crate::session::Recording;

/// Points of the wheel that double or halve the visible part.
const WHEEL_OCTAVE: f32 = 160.0;

impl Timeline {
    /// Follows the pointer: hover, click, drag and wheel.
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
        let hovered = response.hover_pos().filter(|_| !response.dragged());
        self.hover = hovered.and_then(|at| self.under(at, frame, recording, selection));
        let is_block = |block: BlockId| self.hover.is_some_and(|hover| hover.block == Some(block));
        if self.hovered_outline.as_ref().is_some_and(|(block, _)| !is_block(*block)) {
            self.hovered_outline = None;
        }
        let Some(at) = response.hover_pos() else {
            return;
        };
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
            self.hovered_outline = Some((block, self.pixels_of(block)));
        }
        let colouring = self.picture().map(|picture| &picture.colouring);
        let entry =
            hover.block.zip(colouring).and_then(|(block, colouring)| colouring.entries.get(colouring.entry(block)));
        let tooltip = Tooltip::always_open(
            ui.ctx().clone(),
            ui.layer_id(),
            response.id.with("under the pointer"),
            egui::PopupAnchor::Pointer,
        );
        tooltip.gap(16.0).show(|ui| {
            ui.set_max_width(theme::TOOLTIP_WIDTH);
            block::hover_ui(ui, recording, selection, hover, entry);
        });
    }

    /// The ruler: drawn out with Shift held, it tells how far apart two places are on both axes; it stays until the
    /// pointer lets go.
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
        let events = format_count(moments[0].abs_diff(moments[1]) as u64);
        let times = moments.map(|moment| {
            moment
                .checked_sub(1)
                .and_then(|index| recording.trace.events.time_of(EventId::from_index(index)))
                .unwrap_or(0)
        });
        let words = format!("{bytes}  ·  {events} events  ·  {}", format_nanos(times[0].abs_diff(times[1])));
        marks::paint_ruler(ui.painter(), frame, [from, to], &words, &Shades::in_ui(ui));
    }

    /// What lies at a place on the screen: the moment that the column there shows, and the block in its stack.
    pub fn under(
        &mut self,
        at: egui::Pos2,
        frame: &PlotFrame,
        recording: &Recording,
        selection: &Selection,
    ) -> Option<Hover> {
        let x = frame.x_at(at.x);
        let shown = self.detail.as_ref().filter(|shown| shown.view.x == frame.view.x);
        let column = shown.map(|shown| {
            let columns = &shown.picture.raster.columns;
            let share = f64::from(at.x - frame.rect.left()) / f64::from(frame.rect.width());
            let index = (share * columns.len() as f64).max(0.0) as usize;
            columns.get(index.min(columns.len().saturating_sub(1))).map(|column| column.moment)
        });
        let moment = column.flatten().unwrap_or_else(|| selection.moment_at(&recording.trace, x));
        let stack = self.stack(recording, selection, moment)?;
        let bytes = frame.bytes_at(at.y);
        let band = if bytes < 0.0 { None } else { stack.band_at(bytes as u64) };
        Some(Hover { moment, block: band.map(|(block, _)| *block), total: stack.total() })
    }

    /// The bytes that the pixels of `block` stand for, column by column.
    fn pixels_of(&self, block: BlockId) -> Vec<Option<Range<u64>>> {
        let Some(shown) = &self.detail else {
            return Vec::new();
        };
        let raster = &shown.picture.raster;
        let window = &shown.picture.request.window;
        let of_column = |column: &[BlockId]| {
            let first = column.iter().position(|other| *other == block)?;
            let after = first + column[first..].iter().take_while(|other| **other == block).count();
            let byte = |y: usize| {
                let span = u128::from(window.bytes.end - window.bytes.start);
                window.bytes.start + (span * y as u128 / raster.height.max(1) as u128) as u64
            };
            Some(byte(first)..byte(after))
        };
        raster.blocks.chunks(raster.height.max(1)).map(of_column).collect()
    }
}

/// Zooms along the axis around the pointer; with Alt along the bytes; with Ctrl, or by pinching, along both. A wheel
/// that also turns sideways moves along the axis. Tells whether anything moved.
fn wheel(ui: &Ui, at: egui::Pos2, frame: &PlotFrame, recording: &Recording, selection: &mut Selection) -> bool {
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
