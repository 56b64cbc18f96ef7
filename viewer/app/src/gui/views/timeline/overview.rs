//! The whole recording as one curve, with the visible range as a brush that can be moved, resized or redrawn.

use std::ops::Range;

use eframe::egui::{
    Align2, CursorIcon, FontId, Pos2, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2,
};
use highwater_analysis::Metric;

use super::Timeline;
use super::frame::PlotFrame;
use crate::gui::identity::Identity;
use crate::gui::widgets::{Shades, theme};
use crate::{Axis, Recording, Selection, View, drawn_metric};

/// The part of the overview that the user drags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hold {
    /// The visible range, grabbed at this distance from its start.
    Part(f64),
    /// One end of the visible range, or of a new one; the other end stays at this position.
    End(f64),
}

/// Maximum distance from an edge of the visible range at which the edge can be grabbed, in points.
const EDGE: f64 = 5.0;
/// Half the minimum width of the visible range, as a fraction of the whole.
const MIN_BRUSH: f64 = 0.002;
/// Opacity of the overlay on parts that are not visible in the plot.
const OUTSIDE: f32 = 0.65;

/// Maximum number of steps for which the overview shows the memory that they leave allocated.
const KEPT_STEPS: usize = 1024;

/// Minimum average distance of the dots that mark the ends of steps, in points.
const DOT_DISTANCE: f32 = 12.0;

/// The inputs for the memory that steps leave allocated: the recording, its device, the total and the axis.
pub(super) type KeptKey = (Identity<Recording>, usize, Metric, Axis);

/// Returns the ends of steps, each with the total there: the memory that the step and those before it leave allocated.
/// Of many steps, returns evenly spaced ones.
fn kept(recording: &Recording, selection: &Selection, ends: &[u64]) -> Vec<[f64; 2]> {
    let (trace, index) = (&recording.trace, &recording.devices[selection.device]);
    let place = |end: &u64| {
        let moment = (end - trace.start.events) as usize;
        let bytes = index.moment(trace, drawn_metric(selection.metric), moment).bytes;
        [selection.x_of(trace, moment), bytes as f64]
    };
    ends.iter().step_by(ends.len().div_ceil(KEPT_STEPS).max(1)).map(place).collect()
}

