//! Lanes: steps and phases above the plot, with labels only where there is room for them.

use std::ops::Range;

use eframe::egui::{Align2, FontId, Painter, Rect, pos2};
use highwater_snapshots::{Phase, Trace};

use super::frame::PlotFrame;
use crate::gui::theme::{self, Shades};
use crate::selection::Selection;

/// One cell of a lane, on the axis.
struct Cell {
    x: Range<f64>,
    /// What it says where there is room, and where there is less.
    labels: [String; 2],
    colour: eframe::egui::Color32,
}

/// Paints the step lane and the phase lane into `rect`, in line with the plot.
pub(super) fn paint(
    painter: &Painter,
    rect: Rect,
    frame: &PlotFrame,
    trace: &Trace,
    selection: &Selection,
    shades: &Shades,
) {
    let step_lane = Rect::from_min_max(
        pos2(frame.rect.left(), rect.top()),
        pos2(frame.rect.right(), rect.top() + theme::LANE_HEIGHT - 1.0),
    );
    let phase_lane = step_lane.translate(eframe::egui::vec2(0.0, theme::LANE_HEIGHT));
    let font = FontId::proportional(11.5);
    for (lane, name) in [(step_lane, "step"), (phase_lane, "phase")] {
        let place = pos2(lane.left() - 8.0, lane.center().y);
        painter.text(
            place,
            Align2::RIGHT_CENTER,
            name,
            font.clone(),
            shades.faint,
        );
    }
    paint_lane(
        painter,
        step_lane,
        frame,
        &steps(trace, selection, shades),
        shades,
    );
    paint_lane(
        painter,
        phase_lane,
        frame,
        &phases(trace, selection, shades),
        shades,
    );
}

/// The places on the axis at which steps begin, for lines through the plot.
pub(super) fn step_borders(trace: &Trace, selection: &Selection) -> Vec<f64> {
    let ranges = trace
        .spans
        .steps()
        .into_iter()
        .filter_map(|step| trace.spans.step_range(step));
    ranges
        .filter(|range| range.start > 0)
        .map(|range| selection.x_of_events(trace, range).start)
        .collect()
}

fn steps(trace: &Trace, selection: &Selection, shades: &Shades) -> Vec<Cell> {
    let ranged = trace
        .spans
        .steps()
        .into_iter()
        .filter_map(|step| Some((step, trace.spans.step_range(step)?)));
    let cell = |(step, range): (u32, Range<u32>)| Cell {
        x: selection.x_of_events(trace, range),
        labels: [format!("step {step}"), step.to_string()],
        colour: shades.step(step),
    };
    ranged.map(cell).collect()
}

fn phases(trace: &Trace, selection: &Selection, shades: &Shades) -> Vec<Cell> {
    let cell = |span: &highwater_snapshots::trace::Span| {
        let name = span.phase.name();
        Cell {
            x: selection.x_of_events(trace, span.first.0..span.end.0),
            labels: [name.to_owned(), short(span.phase).to_owned()],
            colour: shades.phase(span.phase),
        }
    };
    // Without any step or phase event the one span says nothing.
    if trace.spans.rows().len() < 2 {
        Vec::new()
    } else {
        trace.spans.rows().iter().map(cell).collect()
    }
}

/// A phase in few letters.
const fn short(phase: Phase) -> &'static str {
    match phase {
        Phase::Setup => "set",
        Phase::Forward => "fwd",
        Phase::Backward => "bwd",
        Phase::Optimizer => "opt",
        Phase::ZeroGrad => "zero",
        Phase::Other => "…",
    }
}

/// Paints the cells in view. Cells that would end within the point in which the last one ended are left to it, so that
/// no more are painted than the lane is wide.
fn paint_lane(painter: &Painter, lane: Rect, frame: &PlotFrame, cells: &[Cell], shades: &Shades) {
    let painter = painter.with_clip_rect(lane);
    let font = FontId::proportional(11.5);
    let mut painted_to = lane.left();
    let mut labelled_to = lane.left();
    for cell in cells {
        let left = frame.screen_x(cell.x.start).max(lane.left());
        let right = frame.screen_x(cell.x.end).min(lane.right());
        if right < painted_to + 1.0 || left > lane.right() {
            continue;
        }
        let gap = if right - left > 3.0 { 1.0 } else { 0.0 };
        let rect = Rect::from_min_max(
            pos2(left.max(painted_to), lane.top()),
            pos2(right - gap, lane.bottom()),
        );
        painter.rect_filled(rect, 2.0, cell.colour);
        painted_to = right;
        let room = right - left - 6.0;
        let galleys = cell
            .labels
            .iter()
            .map(|label| painter.layout_no_wrap(label.clone(), font.clone(), shades.strong));
        // A label may not touch the one before it, even where cells are narrow.
        let fits = |width: f32| width <= room && (left + right - width) / 2.0 > labelled_to + 4.0;
        if let Some(galley) = galleys.into_iter().find(|galley| fits(galley.size().x)) {
            let place = pos2(
                (left + right - galley.size().x) / 2.0,
                lane.center().y - galley.size().y / 2.0,
            );
            labelled_to = place.x + galley.size().x;
            painter.galley(place, galley, shades.strong);
        }
    }
}
