//! OpenFile: one open recording: what is looked at, its timeline and its panels.

use std::sync::Arc;

use eframe::egui::{CentralPanel, Frame, Margin, Panel, ScrollArea, Ui};
use highwater_snapshots::analysis::{Filter, Metric, Moment};

use super::moment::MomentPanel;
use super::scene::Reason;
use super::settings::Settings;
use super::timeline::{Look, Timeline};
use super::top_bar::{self, Change, Shown};
use super::{block, legend, status, theme};
use crate::command::Command;
use crate::selection::{Axis, Selection};
use crate::session::Recording;

/// An open recording.
#[derive(Debug)]
pub struct OpenFile {
    /// The recording.
    pub recording: Arc<Recording>,
    /// What is looked at.
    pub selection: Selection,
    /// The picture.
    pub timeline: Timeline,
    /// The table of the moment.
    pub panel: MomentPanel,
    filter_text: String,
    filter: Filter,
    filter_error: Option<String>,
}

impl OpenFile {
    /// Opens the view of everything.
    pub fn new(recording: Recording) -> Self {
        let recording = Arc::new(recording);
        Self {
            selection: Selection::new(&recording),
            recording,
            timeline: Timeline::default(),
            panel: MomentPanel::default(),
            filter_text: String::new(),
            filter: Filter::default(),
            filter_error: None,
        }
    }

    /// Puts `recording`, read later from the same file, in place of what is open. What is looked at stays, but for the
    /// pinned block, which may be another one now.
    pub fn replace(&mut self, recording: Recording) {
        self.selection = self.selection.carried_over(&self.recording, &recording);
        self.recording = Arc::new(recording);
        self.timeline = Timeline::default();
        let key = self.panel.key;
        self.panel = MomentPanel::default();
        self.panel.key = key;
    }

    /// The moment that the panels show: under the pointer, else pinned, else the peak.
    pub fn moment(&self) -> (Moment, Reason) {
        let trace = &self.recording.trace;
        let index = &self.recording.devices[self.selection.device];
        let metric = self.selection.metric;
        match (self.timeline.hover(), self.selection.pin) {
            (Some(hover), _) => (index.moment(trace, metric, hover.moment), Reason::Pointer),
            (None, Some(pin)) => (index.moment(trace, metric, pin.moment), Reason::Pinned),
            (None, None) => (index.peak(trace, metric), Reason::Peak),
        }
    }

    /// The table of the moment as comma-separated values.
    pub fn moment_csv(&mut self) -> String {
        let (moment, _) = self.moment();
        self.panel.csv(&self.recording, self.selection.device, moment, &self.filter)
    }

    /// Whether `command`, which needs a recording, makes sense for this one now.
    pub fn can(&self, command: Command) -> bool {
        match command {
            Command::Reload => self.recording.path.is_some(),
            Command::NextDevice => self.recording.devices.len() > 1,
            Command::ZoomToBlock => self.selection.pin.is_some_and(|pin| pin.block.is_some()),
            Command::Unpin => self.selection.pin.is_some(),
            Command::PreviousStep | Command::NextStep => !self.recording.steps.is_empty(),
            Command::ColourByScope | Command::DeeperScope | Command::ShallowerScope => self.recording.deepest_scope > 0,
            _ => true,
        }
    }

    /// Carries out a command that changes what is looked at.
    pub fn run(&mut self, command: Command) {
        /// Share of the view that an arrow key moves.
        const STRIDE: f64 = 0.15;
        let Self { recording, selection, .. } = self;
        let view = selection.view().clone();
        let (width, height) = (view.x.end - view.x.start, view.y.end - view.y.start);
        let center = [(view.x.start + view.x.end) / 2.0, view.y.start];
        match command {
            Command::GoToPeak => selection.go_to_peak(recording),
            Command::FitAll => selection.fit(recording),
            Command::ZoomIn => selection.zoom(recording, [0.5, 1.0], center),
            Command::ZoomOut => selection.zoom(recording, [2.0, 1.0], center),
            Command::ZoomInBytes => selection.zoom(recording, [1.0, 0.5], center),
            Command::ZoomOutBytes => selection.zoom(recording, [1.0, 2.0], center),
            Command::PanLeft => selection.pan(recording, [-width * STRIDE, 0.0]),
            Command::PanRight => selection.pan(recording, [width * STRIDE, 0.0]),
            Command::PanUp => selection.pan(recording, [0.0, height * STRIDE]),
            Command::PanDown => selection.pan(recording, [0.0, -height * STRIDE]),
            Command::PreviousStep => selection.go_to_step(recording, -1),
            Command::NextStep => selection.go_to_step(recording, 1),
            Command::Back => selection.go_back(),
            Command::Forward => selection.go_forward(),
            Command::ZoomToBlock => {
                if let Some(block) = selection.pin.and_then(|pin| pin.block) {
                    selection.go_to_block(recording, block);
                }
            }
            Command::Unpin => selection.pin = None,
            Command::ToggleAxis => {
                let other = if selection.axis() == Axis::Event { Axis::Time } else { Axis::Event };
                selection.set_axis(recording, other);
            }
            Command::NextMetric => {
                let metrics = top_bar::metrics_of(recording, selection.device);
                let now = metrics.iter().position(|metric| *metric == selection.metric).unwrap_or(0);
                selection.set_metric(recording, metrics[(now + 1) % metrics.len()]);
            }
            Command::NextDevice => {
                selection.set_device(recording, (selection.device + 1) % recording.devices.len());
            }
            _ => {}
        }
    }

