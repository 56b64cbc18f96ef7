//! The timeline: every live block as a band in a stack over time, with axes, lanes, lines, the peak and the overview.

mod axis;
mod frame;
mod labels;
mod lanes;
mod marks;
mod picture;
mod overview;
mod lines;
mod plot;
mod pointer;
mod failure;

use std::ops::Range;
use std::sync::Arc;

use eframe::egui::{self, Shape, TextureHandle, TextureOptions, Ui, vec2};
use highwater_analysis::bands::{Across, BandWindow, Stack};
use highwater_analysis::{Matches, Metric, Totals};
use highwater_snapshots::{BlockId, EventId, format_count};

pub(crate) use failure::{fails_at, labelled_failure};
pub(crate) use frame::PlotFrame;
pub(crate) use labels::Labels;
pub(crate) use marks::{
    FailedMark, paint_axis_name, paint_capacity, paint_cross, paint_note, paint_ooms, paint_peak, paint_tagged,
    peak_text,
};
pub(crate) use picture::Picture;
pub use picture::Stacking;
pub(crate) use plot::{lines_ui, ruled, ruled_within};
pub(crate) use pointer::wheel;

use crate::gui::identity::Identity;
use crate::gui::legend::peak_cause;
use crate::gui::widgets::{Memo, Shades, computed, theme};
use crate::{Axis, ColourBy, Recording, Selection, View, drawn_metric};
use lanes::LaneKind;
use picture::{Painter, Part, Request};

/// The settings for painting blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Paint {
    /// The colouring of blocks.
    pub colour_by: ColourBy,
    /// The order of the stack.
    pub stacking: Stacking,
    /// Whether totals are drawn as lines.
    pub has_lines: bool,
    /// Whether blocks that do not match the search are hidden rather than dimmed.
    pub is_hiding: bool,
}

impl Default for Paint {
    fn default() -> Self {
        Self { colour_by: ColourBy::default(), stacking: Stacking::default(), has_lines: true, is_hiding: false }
    }
}

/// The style of a timeline.
#[derive(Clone, Debug)]
pub struct TimelineStyle {
    /// The settings for painting its blocks.
    pub paint: Paint,
    /// Whether there is an overview of the whole recording below the plot.
    pub has_overview: bool,
    /// The blocks that are not dimmed.
    pub matches: Arc<Matches>,
}

/// The moment and the block under the pointer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hover {
    /// Number of events before the moment under the pointer.
    pub moment: usize,
    /// The block, if the pointer is on one.
    pub block: Option<BlockId>,
    /// The drawn total at the moment under the pointer, in bytes.
    pub total: u64,
}

/// The timeline of one recording.
#[derive(Debug, Default)]
pub struct Timeline {
    painter: Painter,
    /// The recording shown in the last frame.
    of: Identity<Recording>,
    detail: Option<Shown>,
    whole: Option<Shown>,
    frame: Option<PlotFrame>,
    hover: Option<Hover>,
    menu_target: Option<Hover>,
    /// The stack last requested, with its total and its moment.
    stack: Option<((Metric, usize), Arc<Stack>)>,
    flags: [Option<egui::Rect>; 2],
    failure_cause: Option<(EventId, String)>,
    failure: failure::FailureText,
    kept: Memo<overview::KeptKey, Vec<[f64; 2]>>,
    /// The widths of the widest phase and regions on an axis; see [`lanes::widest`].
    widest: Memo<(Identity<Recording>, Axis), Vec<f64>>,
    hold: Option<overview::Hold>,
    /// Start of a ruler, on the axes.
    ruler: Option<[f64; 2]>,
    is_moving: bool,
    /// Whether the pointer is ignored because it has not moved since the last command.
    is_resting: bool,
    /// The bytes that the block under the pointer covers in each column, in the resolution of pixels.
    hovered_outline: Option<(BlockId, Vec<Option<Range<u64>>>)>,
}

computed!(Timeline: painter, failure);

struct Shown {
    picture: Picture,
    texture: TextureHandle,
    view: View,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown").field("view", &self.view).finish_non_exhaustive()
    }
}

impl Shown {
    /// The start of column `index` on the axis.
    fn edge(&self, index: usize) -> f64 {
        let View { x, .. } = &self.view;
        x.start + (x.end - x.start) * index as f64 / self.picture.raster.columns.len().max(1) as f64
    }
}

