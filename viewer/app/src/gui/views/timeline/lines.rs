//! The lines of totals over the bands. Each pixel column shows its maximum, so that no peak is lost.

use eframe::egui::Ui;
use egui_plot::{Line, PlotPoints};
use highwater_analysis::Metric;

use super::{Shown, Timeline, TimelineStyle};
use crate::gui::legend;
use crate::gui::widgets::Shades;
use crate::{Recording, Selection, View, drawn_metric};

/// A line is omitted if it is within this distance, in points, of the drawn total in all but a fiftieth of the columns,
/// or, if it is the line of the selected total, in all columns. The line of active memory is also compared to that of
/// allocated memory.
const APART: f64 = 1.5;
/// A line is steep where it rises or falls by more than this from one column to the next, in points.
const STEEP: f64 = 4.0;
/// Minimum number of columns between steep parts of a line; shorter pieces on a slope would look like noise.
const SHORTEST: usize = 6;
/// A line is drawn only if it has at most one piece between steep parts per this many columns, and one more.
const PIECE: usize = 40;

impl Timeline {
    /// Returns the lines of the totals, the largest total first, so that smaller ones are drawn on top, and of the
    /// capacity.
    pub(super) fn lines(
        &self,
        recording: &Recording,
        selection: &Selection,
        look: &TimelineStyle,
        shades: &Shades,
    ) -> Vec<Line<'static>> {
        let summary = &recording.devices[selection.device].summary;
        let mut lines = Vec::new();
        for metric in Metric::ALL.into_iter().rev() {
            let points = self.line_points(recording, selection, look.paint.has_lines, metric);
            if !points.is_empty() {
                let line = Line::new(metric.name(), PlotPoints::new(points));
                lines.push(line.stroke(shades.metric(metric)).allow_hover(false));
            }
        }
        if look.paint.has_lines && summary.capacity_bytes > 0 {
            let capacity = summary.capacity_bytes as f64;
            let View { x, .. } = selection.view();
            let ends = PlotPoints::new(vec![[x.start, capacity], [x.end, capacity]]);
            lines.push(Line::new("capacity", ends).stroke(shades.capacity()).allow_hover(false));
        }
        lines
    }

    /// Returns the points of a total's line. There are none if there is no picture, if the total was not recorded or is
    /// not requested, if the line nearly coincides with another one, or if it has many steep parts.
    fn line_points(
        &self,
        recording: &Recording,
        selection: &Selection,
        has_lines: bool,
        metric: Metric,
    ) -> Vec<[f64; 2]> {
        let Some(shown) = self.detail.as_ref().or(self.whole.as_ref()) else { return Vec::new() };
        let is_known = recording.devices[selection.device].summary.peak(metric).is_some();
        let drawn = drawn_metric(selection.metric);
        if !is_known || metric != drawn && !has_lines && metric != selection.metric {
            return Vec::new();
        }
        let scale = self.points_per_byte(selection);
        let inside = selection.whole(recording).x;
        let points_of = |metric: Metric| -> Vec<[f64; 2]> {
            points_of(shown, metric).into_iter().filter(|[x, _]| inside.contains(x)).collect()
        };
        let points = points_of(metric);
        let is_apart = |(a, b): (&[f64; 2], &[f64; 2])| (a[1] - b[1]).abs() * scale > APART;
        // One line is enough where two coincide.
        let others = [drawn, Metric::Allocated].into_iter().take(if metric == Metric::Active { 2 } else { 1 });
        let few = if metric == selection.metric { 0 } else { points.len() / 50 };
        for other in others.filter(|other| *other != metric) {
            if points.iter().zip(&points_of(other)).filter(|pair| is_apart(*pair)).count() <= few {
                return Vec::new();
            }
        }
        // The edges of the bands show the same as the lines that follow them.
        let steepest = if metric.is_of_blocks() { STEEP } else { f64::INFINITY };
        let parts: Vec<_> = level_parts(&points, steepest / scale).map(<[_]>::len).collect();
        // In pieces, a line says less than the edges that it follows.
        let is_long = parts.iter().sum::<usize>() >= points.len() / 5 * 4;
        if is_long && parts.len() <= points.len() / PIECE + 1 { points } else { Vec::new() }
    }

    /// Shows the legend of the totals drawn as bands or lines, as [`legend::lines_ui`].
    pub(crate) fn totals_ui(
        &self,
        ui: &mut Ui,
        recording: &Recording,
        selection: &Selection,
        has_lines: bool,
        at: (usize, &str),
    ) {
        let (index, drawn) = (&recording.devices[selection.device], drawn_metric(selection.metric));
        let has_line = |total| !self.line_points(recording, selection, has_lines, total).is_empty();
        let top = if has_lines { selection.view().y.end } else { 0.0 };
        legend::lines_ui(ui, &recording.trace, index, &index.summary, at, (drawn, has_line, top));
    }

    fn points_per_byte(&self, selection: &Selection) -> f64 {
        let height = self.frame.as_ref().map_or(400.0, |frame| frame.rect.height());
        let View { y, .. } = selection.view();
        f64::from(height) / (y.end - y.start)
    }
}

/// Returns one point in the middle of each column of a picture.
fn points_of(shown: &Shown, metric: Metric) -> Vec<[f64; 2]> {
    let totals = shown.picture.totals.iter().enumerate();
    let point = totals.map(|(column, totals)| {
        let middle = (shown.edge(column) + shown.edge(column + 1)) / 2.0;
        [middle, totals.get(metric) as f64]
    });
    point.collect()
}

/// Returns the parts of a line between steps of more than `steepest` bytes, without short parts. A line drawn along
/// both sides of a spike would hide the spike.
fn level_parts(points: &[[f64; 2]], steepest: f64) -> impl Iterator<Item = &[[f64; 2]]> {
    points.chunk_by(move |a, b| (a[1] - b[1]).abs() <= steepest).filter(|part| part.len() >= SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::level_parts;

    #[test]
    fn a_line_leaves_spikes_out_and_a_slope_stays() {
        let slope: Vec<[f64; 2]> = (0..15).map(|x| [f64::from(x), f64::from(x * 3)]).collect();
        assert_eq!(level_parts(&slope, 4.0).collect::<Vec<_>>(), [slope.as_slice()]);
        let mut spiked = slope.clone();
        spiked[7][1] = 100.0;
        assert_eq!(level_parts(&spiked, 4.0).collect::<Vec<_>>(), [&slope[..7], &slope[8..]]);
        assert_eq!(level_parts(&[[0.0, 0.0], [1.0, 9.0], [2.0, 0.0]], 4.0).count(), 0);
    }
}
