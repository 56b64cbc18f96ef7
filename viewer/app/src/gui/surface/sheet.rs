//! A self-explanatory picture of a recording for an issue or a paper, with a title, a view, and facts below.

use std::sync::Arc;

use eframe::egui::{Align, Label, Layout, RichText, Ui};
use highwater_analysis::{DeviceSummary, Filter, GroupKey, Metric, Moment, TreeKey};
use highwater_snapshots::{count_of, format_bytes, format_count};

use crate::figures::device::capacity_text;
use crate::figures::moment::total_name;
use crate::gui::colouring::Colouring;
use crate::gui::legend;
use crate::gui::views::group_keys::key_label;
use crate::gui::views::list::Views;
use crate::gui::views::moment::Choices;
use crate::gui::views::run_chart::RunChart;
use crate::gui::views::timeline::{Stacking, Timeline, TimelineStyle};
use crate::gui::views::view::Reason;
use crate::gui::widgets::{Computed as _, Shades, before, capital, doubts, has_losses, when};
use crate::{Axis, ColourBy, Recording, Selection, drawn_metric};

/// A recording, its selection, and its appearance.
#[derive(Debug)]
pub struct Sheet {
    pub(super) recording: Arc<Recording>,
    pub(super) selection: Selection,
    pub(super) look: TimelineStyle,
    /// The search conditions as entered; blocks that do not match are grey. Empty if there are none.
    conditions: String,
    pub(super) filter: Filter,
    pub(super) timeline: Timeline,
    /// The chart of the whole recording, which is drawn instead of the timeline if the recording is too long for
    /// memory; `None` to draw the timeline.
    pub whole: Option<RunChart>,
    /// The views that can be drawn.
    pub views: Views,
    /// The grouping keys for views of one moment; empty for each view's default keys.
    pub keys: Vec<GroupKey>,
}

impl Sheet {
    /// Creates a sheet of `recording`. `conditions` is the text of the filter in `look`.
    pub fn new(recording: Arc<Recording>, selection: Selection, look: TimelineStyle, conditions: &str) -> Self {
        Self {
            recording,
            selection,
            look,
            conditions: conditions.trim().to_owned(),
            // Invalid conditions have no matches either.
            filter: conditions.parse().unwrap_or_default(),
            timeline: Timeline::default(),
            whole: None,
            views: Views::default(),
            keys: Vec::new(),
        }
    }

    fn summary(&self) -> &DeviceSummary {
        match &self.whole {
            Some(whole) => &whole.summary,
            None => &self.recording.devices[self.selection.device].summary,
        }
    }

    fn peak(&self) -> Moment {
        self.recording.devices[self.selection.device].peak(&self.recording.trace, self.selection.metric)
    }

    /// Returns the moment for views of a single moment: the pinned moment, or the peak.
    pub(super) fn moment(&self) -> (Moment, Reason) {
        let index = &self.recording.devices[self.selection.device];
        if let Some(whole) = &self.whole {
            let last = self.recording.trace.events.len();
            let moment = index.moment(&self.recording.trace, self.selection.metric, last);
            return (moment, if moment == whole.peak { Reason::Peak } else { Reason::Pinned });
        }
        match self.selection.pin {
            Some(pin) => (index.moment(&self.recording.trace, self.selection.metric, pin.moment), Reason::Pinned),
            None => (self.peak(), Reason::Peak),
        }
    }

