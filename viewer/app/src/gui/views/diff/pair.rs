//! Two timelines, one above the other, with linked axes, a common scale, and linked cursors.

use std::ops::Range;
use std::sync::Arc;

use eframe::egui::{Align, Label, Layout, Rect, RichText, Role, Ui, WidgetInfo, vec2};
use highwater_analysis::{Metric, Moment};

use super::alignment::Alignment;
use crate::figures::moment::total_name;
use crate::gui::filter::search::Search;
use crate::gui::identity::Identity;
use crate::gui::legend::{Asked, Shares, at_text};
use crate::gui::views::timeline::{Timeline, TimelineStyle};
use crate::gui::widgets::{Shades, computed, place_ui, theme, when};
use crate::report::compared;
use crate::selection::{FLATTEST, MIN_ROOM, NARROWEST, within};
use crate::{Pin, Recording, Selection, View};

#[derive(Debug)]
pub(super) struct Side {
    of: Identity<Recording>,
    pub(super) selection: Selection,
    pub(super) timeline: Timeline,
    pub(super) search: Search,
    shares: Shares,
}

impl Side {
    pub(super) fn new(recording: &Arc<Recording>, selection: &Selection) -> Self {
        let mut fresh = Selection::new(recording);
        fresh.set_device(recording, selection.device);
        fresh.set_axis(recording, selection.axis());
        Self {
            of: Identity::of(recording),
            selection: fresh,
            timeline: Timeline::default(),
            search: Search::new(recording),
            shares: Shares::default(),
        }
    }

    /// Switches to `recording`, a newer version from the same file. The old picture stays until the new one is ready.
    pub(super) fn renew(&mut self, recording: &Arc<Recording>) {
        let fresh = Self::new(recording, &self.selection);
        (self.of, self.selection) = (fresh.of, fresh.selection);
        self.search.renew(recording);
    }

    pub(super) fn is_of(&self, recording: &Arc<Recording>) -> bool {
        self.of.is(recording)
    }
}

computed!(Side: search, shares, timeline);

/// Height of the readout line, in points.
const READING: f32 = 20.0;

/// A clicked position on the common axis, and the block there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pinned {
    side: usize,
    at: f64,
    pin: Pin,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) sides: [Side; 2],
    /// The visible range, horizontally relative to the alignment; `None` for everything.
    shared: Option<View>,
    /// The side under the pointer, and the pointer's position on the common axis.
    hover: Option<(usize, f64)>,
    pub(super) pinned: Option<Pinned>,
    /// Height of the readout line at the cursor, in points; 0 in a picture file.
    pub(super) reading: f32,
}

pub(super) struct Shown<'a> {
    pub(super) recordings: [&'a Arc<Recording>; 2],
    pub(super) alignment: &'a Alignment,
    /// The compared moments; `None` if one does not exist.
    pub(super) moments: Option<[Moment; 2]>,
    pub(super) metric: Metric,
}

computed!(Pair: sides);

impl Pair {
    pub(super) fn new(sides: [Side; 2]) -> Self {
        Self { sides, shared: None, hover: None, pinned: None, reading: READING }
    }

    pub(super) fn fit(&mut self) {
        self.shared = None;
    }

    /// Returns the axis positions at which the two sides are aligned.
    fn origins(&self, shown: &Shown<'_>) -> [f64; 2] {
        [0, 1].map(|side| self.sides[side].selection.x_of(&shown.recordings[side].trace, shown.alignment.origins[side]))
    }

    fn whole(&self, shown: &Shown<'_>) -> View {
        let origins = self.origins(shown);
        let [a, b] = [0, 1].map(|side| {
            let whole = self.sides[side].selection.whole(shown.recordings[side]);
            (moved(&whole.x, -origins[side]), whole.y.end)
        });
        View { x: a.0.start.min(b.0.start)..a.0.end.max(b.0.end), y: 0.0..a.1.max(b.1) }
    }

    /// The largest view that panning and zooming may reach.
    fn bounds(&self, shown: &Shown<'_>) -> View {
        let whole = self.whole(shown);
        let capacity = |side: usize| {
            let devices = &shown.recordings[side].devices;
            devices[self.sides[side].selection.device].summary.capacity_bytes as f64
        };
        View { x: whole.x, y: 0.0..whole.y.end.max(capacity(0).max(capacity(1)) * 1.12) }
    }

    pub(super) fn view(&self, shown: &Shown<'_>) -> View {
        self.shared.clone().unwrap_or_else(|| self.whole(shown))
    }

    /// Shows `view` of the common axis, within the limits.
    pub(super) fn show(&mut self, shown: &Shown<'_>, view: &View) {
        let bounds = self.bounds(shown);
        let view = View { x: within(&view.x, &bounds.x, NARROWEST), y: within(&view.y, &bounds.y, FLATTEST) };
        self.shared = Some(view);
    }

