//! The lines of totals over the bands; each pixel column shows its maximum, so that no peak is lost.

use eframe::egui::Stroke;
use egui_plot::{Line, PlotPoints};
use highwater_analysis::Metric;

use super::{Shown, Timeline, TimelineStyle};
use crate::gui::widgets::theme::Shades;
use crate::selection::{Selection, View, drawn_metric};
use crate::session::Recording;

/// A line closer than this to the drawn total everywhere, in points, would only make it thicker.
const APART: f64 = 1.5;

impl Timeline {
    /// The lines of the totals, the outermost first, so that the drawn total is on top.
    pub(super) fn lines(
        &self,
        recording: &Recording,
        selection: &Selection,
        look: &TimelineStyle,
        shades: &Shades,
    ) -> Vec<Line<'static>> {
        let Some(shown) = self.detail.as_ref().or(self.whole.as_ref()) else {
            return Vec::new();
        };
        let summary = &recording.devices[selection.device].summary;
        let is_known = |metric: &Metric| summary.peaks.iter().any(|peak| peak.metric == *metric);
        let drawn = drawn_metric(selection.metric);
        let scale = self.points_per_byte(selection);
        let inside = selection.whole(recording).x;
        let points_of = |metric: Metric| -> Vec<[f64; 2]> {
            points_of(shown, metric).into_iter().filter(|[x, _]| inside.contains(x)).collect()
        };
        let upper_edge = points_of(drawn);
        let mut lines = Vec::new();
        for metric in Metric::ALL.into_iter().rev().filter(is_known) {
            let is_asked = look.paint.has_lines || metric == selection.metric;
            if metric != drawn && !is_asked {
                continue;
            }
            let points = points_of(metric);
            let is_apart = |(a, b): (&[f64; 2], &[f64; 2])| (a[1] - b[1]).abs() * scale > APART;
            let strength = calmed(&points, scale);
            let adds = metric == drawn || points.iter().zip(&upper_edge).any(is_apart);
            if adds && strength > 0.0 {
                let stroke = shades.metric(metric);
                let stroke = Stroke::new(stroke.width, stroke.color.gamma_multiply(strength));
                let line = Line::new(metric.name(), PlotPoints::new(points));
                lines.push(line.stroke(stroke).allow_hover(false));
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

    /// Whether the lines of two totals lie apart somewhere in the picture.
    pub(crate) fn is_apart(&self, selection: &Selection, [one, other]: [Metric; 2]) -> bool {
        let Some(shown) = self.detail.as_ref().or(self.whole.as_ref()) else { return false };
        let scale = self.points_per_byte(selection);
        shown.picture.totals.iter().any(|totals| totals.get(one).abs_diff(totals.get(other)) as f64 * scale > APART)
    }

    /// Points per byte on the screen.
    fn points_per_byte(&self, selection: &Selection) -> f64 {
        let height = self.frame.as_ref().map_or(400.0, |frame| frame.rect.height());
        let View { y, .. } = selection.view();
        f64::from(height) / (y.end - y.start)
    }
}

/// A total in the middle of each column of a picture.
fn points_of(shown: &Shown, metric: Metric) -> Vec<[f64; 2]> {
    let totals = shown.picture.totals.iter().enumerate();
    let point = totals.map(|(column, totals)| {
        let middle = (shown.edge(column) + shown.edge(column + 1)) / 2.0;
        [middle, totals.get(metric) as f64]
    });
    point.collect()
}

/// The opacity of a line, from 0 to 1: one that changes by many points from column to column would hide
/// the bands, whose upper edge shows the same.
fn calmed(points: &[[f64; 2]], points_per_byte: f64) -> f32 {
    const CALM: f64 = 6.0;
    const WILD: f64 = 16.0;
    let way: f64 = points.windows(2).map(|pair| (pair[1][1] - pair[0][1]).abs()).sum();
    let mean = way * points_per_byte / points.len().max(1) as f64;
    ((WILD - mean) / (WILD - CALM)).clamp(0.0, 1.0) as f32
}

#[cfg(test)]
mod tests {
    use super::calmed;

    #[test]
    fn a_line_that_only_jumps_up_and_down_fades_and_a_slope_stays() {
        let line = |height: f64| (0..100).map(|x| [f64::from(x), height * f64::from(x % 2)]).collect::<Vec<_>>();
        assert_eq!(calmed(&line(100.0), 1.0), 0.0);
        assert_eq!(calmed(&line(4.0), 1.0), 1.0);
        assert!((0.1..0.9).contains(&calmed(&line(11.0), 1.0)));
        assert_eq!(calmed(&line(100.0), 0.01), 1.0);
    }
}