/// Whether a total that is at most `peak` equals it, falls, and equals it again, given its maximum in each column.
fn recurs(mut columns: impl Iterator<Item = u64>, peak: u64) -> bool {
    columns.any(|bytes| bytes == peak) && columns.any(|bytes| bytes < peak) && columns.any(|bytes| bytes == peak)
}

/// Maximum number of pixels of a picture's longer side, independent of the GPU's limit.
const LONGEST_SIDE: usize = 8192;
/// Number of events per column above which the timeline notes that a column shows the largest total of many events.
const MANY_EVENTS: usize = 100;
/// Size in pixels of the picture of the whole recording.
const WHOLE_SIZE: [usize; 2] = [1024, 384];

impl Timeline {
    /// The frame of the last drawn plot; `None` before the first.
    pub fn frame(&self) -> Option<&PlotFrame> {
        self.frame.as_ref()
    }

    /// Returns the moment and the block under the pointer; `None` if it is elsewhere.
    pub fn hover(&self) -> Option<Hover> {
        self.hover
    }

    /// The moment and block under the pointer at the last right click; `None` if there were none.
    pub(crate) fn menu_target(&self) -> Option<Hover> {
        self.menu_target
    }

    /// Returns the picture of the visible range, or until it is ready, of the whole recording; `None` before either.
    pub fn picture(&self) -> Option<&Picture> {
        let shown = self.detail.as_ref().filter(|shown| self.is_of(shown));
        shown.or(self.whole.as_ref().filter(|shown| self.is_of(shown))).map(|shown| &shown.picture)
    }

    /// Ignores the pointer until it moves again, so that the result of a command is visible.
    pub(crate) fn rest_pointer(&mut self) {
        (self.is_resting, self.hover, self.hovered_outline) = (true, None, None);
    }

    /// Switches to `recording`, a newer version from the same file. The pictures stay visible until new ones are ready,
    /// but are no longer used for look-ups.
    pub fn renew(&mut self, recording: &Arc<Recording>) {
        self.of = Identity::of(recording);
        (self.stack, self.hovered_outline, self.hover, self.menu_target) = (None, None, None, None);
    }

    fn is_of(&self, shown: &Shown) -> bool {
        self.of.is(&shown.picture.request.recording)
    }

    fn shown_at(&self, x: f64) -> Option<&Shown> {
        let is_there = |shown: &&Shown| self.is_of(shown) && shown.view.x.contains(&x);
        self.detail.as_ref().filter(is_there).or(self.whole.as_ref().filter(is_there))
    }

    /// Whether wheel or pointer moved the view in the last frame.
    pub(crate) fn is_moving(&self) -> bool {
        self.is_moving
    }

    /// Receives finished pictures, at the start of a frame so that the whole frame is consistent.
    pub fn receive(&mut self, ctx: &egui::Context) {
        for (part, picture) in self.painter.take() {
            self.keep(ctx, part, picture);
        }
    }

    /// The stack at `moment`, in the order of the picture; `None` until there is a picture.
    pub fn stack(&mut self, recording: &Recording, selection: &Selection, moment: usize) -> Option<Arc<Stack>> {
        self.forget_others(selection);
        let key = (drawn_metric(selection.metric), moment);
        if let Some((_, stack)) = self.stack.as_ref().filter(|(known, _)| *known == key) {
            return Some(Arc::clone(stack));
        }
        let bands = Arc::clone(&self.picture()?.bands);
        let index = &recording.devices[selection.device];
        let stack = Arc::new(bands.stack(&recording.trace, &index.live, key.0, moment));
        self.stack = Some((key, Arc::clone(&stack)));
        Some(stack)
    }

    /// Drops pictures of another device, or on another axis.
    fn forget_others(&mut self, selection: &Selection) {
        let is_other = |shown: &Shown| {
            let request = &shown.picture.request;
            let axis = match request.window.across {
                Across::Moments(_) => Axis::Event,
                Across::Nanos(_) => Axis::Time,
            };
            request.device != selection.device || axis != selection.axis()
        };
        for slot in [&mut self.whole, &mut self.detail] {
            if slot.as_ref().is_some_and(is_other) {
                (*slot, self.kept) = (None, Memo::default());
                (self.stack, self.hovered_outline, self.hover) = (None, None, None);
            }
        }
    }

