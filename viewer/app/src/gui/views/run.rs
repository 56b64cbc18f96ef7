//! The overview of a long recording, above the timeline of the part that is shown. It shows the largest totals, and the
//! part as a brush that can be moved or drawn again.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use eframe::egui::{
    Align, Align2, Context, CursorIcon, FontId, Label, Layout, Pos2, Rect, RichText, Role, Sense, Stroke, Ui,
    WidgetInfo, pos2, vec2,
};
use highwater_analysis::{Metric, SoughtStep};
use highwater_snapshots::{DeviceId, count_of, format_bytes, format_count};

use crate::Recording;
use crate::figures::moment::total_name;
use crate::gui::views::run_chart::column_shapes;
use crate::gui::widgets::{Cancel, Memo, Query, Shades, computed, theme};
use crate::session::run::{Run, RunColumn};

/// Height of the columns, in points.
const HEIGHT: f32 = 46.0;

#[derive(Debug)]
pub(crate) struct RunView {
    columns: Memo<Key, Vec<RunColumn>>,
    /// The event at which the user started to draw a new part.
    drag: Option<u64>,
    part: Query<PartKey, Result<Part, String>>,
}

computed!(RunView: part);

impl Default for RunView {
    fn default() -> Self {
        let part = Query::new("highwater-part", |key: &PartKey, cancel| {
            let part = read_part(&key.run, key.wanted.clone(), cancel);
            (!cancel.is_cancelled()).then_some(part)
        });
        Self { columns: Memo::default(), drag: None, part }
    }
}

type Key = (DeviceId, Metric, usize, u64);

#[derive(Clone, Debug)]
struct PartKey {
    run: Arc<Run>,
    wanted: Wanted,
}

impl PartialEq for PartKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.run, &other.run) && self.wanted == other.wanted
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The part with these events, and the position to show in it.
    Part(Range<u64>, Goal),
    /// The end of the recording.
    End {
        /// Number of events to read.
        length: u64,
        /// Number of events to show at the end.
        in_view: u64,
    },
    /// The part that contains the peak of a total; the range is the part shown at present.
    Peak(DeviceId, Metric, Range<u64>),
    /// The part around an event.
    Event(u64),
    /// The part that contains a step; the range is the part shown at present.
    Step(SoughtStep, Range<u64>),
    /// The part with the first failed request at an event or later, or, if `is_forward` is false, the last one before
    /// it.
    FailedRequest {
        /// The event from which the search starts.
        from: u64,
        /// Whether to search forward.
        is_forward: bool,
        /// The part shown at present.
        shown: Range<u64>,
    },
}

#[derive(Debug)]
pub(crate) struct Part {
    /// The recording of the part; `None` if the part is already shown.
    pub recording: Option<Recording>,
    /// The position to show in the part.
    pub goal: Goal,
}

/// The position to show in a part of the recording. Event indices are those in the whole recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The whole part.
    Everything,
    /// The view that was saved for Undo.
    Visit,
    /// This range of events.
    View(Range<u64>),
    /// The surroundings of this event.
    Event(u64),
    /// The step that begins at this event.
    Step(u64),
    /// The failed request at this event.
    FailedRequest(u64),
    /// Keep the current part, and report that the recording has no step with this number.
    NoStep(u32),
    /// Keep the current view, since there is nothing else to show.
    Nothing,
}

