//! The predicted curve over the measured one, on the timeline's axis, with the capacity and the point of failure.

use std::sync::Arc;

use eframe::egui::{self, Context, PointerButton, Response, Role, Stroke, Tooltip, Ui, Vec2, WidgetInfo, vec2};
use egui_plot::{Line, LineStyle, Plot, PlotPoints};
use highwater_analysis::Metric;
use highwater_snapshots::units::format_bytes;

use super::curve::{Asked, Column, Curve, DRAWN, Key};
use super::job::{Other, Replayed};
use crate::gui::view_context::{Action, ViewContext};
use crate::gui::views::timeline::{Labels, PlotFrame, paint_axis_name, paint_note, paint_ooms, ruled, wheel};
use crate::gui::widgets::legend::Chip;
use crate::gui::widgets::theme::{self, Shades};
use crate::gui::widgets::words::moment_text;
use crate::gui::widgets::worker::Worker;
use crate::selection::View;

/// The upper end of the byte axis, as a multiple of the highest line.
const HEADROOM: f64 = 1.1;
/// Largest ratio of the capacity to the peaks at which it is drawn: a higher one would flatten the curves.
const CAPACITY_WITHIN: f64 = 1.6;
/// Most columns requested.
const MOST_COLUMNS: usize = 4096;
/// Length of a dash, in points.
const DASH: f32 = 6.0;

/// The input of the plot.
#[derive(Debug)]
pub(super) struct CurveView {
    worker: Worker<Asked, Curve>,
    asked: Option<Key>,
    shown: Option<Curve>,
    /// The frame of the last drawn plot.
    rect: Option<egui::Rect>,
}

impl Default for CurveView {
    fn default() -> Self {
        Self { worker: Worker::new("highwater-curve", Curve::of), asked: None, shown: None, rect: None }
    }
}

impl CurveView {
    pub(super) fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    pub(super) fn wait(&mut self) {
        self.shown = self.worker.wait().or(self.shown.take());
    }

    /// The current curve. For tests.
    #[cfg(test)]
    pub(super) fn shown(&self) -> Option<&Curve> {
        self.shown.as_ref()
    }

