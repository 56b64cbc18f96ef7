//! The lanes above the plot: steps, phases, regions and notes.

use std::ops::Range;
use std::sync::Arc;

use eframe::egui::{Align2, Color32, FontId, Galley, Painter, Pos2, Rect, Shape, Stroke, TextFormat, pos2};
use highwater_snapshots::trace::Span;
use highwater_snapshots::{Phase, StringId, Trace, format_count};

use super::frame::PlotFrame;
use crate::gui::widgets::{Shades, fit, theme};
use crate::session::regions::Region;
use crate::{Recording, Selection, View};

/// Font size in lanes, in points.
const LETTERS: f32 = 11.5;

struct Cell<T> {
    events: Range<u32>,
    colour: Color32,
    what: T,
}

struct Lane<'a> {
    painter: Painter,
    rect: Rect,
    frame: &'a PlotFrame,
    trace: &'a Trace,
    selection: &'a Selection,
    shades: &'a Shades,
}

/// What a lane shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneKind {
    Steps,
    Phases,
    /// The regions with this index in [`Regions::rows`](crate::session::regions::Regions::rows).
    Regions(usize),
    Notes,
}

/// Width in points at which a phase has room for its short name, or a region for some of its name.
const NAMED: [f32; 2] = [24.0, 2.0 * theme::MIN_LABEL + 6.0];

/// Returns the width on the axis of the widest phase of the whole recording, then of the widest region of each row.
pub(super) fn widest(recording: &Recording, selection: &Selection) -> Vec<f64> {
    let width = |events: Range<u32>| {
        let x = selection.x_of_events(&recording.trace, events);
        x.end - x.start
    };
    let phases = recording.trace.spans.rows().iter().map(|span| width(span.first.0..span.end.0));
    let rows = recording.regions.rows.iter();
    let regions = rows.map(|row| row.iter().map(|region| width(region.events.clone())).fold(0.0, f64::max));
    [phases.fold(0.0, f64::max)].into_iter().chain(regions).collect()
}

/// Returns the lanes from the top, for a plot of `width` points. Phases and regions without a name that would fit
/// anywhere at this scale are left out; moving the view does not change that.
pub(super) fn shown(recording: &Recording, selection: &Selection, widest: &[f64], width: f32) -> Vec<LaneKind> {
    let View { x, .. } = selection.view();
    let has_name = |lane: usize| {
        let points = widest[lane] / (x.end - x.start) * f64::from(width);
        points >= f64::from(NAMED[lane.min(1)])
    };
    let regions = &recording.regions;
    let steps = (!recording.steps.is_empty()).then_some(LaneKind::Steps);
    // Without steps or phases there is a single span, which carries no information.
    let phases = (recording.trace.spans.rows().len() > 1 && has_name(0)).then_some(LaneKind::Phases);
    let rows = (0..regions.rows.len()).filter(|row| has_name(row + 1)).map(LaneKind::Regions);
    let notes = (!regions.notes.is_empty()).then_some(LaneKind::Notes);
    steps.into_iter().chain(phases).chain(rows).chain(notes).collect()
}

/// Paints the lanes `shown` into `rect`, aligned with the plot.
pub(super) fn paint(
    painter: &Painter,
    (rect, shown): (Rect, &[LaneKind]),
    frame: &PlotFrame,
    recording: &Recording,
    selection: &Selection,
    shades: &Shades,
) {
    let lane = |row: usize, name: &str| {
        let top = rect.top() + row as f32 * theme::LANE_HEIGHT;
        let left_top = pos2(frame.rect.left(), top);
        let right_bottom = pos2(frame.rect.right(), top + theme::LANE_HEIGHT - 1.0);
        let rect = Rect::from_min_max(left_top, right_bottom);
        let font = FontId::proportional(LETTERS);
        let place = pos2(rect.left() - 8.0, rect.center().y);
        painter.text(place, Align2::RIGHT_CENTER, name, font, shades.faint);
        let painter = painter.with_clip_rect(rect);
        let trace = &recording.trace;
        Lane { painter, rect, frame, trace, selection, shades }
    };
    let regions = &recording.regions;
    for (row, kind) in shown.iter().enumerate() {
        match kind {
            LaneKind::Steps => paint_steps(&lane(row, "step"), &recording.steps),
            LaneKind::Phases if recording.trace.phases_are_guessed() => paint_phases(&lane(row, "phase (guess)")),
            LaneKind::Phases => paint_phases(&lane(row, "phase")),
            LaneKind::Regions(of) => {
                let is_first = !matches!(row.checked_sub(1).map(|above| shown[above]), Some(LaneKind::Regions(_)));
                let name = match of {
                    _ if is_first => "region".to_owned(),
                    2 if regions.left_out > 0 => format!("+{} inner", format_count(regions.left_out as u64)),
                    _ => String::new(),
                };
                paint_regions(&lane(row, &name), &regions.rows[*of]);
            }
            LaneKind::Notes => paint_notes(&lane(row, "note"), &regions.notes),
        }
    }
}

