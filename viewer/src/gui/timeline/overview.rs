//! Overview: the whole recording as one curve, with the visible part marked; drag in it to move.

use eframe::egui::{self, Role, Sense, Ui, WidgetInfo};
use egui_plot::{Line, Plot, PlotPoints, Span, VLine};
use highwater_snapshots::analysis::Metric;

use super::picture::Picture;
use crate::gui::theme::{self, Shades};
use crate::selection::View;

/// What the overview shows.
pub(super) struct Overview<'a> {
    /// The picture of the whole recording.
    pub picture: &'a Picture,
    /// All of it.
    pub whole: View,
    /// The visible part.
    pub view: &'a View,
    /// The total of the curve.
    pub metric: Metric,
    /// Where the peak is on the axis.
    pub peak_x: f64,
}

/// Shows the overview; gives the place on the axis to which the user drags the middle of the view.
pub(super) fn overview_ui(ui: &mut Ui, overview: &Overview<'_>) -> Option<f64> {
    let shades = Shades::in_ui(ui);
    let Overview { picture, whole, view, metric, peak_x } = overview;
    let width = (whole.x.end - whole.x.start) / picture.totals.len().max(1) as f64;
    let place = |column: usize| whole.x.start + (column as f64 + 0.5) * width;
    let points: Vec<[f64; 2]> =
        picture.totals.iter().enumerate().map(|(column, totals)| [place(column), totals.get(*metric) as f64]).collect();
    let top = whole.y.end;
    let shown = view.x.start..=view.x.end;
    let whole_x = whole.x.start..=whole.x.end;
    let peak_x = *peak_x;
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
    let shown = plot.show(ui, |plot| {
        plot.set_plot_bounds_x(whole_x);
        plot.set_plot_bounds_y(0.0..=top);
        plot.line(
            Line::new("total", PlotPoints::new(points))
                .stroke(egui::Stroke::new(1.0, shades.curve))
                .fill(0.0)
                .fill_alpha(0.35),
        );
        plot.vline(VLine::new("peak", peak_x).stroke(egui::Stroke::new(1.0, shades.peak)));
        plot.span(Span::new("", shown).fill(shades.window).border(egui::Stroke::new(1.0, shades.cursor)));
    });
    let response = shown.response;
    response.widget_info(|| WidgetInfo::labeled(Role::Slider, true, "Overview of the whole recording"));
    let pointer =
        response.interact_pointer_pos().filter(|_| response.is_pointer_button_down_on() || response.clicked());
    pointer.map(|pointer| shown.transform.value_from_position(pointer).x)
}
