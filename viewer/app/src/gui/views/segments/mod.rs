//! The segments view: the addresses of blocks over time, a map of the addresses at a moment, a table of segments, and
//! the reasons a request did not fit.

mod known;
mod look;
mod facts;
mod layout;
mod lanes;
mod chart;
mod list;
mod oom;

use std::sync::Arc;

use eframe::egui::{self, Button, RichText, Ui, vec2};
use highwater_analysis::addresses::PoolFit;
use highwater_analysis::{PoolAndStream, ReservedSegment};
use highwater_snapshots::{EventId, count_of, format_bytes};

use crate::answers::oom_analysis::OomAnalysis;
use crate::gui::identity::Identity;
use crate::gui::views::view::{Action, RecordingView, ViewContext, WriteTable, whole_table};
use crate::gui::widgets::{Query, Shades, computed, least_height_ui, theme};
use chart::{Chart, Marked};
use known::{Known, Question, State, analyse_request};
use lanes::Lanes;
use list::List;
use look::{Legend, Paint};

const MIN_TABLE: f32 = 4.0 * theme::ROW_HEIGHT;
/// Maximum share of the view's height for the analysis of a failed request.
const OOM_SHARE: f32 = 0.6;

/// The state of the Segments view.
#[derive(Debug)]
pub struct SegmentsView {
    known: Option<Arc<Known>>,
    state: Query<Question, Arc<State>>,
    /// The analysis of a failed request, from replays.
    tested: Query<(Identity<Known>, EventId), Arc<OomAnalysis>>,
    lanes: Lanes,
    chart: Chart,
    list: List,
    legend: Legend,
    /// The first address of the selected segment; at other moments, another segment may have this address.
    chosen: Option<u64>,
    /// Whether the drawing over time shows only the selected segment.
    is_alone: bool,
    /// The failed request whose analysis is shown. It applies only while its moment is shown.
    oom: Option<EventId>,
    shows_eviction_window: bool,
    /// The address to scroll to in the map or table once the state is computed.
    wanted: Option<u64>,
}

computed!(SegmentsView: lanes, state, tested);

impl Default for SegmentsView {
    fn default() -> Self {
        Self {
            known: None,
            state: Query::new("highwater-segments", |question, _| State::of(question)).showing_late(),
            tested: Query::new("highwater-oom", |key, _| analyse_request(key)),
            lanes: Lanes::default(),
            chart: Chart::default(),
            list: List::default(),
            legend: Legend::default(),
            chosen: None,
            is_alone: false,
            oom: None,
            shows_eviction_window: false,
            wanted: None,
        }
    }
}

impl RecordingView for SegmentsView {
    /// Shows the address map. The drawing over time is directly below the timeline; it is omitted if there is no
    /// timeline, or if the view is too low for both.
    fn view_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        let visible = ui.available_height();
        // The analysis of a failed request scrolls on its own, and the map stays below it.
        let scrolls_alone = self.shows_failure(context) && visible >= theme::FAILURE_MIN;
        if context.is_picture || scrolls_alone {
            return self.whole_ui(ui, context, visible);
        }
        least_height_ui(ui, "segments", theme::SEGMENTS_MIN, |ui| self.whole_ui(ui, context, visible))
    }

    fn table(&mut self, _: &ViewContext<'_>) -> Result<WriteTable, String> {
        whole_table(self.csv(), "the segments are")
    }
}

impl SegmentsView {
    /// Returns the table of segments as CSV, with sizes in bytes; `None` until it is computed.
    pub fn csv(&mut self) -> Option<String> {
        self.state.answer().map(|state| self.list.csv(state))
    }

    /// Returns the event and cause of the failed request analysed last; `None` if it is of another recording or device.
    pub(crate) fn failure_cause(&self) -> Option<(EventId, String)> {
        let (known, event) = self.tested.answered()?;
        let is_current = self.known.as_ref().is_some_and(|current| known.is(current));
        self.tested.answer().filter(|_| is_current).map(|analysis| (*event, analysis.verdict_text()))
    }

    pub(crate) fn shows_failure(&self, context: &ViewContext<'_>) -> bool {
        let failed = self.state.answer().and_then(|state| state.failed.as_ref());
        failed.is_some_and(|failed| self.is_looked_at(context, failed.event))
    }