    pub(super) fn title_ui(&self, ui: &mut Ui) {
        let summary = self.summary();
        ui.horizontal(|ui| {
            let mut device = self.recording.device_label(self.selection.device);
            if let Some(capacity) = capacity_text(summary) {
                device += &format!(", {capacity}");
            }
            // Laid out from the right, so that a long name is truncated and the device stays.
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                ui.label(RichText::new(device).size(14.0).weak());
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                    let name = RichText::new(&self.recording.name).size(20.0).strong();
                    ui.add(Label::new(name).truncate());
                });
            });
        });
    }

    pub(super) fn facts_ui(&self, ui: &mut Ui) {
        let trace = &self.recording.trace;
        let summary = self.summary();
        let all = match (&self.recording.run, &self.whole) {
            (Some(run), Some(_)) => run.events(),
            _ => trace.events.len() as u64,
        };
        let events = match self.recording.devices.len() {
            0 | 1 => count_of(all, "event"),
            _ => format!("{} of {}", format_count(summary.events), count_of(all, "event")),
        };
        let mut facts = vec![events, count_of(summary.allocs, "allocation")];
        if let (Some(run), None) = (&self.recording.run, &self.whole) {
            let events = self.recording.events();
            let [first, last, all] = [events.start, events.end.saturating_sub(1), run.events()].map(format_count);
            facts[0] = format!("events {first} to {last} of {all}");
        }
        if summary.baseline_bytes > 0 && !trace.is_state() {
            let before = if self.whole.is_some() { "before the recording" } else { before(trace) };
            facts.push(format!("{} live {before}", format_bytes(summary.baseline_bytes)));
        }
        if summary.oom_events > 0 {
            facts.push(format!("{} failed (out of memory)", count_of(summary.oom_events, "request")));
        }
        if !self.conditions.is_empty() {
            facts.push(format!("in colour: {}", self.conditions));
        }
        let doubts = doubts(trace);
        let colour = if has_losses(trace) { Shades::in_ui(ui).warning } else { Shades::in_ui(ui).faint };
        let trust = match doubts.as_slice() {
            [] => "Complete recording: every number is exact".to_owned(),
            [only] => only.clone(),
            [first, more @ ..] => format!("{first} (and {} more)", more.len()),
        };
        ui.horizontal_wrapped(|ui| {
            ui.label(RichText::new(facts.join("  ·  ")).weak());
            ui.label(RichText::new(trust).color(colour));
        });
    }

    pub(super) fn timeline_ui(&mut self, ui: &mut Ui) -> bool {
        if self.whole.is_some() {
            self.whole_ui(ui);
            return true;
        }
        // A recording without events has no timeline.
        if self.recording.trace.is_state() {
            return self.moment_ui(ui, Choices::OF_STATE);
        }
        self.timeline.receive(ui.ctx());
        self.caption_ui(ui);
        self.timeline.set_failure_cause(self.views.segments.failure_cause());
        self.timeline.timeline_ui(ui, &self.recording, &mut self.selection, &self.look);
        self.timeline.finish()
    }

    fn whole_ui(&mut self, ui: &mut Ui) {
        let (moment, reason) = self.moment();
        let Self { recording, selection, whole, look, .. } = self;
        let Some(whole) = whole else { return };
        let metric = total_name(selection.metric);
        let colours = if selection.metric == Metric::Requested { ", coloured by category" } else { "" };
        let at = if reason == Reason::Peak { format!("the peak of {metric}") } else { "the moment".to_owned() };
        let caption = format!(
            "{} memory by event, the largest in each pixel column{colours}. At {at} ({}):",
            capital(&metric),
            when(&moment),
        );
        ui.label(RichText::new(caption).weak());
        let (device, position) = (selection.device, moment.position());
        let colouring = Colouring::build(recording, device, ColourBy::default(), selection.metric, &look.matches);
        let asked = legend::Asked::new(recording, selection, position, &Arc::new(colouring));
        legend::legend_ui(ui, &asked.entries(), usize::MAX, "");
        let is_named = |total| total == selection.metric || !matches!(total, Metric::Allocated | Metric::Active);
        let has_line = |total| is_named(total) && whole.summary.peak(total).is_some();
        let (index, drawn) = (&recording.devices[device], (selection.metric, has_line, f64::MAX));
        legend::lines_ui(ui, &recording.trace, index, &whole.summary, (position, ""), drawn);
        ui.add_space(2.0);
        whole.chart_ui(ui);
    }

    fn caption_ui(&mut self, ui: &mut Ui) {
        let peak = self.peak();
        let drawn = drawn_metric(self.selection.metric);
        let order = if self.look.paint.stacking == Stacking::Age { "age" } else { "colour" };
        let across = if self.selection.axis() == Axis::Event { "event" } else { "time" };
        let caption = format!(
            "{} memory by {across}, coloured by {}, stacked by {order}. At the peak of {}{} ({}):",
            capital(&total_name(drawn)),
            key_label(TreeKey::By(self.look.paint.colour_by.0)),
            total_name(self.selection.metric),
            if self.recording.run.is_some() { " in this part" } else { "" },
            when(&peak),
        );
        ui.label(RichText::new(caption).weak());
        let position = peak.position();
        let Some(picture) = self.timeline.picture() else { return };
        let at_peak = legend::Asked::new(&self.recording, &self.selection, position, &picture.colouring);
        legend::legend_ui(ui, &at_peak.entries(), usize::MAX, "");
        let has_lines = self.look.paint.has_lines;
        self.timeline.totals_ui(ui, &self.recording, &self.selection, has_lines, (position, ""));
        ui.add_space(2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_can_be_drawn_on_any_thread() {
        fn can_be_sent<T: Send>() {}
        can_be_sent::<Sheet>();
        can_be_sent::<crate::gui::surface::Surface>();
    }
}