    /// Shows the timeline and handles input. Returns the response of its plot.
    pub fn timeline_ui(
        &mut self,
        ui: &mut Ui,
        recording: &Arc<Recording>,
        selection: &mut Selection,
        look: &TimelineStyle,
    ) -> egui::Response {
        if !self.of.is(recording) {
            self.renew(recording);
        }
        self.forget_others(selection);
        self.describe_failure(ui.ctx(), recording, selection);
        self.is_moving = false;
        let shades = Shades::in_ui(ui);
        ui.spacing_mut().item_spacing.y = 2.0;
        let widest = self.widest.get((self.of.clone(), selection.axis()), |_| lanes::widest(recording, selection));
        let width = ui.available_width() - theme::AXIS_WIDTH - theme::END_MARGIN;
        let shown = lanes::shown(recording, selection, widest, width);
        let height = shown.len() as f32 * theme::LANE_HEIGHT;
        let lanes = (ui.allocate_space(vec2(ui.available_width(), height)).1, shown.as_slice());
        // Painted last, when the plot's frame is known, but below everything else.
        let background = ui.painter().add(Shape::Noop);
        // A low window has room for the plot alone.
        let has_overview =
            look.has_overview && ui.available_height() >= theme::MIN_WITH_OVERVIEW + theme::OVERVIEW_HEIGHT;
        let overview = if has_overview { theme::OVERVIEW_HEIGHT + 6.0 } else { theme::AXIS_NAME_HEIGHT };
        let height = (ui.available_height() - overview).max(theme::MIN_PLOT);
        let (response, frame) = self.plot_ui(ui, recording, selection, look, height);
        let mut beneath = self.beneath(&frame, recording, selection, &shades);
        beneath.extend(self.images(&frame, &selection.whole(recording).x));
        ui.painter().set(background, Shape::Vec(beneath));
        lanes::paint(ui.painter(), lanes, &frame, recording, selection, &shades);
        self.zoom_to_lane(ui, lanes, &frame, recording, selection);
        paint_axis_name(ui.painter(), &frame, selection.axis(), &shades);
        self.flags = self.marks(ui, &frame, recording, selection, &shades);
        self.point(ui, &response, &frame, recording, selection);
        if has_overview {
            self.overview_ui(ui, recording, selection);
        }
        self.ask(ui.ctx(), &frame, recording, selection, look);
        self.frame = Some(frame);
        response
    }

    /// Zooms to the step, phase or region that was clicked, or to everything if it already fills the view.
    fn zoom_to_lane(
        &mut self,
        ui: &Ui,
        lanes: (egui::Rect, &[LaneKind]),
        frame: &PlotFrame,
        recording: &Recording,
        selection: &mut Selection,
    ) {
        let response = ui.interact(lanes.0, ui.scope_id().with("lanes"), egui::Sense::CLICK);
        let cell = response.hover_pos().and_then(|at| lanes::events_at(lanes, at, frame, recording, selection));
        let Some((events, name)) = cell else { return };
        let response = response.on_hover_cursor(egui::CursorIcon::PointingHand).on_hover_text_at_pointer(name);
        if response.clicked() {
            let moments = events.start as usize..events.end as usize;
            let before = selection.view().clone();
            selection.show_moments(recording, &moments);
            if *selection.view() == before {
                selection.fit(recording);
            }
            self.is_moving = true;
        }
    }

    /// Draws the picture of the visible range and, where that is not ready, the picture of the whole recording, clipped
    /// to `inside`, the extent of the recording.
    fn images(&self, frame: &PlotFrame, inside: &Range<f64>) -> Vec<Shape> {
        let image = |shown: &Option<Shown>, within: Range<f64>| {
            let shown = shown.as_ref()?;
            let within = within.start.max(inside.start)..within.end.min(inside.end);
            Some(frame.image(shown.texture.id(), &shown.view, &within))
        };
        let drawn = self.detail.as_ref().map_or(f64::MAX..f64::MAX, |detail| detail.view.x.clone());
        let images = [
            image(&self.whole, f64::MIN..drawn.start),
            image(&self.whole, drawn.end..f64::MAX),
            image(&self.detail, f64::MIN..f64::MAX),
        ];
        images.into_iter().flatten().collect()
    }