    /// Shows the whole view. Its first `visible` points are visible without scrolling; the map starts within them.
    fn whole_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, visible: f32) -> Vec<Action> {
        let mut actions = Vec::new();
        let known = self.known(context);
        self.ask(ui.ctx(), context, &known);
        self.state.receive();
        self.state.keep_if(|question| question.known.is(&known));
        let Some(state) = self.state.answer().map(Arc::clone) else {
            self.state.pending_ui(ui, "Computing the address map…");
            return actions;
        };
        let colouring = context.colouring();
        let paint = Paint {
            trace: &context.recording.trace,
            colouring: colouring.map(|colouring| &**colouring),
            shades: Shades::in_ui(ui),
            scale: (ui.ctx().pixels_per_point().round() as usize).max(1),
        };
        let top = ui.next_widget_position().y;
        let failed = state.failed.as_ref().filter(|failed| self.is_looked_at(context, failed.event));
        // In little space, the failed request is more important than the sums of the segments.
        if failed.is_none() || visible >= theme::FAILURE_WITH_SUMS {
            headline_ui(ui, &state, failed.is_some());
        }
        ui.horizontal_wrapped(|ui| self.tools_ui(ui, &state, (&paint, context.is_picture), &mut actions));
        // The cause of a failed request is the first thing to look for.
        if let Some(failed) = failed {
            let key = (Identity::of(&known), failed.event);
            self.tested.ask(ui.ctx(), &key);
            self.tested.receive();
            let analysis = self.tested.current().map(|analysis| &**analysis);
            // The map stays visible below it.
            let used = ui.next_widget_position().y - top;
            let most = (visible * OOM_SHARE).min(visible - used - theme::MAP_BELOW_FAILURE).max(theme::MAP_MIN);
            let asked = oom::failed_ui(ui, failed, analysis, &paint, (context.is_picture, most));
            actions.extend(asked.action);
            if asked.show_eviction_window
                && let Some(range) = failed.eviction_window.as_ref().and_then(|found| found.freed.range())
            {
                (self.shows_eviction_window, self.wanted) = (true, Some(range.start));
            }
        }
        let room = ui.available_height().min(visible - (ui.next_widget_position().y - top));
        if let Some(under) = context.under.filter(|_| room >= theme::LANES_MIN + theme::MAP_MIN) {
            let only = self.chosen.filter(|_| self.is_alone).and_then(|address| {
                let row = state.map.segment_at(address)?;
                state.map.segments.get(row).map(|segment| segment.addresses.clone())
            });
            let height = (room * 0.3).clamp(theme::LANES_MIN, theme::LANES_MAX);
            actions.extend(self.lanes.lanes_ui(ui, context, (&known, under), only, height));
            ui.add_space(4.0);
        }
        self.map_ui(ui, context, (&state, colouring), &paint, &mut actions);
        actions
    }

    /// The map and the table are next to each other if there is space.
    fn map_ui(
        &mut self,
        ui: &mut Ui,
        context: &ViewContext<'_>,
        (state, colouring): (&Arc<State>, Option<&Arc<crate::gui::colouring::Colouring>>),
        paint: &Paint<'_>,
        actions: &mut Vec<Action>,
    ) {
        if state.map.segments.is_empty() {
            ui.weak(nothing_reserved(state));
            return;
        }
        let room = ui.available_size().max(vec2(200.0, theme::MAP_MIN));
        let is_wide = room.x >= theme::SEGMENTS_TABLE_WIDTH * 1.8;
        // Half of a small space has room for neither map nor table.
        let has_table = is_wide || room.y * 0.45 >= MIN_TABLE;
        let whole = egui::Rect::from_min_size(ui.next_widget_position(), room);
        let (map_place, table_place) = match is_wide {
            true => whole.split_left_right_at_x(whole.right() - theme::SEGMENTS_TABLE_WIDTH - 8.0),
            false => whole.split_top_bottom_at_fraction(if has_table { 0.55 } else { 1.0 }),
        };
        let gap = if is_wide { vec2(8.0, 0.0) } else { vec2(0.0, 8.0) };
        ui.allocate_rect(whole, egui::Sense::hover());
        let failed = state.failed.as_ref().filter(|_| self.shows_eviction_window);
        let range = failed.and_then(|failed| failed.eviction_window.as_ref()?.freed.range());
        if let Some(address) = self.wanted.take() {
            self.chart.show(address);
            if let Some(row) = state.map.segment_at(address) {
                self.chosen = Some(state.map.segments[row].addresses.start);
                self.list.show(row);
            }
        }
        let marked = Marked { segment: self.chosen, range };
        let mut map = ui.new_child(egui::UiBuilder::new().max_rect(map_place).id_salt("map"));
        let chosen = self.chart.chart_ui(&mut map, context, (state, colouring), paint, &marked);
        if let Some(segment) = chosen.segment.and_then(|row| state.map.segments.get(row)) {
            self.chosen = Some(segment.addresses.start);
            self.list.show(chosen.segment.unwrap_or(0));
        }
        actions.extend(chosen.action);
        if !has_table {
            return;
        }
        let table_place = egui::Rect::from_min_max(table_place.min + gap, table_place.max);
        let mut table = ui.new_child(egui::UiBuilder::new().max_rect(table_place).id_salt("table"));
        let touched = self.list.list_ui(&mut table, state, self.chosen);
        if let Some(segment) = touched.chosen.and_then(|row| state.map.segments.get(row)) {
            self.chosen = Some(segment.addresses.start);
            self.chart.show(segment.addresses.start);
        }
        if touched.opened.is_some() {
            self.is_alone = !self.is_alone;
        }
    }

    fn tools_ui(
        &mut self,
        ui: &mut Ui,
        state: &Arc<State>,
        (paint, is_picture): (&Paint<'_>, bool),
        actions: &mut Vec<Action>,
    ) {
        self.legend.legend_ui(ui, paint);
        if is_picture {
            return;
        }
        ui.separator();
        if ui.max_rect().width() < theme::SEGMENTS_WIDE {
            ui.menu_button("Map", |ui| self.map_tools_ui(ui, state, actions));
        } else {
            self.map_tools_ui(ui, state, actions);
        }
        let shown = state.failed.as_ref().and_then(|failed| state.ooms.iter().position(|oom| *oom == failed.event));
        if let Some(event) = oom::choice_ui(ui, state, shown).and_then(|row| state.ooms.get(row)) {
            self.oom = Some(*event);
            self.shows_eviction_window = false;
            actions.push(Action::Moment(event.0 as usize + 1));
        }
    }

    fn map_tools_ui(&mut self, ui: &mut Ui, state: &Arc<State>, actions: &mut Vec<Action>) {
        let toggle_ui = |ui: &mut Ui, is_on: &mut bool, name: &str, tooltip: &str| {
            *is_on ^= ui.add(Button::new(name).small().selected(*is_on)).on_hover_text(tooltip).clicked();
        };
        let tooltip = "Draw every segment in its own row at full width instead of to a common scale.";
        toggle_ui(ui, &mut self.chart.is_normalised, "One row each", tooltip);
        let tooltip = "Draw the map with twice as many rows (+ while the map has the focus).";
        if ui.small_button("Larger").on_hover_text(tooltip).clicked() {
            self.chart.zoom = (self.chart.zoom + 1).min(layout::MAX_ZOOM);
        }
        if ui
            .small_button("Smaller")
            .on_hover_text("Draw the map with half as many rows (- while the map has the focus).")
            .clicked()
        {
            self.chart.zoom = self.chart.zoom.saturating_sub(1);
        }
        let tooltip = "Show only the chosen segment in the lanes (Enter in the table).";
        ui.add_enabled_ui(self.chosen.is_some(), |ui| {
            toggle_ui(ui, &mut self.is_alone, "Only this segment", tooltip);
        });
        let copied = ui.small_button("Copy table").on_hover_text("Copy the table of segments as CSV.");
        if copied.clicked() {
            ui.ctx().copy_text(self.list.csv(state));
            actions
                .push(Action::ShowMessage(format!("Copied {} as CSV.", count_of(state.order.len() as u64, "segment"))));
        }
    }

    fn known(&mut self, context: &ViewContext<'_>) -> Arc<Known> {
        let device = context.selection.device;
        let is_it = |known: &&Arc<Known>| Arc::ptr_eq(&known.recording, context.recording) && known.device == device;
        if let Some(known) = self.known.as_ref().filter(is_it) {
            return Arc::clone(known);
        }
        let known = Known::new(context.recording, device);
        self.known = Some(Arc::clone(&known));
        (self.chosen, self.oom, self.wanted) = (None, None, None);
        (self.is_alone, self.shows_eviction_window) = (false, false);
        known
    }

    fn ask(&mut self, ctx: &egui::Context, context: &ViewContext<'_>, known: &Arc<Known>) {
        let moment = context.moment.position();
        // A failed request stays in view while its moment does.
        self.oom = self.oom.filter(|event| is_beside(*event, moment));
        self.state.ask(ctx, &Question { known: Identity::of(known), moment, oom: self.oom });
    }

    fn is_looked_at(&self, context: &ViewContext<'_>, event: EventId) -> bool {
        self.oom == Some(event) || is_beside(event, context.moment.position())
    }
}