    /// Shows the moments `at` of both sides, with the phases that contain them.
    pub(super) fn show_moments(&mut self, shown: &Shown<'_>, at: [Moment; 2]) {
        let origins = self.origins(shown);
        let mut x = f64::MAX..f64::MIN;
        for (side, moment) in at.iter().enumerate() {
            let trace = &shown.recordings[side].trace;
            let selection = &self.sides[side].selection;
            let middle = selection.middle_of(trace, moment.position()) - origins[side];
            let span = moment.event.and_then(|event| trace.spans.at(event));
            let around = span.map_or(middle..middle, |span| {
                moved(&selection.x_of_events(trace, span.first.0..span.end.0), -origins[side])
            });
            x = x.start.min(around.start).min(middle)..x.end.max(around.end).max(middle);
        }
        let room = ((x.end - x.start) * 0.1).max(MIN_ROOM);
        let y = self.whole(shown).y;
        self.show(shown, &View { x: x.start - room..x.end + room, y });
    }

    /// Switches to the other axis and keeps the visible range.
    pub(super) fn set_axis(&mut self, shown: &Shown<'_>, axis: crate::selection::Axis) {
        let was_whole = self.shared.as_ref().is_none_or(|view| view.x == self.whole(shown).x);
        let y = self.view(shown).y;
        self.place(shown);
        for (side, recording) in self.sides.iter_mut().zip(shown.recordings) {
            side.selection.set_axis(recording, axis);
        }
        (self.hover, self.pinned) = (None, None);
        let x = moved(&self.sides[0].selection.view().x, -self.origins(shown)[0]);
        self.shared = None;
        if !was_whole {
            self.show(shown, &View { x, y });
        }
    }

    /// Returns the cursor's side, and position on the axis: that under the pointer, otherwise the clicked one, if any.
    fn cursor(&self) -> Option<(usize, f64)> {
        self.hover.or(self.pinned.map(|pinned| (pinned.side, pinned.at)))
    }

    /// Pins, on side A, the moment `by` events after the pinned one, or after the compared moment if none is pinned.
    pub(super) fn step_cursor(&mut self, shown: &Shown<'_>, by: isize) {
        let trace = &shown.recordings[0].trace;
        let origin = self.origins(shown)[0];
        let selection = &self.sides[0].selection;
        let now = match (self.pinned, shown.moments) {
            (Some(pinned), _) => selection.moment_at(trace, pinned.at + origin),
            (None, Some([moment, _])) => moment.position(),
            (None, None) => shown.alignment.origins[0],
        };
        let moment = now.saturating_add_signed(by).min(trace.events.len());
        let at = selection.middle_of(trace, moment) - origin;
        self.pinned = Some(Pinned { side: 0, at, pin: Pin { block: None, moment } });
        self.hover = None;
        self.sides.iter_mut().for_each(|side| side.timeline.rest_pointer());
    }

    /// The moments of both sides at the cursor, `None` for a side without events there; `None` without a cursor.
    pub(super) fn under_cursor(&self, shown: &Shown<'_>) -> Option<[Option<Moment>; 2]> {
        let (_, at) = self.cursor()?;
        let origins = self.origins(shown);
        Some([0, 1].map(|side| {
            let (recording, selection) = (shown.recordings[side], &self.sides[side].selection);
            let x = at + origins[side];
            let is_there = selection.whole(recording).x.contains(&x);
            let moment = || selection.moment_at(&recording.trace, x);
            let index = &recording.devices[selection.device];
            is_there.then(|| index.moment(&recording.trace, shown.metric, moment()))
        }))
    }

    /// Applies views, marks and cursors to both sides.
    fn place(&mut self, shown: &Shown<'_>) {
        let (view, bounds, origins) = (self.view(shown), self.bounds(shown), self.origins(shown));
        let cursors = self.under_cursor(shown);
        let on_side = |view: &View, side: usize| View { x: moved(&view.x, origins[side]), y: view.y.clone() };
        for (row, side) in self.sides.iter_mut().enumerate() {
            side.selection.metric = shown.metric;
            side.selection.link(shown.recordings[row], on_side(&view, row), on_side(&bounds, row));
            side.selection.marks = [None; 2];
            side.selection.marks[row] = shown.moments.map(|moments| moments[row].position());
            let block = self.pinned.filter(|pinned| pinned.side == row).and_then(|pinned| pinned.pin.block);
            let moment = cursors.and_then(|cursors| cursors[row]);
            side.selection.pin = moment.map(|moment| Pin { block, moment: moment.position() });
        }
    }

