//! Draws axes with ticks, the grid, and the lines of totals.

use std::ops::Range;

use eframe::egui::{Rect, Response, Role, Shape, Stroke, Ui, Vec2, WidgetInfo, vec2};
use egui_plot::{AxisHints, GridMark, Line, Plot};

use super::axis::{Tick, across_ticks, byte_ticks_in};
use super::frame::PlotFrame;
use super::{Timeline, TimelineStyle, lanes};
use crate::gui::widgets::{Shades, theme};
use crate::{Axis, Recording, Selection, View, drawn_metric};

/// Height of the labels of the time or event axis, in points, assumed before they are laid out.
const AXIS_HEIGHT: f32 = 15.0;

impl Timeline {
    /// Draws axes and lines. The bounds of the plot are set from the selection; the plot itself handles no input.
    pub(super) fn plot_ui(
        &self,
        ui: &mut Ui,
        recording: &Recording,
        selection: &Selection,
        look: &TimelineStyle,
        height: f32,
    ) -> (Response, PlotFrame) {
        let room = self.frame.as_ref().map_or(vec2(800.0, 400.0), |frame| frame.rect.size());
        let plot = ruled(Plot::new("timeline"), recording, selection, selection.view(), room);
        let plot = plot.height(height).show_background(false).show_grid(false);
        let lines = self.lines(recording, selection, look, &Shades::in_ui(ui));
        let label =
            format!("Timeline of {}: {} memory stacked by block", recording.name, drawn_metric(selection.metric));
        lines_ui(ui, plot, lines, selection.view(), &label)
    }

    /// The background of the bands: canvas, grid, and step borders, or without these, the grid of events or times.
    pub(super) fn beneath(
        &self,
        frame: &PlotFrame,
        recording: &Recording,
        selection: &Selection,
        shades: &Shades,
    ) -> Vec<Shape> {
        let View { x, y } = &frame.view;
        let [per_x, _] = frame.units_per_point();
        // Nothing is drawn beyond the end of the recording, which the view may include beside a longer one.
        let inside = selection.whole(recording).x;
        let edges = [inside.start, inside.end].map(|at| frame.screen_x(at.clamp(x.start, x.end)));
        let canvas = Rect::from_x_y_ranges(edges[0]..=edges[1].max(edges[0]), frame.rect.y_range());
        let mut shapes = vec![Shape::rect_filled(canvas, 2.0, shades.canvas)];
        let grid = Stroke::new(1.0, shades.grid);
        let up = byte_ticks_in(y, frame.rect.height());
        shapes.extend(up.iter().map(|tick| Shape::hline(frame.rect.x_range(), frame.screen_y(tick.value), grid)));
        let (mut across, mut stroke) =
            (lanes::step_borders(frame, recording, selection), Stroke::new(1.0, shades.step_border));
        if across.is_empty() {
            let recorded = x.start.max(inside.start)..x.end.min(inside.end);
            let (step, before) = (per_x * theme::X_TICK_DISTANCE, recording.trace.start.events);
            let ticks = across_ticks(selection.axis(), &recorded, step, before);
            across.extend(ticks.iter().map(|tick| tick.value));
            stroke.color = shades.grid.gamma_multiply(0.5);
        }
        shapes.extend(across.iter().map(|at| Shape::vline(frame.screen_x(*at), frame.rect.y_range(), stroke)));
        shapes
    }
}

/// Shows `plot` with `lines` over `view`; `label` is for screen readers.
pub(crate) fn lines_ui(
    ui: &mut Ui,
    plot: Plot<'_>,
    lines: Vec<Line<'_>>,
    view: &View,
    label: &str,
) -> (Response, PlotFrame) {
    // The end of a recording is not at the edge of the panel.
    let shown = plot.width(ui.available_width() - theme::END_MARGIN).show(ui, |plot| {
        plot.set_plot_bounds_x(view.x.start..=view.x.end);
        plot.set_plot_bounds_y(view.y.start..=view.y.end);
        lines.into_iter().for_each(|line| plot.line(line));
    });
    shown.response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, label));
    (shown.response, PlotFrame { rect: *shown.transform.frame(), view: view.clone() })
}

