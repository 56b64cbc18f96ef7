//! A chart of the largest totals of a long recording, or of a long range of it, drawn from the summaries in the file.

use std::ops::Range;
use std::sync::Arc;

use eframe::egui::{Color32, FontId, Rect, Shape, Ui, pos2, vec2};
use egui_plot::{Line, Plot, PlotPoints};
use highwater_analysis::{DeviceSummary, Leaks, Metric, Moment, PeakCause, Source};
use highwater_snapshots::{Category, format_count};

use super::timeline::{
    FailedMark, Labels, PlotFrame, lines_ui, paint_axis_name, paint_capacity, paint_note, paint_ooms, paint_peak,
    peak_text, ruled_within,
};
use crate::figures::cause::cause_text;
use crate::gui::widgets::{Memo, Shades, theme};
use crate::selection::HEADROOM;
use crate::session::run::{Run, RunColumn};
use crate::{Axis, View};

const MAX_COLUMNS: usize = 8192;
/// Distance between the labels of steps, in points.
const STEP_DISTANCE: f32 = 110.0;

/// The columns of each recorded total.
type Totals = Vec<(Metric, Vec<RunColumn>)>;

/// A chart of one total over a range of events of a run.
#[derive(Debug)]
pub struct RunChart {
    /// The long recording.
    pub run: Arc<Run>,
    /// The summary of the device.
    pub summary: DeviceSummary,
    /// The peak of the total on the device.
    pub peak: Moment,
    /// The indices of the events that are drawn.
    pub events: Range<u64>,
    /// The event indices of failed requests on the device.
    pub failed: Vec<u64>,
    cause: Option<String>,
    /// The columns, by their number.
    columns: Memo<usize, Totals>,
    /// The rectangle of the plot when it was last drawn.
    room: Option<Rect>,
}

impl RunChart {
    /// Creates a chart of the total whose peak is `peak`.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn new(
        run: Arc<Run>,
        summary: DeviceSummary,
        peak: Moment,
        events: Range<u64>,
    ) -> Result<Self, highwater_snapshots::Error> {
        let source = run.source();
        let failed = source.failed_requests()?.into_iter().filter(|(_, device)| *device == summary.device);
        let failed: Vec<u64> = failed.map(|(event, _)| event).collect();
        let cause = PeakCause::of(&source, &peak).ok().flatten();
        // Leaks are found by reading all events, which takes seconds.
        let leaks = run.may_leak(summary.device).then(|| Leaks::of_all_steps(&source, summary.device)).flatten();
        let leaked = leaks.as_ref().and_then(|leaks| Some((leaks, bytes_leaked(&source, &peak, leaks)?)));
        let cause = cause_text(source.facts(), &peak, cause.as_ref(), leaked);
        Ok(Self { run, summary, peak, events, failed, cause, columns: Memo::default(), room: None })
    }

    pub(crate) fn chart_ui(&mut self, ui: &mut Ui) {
        let shades = Shades::in_ui(ui);
        let lane = ui.allocate_space(vec2(ui.available_width(), theme::LANE_HEIGHT)).1;
        let beneath = ui.painter().add(Shape::Noop);
        let height = (ui.available_height() - theme::AXIS_NAME_HEIGHT).max(theme::MIN_PLOT);
        let width = self.room.map_or(ui.available_width() - theme::AXIS_WIDTH, |room| room.width());
        let count = ((width * ui.ctx().pixels_per_point()) as usize).clamp(16, MAX_COLUMNS);
        let Self { run, summary, events, columns, .. } = self;
        let of = |metric, count| (metric, run.columns(summary.device, metric, events, count));
        columns.get(run.columns_in(events, count), |count| {
            summary.peaks.iter().map(|peak| of(peak.metric, *count)).collect()
        });
        let columns = self.columns.known().map(Vec::as_slice).unwrap_or_default();
        let highest = columns.iter().filter(|(metric, _)| *metric != Metric::DeviceUsed || *metric == self.peak.metric);
        let highest = highest.flat_map(|(_, columns)| columns).map(|column| column.bytes).max().unwrap_or(0);
        let top = highest.max(16) as f64 * (1.0 + HEADROOM);
        let x = self.events.start as f64..self.events.end.max(self.events.start + 1) as f64 + 1.0;
        let view = View { x: x.clone(), y: 0.0..top };
        let room = self.room.map_or(vec2(800.0, 400.0), |room| room.size());
        let plot = ruled_within(Plot::new("run"), &x, (Axis::Event, 0), &view, room);
        let plot = plot.height(height).show_background(false).show_grid(false);
        let lines = self.lines(columns, &view, &shades);
        let label = format!("Largest totals of {}: {} memory", self.run.name(), self.peak.metric);
        let (_, frame) = lines_ui(ui, plot, lines, &view, &label);
        let mut shapes = vec![Shape::rect_filled(frame.rect, 2.0, shades.canvas)];
        if let Some((_, drawn)) = columns.iter().find(|(metric, _)| *metric == self.peak.metric) {
            let points_per_byte = 1.0 / frame.units_per_point()[1];
            shapes.extend(column_shapes(frame.rect, points_per_byte, drawn, (self.peak.metric, SWING), &shades));
        }
        ui.painter().set(beneath, Shape::Vec(shapes));
        self.steps_ui(ui, lane, &frame, &shades);
        paint_axis_name(ui.painter(), &frame, Axis::Event, &shades);
        let mut labels = Labels::default();
        let middle = |event: u64| event as f64 + 1.5;
        let is_above = |place: Rect| frame.screen_y(highest as f64) > place.bottom();
        let last = self.failed.last();
        let failed = self.failed.iter().map(|event| FailedMark::at(middle(*event), Some(event) == last));
        paint_ooms(ui.painter(), &frame, failed, (&mut labels, is_above), &shades);
        let at = self.peak.number().map_or(0.5, middle);
        let text = peak_text(&self.peak, self.cause.as_deref(), false);
        paint_peak(ui.painter(), &frame, at, (&self.peak, &text), (&mut labels, is_above), &shades);
        let capacity = self.summary.capacity_bytes;
        paint_capacity(ui.painter(), &frame, capacity, &mut labels, is_above, &shades);
        let note = "each column: solid up to the smallest total of its events, faint up to the largest";
        paint_note(ui.painter(), &frame, note, &mut labels, is_above, &shades);
        self.room = Some(frame.rect);
    }

    /// The lines of the totals, the outermost first, and of the device's capacity.
    fn lines(&self, columns: &[(Metric, Vec<RunColumn>)], view: &View, shades: &Shades) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        for (metric, columns) in columns.iter().rev() {
            let width = (view.x.end - view.x.start) / columns.len().max(1) as f64;
            let point =
                |(at, column): (usize, &RunColumn)| [view.x.start + (at as f64 + 0.5) * width, column.bytes as f64];
            let points: Vec<[f64; 2]> = columns.iter().enumerate().map(point).collect();
            let line = Line::new(metric.name(), PlotPoints::new(points));
            lines.push(line.stroke(shades.metric(*metric)).allow_hover(false));
        }
        if self.summary.capacity_bytes > 0 {
            let capacity = self.summary.capacity_bytes as f64;
            let ends = PlotPoints::new(vec![[view.x.start, capacity], [view.x.end, capacity]]);
            lines.push(Line::new("capacity", ends).stroke(shades.capacity()).allow_hover(false));
        }
        lines
    }

    fn steps_ui(&self, ui: &Ui, lane: Rect, frame: &PlotFrame, shades: &Shades) {
        if !self.run.has_steps() {
            return;
        }
        let count = ((frame.rect.width() / STEP_DISTANCE) as usize).max(1);
        let mut last = None;
        for at in 0..count {
            let x = frame.rect.left() + (at as f32 + 0.5) * frame.rect.width() / count as f32;
            let Some(step) = self.run.step_at(frame.x_at(x) as u64).filter(|step| last != Some(*step)) else {
                continue;
            };
            last = Some(step);
            let text = format!("step {}", format_count(u64::from(step)));
            let text = ui.painter().layout_no_wrap(text, FontId::proportional(11.5), shades.faint);
            let place = pos2(x - text.size().x / 2.0, lane.center().y - text.size().y / 2.0);
            ui.painter().galley(place, text, shades.faint);
            ui.painter().vline(x, lane.bottom() - 3.0..=lane.bottom(), (1.0, shades.grid));
        }
    }
}