    pub(super) fn pair_ui(&mut self, ui: &mut Ui, shown: &Shown<'_>, looks: &[TimelineStyle; 2]) {
        self.sides.iter_mut().for_each(|side| side.timeline.receive(ui.ctx()));
        let room = ui.available_rect_before_wrap();
        let height = (room.height() - self.reading) / 2.0;
        let mut hover = None;
        for row in [0, 1] {
            self.place(shown);
            let before = self.sides[row].selection.clone();
            let corner = room.min + vec2(0.0, row as f32 * height);
            let half = Rect::from_min_size(corner, vec2(room.width(), height));
            place_ui(ui, ("side", row), half, |ui| {
                // Without enough height for both, they must not overlap.
                ui.shrink_clip_rect(half);
                self.head_ui(ui, shown, row, looks[row].paint.has_lines);
                let side = &mut self.sides[row];
                let recording = shown.recordings[row];
                side.timeline.timeline_ui(ui, recording, &mut side.selection, &looks[row]);
            });
            let origin = self.origins(shown)[row];
            let side = &self.sides[row];
            let now = &side.selection;
            if now.view() != before.view() {
                self.shared = Some(View { x: moved(&now.view().x, -origin), y: now.view().y.clone() });
                // The picture drawn before follows in the next frame.
                ui.ctx().request_repaint();
            }
            let middle = |moment: usize| now.middle_of(&shown.recordings[row].trace, moment) - origin;
            if let Some(pin) = now.pin.filter(|_| now.pin != before.pin) {
                self.pinned = Some(Pinned { side: row, at: middle(pin.moment), pin });
            }
            hover = hover.or(side.timeline.hover().map(|hover| (row, middle(hover.moment))));
        }
        if hover != self.hover {
            ui.ctx().request_repaint();
        }
        self.hover = hover;
        if self.reading > 0.0 {
            let line = Rect::from_min_max(room.min + vec2(0.0, 2.0 * height), room.max);
            place_ui(ui, "reading", line, |ui| self.reading_ui(ui, shown));
        }
        ui.advance_cursor_after_rect(room);
    }

    fn head_ui(&mut self, ui: &mut Ui, shown: &Shown<'_>, row: usize, has_lines: bool) {
        let recording = shown.recordings[row];
        let name = ["A", "B"][row];
        // In little height, the legend is beside the name.
        let is_low = ui.available_height() < theme::LEGEND_FROM;
        ui.horizontal(|ui| {
            ui.label(RichText::new(name).strong().size(15.0).color(Shades::in_ui(ui).mark));
            ui.add(Label::new(RichText::new(&recording.name).strong()).truncate());
            if let Some(moments) = shown.moments {
                let moment = &moments[row];
                let [a, b, _] = compared(moments.map(|moment| moment.bytes));
                ui.label(format!("{} {}", [a, b][row], total_name(shown.metric)));
                ui.weak(when(moment));
            }
            ui.add_space(8.0);
            if is_low {
                self.legend_ui(ui, shown, row, "");
            } else if let Some(moments) = shown.moments {
                let Side { selection, timeline, .. } = &self.sides[row];
                timeline.totals_ui(ui, recording, selection, has_lines, (moments[row].position(), ""));
            }
        });
        if !is_low {
            let when = shown.moments.map_or_else(String::new, |moments| at_text(&moments[row], false));
            self.legend_ui(ui, shown, row, &when);
        }
    }

    /// The legend at the compared moment, after the text `when`. A click on an entry searches for its blocks on both
    /// sides, or clears the search if it is for them already.
    fn legend_ui(&mut self, ui: &mut Ui, shown: &Shown<'_>, row: usize, when: &str) {
        let (side, recording) = (&mut self.sides[row], shown.recordings[row]);
        let position = shown.moments.map_or(0, |moments| moments[row].position());
        if let Some(picture) = side.timeline.picture() {
            let asked = Asked::new(recording, &side.selection, position, &picture.colouring);
            side.shares.ask(ui.ctx(), &asked);
        }
        if let Some(condition) = side.shares.legend_ui(ui, 1, when) {
            let is_selected = self.sides[0].search.text() == condition;
            let text = if is_selected { "" } else { condition.as_str() };
            for (side, recording) in self.sides.iter_mut().zip(shown.recordings) {
                side.search.set(ui.ctx(), recording, text);
            }
        }
    }

    fn reading_ui(&self, ui: &mut Ui, shown: &Shown<'_>) {
        let metric = total_name(shown.metric);
        let words = match self.under_cursor(shown) {
            None => {
                let hint = "Move the pointer over either timeline to compare both totals there; a click pins it.";
                format!("{} {hint}", shown.alignment.words)
            }
            Some(moments) => {
                let [a, b, delta] = compared(moments.map(|moment| moment.map_or(0, |moment| moment.bytes)));
                let one = |side: usize| match &moments[side] {
                    Some(moment) => format!("{} {} ({})", ["A", "B"][side], [&a, &b][side], when(moment)),
                    None => format!("{} has no events here", ["A", "B"][side]),
                };
                let has_both = moments.iter().all(Option::is_some);
                let delta = if has_both { format!("  ·  B − A: {delta}") } else { String::new() };
                format!("At the cursor, {metric}: {}  ·  {}{delta}", one(0), one(1))
            }
        };
        ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
            let response = ui.add(Label::new(RichText::new(&words).weak()).truncate());
            response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &words));
        });
    }
}

fn moved(range: &Range<f64>, by: f64) -> Range<f64> {
    range.start + by..range.end + by
}