impl Timeline {
    /// Shows the whole recording at a small scale: the bands, and a named line through the ends of whole steps at the
    /// memory that they leave allocated. The visible range can be moved, resized or drawn again.
    pub(super) fn overview_ui(&mut self, ui: &mut Ui, recording: &Recording, selection: &mut Selection) {
        let Some(shown) = &self.whole else { return };
        let (shades, trace, metric) = (Shades::in_ui(ui), &recording.trace, drawn_metric(selection.metric));
        let highest = shown.picture.totals.iter().map(|totals| totals.get(metric)).max().unwrap_or(0);
        let whole = View { y: 0.0..highest.max(1) as f64 * 1.06, ..selection.whole(recording) };
        ui.add_space(4.0);
        let rect = ui.allocate_space(vec2(ui.available_width(), theme::OVERVIEW_HEIGHT)).1;
        let rect = rect.with_min_x(rect.left() + theme::AXIS_WIDTH).with_max_x(rect.right() - theme::END_MARGIN);
        let response = ui.interact(rect, ui.scope_id().with("overview"), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Slider, true, "Overview of the whole recording"));
        let frame = PlotFrame { rect, view: whole.clone() };
        let painter = ui.painter().with_clip_rect(rect);
        painter.rect_filled(rect, 2.0, shades.canvas);
        painter.add(frame.image(shown.texture.id(), &shown.view, &whole.x));
        // The line of the previous recording from the same file stays until the picture of the next one is drawn.
        if let Some(ends) = recording.devices[selection.device].step_ends.get() {
            let key = (self.of.clone(), selection.device, selection.metric, selection.axis());
            self.kept.get(key, |_| kept(recording, selection, ends));
        }
        let kept = self.kept.known().into_iter().flatten();
        let points: Vec<Pos2> = kept.map(|[x, bytes]| pos2(frame.screen_x(*x), frame.screen_y(*bytes))).collect();
        for pair in points.windows(2) {
            painter.line_segment([pair[0], pair[1]], Stroke::new(1.5, shades.strong));
        }
        for point in points.iter().filter(|_| points.len() as f32 <= rect.width() / DOT_DISTANCE) {
            // The last step may end at the edge.
            painter.with_clip_rect(rect.expand(3.0)).circle_filled(*point, 2.5, shades.strong);
        }
        if !points.is_empty() {
            let (at, font) = (pos2(rect.left() - 8.0, rect.center().y), FontId::proportional(11.0));
            let name = ui.painter().text(at, Align2::RIGHT_CENTER, "kept after\neach step", font, shades.faint);
            let (y, right) = (name.top() + name.height() / 4.0, name.left() - 4.0);
            ui.painter().hline(right - 9.0..=right, y, Stroke::new(1.5, shades.strong));
        }
        let line = |moment: usize, colour| {
            let x = frame.screen_x(selection.middle_of(trace, moment));
            painter.vline(x, rect.y_range(), Stroke::new(1.0, colour));
        };
        line(recording.devices[selection.device].peak(trace, selection.metric).position(), shades.peak);
        selection.marks.iter().flatten().for_each(|mark| line(*mark, shades.mark));
        let view = &selection.view().x;
        if view.start > whole.x.start || view.end < whole.x.end {
            // A small part of a long recording is still visible.
            let (middle, half) = ((view.start + view.end) / 2.0, (view.end - view.start) / 2.0);
            let half = half.max(MIN_BRUSH * (whole.x.end - whole.x.start));
            let [from, to] = [middle - half, middle + half].map(|x| frame.screen_x(x));
            for outside in [rect.with_max_x(from), rect.with_min_x(to)] {
                painter.rect_filled(outside, 0.0, shades.canvas.gamma_multiply(OUTSIDE));
            }
            let part = Rect::from_x_y_ranges(from..=to, rect.y_range());
            painter.rect_stroke(part, 2.0, Stroke::new(1.5, shades.cursor), StrokeKind::Inside);
        }
        let [per_point, _] = frame.units_per_point();
        let at = |pointer: Pos2| frame.x_at(pointer.x);
        if let Some(pointer) = response.hover_pos() {
            let grip = grip(at(pointer), view, &whole.x, EDGE * per_point);
            let is_part = matches!(grip, Hold::Part(_));
            ui.set_cursor_icon(if is_part { CursorIcon::Grab } else { CursorIcon::ResizeHorizontal });
        }
        let brushed = brushed(&response, at, selection.view(), &whole.x, per_point, &mut self.hold);
        self.is_moving |= self.hold.is_some();
        if let Some(x) = brushed {
            let y = selection.view().y.clone();
            selection.show(recording, View { x, y });
        }
    }
}

/// Determines what a drag that starts at `x` moves: an edge of the visible range that is at most `near` away, the range
/// itself, or a new range. If everything is visible, the range cannot be moved, so a new one is drawn.
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
    at: impl Fn(Pos2) -> f64,
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
    use highwater_notation::trace_from_text;

    use super::*;

    #[test]
    fn the_line_joins_what_whole_steps_leave_and_ends_where_a_request_fails() {
        let step = |number: u32| {
            format!("step {number}\nphase forward\nalloc a{number} 50\nalloc k{number} 10\nfree a{number}\n")
        };
        let kept_of = |text: &str| {
            let recording = Recording::new("test", None, trace_from_text(text).unwrap());
            kept(&recording, &Selection::new(&recording), recording.step_ends(0))
        };
        let text = format!("alloc w 100 parameter\n{}{}", step(0), step(1));
        assert_eq!(kept_of(&text), [[7.0, 110.0], [13.0, 120.0]]);
        let failed = format!("{text}step 2\nphase forward\nalloc b 50\noom 999 free=0\n");
        assert_eq!(kept_of(&failed), kept_of(&text));
        assert!(kept_of("alloc w 100\nstep 0\nphase forward\noom 999 free=0\n").is_empty());
    }

    #[test]
    fn a_device_has_the_ends_of_its_own_steps() {
        let text = "step 0\nphase forward\nalloc a 50\nstep 1\nphase forward\nalloc b 50 device=1\n";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        assert_eq!([0, 1].map(|device| recording.step_ends(device)), [[3], [6]]);
    }

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