    /// Shows legend and curves in the available space, and handles wheel, drag and click.
    pub(super) fn curve_ui(
        &mut self,
        ui: &mut Ui,
        context: &ViewContext<'_>,
        replayed: &Arc<Replayed>,
    ) -> Option<Action> {
        let other = replayed.other()?;
        self.ask(ui, context, replayed);
        let shades = Shades::in_ui(ui);
        legend_ui(ui, context, &other, &shades);
        let height = (ui.available_height() - theme::AXIS_NAME_HEIGHT).max(theme::CURVE_LEAST - theme::ROW_HEIGHT);
        let view = View { x: context.selection.view().x.clone(), y: 0.0..top(context, &other) };
        let room = self.rect.map_or(vec2(600.0, 200.0), |rect| rect.size());
        let plot = ruled(Plot::new("what if"), context.recording, context.selection, &view, room);
        let plot = plot.height(height).show_grid(true).grid_color(shades.grid);
        let lines = self.lines(context, &other, &view, &shades);
        let bounds = view.clone();
        let shown = plot.show(ui, |plot| {
            plot.set_plot_bounds_x(bounds.x.start..=bounds.x.end);
            plot.set_plot_bounds_y(bounds.y.start..=bounds.y.end);
            for line in lines {
                plot.line(line);
            }
        });
        let name = &context.recording.name;
        let label = format!("Curves of {name}: reserved and allocated memory, as recorded and what if");
        shown.response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, &label));
        let frame = PlotFrame { rect: *shown.transform.frame(), view };
        self.rect = Some(frame.rect);
        let columns = self.shown.as_ref().map(|shown| shown.columns.as_slice()).unwrap_or_default();
        marks_ui(ui, &frame, context, (&other, columns), &shades);
        ui.add_space(theme::AXIS_NAME_HEIGHT);
        follow_ui(ui, &shown.response, &frame, context, &other)
    }

    fn ask(&mut self, ui: &Ui, context: &ViewContext<'_>, replayed: &Arc<Replayed>) {
        let width = self.rect.map_or(ui.available_width() - theme::AXIS_WIDTH, |rect| rect.width());
        let columns = ((width * ui.ctx().pixels_per_point()) as usize).clamp(16, MOST_COLUMNS);
        let selection = context.selection;
        let of = Arc::downgrade(replayed);
        let key = Key { of, axis: selection.axis(), x: selection.view().x.clone(), columns };
        if self.asked.as_ref() != Some(&key) {
            self.asked = Some(key.clone());
            let (recording, replayed) = (Arc::clone(context.recording), Arc::clone(replayed));
            self.worker.ask(ui.ctx(), Asked { recording, replayed, selection: selection.clone(), key });
        }
        self.shown = self.worker.take_newest().or(self.shown.take());
        // The curve of another replay, or on another axis, must not be shown.
        let (of, axis) = (Arc::downgrade(replayed), selection.axis());
        self.shown = self.shown.take().filter(|shown| shown.key.of.ptr_eq(&of) && shown.key.axis == axis);
    }

    /// Measured lines, then the predicted ones in dashes over them, then the capacity.
    fn lines(&self, context: &ViewContext<'_>, other: &Other<'_>, view: &View, shades: &Shades) -> Vec<Line<'static>> {
        let columns = self.shown.as_ref().map(|shown| shown.columns.as_slice()).unwrap_or_default();
        let inside = context.selection.whole(context.recording).x;
        let columns = || columns.iter().filter(|column| inside.contains(&column.x));
        let mut lines = Vec::new();
        for (row, metric) in DRAWN.into_iter().enumerate() {
            let points: Vec<[f64; 2]> = columns().map(|column| [column.x, column.measured[row] as f64]).collect();
            let line = Line::new(format!("{metric} as recorded"), PlotPoints::new(points));
            lines.push(line.stroke(shades.metric(metric)).allow_hover(false));
        }
        for (row, metric) in DRAWN.into_iter().enumerate() {
            let point = |column: &Column| Some([column.x, column.predicted?[row] as f64]);
            let points: Vec<[f64; 2]> = columns().filter_map(point).collect();
            let line = Line::new(format!("{metric} what if"), PlotPoints::new(points));
            let line = line.stroke(shades.predicted(metric)).style(LineStyle::Dashed { length: DASH });
            lines.push(line.allow_hover(false));
        }
        if let Some(capacity) = other.changed.capacity {
            let ends = PlotPoints::new(vec![[view.x.start, capacity as f64], [view.x.end, capacity as f64]]);
            lines.push(Line::new("capacity", ends).stroke(shades.capacity()).allow_hover(false));
        }
        lines
    }
}

/// The upper end of the byte axis: the highest line, or the capacity if that is not far above.
fn top(context: &ViewContext<'_>, other: &Other<'_>) -> f64 {
    let peaks = DRAWN.map(|metric| context.index().peak(&context.recording.trace, metric).bytes);
    let highest = peaks.into_iter().max().unwrap_or(0).max(other.highest()).max(1) as f64;
    let capacity = other.changed.capacity.map(|bytes| bytes as f64).filter(|bytes| *bytes <= highest * CAPACITY_WITHIN);
    highest.max(capacity.unwrap_or(0.0)) * HEADROOM
}

/// The legend of the lines, with each total at the moment.
fn legend_ui(ui: &mut Ui, context: &ViewContext<'_>, other: &Other<'_>, shades: &Shades) {
    let moment = context.moment.position();
    let measured = context.index().series.before_position(&context.recording.trace, moment);
    let predicted = other.totals(moment);
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 2.0);
        for metric in DRAWN {
            let stroke = Stroke::new(2.0, shades.metric(metric).color);
            let solid = |painter: &egui::Painter, rect: egui::Rect| {
                painter.hline(rect.x_range(), rect.center().y, stroke);
            };
            Chip::new(ui, &format!("{metric}, recorded"), &format_bytes(measured.get(metric)), true).show(ui, solid);
            let dashes = |painter: &egui::Painter, rect: egui::Rect| {
                let ends = [rect.left_center(), rect.right_center()];
                painter.extend(egui::Shape::dashed_line(&ends, stroke, 4.0, 3.0));
            };
            let amount = predicted.map_or_else(|| "ended".to_owned(), |totals| format_bytes(totals.get(metric)));
            Chip::new(ui, &format!("{metric}, what if"), &amount, predicted.is_some()).show(ui, dashes);
        }
        if let Some(capacity) = other.changed.capacity {
            let line = |painter: &egui::Painter, rect: egui::Rect| {
                painter.hline(rect.x_range(), rect.center().y, shades.capacity());
            };
            Chip::new(ui, "capacity", &format_bytes(capacity), true).show(ui, line);
        }
    });
}

