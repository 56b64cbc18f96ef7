//! Draws the predicted curve over the recorded one, on the timeline's axis, with a limit and the point of failure.

mod run;
mod columns;

use std::sync::Arc;

use eframe::egui::{self, PointerButton, Response, Stroke, Tooltip, Ui, Vec2, vec2};
use egui_plot::{Line, LineStyle, Plot, PlotPoints};
use highwater_analysis::Metric;
use highwater_snapshots::format_bytes;

use crate::View;
use crate::gui::identity::Identity;
use crate::gui::legend::{Chip, at_text};
use crate::gui::views::timeline::{
    FailedMark, Labels, PlotFrame, lines_ui, paint_axis_name, paint_note, paint_ooms, paint_tagged, ruled, wheel,
};
use crate::gui::views::view::{Action, ViewContext};
use crate::gui::widgets::{Query, Shades, computed, moment_text, theme};

pub(super) use columns::Key;
pub(crate) use columns::{Column, Curve};
pub(crate) use run::PredictedRun;

/// The upper end of the byte axis, as a multiple of the highest line.
const HEADROOM: f64 = 1.1;
/// The limit is drawn only if it is at most this multiple of the peaks; a larger limit would flatten the curves.
const LIMIT_WITHIN: f64 = 1.6;
/// Maximum number of columns requested.
const MAX_COLUMNS: usize = 4096;
/// Distance in points below which two peaks share a label.
const NEAR: f32 = 80.0;
const DASH: f32 = 6.0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CurveLook {
    pub drawn: [Metric; 2],
    /// The name of the prediction in the legend.
    pub predicted: &'static str,
    /// A horizontal line, with its name and its value in bytes.
    pub limit: Option<(&'static str, u64)>,
    /// The total whose peaks are marked, as recorded and as predicted.
    pub marked: Option<Metric>,
    /// The upper end of the byte axis; `None` for one that fits the lines, and the limit if it is near them.
    pub top: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct CurveView {
    query: Query<Key, Curve>,
    frame: Option<PlotFrame>,
}

computed!(CurveView: query);

impl Default for CurveView {
    fn default() -> Self {
        Self { query: Query::new("highwater-curve", Curve::of).showing_late(), frame: None }
    }
}

impl CurveView {
    /// The frame of the last drawn plot; `None` before the first.
    pub(crate) fn frame(&self) -> Option<&PlotFrame> {
        self.frame.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn shown(&self) -> Option<&Curve> {
        self.query.answer()
    }

    /// Shows the legend and the curves of `run`, and handles wheel, drag and click.
    pub(crate) fn curve_ui(
        &mut self,
        ui: &mut Ui,
        context: &ViewContext<'_>,
        run: &Arc<PredictedRun>,
        look: &CurveLook,
    ) -> Option<Action> {
        self.ask(ui, context, run, look);
        let shades = Shades::in_ui(ui);
        legend_ui(ui, context, run, look, &shades);
        let height = (ui.available_height() - theme::AXIS_NAME_HEIGHT).max(theme::CURVE_MIN - theme::ROW_HEIGHT);
        let top = look.top.unwrap_or_else(|| top(context, run, look));
        let view = View { x: context.selection.view().x.clone(), y: 0.0..top };
        let room = self.frame.as_ref().map_or(vec2(600.0, 200.0), |frame| frame.rect.size());
        let plot = ruled(Plot::new(look.predicted), context.recording, context.selection, &view, room);
        let plot = plot.height(height).show_grid(true).grid_color(shades.grid);
        let lines = self.lines(context, look, &view, &shades);
        let name = &context.recording.name;
        let [one, other] = look.drawn;
        let label = format!("Curves of {name}: {other} and {one} memory, as recorded and {}", look.predicted);
        let (response, frame) = lines_ui(ui, plot, lines, &view, &label);
        let columns = self.query.answer().map(|shown| shown.columns.as_slice()).unwrap_or_default();
        marks_ui(ui, &frame, context, (run, columns, look), &shades);
        ui.add_space(theme::AXIS_NAME_HEIGHT);
        let action = follow_ui(ui, &response, &frame, context, (run, look));
        self.frame = Some(frame);
        action
    }

    fn ask(&mut self, ui: &Ui, context: &ViewContext<'_>, run: &Arc<PredictedRun>, look: &CurveLook) {
        let known = self.frame.as_ref().map(|frame| frame.rect.width());
        let width = known.unwrap_or_else(|| ui.available_width() - theme::AXIS_WIDTH);
        let columns = ((width * ui.ctx().pixels_per_point()) as usize).clamp(16, MAX_COLUMNS);
        let selection = context.selection;
        let (recording, of) = (Identity::of(context.recording), Identity::of(run));
        let key = Key { recording, run: of, drawn: look.drawn, selection: selection.clone(), columns };
        self.query.ask(ui.ctx(), &key);
        self.query.receive();
        // The curve of another replay, or on another axis, must not be shown.
        self.query.keep_if(|shown| shown.run.is(run) && shown.selection.axis() == selection.axis());
    }

    /// Draws the recorded lines, then the predicted ones over them with dashes, then the limit.
    fn lines(&self, context: &ViewContext<'_>, look: &CurveLook, view: &View, shades: &Shades) -> Vec<Line<'static>> {
        let columns = self.query.answer().map(|shown| shown.columns.as_slice()).unwrap_or_default();
        let inside = context.selection.whole(context.recording).x;
        let columns = || columns.iter().filter(|column| inside.contains(&column.x));
        let mut lines = Vec::new();
        for (row, metric) in look.drawn.into_iter().enumerate() {
            let points: Vec<[f64; 2]> = columns().map(|column| [column.x, column.measured[row] as f64]).collect();
            let line = Line::new(format!("{metric} as recorded"), PlotPoints::new(points));
            lines.push(line.stroke(shades.metric(metric)).allow_hover(false));
        }
        for (row, metric) in look.drawn.into_iter().enumerate() {
            let point = |column: &Column| Some([column.x, column.predicted?[row] as f64]);
            let points: Vec<[f64; 2]> = columns().filter_map(point).collect();
            let line = Line::new(format!("{metric} {}", look.predicted), PlotPoints::new(corners(&points)));
            let line = line.stroke(shades.predicted(metric)).style(LineStyle::Dashed { length: DASH });
            // The prediction is drawn stronger than the recording.
            let line = if row == 0 { line.fill(0.0).fill_alpha(0.16) } else { line };
            lines.push(line.allow_hover(false));
        }
        if let Some((name, bytes)) = look.limit {
            let ends = PlotPoints::new(vec![[view.x.start, bytes as f64], [view.x.end, bytes as f64]]);
            lines.push(Line::new(name, ends).stroke(shades.capacity()).allow_hover(false));
        }
        lines
    }
}

/// Returns the corners of a line: its ends and the points at which its height changes. Dashes are drawn along the
/// segments between them, which are longer than a pixel.
fn corners(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let is_corner = |at: &usize| {
        let height = |other: usize| points.get(other).map(|point| point[1]);
        let here = height(*at);
        at.checked_sub(1).and_then(height) != here || height(at + 1) != here
    };
    (0..points.len()).filter(is_corner).map(|at| points[at]).collect()
}

/// Returns the upper end of the byte axis: the highest line, or the limit if it is at most [`LIMIT_WITHIN`] times as
/// high, times [`HEADROOM`].
fn top(context: &ViewContext<'_>, run: &PredictedRun, look: &CurveLook) -> f64 {
    let peaks = look.drawn.map(|metric| {
        let measured = context.index().peak(&context.recording.trace, metric).bytes;
        measured.max(run.peak(metric).bytes)
    });
    let highest = peaks.into_iter().max().unwrap_or(0).max(1) as f64;
    let limit = look.limit.map(|(_, bytes)| bytes as f64).filter(|bytes| *bytes <= highest * LIMIT_WITHIN);
    highest.max(limit.unwrap_or(0.0)) * HEADROOM
}

/// Shows the legend of the lines: each total at the current moment, or the maximum of each line if that is the peak.
fn legend_ui(ui: &mut Ui, context: &ViewContext<'_>, run: &PredictedRun, look: &CurveLook, shades: &Shades) {
    let moment = context.moment.position();
    let measured = context.index().series.before_position(&context.recording.trace, moment);
    let predicted = run.totals(moment);
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 2.0);
        let is_peak = context.moment == context.index().peak(&context.recording.trace, context.moment.metric);
        let when = if is_peak { "Peaks:".to_owned() } else { at_text(&context.moment, false) };
        ui.weak(format!("{when} "));
        for metric in look.drawn {
            let stroke = Stroke::new(2.0, shades.metric(metric).color);
            let (recorded, predicted) = if is_peak {
                let recorded = context.index().peak(&context.recording.trace, metric).bytes;
                (recorded, Some(run.peak(metric).bytes))
            } else {
                (measured.get(metric), predicted.map(|totals| totals.get(metric)))
            };
            let solid = |painter: &egui::Painter, rect: egui::Rect| {
                painter.hline(rect.x_range(), rect.center().y, stroke);
            };
            Chip::new(ui, &format!("{metric}, recorded"), &format_bytes(recorded), true).show(ui, solid);
            let dashes = |painter: &egui::Painter, rect: egui::Rect| {
                let ends = [rect.left_center(), rect.right_center()];
                painter.extend(egui::Shape::dashed_line(&ends, stroke, 4.0, 3.0));
            };
            let amount = predicted.map_or_else(|| "ended".to_owned(), format_bytes);
            let until = if is_peak && run.fails() { " until it fails" } else { "" };
            let name = format!("{metric}, {}{until}", look.predicted);
            Chip::new(ui, &name, &amount, predicted.is_some()).show(ui, dashes);
        }
        if let Some((name, bytes)) = look.limit {
            let line = |painter: &egui::Painter, rect: egui::Rect| {
                painter.hline(rect.x_range(), rect.center().y, shades.capacity());
            };
            Chip::new(ui, name, &format_bytes(bytes), true).show(ui, line);
        }
    });
}

/// Marks the moment, the point of failure, the peaks, and a limit above the view.
fn marks_ui(
    ui: &Ui,
    frame: &PlotFrame,
    context: &ViewContext<'_>,
    (run, columns, look): (&PredictedRun, &[Column], &CurveLook),
    shades: &Shades,
) {
    let painter = ui.painter();
    let (selection, trace) = (context.selection, &context.recording.trace);
    let x = frame.screen_x(selection.middle_of(trace, context.moment.position()));
    if frame.rect.x_range().contains(x) {
        painter.vline(x, frame.rect.y_range(), Stroke::new(1.0, shades.cursor.gamma_multiply(0.6)));
    }
    let mut labels = Labels::default();
    let end = run.end().map(|end| FailedMark::at(selection.middle_of(trace, end), true));
    let is_free = |place: egui::Rect| is_free(frame, columns, look, place);
    paint_ooms(painter, frame, end.into_iter(), (&mut labels, is_free), shades);
    if let Some(metric) = look.marked {
        peaks_ui(painter, frame, context, (run, metric, look.predicted), (&mut labels, is_free), shades);
    }
    if let Some((name, bytes)) = look.limit.filter(|(_, bytes)| *bytes as f64 > frame.view.y.end) {
        let text = format!("{name} {} is above this view", format_bytes(bytes));
        paint_note(painter, frame, &text, &mut labels, is_free, shades);
    }
    paint_axis_name(painter, frame, selection.axis(), shades);
}

/// Returns whether no line crosses `place`, considering the columns from just before to just after it.
fn is_free(frame: &PlotFrame, columns: &[Column], look: &CurveLook, place: egui::Rect) -> bool {
    let first = columns.partition_point(|column| frame.screen_x(column.x) < place.left());
    let end = columns.partition_point(|column| frame.screen_x(column.x) <= place.right());
    let over = &columns[first.saturating_sub(1)..(end + 1).min(columns.len()).max(first.saturating_sub(1))];
    let is_beside = |bytes: &mut dyn Iterator<Item = u64>| {
        let (low, high) = bytes.fold((u64::MAX, 0), |(low, high), bytes| (low.min(bytes), high.max(bytes)));
        frame.screen_y(low as f64) < place.top() || frame.screen_y(high as f64) > place.bottom()
    };
    let is_line_beside = |row: usize| {
        is_beside(&mut over.iter().map(|column| column.measured[row]))
            && is_beside(&mut over.iter().filter_map(|column| Some(column.predicted?[row])))
    };
    (0..look.drawn.len()).all(is_line_beside)
        && look.limit.is_none_or(|(_, bytes)| is_beside(&mut std::iter::once(bytes)))
}

fn peaks_ui(
    painter: &egui::Painter,
    frame: &PlotFrame,
    context: &ViewContext<'_>,
    (run, metric, predicted): (&PredictedRun, Metric, &str),
    (labels, is_free): (&mut Labels, impl Fn(egui::Rect) -> bool),
    shades: &Shades,
) {
    let trace = &context.recording.trace;
    let peaks = [(context.index().peak(trace, metric), "recorded"), (run.peak(metric), predicted)];
    let is_same = (peaks[0].0.bytes, peaks[0].0.event) == (peaks[1].0.bytes, peaks[1].0.event);
    let marks = peaks.map(|(peak, name)| {
        let text = format!("{} {name}", format_bytes(peak.bytes));
        ([context.selection.middle_of(trace, peak.position()), peak.bytes as f64], text)
    });
    let [(first, title), (second, text)] = &marks;
    // Lines to two labels close to each other would cross.
    let is_near = (frame.screen_x(first[0]) - frame.screen_x(second[0])).abs() < NEAR;
    let [below, own] = if is_near && !is_same { [text.as_str(), ""] } else { ["", text] };
    paint_tagged(painter, frame, *first, (title, below), (&mut *labels, &is_free), shades);
    if !is_same {
        paint_tagged(painter, frame, *second, (own, ""), (labels, is_free), shades);
    }
}

/// Pans and zooms the axis together with the timeline, and pins the moment that the user clicks.
fn follow_ui(
    ui: &Ui,
    response: &Response,
    frame: &PlotFrame,
    context: &ViewContext<'_>,
    (run, look): (&PredictedRun, &CurveLook),
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
    hover_ui(ui, response, moment, context, (run, look));
    None
}

fn hover_ui(
    ui: &Ui,
    response: &Response,
    position: usize,
    context: &ViewContext<'_>,
    (run, look): (&PredictedRun, &CurveLook),
) {
    let id = response.id.with("under the pointer");
    let tooltip = Tooltip::always_open(ui.ctx().clone(), ui.layer_id(), id, egui::PopupAnchor::Pointer);
    tooltip.gap(16.0).show(|ui| {
        let trace = &context.recording.trace;
        let measured = context.index().series.before_position(trace, position);
        let predicted = run.totals(position);
        for metric in look.drawn {
            let predicted = predicted.map_or_else(|| "ended".to_owned(), |totals| format_bytes(totals.get(metric)));
            let recorded = format_bytes(measured.get(metric));
            ui.label(format!("{metric}: {recorded} recorded, {predicted} {}", look.predicted));
        }
        ui.weak(moment_text(&context.index().moment(trace, Metric::Reserved, position)));
    });
}