fn read_part(run: &Arc<Run>, wanted: Wanted, cancel: &Cancel) -> Result<Part, String> {
    match wanted {
        Wanted::Part(events, goal) => Ok(Part { recording: Some(Recording::part(run, events)?), goal }),
        Wanted::End { length, in_view } => {
            let recording = Recording::last_part(run, length)?;
            let Range { start, end } = recording.events();
            let view = end.saturating_sub(in_view).max(start)..end;
            Ok(Part { recording: Some(recording), goal: Goal::View(view) })
        }
        Wanted::Peak(device, metric, shown) => {
            let event = run.peak_event(device, metric).map_err(|why| why.to_string())?;
            let is_shown = shown.contains(&event);
            let recording = if is_shown { None } else { Some(Recording::part(run, run.around(event))?) };
            Ok(Part { recording, goal: Goal::Event(event) })
        }
        Wanted::Event(event) => {
            Ok(Part { recording: Some(Recording::part(run, run.around(event))?), goal: Goal::Event(event) })
        }
        Wanted::FailedRequest { from, is_forward, shown } => {
            let found = run.source().find_failed_request(from, is_forward).map_err(|why| why.to_string())?;
            let Some(event) = found else { return Ok(Part { recording: None, goal: Goal::Nothing }) };
            let recording = if shown.contains(&event) { None } else { Some(Recording::part(run, run.around(event))?) };
            Ok(Part { recording, goal: Goal::FailedRequest(event) })
        }
        Wanted::Step(sought, shown) => {
            let mut watch = |_| if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            let found = run.source().find_step(sought, &mut watch).map_err(|why| why.to_string())?;
            let Some(step) = found else {
                let goal = match sought {
                    SoughtStep::Number { number, .. } => Goal::NoStep(number),
                    SoughtStep::After(_) | SoughtStep::Before(_) => Goal::Nothing,
                };
                return Ok(Part { recording: None, goal });
            };
            let is_shown = shown.start <= step.events.start && step.events.end <= shown.end;
            let part = run.around_step(&step.events, shown.end - shown.start);
            let recording = if is_shown || part == shown { None } else { Some(Recording::part(run, part)?) };
            Ok(Part { recording, goal: Goal::Step(step.events.start) })
        }
    }
}

impl RunView {
    /// Starts reading a part of `run`, unless it is already being read.
    pub(crate) fn ask(&mut self, ctx: &Context, run: &Arc<Run>, wanted: Wanted) {
        let key = PartKey { run: Arc::clone(run), wanted };
        if self.part.asked() != Some(&key) {
            // A former part may take long to read: another thread does not wait for it.
            self.part.forget();
            self.part.ask(ctx, &key);
        }
    }

    pub(crate) fn cancel(&mut self) {
        self.part.forget();
    }

    /// Takes the requested part once it is read, or the reason it cannot be read.
    pub(crate) fn take(&mut self) -> Option<Result<Part, String>> {
        let part = self.part.take();
        let part = part.or_else(|| self.part.failure().map(|why| Err(why.to_owned())))?;
        self.part.cancel();
        Some(part)
    }