/// Returns whether `moment` is directly before or after `event`.
fn is_beside(event: EventId, moment: usize) -> bool {
    (event.0 as usize..=event.0 as usize + 1).contains(&moment)
}

fn headline_ui(ui: &mut Ui, state: &State, is_second: bool) {
    let text = headline(state);
    let is_small = is_second || ui.available_width() < theme::SEGMENTS_WIDE;
    let text = if is_small { RichText::new(text) } else { RichText::new(text).size(15.0).strong() };
    let response = ui.label(text);
    response.on_hover_ui(|ui| {
        ui.set_max_width(2.0 * theme::TOOLTIP_WIDTH);
        for room in &state.rooms {
            ui.label(room_text(room));
        }
        if !state.map.is_exact() {
            let (in_segments, reserved) = (state.map.usage.reserved(), state.map.totals.reserved);
            ui.label(format!(
                "The segments add up to {}, but the recorded total is {}: releases are missing from the recording.",
                format_bytes(in_segments),
                format_bytes(reserved)
            ));
        }
    });
    let (live, waiting) = state.map.stray_bytes();
    if live + waiting > 0 && !state.map.segments.is_empty() {
        let strays = count_of(state.map.strays.len() as u64, "block");
        let text = format!(
            "{} in {strays} not in the map: outside the known segments, or overlapping other blocks.",
            format_bytes(live + waiting)
        );
        ui.label(RichText::new(text).color(Shades::in_ui(ui).warning));
    }
}