/// Marks the moment, the point of failure, and a capacity above the view.
fn marks_ui(
    ui: &Ui,
    frame: &PlotFrame,
    context: &ViewContext<'_>,
    (other, columns): (&Other<'_>, &[Column]),
    shades: &Shades,
) {
    let painter = ui.painter();
    let (selection, trace) = (context.selection, &context.recording.trace);
    let x = frame.screen_x(selection.middle_of(trace, context.moment.position()));
    if frame.rect.x_range().contains(x) {
        painter.vline(x, frame.rect.y_range(), Stroke::new(1.0, shades.cursor.gamma_multiply(0.6)));
    }
    let mut labels = Labels::default();
    let end = other.end().map(|end| selection.middle_of(trace, end));
    paint_ooms(painter, frame, end.into_iter(), &mut labels, shades);
    if let Some(capacity) = other.changed.capacity.filter(|bytes| *bytes as f64 > frame.view.y.end) {
        let text = format!("capacity {} is above this view", format_bytes(capacity));
        let lies_below = |place: egui::Rect| {
            let over = columns.iter().filter(|column| place.x_range().contains(frame.screen_x(column.x)));
            let bytes =
                over.flat_map(|column| column.measured.into_iter().chain(column.predicted.into_iter().flatten()));
            bytes.max().is_none_or(|bytes| frame.screen_y(bytes as f64) > place.bottom())
        };
        paint_note(painter, frame, &text, &mut labels, lies_below, shades);
    }
    paint_axis_name(painter, frame, selection.axis(), shades);
}

/// Moves and zooms along the axis together with the timeline, and pins the moment that is clicked.
fn follow_ui(
    ui: &Ui,
    response: &Response,
    frame: &PlotFrame,
    context: &ViewContext<'_>,
    other: &Other<'_>,
) -> Option<Action> {
    let (recording, now) = (context.recording, context.selection);
    let mut selection = now.clone();
    if response.dragged_by(PointerButton::Primary) {
        let moved = f64::from(response.drag_delta().x) * frame.units_per_point()[0];
        selection.pan(recording, [-moved, 0.0]);
    }
    let at = response.hover_pos();
    if let Some(at) = at
        && wheel(ui, at, frame, recording, &mut selection)
    {
        // The surrounding view does not scroll.
        ui.input_mut(|input| input.smooth_scroll_delta = Vec2::ZERO);
    }
    if selection.view().x != now.view().x {
        return Some(Action::Across(selection.view().x.clone()));
    }
    let at = at.filter(|_| !response.dragged())?;
    let moment = now.moment_at(&recording.trace, frame.x_at(at.x));
    if response.clicked() {
        return Some(Action::Moment(moment));
    }
    hover_ui(ui.ctx(), ui, response, moment, (context, other));
    None
}

fn hover_ui(
    ctx: &Context,
    ui: &Ui,
    response: &Response,
    position: usize,
    (context, other): (&ViewContext<'_>, &Other<'_>),
) {
    let id = response.id.with("under the pointer");
    let tooltip = Tooltip::always_open(ctx.clone(), ui.layer_id(), id, egui::PopupAnchor::Pointer);
    tooltip.gap(16.0).show(|ui| {
        let trace = &context.recording.trace;
        let measured = context.index().series.before_position(trace, position);
        let predicted = other.totals(position);
        for metric in DRAWN {
            let predicted = predicted.map_or_else(|| "ended".to_owned(), |totals| format_bytes(totals.get(metric)));
            ui.label(format!("{metric}: {} recorded, {predicted} what if", format_bytes(measured.get(metric))));
        }
        ui.weak(moment_text(&context.index().moment(trace, Metric::Reserved, position)));
    });
}