/// Returns the events and the name of the step, phase or region at a position on the screen; `rect` is the rectangle of
/// the lanes `shown`. Notes have none.
pub(super) fn events_at(
    (rect, shown): (Rect, &[LaneKind]),
    at: Pos2,
    frame: &PlotFrame,
    recording: &Recording,
    selection: &Selection,
) -> Option<(Range<u32>, String)> {
    let (trace, x) = (&recording.trace, frame.x_at(at.x));
    let covers = |events: &Range<u32>| selection.x_of_events(trace, events.clone()).contains(&x);
    let lane = shown.get(((at.y - rect.top()) / theme::LANE_HEIGHT) as usize);
    match *lane.filter(|_| frame.rect.x_range().contains(at.x))? {
        LaneKind::Notes => None,
        LaneKind::Steps => {
            let steps = in_view(&recording.steps, |(_, events)| events.clone(), &frame.view, trace, selection);
            let step = steps.iter().find(|(_, events)| covers(events));
            step.map(|(step, events)| (events.clone(), format!("step {step}")))
        }
        LaneKind::Phases => {
            let spans = in_view(trace.spans.rows(), |span| span.first.0..span.end.0, &frame.view, trace, selection);
            let events = |span: &Span| span.first.0..span.end.0;
            spans.iter().find(|span| covers(&events(span))).map(|span| (events(span), span.phase.to_string()))
        }
        LaneKind::Regions(row) => {
            let regions = &recording.regions.rows[row];
            let regions = in_view(regions, |region| region.events.clone(), &frame.view, trace, selection);
            let region = regions.iter().find(|region| covers(&region.events));
            region.map(|region| (region.events.clone(), trace.tables.string(region.name).to_owned()))
        }
    }
}

/// Returns the axis positions at which visible steps begin, without that of event 0; empty if they are less than 24
/// points apart on average.
pub(super) fn step_borders(frame: &PlotFrame, recording: &Recording, selection: &Selection) -> Vec<f64> {
    let shown = in_view(&recording.steps, |(_, events)| events.clone(), &frame.view, &recording.trace, selection);
    if shown.len() > (frame.rect.width() / 24.0) as usize {
        return Vec::new();
    }
    let places = shown.iter().filter(|(_, events)| events.start > 0);
    let places = places.map(|(_, events)| selection.x_of_events(&recording.trace, events.clone()).start);
    places.filter(|x| frame.view.x.contains(x)).collect()
}

/// The elements of `rows` that overlap the view. `rows` must be sorted by position.
fn in_view<'a, T>(
    rows: &'a [T],
    events: impl Fn(&T) -> Range<u32>,
    view: &View,
    trace: &Trace,
    selection: &Selection,
) -> &'a [T] {
    let place = |row: &T| selection.x_of_events(trace, events(row));
    let first = rows.partition_point(|row| place(row).end < view.x.start);
    let after = rows.partition_point(|row| place(row).start <= view.x.end);
    &rows[first..after.max(first)]
}

/// Width in pixels up to which a step is too narrow for details.
const NARROW_STEP: usize = 4;