fn headline(state: &State) -> String {
    let map = &state.map;
    if map.segments.is_empty() {
        return nothing_reserved(state);
    }
    let usage = &map.usage;
    let bytes = format_bytes;
    // Private pools are not available to other requests.
    let common = || state.rooms.iter().filter(|room| room.home.private.is_none());
    let streams = common().map(|room| room.home.stream).collect::<std::collections::BTreeSet<_>>().len();
    let largest = common().max_by_key(|room| room.fits).filter(|room| room.fits > 0);
    let of_stream =
        |home: &PoolAndStream| if streams > 1 { format!(" (stream {})", home.stream.0) } else { String::new() };
    let fits = match largest {
        Some(room) => {
            format!("largest request that fits: {} from the cache{}", bytes(room.fits), of_stream(&room.home))
        }
        None => "no request fits in the cache".to_owned(),
    };
    let but = if largest.is_none() { "but up to " } else { "" };
    let with = common().filter_map(|room| room.fits_with_driver).max();
    let returns =
        if map.segments.iter().any(ReservedSegment::is_returnable) { " after releasing empty segments" } else { "" };
    let from_cache = largest.map_or(0, |room| room.fits);
    let with = match with {
        Some(most) if most > from_cache => format!(", {but}{} from the driver{returns}", bytes(most)),
        Some(0) => format!(", nor in memory from the driver{returns}"),
        Some(_) => format!(", and no larger one from the driver{returns}"),
        None => String::new(),
    };
    let unmapped = match usage.unmapped {
        0 => String::new(),
        unmapped => format!(", plus {} of unmapped addresses", bytes(unmapped)),
    };
    let waiting = if usage.waiting > 0 { format!("{} awaiting free, ", bytes(usage.waiting)) } else { String::new() };
    format!(
        "Reserved {}: {} requested, {} rounding, {waiting}{} free in {}{unmapped}; {fits}{with}",
        bytes(usage.reserved()),
        bytes(usage.requested),
        bytes(usage.rounding),
        bytes(usage.free),
        count_of(usage.holes, "range")
    )
}

/// Returns the text to show instead of the map if no segment is reserved.
fn nothing_reserved(state: &State) -> String {
    let map = &state.map;
    match map.strays.len() {
        0 => "No segments are reserved at this moment.".to_owned(),
        strays if map.totals.reserved == 0 => format!(
            "No segments are known at this moment, only {} of {}: the recording has no segments, or a release is missing.",
            count_of(strays as u64, "block"),
            format_bytes(map.totals.active)
        ),
        strays => format!("{} outside the known segments.", count_of(strays as u64, "block")),
    }
}

fn room_text(room: &PoolFit) -> String {
    let usage = &room.usage;
    let with =
        room.fits_with_driver.map_or_else(String::new, |most| format!(", with the driver {}", format_bytes(most)));
    format!(
        "{}: {} in {}, {} allocated, {} awaiting free, {} free; fits {}{with}",
        room.home.text(),
        format_bytes(usage.reserved()),
        count_of(room.segments, "segment"),
        format_bytes(usage.allocated()),
        format_bytes(usage.waiting),
        format_bytes(usage.free),
        format_bytes(room.fits)
    )
}