    /// Returns the areas of the labels of a failed request and of the peak.
    fn marks(
        &self,
        ui: &Ui,
        frame: &PlotFrame,
        recording: &Recording,
        selection: &Selection,
        shades: &Shades,
    ) -> [Option<egui::Rect>; 2] {
        let painter = ui.painter();
        let trace = &recording.trace;
        let index = &recording.devices[selection.device];
        if let Some(shown) = &self.detail {
            let edges = |column: usize| shown.edge(column);
            if let Some((_, outline)) = &self.hovered_outline {
                let colours = [shades.cursor, shades.canvas.gamma_multiply(0.5)];
                marks::paint_outline(painter, frame, outline, edges, colours);
            }
            if selection.pin.is_some_and(|pin| pin.block == shown.picture.request.outlined) {
                let colours = [shades.peak, shades.canvas];
                marks::paint_outline(painter, frame, &shown.picture.outline, edges, colours);
            }
        }
        if let Some(range) = selection.range() {
            let x = [range.start, range.end].map(|moment| selection.middle_of(trace, moment));
            marks::paint_between(painter, frame, x, shades);
        }
        let peak = index.peak(trace, selection.metric);
        let middle = selection.middle_of(trace, peak.position());
        let mut labels = Labels::default();
        let capacity = index.summary.capacity_bytes;
        let capacity_y = frame.screen_y(capacity as f64);
        let is_clear =
            |place: egui::Rect| !(capacity > 0 && place.y_range().contains(capacity_y)) && self.is_above(frame, place);
        // Failed requests first: they are few, and the user is looking for them.
        let failed = self.failed_marks(recording, selection);
        let is_labelled = failed.iter().any(|mark| mark.label.is_some());
        let failure = paint_ooms(painter, frame, failed.into_iter(), (&mut labels, is_clear), shades);
        // The label of a failed request says more. What leaks is known once there is a picture.
        let text = if is_labelled {
            String::new()
        } else {
            let cause = self.picture().and_then(|_| peak_cause(recording, selection.device, selection.metric));
            let whole = self.whole.as_ref().filter(|whole| self.is_of(whole)).map(|whole| whole.picture.totals.iter());
            let recurs = whole.is_some_and(|totals| recurs(totals.map(|one| one.get(selection.metric)), peak.bytes));
            let is_marked = selection.marks.contains(&Some(peak.position()));
            if is_marked { cause.unwrap_or_default() } else { peak_text(&peak, cause.as_deref(), recurs) }
        };
        let peak = paint_peak(painter, frame, middle, (&peak, &text), (&mut labels, is_clear), shades);
        for (mark, name) in selection.marks.iter().zip(["A", "B"]) {
            if let Some(moment) = mark {
                let x = selection.middle_of(trace, *moment);
                marks::paint_mark(painter, frame, x, name, &mut labels, shades);
            }
        }
        if let Some(hover) = self.hover {
            marks::paint_cursor(painter, frame, selection.middle_of(trace, hover.moment), hover.total, shades);
        } else if let Some(pin) = selection.pin {
            let total = index.moment(trace, drawn_metric(selection.metric), pin.moment).bytes;
            marks::paint_cursor(painter, frame, selection.middle_of(trace, pin.moment), total, shades);
        }
        let is_clear = |place| self.is_above(frame, place);
        paint_capacity(painter, frame, capacity, &mut labels, is_clear, shades);
        let moments = [frame.view.x.start, frame.view.x.end].map(|x| selection.moment_at(trace, x));
        let columns = self.picture().map_or(frame.rect.width() as usize, |picture| picture.raster.columns.len());
        let events = moments[1].saturating_sub(moments[0]) / columns.max(1);
        if events > MANY_EVENTS {
            let text = format!("each column: the largest total of about {} events", format_count(events as u64));
            paint_note(painter, frame, &text, &mut labels, is_clear, shades);
        }
        [failure, peak]
    }

    /// The areas of the labels of a failed request and of the peak in the last frame.
    pub(crate) fn flags(&self) -> [Option<egui::Rect>; 2] {
        self.flags
    }

    /// The totals of the columns that overlap `place` horizontally.
    fn totals_at(&self, frame: &PlotFrame, place: egui::Rect) -> &[Totals] {
        let Some(shown) = self.detail.as_ref().or(self.whole.as_ref()) else { return &[] };
        let (totals, View { x, .. }) = (&shown.picture.totals, &shown.view);
        let column = |at: f32| (frame.x_at(at) - x.start) / (x.end - x.start) * totals.len() as f64;
        let first = (column(place.left()).max(0.0) as usize).min(totals.len());
        &totals[first..(column(place.right()).max(0.0) as usize + 1).clamp(first, totals.len())]
    }