/// The columns of a picture of `view` that is `width` pixels wide. Where steps are at most [`NARROW_STEP`] pixels wide,
/// a column covers about a whole step, because columns that miss the peak of a step would produce a pattern that the
/// recording does not have.
pub(super) fn columns(width: usize, view: &View, recording: &Recording, selection: &Selection) -> usize {
    let steps = in_view(&recording.steps, |(_, events)| events.clone(), view, &recording.trace, selection).len();
    match width.div_ceil(steps.max(1)) {
        narrow @ 1..=NARROW_STEP if steps > 0 => (width / narrow).max(1),
        _ => width,
    }
}

fn paint_steps(lane: &Lane<'_>, steps: &[(u32, Range<u32>)]) {
    let shown = in_view(steps, |(_, events)| events.clone(), &lane.frame.view, lane.trace, lane.selection);
    let Some((last, _)) = shown.last() else { return };
    let number = lane.text(format_count(u64::from(*last))).size().x + 12.0;
    let mean = lane.rect.width() / shown.len() as f32;
    let cell = |row: usize| {
        let (step, events) = &shown[row];
        Cell { events: events.clone(), colour: lane.shades.step(*step), what: *step }
    };
    if number <= mean {
        lane.paint(shown.len(), cell, |step, room| {
            let names = [format!("step {step}"), step.to_string()].into_iter();
            names.map(|name| lane.text(name)).find(|galley| galley.size().x <= room)
        });
        return;
    }
    // Too narrow for all: numbers at regular distances, each from the start of its step on if it is wider than it.
    lane.paint(shown.len(), cell, |_, _| None);
    let mut distances = (0..9).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_usize.pow(power)));
    let every = distances.find(|every| *every as f32 * mean >= number).unwrap_or(usize::MAX);
    let first = (every - shown[0].0 as usize % every) % every;
    for (step, events) in shown.iter().skip(first).step_by(every) {
        let galley = lane.text(format_count(u64::from(*step)));
        let x = lane.selection.x_of_events(lane.trace, events.clone());
        let [left, right] = [x.start, x.end].map(|x| lane.frame.screen_x(x));
        let left = left.max((left + right - galley.size().x) / 2.0);
        let place = Align2::LEFT_CENTER.anchor_size(pos2(left, lane.rect.center().y), galley.size());
        if lane.rect.contains_rect(place) {
            lane.painter.galley(place.min, galley, lane.shades.strong);
        }
    }
}

fn paint_phases(lane: &Lane<'_>) {
    let rows = lane.trace.spans.rows();
    let shown = in_view(rows, |span| span.first.0..span.end.0, &lane.frame.view, lane.trace, lane.selection);
    let cell = |row: usize| {
        let span = &shown[row];
        Cell { events: span.first.0..span.end.0, colour: lane.shades.phase(span.phase), what: span.phase }
    };
    lane.paint(shown.len(), cell, |phase, room| {
        let names = [phase.name(), short(*phase)].into_iter().filter(|_| room > 8.0);
        names.map(|name| lane.text(name.to_owned())).find(|galley| galley.size().x <= room)
    });
}

fn paint_regions(lane: &Lane<'_>, regions: &[Region]) {
    let shown = in_view(regions, |region| region.events.clone(), &lane.frame.view, lane.trace, lane.selection);
    let cell = |row: usize| {
        let region = &shown[row];
        Cell { events: region.events.clone(), colour: lane.shades.step(row as u32), what: region.name }
    };
    lane.paint(shown.len(), cell, |name, room| {
        (room > 2.0 * theme::MIN_LABEL).then(|| lane.text_within(lane.trace.tables.string(*name), room))
    });
}

/// Paints notes as ticks, each with its text, truncated, if there is room before the next one. Notes within a point of
/// the previous tick are skipped.
fn paint_notes(lane: &Lane<'_>, notes: &[(usize, StringId)]) {
    let place = |moment: usize| lane.selection.x_of(lane.trace, moment);
    let shown = notes.partition_point(|(moment, _)| place(*moment) < lane.frame.view.x.start)
        ..notes.partition_point(|(moment, _)| place(*moment) <= lane.frame.view.x.end);
    let at = |row: usize| lane.frame.screen_x(place(notes[row].0));
    let mut row = shown.start;
    while row < shown.end {
        let (text, x) = (notes[row].1, at(row));
        lane.painter.vline(x, lane.rect.y_range(), Stroke::new(1.5, lane.shades.cursor));
        let next = notes.get(row + 1).map_or(lane.rect.right(), |(next, _)| lane.frame.screen_x(place(*next)));
        let room = next.min(lane.rect.right()) - x - 8.0;
        if room > 24.0 {
            let galley = lane.text_within(lane.trace.tables.string(text), room);
            let place = pos2(x + 4.0, lane.rect.center().y - galley.size().y / 2.0);
            lane.painter.galley(place, galley, lane.shades.strong);
        }
        row = first_not(row + 1..shown.end, |row| at(row) < x + 1.0);
    }
}