/// Returns the bytes of leaks at the peak; `None` if their share is negligible.
fn bytes_leaked(source: &Source<'_>, peak: &Moment, leaks: &Leaks) -> Option<u64> {
    let window = source.window_at(peak.number()).ok()?;
    let live = &window.index(peak.device).live;
    leaks.bytes_at(&window.trace, peak, &live.before_position(&window.trace, peak.metric, window.events.end))
}

/// The opacity of the part of a column above its smallest total in the chart.
const SWING: f32 = 0.6;

/// The categories from the bottom up: first what stays from step to step, which is about the smallest total.
const UPWARDS: [Category; Category::ALL.len()] = {
    use Category::{Activation, Buffer, Gradient, Input, OptimizerState, Parameter, Temporary, Unknown, Workspace};
    [Parameter, Buffer, OptimizerState, Input, Activation, Gradient, Temporary, Workspace, Unknown]
};

/// Returns the columns as bars that start at the lower edge of `rect`, divided by category if the categories add up to
/// the total, with the opacity `swing` above the column's smallest total. Equal neighbours are merged.
pub(super) fn column_shapes(
    rect: Rect,
    points_per_byte: f64,
    columns: &[RunColumn],
    (metric, swing): (Metric, f32),
    shades: &Shades,
) -> Vec<Shape> {
    let width = rect.width() / columns.len().max(1) as f32;
    let is_divided = |column: &RunColumn| {
        metric == Metric::Requested
            && column.by_category.iter().map(|bytes| u128::from(*bytes)).sum::<u128>() == u128::from(column.bytes)
    };
    let drawn = |column: &RunColumn| (column.bytes, column.least, is_divided(column).then_some(column.by_category));
    let is_alike = |one: &RunColumn, other: &RunColumn| drawn(one) == drawn(other);
    let (mut shapes, mut from) = (Vec::new(), 0);
    for alike in columns.chunk_by(is_alike) {
        let (column, to) = (&alike[0], from + alike.len());
        let across = rect.left() + from as f32 * width..=rect.left() + to as f32 * width;
        let mut below = 0;
        let mut bar = |bytes: u64, colour: Color32| {
            let [low, middle, high] = [below, column.least.clamp(below, below + bytes), below + bytes]
                .map(|bytes| rect.bottom() - (bytes as f64 * points_per_byte) as f32);
            for (top, bottom, colour) in [(middle, low, colour), (high, middle, colour.gamma_multiply(swing))] {
                if top < bottom {
                    shapes.push(Shape::rect_filled(Rect::from_x_y_ranges(across.clone(), top..=bottom), 0.0, colour));
                }
            }
            below += bytes;
        };
        if is_divided(column) {
            for category in UPWARDS {
                bar(column.by_category[category as usize], theme::category(category));
            }
        } else {
            bar(column.bytes, shades.faint.gamma_multiply(0.5));
        }
        from = to;
    }
    shapes
}