    /// Shows tool bar, panels and timeline.
    pub fn file_ui(&mut self, ui: &mut Ui, settings: &mut Settings) -> Option<Command> {
        self.timeline.receive(ui.ctx());
        let mut chosen = None;
        let frame = Frame::side_top_panel(ui.style()).inner_margin(Margin::symmetric(8, 5));
        Panel::top("tools").frame(frame).show(ui, |ui| chosen = self.tools_ui(ui, settings));
        let is_drawing = self.timeline.is_drawing();
        Panel::bottom("status").show(ui, |ui| {
            status::status_ui(ui, &self.recording, self.selection.device, is_drawing);
        });
        let panel = Panel::right("moment").default_size(theme::PANEL_WIDTH).min_size(240.0);
        panel.frame(Frame::side_top_panel(ui.style()).inner_margin(10)).show(ui, |ui| self.panels_ui(ui));
        CentralPanel::default().frame(Frame::central_panel(ui.style()).inner_margin(8)).show(ui, |ui| {
            self.legend_ui(ui);
            let look = Look {
                colour_by: settings.colour_by,
                stacking: settings.stacking,
                has_lines: settings.has_lines,
                filter: self.filter.clone(),
            };
            self.timeline.timeline_ui(ui, &self.recording, &mut self.selection, &look);
        });
        chosen
    }

    fn tools_ui(&mut self, ui: &mut Ui, settings: &mut Settings) -> Option<Command> {
        let mut shown = Shown {
            recording: &self.recording,
            selection: &self.selection,
            colour_by: settings.colour_by,
            stacking: settings.stacking,
            filter: &mut self.filter_text,
            filter_error: self.filter_error.as_deref(),
        };
        match top_bar::tools_ui(ui, &mut shown)? {
            Change::Device(device) => self.selection.set_device(&self.recording, device),
            Change::Metric(metric) => self.selection.set_metric(&self.recording, metric),
            Change::ColourBy(by) => settings.colour_by = by,
            Change::Stacking(stacking) => settings.stacking = stacking,
            Change::Axis(axis) => self.selection.set_axis(&self.recording, axis),
            Change::Filter => match self.filter_text.parse() {
                Ok(filter) => (self.filter, self.filter_error) = (filter, None),
                Err(why) => self.filter_error = Some(why),
            },
            Change::Run(command) => return Some(command),
        }
        None
    }

    fn panels_ui(&mut self, ui: &mut Ui) {
        let (moment, reason) = self.moment();
        if let Some(block) = self.selection.pin.and_then(|pin| pin.block) {
            let room = ui.available_height();
            Panel::bottom("block").default_size(room * 0.55).resizable(true).show(ui, |ui| {
                ScrollArea::vertical().auto_shrink([false, false]).show(ui, |ui| {
                    block::block_ui(ui, &self.recording, block);
                });
            });
        }
        CentralPanel::no_frame().show(ui, |ui| {
            let (recording, device) = (&self.recording, self.selection.device);
            self.panel.moment_ui(ui, recording, device, (moment, reason), &self.filter);
        });
    }

    /// The legend and the lines' meaning, at the moment that the panels show.
    fn legend_ui(&mut self, ui: &mut Ui) {
        let (moment, _) = self.moment();
        let position = moment.position();
        let stack = self.timeline.stack(&self.recording, &self.selection, position);
        let (Some(stack), Some(picture)) = (stack, self.timeline.picture()) else {
            return;
        };
        legend::legend_ui(ui, &picture.colouring, &stack);
        let index = &self.recording.devices[self.selection.device];
        let totals = index.series.before_position(&self.recording.trace, position);
        let is_sampled = index.summary.peaks.iter().any(|peak| peak.metric == Metric::DeviceUsed);
        ui.horizontal_wrapped(|ui| {
            legend::lines_ui(ui, &totals, index.summary.capacity_bytes, is_sampled);
        });
        ui.add_space(2.0);
    }
}