/// Returns the first of `rows` for which `is_before` is false, by binary search; the end of `rows` if there is none.
fn first_not(rows: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (rows.start, rows.end.max(rows.start));
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

const fn short(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "fwd",
        Phase::Backward => "bwd",
        Phase::Optimizer => "opt",
        Phase::ZeroGrad => "zero",
        Phase::Eval => "eval",
        Phase::Setup | Phase::Other => "",
    }
}

impl Lane<'_> {
    fn text(&self, text: String) -> Arc<Galley> {
        let font = FontId::proportional(LETTERS);
        self.painter.layout_no_wrap(text, font, self.shades.strong)
    }

    fn text_within(&self, text: &str, room: f32) -> Arc<Galley> {
        let format = TextFormat::simple(FontId::proportional(LETTERS), self.shades.strong);
        fit::line(&self.painter, text, format, room)
    }

    /// Paints `count` cells, which must be in order, with labels returned by `label` for a cell and the available
    /// width; labels never touch. Cells that end within the same point as the previous one are skipped, which limits
    /// the number of cells visited to the width of the lane.
    fn paint<T>(&self, count: usize, cell: impl Fn(usize) -> Cell<T>, label: impl Fn(&T, f32) -> Option<Arc<Galley>>) {
        let edges = |events: Range<u32>| {
            let x = self.selection.x_of_events(self.trace, events);
            let [left, right] = [x.start, x.end].map(|x| self.frame.screen_x(x));
            (left.max(self.rect.left()), right.min(self.rect.right()))
        };
        let mut painted_to = self.rect.left();
        let mut labelled_to = self.rect.left() - 4.0;
        let (mut labels, mut cells) = (Vec::new(), Vec::new());
        let mut next = 0;
        loop {
            let row = first_not(next..count, |row| edges(cell(row).events).1 < painted_to + 1.0);
            if row == count {
                break;
            }
            next = row + 1;
            let cell = cell(row);
            let (left, right) = edges(cell.events);
            let gap = if right - left > 3.0 { 1.0 } else { 0.0 };
            let corners = [pos2(left.max(painted_to), self.rect.top()), pos2(right - gap, self.rect.bottom())];
            let cell_rect = Rect::from_min_max(corners[0], corners[1]);
            cells.push(Shape::rect_filled(cell_rect, 2.0, cell.colour));
            painted_to = right;
            if let Some(galley) = label(&cell.what, right - left - 6.0) {
                let middle = (left + right) / 2.0;
                let place = pos2(middle - galley.size().x / 2.0, self.rect.center().y - galley.size().y / 2.0);
                if place.x > labelled_to + 4.0 && place.x + galley.size().x <= self.rect.right() {
                    labelled_to = place.x + galley.size().x;
                    labels.push((place, galley));
                }
            }
        }
        self.painter.extend(cells);
        for (place, galley) in labels {
            self.painter.galley(place, galley, self.shades.strong);
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;

    #[test]
    fn a_lane_of_phases_is_left_out_where_no_name_fits() {
        let step = |n: u32| format!("step {n}\nphase forward\nalloc a{n} 10\nphase backward\nfree a{n}\n");
        let recording = Recording::new("test", None, trace_from_text(&(0..50).map(step).collect::<String>()).unwrap());
        let mut selection = Selection::new(&recording);
        let widest = widest(&recording, &selection);
        let kinds = |selection: &Selection| shown(&recording, selection, &widest, 900.0);
        assert_eq!(kinds(&selection), [LaneKind::Steps]);
        for moments in [0..20, 100..120] {
            selection.show_moments(&recording, &moments);
            assert_eq!(kinds(&selection), [LaneKind::Steps, LaneKind::Phases]);
        }
    }
}