    /// Returns the part that the user selects.
    pub(crate) fn run_ui(
        &mut self,
        ui: &mut Ui,
        run: &Run,
        shown: &Range<u64>,
        (device, metric): (DeviceId, Metric),
    ) -> Option<Range<u64>> {
        let shades = Shades::in_ui(ui);
        let pixels = ((ui.available_width() - theme::AXIS_WIDTH) * ui.ctx().pixels_per_point()).max(1.0) as usize;
        let count = run.columns_in(&(0..run.events()), pixels);
        let key = (device, metric, count, run.events());
        let columns = self.columns.get(key, |_| run.columns(device, metric, &(0..run.events()), count));
        let peak = columns.iter().copied().reduce(|peak, next| if next.bytes > peak.bytes { next } else { peak });
        let peak = peak.unwrap_or_default();
        head_ui(ui, run, shown, (peak.bytes, metric));
        let (whole, response) = ui.allocate_exact_size(vec2(ui.available_width(), HEIGHT), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Slider, true, label(run, shown)));
        let rect = whole.with_min_x(whole.left() + theme::AXIS_WIDTH);
        let place = Place { rect, events: run.events().max(1) };
        let painter = ui.painter_at(whole);
        let points_per_byte = f64::from(rect.height() - 4.0) / peak.bytes.max(1) as f64;
        painter.extend(column_shapes(rect, points_per_byte, columns, (metric, 1.0), &shades));
        painter.vline(place.x(peak.event), rect.y_range(), Stroke::new(1.0, shades.peak));
        let (top, font) = (pos2(rect.left() - 6.0, rect.top()), FontId::proportional(11.0));
        painter.text(top, Align2::RIGHT_TOP, format_bytes(peak.bytes), font, shades.faint);
        let part = place.x(shown.start)..=place.x(shown.end);
        let brush = Rect::from_x_y_ranges(part, rect.y_range()).expand2(vec2(1.0, 0.0));
        painter.rect(
            brush,
            0,
            shades.cursor.gamma_multiply(0.12),
            Stroke::new(1.0, shades.cursor),
            eframe::egui::StrokeKind::Inside,
        );
        if let Some(start) = self.drag {
            let end = ui.input(|input| input.pointer.latest_pos()).map_or(start, |pointer| place.event(pointer));
            let drawn = place.x(start.min(end))..=place.x(start.max(end));
            painter.rect_filled(Rect::from_x_y_ranges(drawn, rect.y_range()), 0, shades.cursor.gamma_multiply(0.12));
        }
        if let Some(coming) = self.part.asked() {
            let middle = match &coming.wanted {
                Wanted::Part(events, _) => Some(place.x(events.start + (events.end - events.start) / 2)),
                // The overview of a file that grows must not flicker.
                Wanted::End { .. } => None,
                Wanted::Event(event) => Some(place.x(*event)),
                Wanted::Peak(..) | Wanted::Step(..) | Wanted::FailedRequest { .. } => Some(rect.center().x),
            };
            if let Some(middle) = middle {
                let font = FontId::proportional(11.0);
                painter.text(pos2(middle, rect.center().y), Align2::CENTER_CENTER, "reading…", font, shades.cursor);
            }
        }
        if let Some(pointer) = response.hover_pos() {
            ui.set_cursor_icon(CursorIcon::Crosshair);
            let event = place.event(pointer);
            let column = columns.get(((pointer.x - rect.left()) / rect.width() * columns.len() as f32) as usize);
            let (least, bytes) = column.map_or((0, 0), |column| (column.least, column.bytes));
            response.clone().on_hover_text_at_pointer(format!(
                "Event {}: {} to {}\nClick to show the part here; drag to choose a part.",
                format_count(event),
                format_bytes(least),
                format_bytes(bytes)
            ));
        }
        self.dragged(&response, &place, run, shown)
    }

    fn dragged(
        &mut self,
        response: &eframe::egui::Response,
        place: &Place,
        run: &Run,
        shown: &Range<u64>,
    ) -> Option<Range<u64>> {
        let pointer = response.interact_pointer_pos();
        if response.drag_started() {
            let origin = response.ctx.input(|input| input.pointer.press_origin());
            self.drag = origin.or(pointer).map(|pointer| place.event(pointer));
        }
        if response.drag_stopped() {
            let (start, end) = (self.drag.take()?, place.event(pointer?));
            return Some(run.within(start.min(end)..start.max(end).max(start.min(end) + 1)));
        }
        if response.clicked() {
            let (middle, length) = (place.event(pointer?), shown.end - shown.start);
            let start = middle.saturating_sub(length / 2);
            return Some(run.within(start..start + length));
        }
        None
    }
}

fn label(run: &Run, shown: &Range<u64>) -> String {
    let [first, last, all] = [shown.start, shown.end.saturating_sub(1), run.events()].map(format_count);
    format!("The whole recording, of which events {first} to {last} of {all} are shown below")
}

/// Maps events of the run to positions on the screen.
struct Place {
    rect: Rect,
    events: u64,
}

impl Place {
    fn x(&self, event: u64) -> f32 {
        self.rect.left() + (event as f64 / self.events as f64) as f32 * self.rect.width()
    }

    fn event(&self, pointer: Pos2) -> u64 {
        let share = f64::from((pointer.x - self.rect.left()) / self.rect.width()).clamp(0.0, 1.0);
        (share * self.events as f64) as u64
    }
}

/// Shows the size and the peak of the whole recording, and which events the timeline below shows.
fn head_ui(ui: &mut Ui, run: &Run, shown: &Range<u64>, (peak, metric): (u64, Metric)) {
    let (events, size) = (count_of(run.events(), "event"), format_bytes(peak));
    let [first, last] = [shown.start, shown.end.saturating_sub(1)].map(format_count);
    let part = RichText::new(format!("Timeline below: events {first} to {last}"));
    ui.horizontal(|ui| {
        ui.strong("Whole recording");
        ui.weak(format!("{events}; peak {size} {}", total_name(metric)));
        let part = Label::new(part.color(Shades::in_ui(ui).cursor)).truncate();
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.add(part));
    });
}