/// Configures `plot` with the axes of the timeline for `view`; `room` is its approximate size. The plot handles no
/// input: the caller sets its bounds.
pub(crate) fn ruled<'a>(
    plot: Plot<'a>,
    recording: &Recording,
    selection: &Selection,
    view: &View,
    room: Vec2,
) -> Plot<'a> {
    let inside = selection.whole(recording).x;
    ruled_within(plot, &inside, (selection.axis(), recording.trace.start.events), view, room)
}

/// Like [`ruled`], for a recording that covers `inside` of the axis and begins after `before` events.
pub(crate) fn ruled_within<'a>(
    plot: Plot<'a>,
    inside: &Range<f64>,
    (axis, before): (Axis, u64),
    view: &View,
    room: Vec2,
) -> Plot<'a> {
    let View { x, y } = view;
    let recorded = x.start.max(inside.start)..x.end.min(inside.end);
    let step = (x.end - x.start) / f64::from(room.x) * theme::X_TICK_DISTANCE;
    let across = across_ticks(axis, &recorded, step, before);
    let up = byte_ticks_in(y, room.y);
    // A label at either end would overlap the other axis's, or be cut off.
    let edge = (x.end - x.start) / f64::from(room.x) * theme::X_LABEL_HALF;
    let labelled = x.start + edge..x.end - edge;
    plot.show_x(false)
        .show_y(false)
        .allow_zoom(false)
        .allow_scroll(false)
        .allow_drag(false)
        .allow_axis_zoom_drag(false)
        .allow_boxed_zoom(false)
        .allow_double_click_reset(false)
        .x_grid_spacer(marks_of(&across))
        .y_grid_spacer(marks_of(&up))
        .custom_x_axes(vec![AxisHints::new_x().formatter(labels_of(&across, &labelled)).min_thickness(AXIS_HEIGHT)])
        .custom_y_axes(vec![
            AxisHints::new_y().formatter(labels_of(&up, &(f64::MIN..f64::MAX))).min_thickness(theme::AXIS_WIDTH),
        ])
}

fn marks_of(ticks: &[Tick]) -> impl Fn(egui_plot::GridInput) -> Vec<GridMark> + 'static {
    let step_size = ticks.windows(2).map(|pair| pair[1].value - pair[0].value).next().unwrap_or(f64::MAX);
    let marks: Vec<GridMark> = ticks.iter().map(|tick| GridMark { value: tick.value, step_size }).collect();
    move |_| marks.clone()
}

/// Formats marks: those of the ticks within `labelled` by their labels, others as empty strings.
fn labels_of(
    ticks: &[Tick],
    labelled: &Range<f64>,
) -> impl Fn(GridMark, &std::ops::RangeInclusive<f64>) -> String + 'static {
    let ticks: Vec<Tick> = ticks.iter().filter(|tick| labelled.contains(&tick.value)).cloned().collect();
    move |mark, _| {
        ticks.iter().find(|tick| tick.value == mark.value).map_or_else(String::new, |tick| tick.label.clone())
    }
}

#[cfg(test)]
mod tests {
    use eframe::egui::{pos2, vec2};
    use highwater_notation::trace_from_text;

    use super::*;

    #[test]
    fn borders_of_steps_replace_the_grid_of_events() {
        let uprights = |text: &str| {
            let recording = Recording::new("test", None, trace_from_text(text).unwrap());
            let selection = Selection::new(&recording);
            let rect = Rect::from_min_size(pos2(0.0, 0.0), vec2(900.0, 300.0));
            let frame = PlotFrame { rect, view: selection.view().clone() };
            let shapes =
                Timeline::default().beneath(&frame, &recording, &selection, &Shades::of(eframe::egui::Theme::Dark));
            let is_upright = |shape: &&Shape| matches!(shape, Shape::LineSegment { points: [a, b], .. } if a.x == b.x);
            shapes.iter().filter(is_upright).count()
        };
        let allocs = |step: u32| (0..20).map(|n| format!("alloc a{step}.{n} 10\n")).collect::<String>();
        let text = format!("{}step 0\n{}step 1\n{}", allocs(9), allocs(0), allocs(1));
        assert_eq!(uprights(&text), 2);
        assert!(uprights(&allocs(0)) > 2);
    }
}
