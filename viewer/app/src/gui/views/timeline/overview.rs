//! The whole recording as one curve, with the visible part as a brush that can be moved, resized or drawn.

use std::ops::Range;

use eframe::egui::{self, CursorIcon, Response, Role, Sense, Ui, WidgetInfo};
use egui_plot::{Line, Plot, PlotPoints, Span, VLine};
use highwater_analysis::Metric;

use super::picture::Picture;
use crate::View;
use crate::gui::widgets::{Shades, theme};

/// The content of the overview.
pub(super) struct Overview<'a> {
    /// The picture of the whole recording.
    pub picture: &'a Picture,
    /// The extent of the whole recording.
    pub whole: View,
    /// The visible part.
    pub view: &'a View,
    /// The total of the curve.
    pub metric: Metric,
    /// The position of the peak on the axis.
    pub peak_x: f64,
    /// The positions of the marks A and B on the axis.
    pub marks: [Option<f64>; 2],
}

/// The part of the overview that the user drags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hold {
    /// The visible part, grabbed at this distance from its start.
    Part(f64),
    /// One end of the visible part, or of a new one; the other end stays at this position.
    End(f64),
}

/// Maximum distance from an edge of the visible part at which it can be grabbed, in points.
const EDGE: f64 = 5.0;
/// Half the minimum width of the visible part, as a fraction of the whole.
const MIN_BRUSH: f64 = 0.002;

/// Shows the overview; returns the range of the axis that the user selects.
pub(super) fn overview_ui(ui: &mut Ui, overview: &Overview<'_>, hold: &mut Option<Hold>) -> Option<Range<f64>> {
    let shades = Shades::in_ui(ui);
    let Overview { picture, whole, view, metric, peak_x, marks } = overview;
    let width = (whole.x.end - whole.x.start) / picture.totals.len().max(1) as f64;
    let place = |column: usize| whole.x.start + (column as f64 + 0.5) * width;
    let points: Vec<[f64; 2]> =
        picture.totals.iter().enumerate().map(|(column, totals)| [place(column), totals.get(*metric) as f64]).collect();
    let highest = points.iter().map(|point| point[1]).fold(1.0, f64::max);
    let top = highest * 1.08;
    let whole_x = whole.x.start..=whole.x.end;
    let plot = Plot::new("overview")
        .height(theme::OVERVIEW_HEIGHT)
        .show_axes(false)
        .show_grid(false)
        .show_x(false)
        .show_y(false)
        .allow_zoom(false)
        .allow_scroll(false)
        .allow_drag(false)
        .allow_boxed_zoom(false)
        .allow_double_click_reset(false)
        .sense(Sense::click_and_drag());
    let line = |name: &str, x: f64, colour| VLine::new(name, x).stroke(egui::Stroke::new(1.0, colour));
    let shown = plot.show(ui, |plot| {
        plot.set_plot_bounds_x(whole_x);
        plot.set_plot_bounds_y(0.0..=top);
        plot.line(
            Line::new("total", PlotPoints::new(points))
                .stroke(egui::Stroke::new(1.0, shades.curve))
                .fill(0.0)
                .fill_alpha(0.35),
        );
        plot.vline(line("peak", *peak_x, shades.peak));
        for mark in marks.iter().flatten() {
            plot.vline(line("mark", *mark, shades.mark));
        }
        // A small part of a long recording is still visible.
        let (middle, half) = ((view.x.start + view.x.end) / 2.0, (view.x.end - view.x.start) / 2.0);
        let half = half.max(MIN_BRUSH * (whole.x.end - whole.x.start));
        let brush = Span::new("", middle - half..=middle + half);
        plot.span(brush.fill(shades.window).border(egui::Stroke::new(1.0, shades.cursor)));
    });
    let response = shown.response;
    response.widget_info(|| WidgetInfo::labeled(Role::Slider, true, "Overview of the whole recording"));
    let per_point = (whole.x.end - whole.x.start) / f64::from(response.rect.width().max(1.0));
    let at = |pointer: egui::Pos2| shown.transform.value_from_position(pointer).x;
    if let Some(pointer) = response.hover_pos() {
        let grip = grip(at(pointer), &view.x, &whole.x, EDGE * per_point);
        ui.set_cursor_icon(if matches!(grip, Hold::Part(_)) { CursorIcon::Grab } else { CursorIcon::ResizeHorizontal });
    }
    brushed(&response, at, view, &whole.x, per_point, hold)
}

/// Determines what a drag that starts at `x` moves: an edge of the visible part, the part itself, or a new part. If
/// everything is visible, there is nothing to move, so a new part is drawn.
fn grip(x: f64, shown: &Range<f64>, whole: &Range<f64>, near: f64) -> Hold {
    let is_whole = shown.start <= whole.start && shown.end >= whole.end;
    if !is_whole && (x - shown.start).abs() <= near {
        Hold::End(shown.end)
    } else if !is_whole && (x - shown.end).abs() <= near {
        Hold::End(shown.start)
    } else if !is_whole && shown.contains(&x) {
        Hold::Part(x - shown.start)
    } else {
        Hold::End(x)
    }
}

fn brushed(
    response: &Response,
    at: impl Fn(egui::Pos2) -> f64,
    view: &View,
    whole: &Range<f64>,
    per_point: f64,
    hold: &mut Option<Hold>,
) -> Option<Range<f64>> {
    let width = view.x.end - view.x.start;
    if response.clicked() {
        // A click outside the visible part moves it there.
        let middle = at(response.interact_pointer_pos()?);
        *hold = None;
        return (!view.x.contains(&middle)).then(|| middle - width / 2.0..middle + width / 2.0);
    }
    if !response.dragged() {
        *hold = None;
        return None;
    }
    let now = at(response.interact_pointer_pos()?);
    let began = response.ctx.input(|input| input.pointer.press_origin()).map_or(now, &at);
    let grip_now = *hold.get_or_insert_with(|| grip(began, &view.x, whole, EDGE * per_point));
    let now = now.clamp(whole.start, whole.end);
    match grip_now {
        Hold::Part(offset) => Some(now - offset..now - offset + width),
        Hold::End(other) if (now - other).abs() < per_point => None,
        Hold::End(other) => Some(now.min(other)..now.max(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pointer_takes_hold_of_edges_of_the_inside_or_of_a_new_part() {
        let whole = 0.0..1000.0;
        let shown = 200.0..400.0;
        let at = |x: f64| grip(x, &shown, &whole, 5.0);
        assert_eq!(at(203.0), Hold::End(400.0));
        assert_eq!(at(396.0), Hold::End(200.0));
        assert_eq!(at(300.0), Hold::Part(100.0));
        assert_eq!(at(700.0), Hold::End(700.0));
        assert_eq!(grip(300.0, &whole, &whole, 5.0), Hold::End(300.0), "a first part of the whole");
    }
}