    /// Whether `place` is above the active memory and not crossed by any total's line.
    fn is_above(&self, frame: &PlotFrame, place: egui::Rect) -> bool {
        let is_clear = |totals: &Totals| {
            let mut heights = Metric::ALL.into_iter().map(|metric| frame.screen_y(totals.get(metric) as f64));
            frame.screen_y(totals.active as f64) > place.bottom() && heights.all(|y| !place.y_range().contains(y))
        };
        // From column to column a line may jump over the place.
        let over = self.totals_at(frame, place);
        let sides = |metric: Metric| {
            let mut sides = over.iter().map(|totals| frame.screen_y(totals.get(metric) as f64) < place.top());
            let first = sides.next();
            sides.all(|side| Some(side) == first)
        };
        over.iter().all(is_clear) && Metric::ALL.into_iter().all(sides)
    }

    /// Requests the pictures of the visible range and of the whole recording. Does nothing if this layout pass is
    /// discarded, since the size of the plot is not final then.
    fn ask(
        &mut self,
        ctx: &egui::Context,
        frame: &PlotFrame,
        recording: &Arc<Recording>,
        selection: &Selection,
        look: &TimelineStyle,
    ) {
        if ctx.will_discard() {
            return;
        }
        let request = |view: &View, [width, height]: [usize; 2]| {
            let width = lanes::columns(width, view, recording, selection);
            let across = match selection.axis() {
                Axis::Event => Across::Moments(view.x.clone()),
                Axis::Time => Across::Nanos(view.x.clone()),
            };
            let bytes = view.y.start.max(0.0) as u64..view.y.end.ceil().max(0.0) as u64;
            let window = BandWindow { metric: drawn_metric(selection.metric), across, width, bytes, height };
            Request {
                recording: Arc::clone(recording),
                device: selection.device,
                window,
                colour_by: look.paint.colour_by,
                stacking: look.paint.stacking,
                matches: Arc::clone(&look.matches),
                is_hiding: look.paint.is_hiding && !look.matches.is_all(),
                outlined: selection.pin.and_then(|pin| pin.block),
            }
        };
        let scale = ctx.pixels_per_point();
        let longest = ctx.input(|input| input.max_texture_side).clamp(1, LONGEST_SIDE);
        let pixels = |points: f32| ((points * scale).round() as usize).clamp(1, longest);
        let size = [pixels(frame.rect.width()), pixels(frame.rect.height())];
        self.painter.ask(ctx, Part::Detail, &request(&frame.view, size));
        let whole = Request { outlined: None, ..request(&selection.whole(recording), WHOLE_SIZE) };
        self.painter.ask(ctx, Part::Whole, &whole);
    }

    /// Uploads a finished picture to the GPU.
    fn keep(&mut self, ctx: &egui::Context, part: Part, mut picture: Picture) {
        let Some(image) = picture.image.take() else { return };
        let window = &picture.request.window;
        let x = match &window.across {
            Across::Moments(x) | Across::Nanos(x) => x.clone(),
        };
        let view = View { x, y: window.bytes.start as f64..window.bytes.end as f64 };
        let (slot, name, options) = match part {
            Part::Whole => (&mut self.whole, "whole", TextureOptions::LINEAR),
            Part::Detail => (&mut self.detail, "detail", TextureOptions::NEAREST),
        };
        let texture = match slot.take() {
            Some(Shown { mut texture, .. }) => {
                texture.set(image, options);
                texture
            }
            None => ctx.load_texture(name, image, options),
        };
        *slot = Some(Shown { picture, texture, view });
        self.stack = None;
        self.hovered_outline = None;
    }
}

#[cfg(test)]
mod tests {
    use super::recurs;

    #[test]
    fn a_peak_recurs_if_the_total_falls_in_between() {
        let recurs = |columns: &[u64]| recurs(columns.iter().copied(), 9);
        assert!(recurs(&[1, 9, 3, 9, 2]));
        assert!(!recurs(&[1, 9, 9, 3]), "a plateau, or one moment at the edge of two columns");
        assert!(!recurs(&[8, 9, 8]));
    }
}
