//! The status bar: the device and its size, then the file and its accuracy.

use eframe::egui::{Align, CursorIcon, Label, Layout, Link, Popup, RichText, Role, Sense, TextStyle, Ui, WidgetInfo};
use highwater_snapshots::{count_of, format_bytes, format_count};

use crate::figures::device::capacity_text;
use crate::gui::widgets::{Shades, before, capital, doubts, failed_requests, fit, has_losses, note_ui};
use crate::{Command, Recording};

const NAME_SHARE: f32 = 0.3;
const FILE: &str = "File: ";
const SEPARATOR: &str = "  ·  ";

/// Shows the bar: the device first, then the file. Returns the command that was clicked. Facts that do not fit are
/// omitted, the least important first, and shown in the tooltip.
pub(crate) fn status_ui(
    ui: &mut Ui,
    recording: &Recording,
    device: usize,
    [is_drawing, is_following]: [bool; 2],
) -> Option<Command> {
    let mut chosen = None;
    let all = ui.available_width();
    ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
        if is_following {
            let key = Command::ToggleFollow.keys()[0];
            let tooltip =
                format!("The program is still writing this file; the view follows it ({key} stops following).");
            ui.label(RichText::new("following").weak()).on_hover_text(tooltip);
        }
        if is_drawing {
            ui.label(RichText::new("drawing…").weak());
        }
        ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
            let failed = failed(recording, device);
            let trust = Trust::of(recording);
            // Facts about the file are placed first.
            let gap = ui.spacing().item_spacing.x;
            let name = (width(ui, FILE) + width(ui, &recording.name) + 1.0).min(all * NAME_SHARE);
            let needed = [failed.as_deref().unwrap_or_default(), &trust.short].map(|text| width(ui, text) + gap);
            let room = ui.available_width() - name - needed.iter().sum::<f32>() - 4.0 * gap;
            facts_ui(ui, &facts(recording, device), room);
            ui.separator();
            let path = recording.path.as_ref().map(|path| path.display().to_string());
            ui.scope(|ui| {
                ui.set_max_width(name);
                let name = ui.add(Label::new(format!("{FILE}{}", recording.name)).truncate());
                name.on_hover_text(path.as_deref().unwrap_or(&recording.name));
            });
            chosen = failed.and_then(|text| failed_ui(ui, text));
            trust_ui(ui, &trust);
        });
    });
    chosen
}

/// The number of failed requests in the file, and their devices; `None` without failed requests.
fn failed(recording: &Recording, device: usize) -> Option<String> {
    let failed = |row: usize| recording.devices[row].summary.oom_events;
    let all: u64 = (0..recording.devices.len()).map(failed).sum();
    if all == 0 {
        return None;
    }
    let mut text = failed_requests(all);
    if recording.devices.len() > 1 || failed(device) < all {
        let on: Vec<String> = (0..recording.devices.len())
            .filter(|row| failed(*row) > 0)
            .map(|row| recording.devices[row].device.0.to_string())
            .collect();
        let plural = if on.len() == 1 { "" } else { "s" };
        text += &format!(" on device{plural} {}", on.join(", "));
    }
    Some(text)
}

/// Shows `text` as a link to the next failed request. Returns that command if clicked.
fn failed_ui(ui: &mut Ui, text: String) -> Option<Command> {
    let text = RichText::new(text).color(Shades::in_ui(ui).failure());
    let tooltip = format!("Out of memory. {} ({})", Command::NextOom.tooltip(), Command::NextOom.keys()[0]);
    ui.add(Link::new(text)).on_hover_text(tooltip).clicked().then_some(Command::NextOom)
}

/// Facts about a device, the most important first.
fn facts(recording: &Recording, device: usize) -> Vec<String> {
    let summary = &recording.devices[device].summary;
    let mut facts = vec![recording.device_label(device)];
    facts.extend(capacity_text(summary));
    let all = recording.trace.events.len() as u64;
    facts.push(match recording.devices.len() {
        _ if let Some(run) = &recording.run => {
            format!("{} of {} events", format_count(all), format_count(run.events()))
        }
        0 | 1 => format!("{} events", format_count(all)),
        _ => format!("{} of {} events", format_count(summary.events), format_count(all)),
    });
    facts.push(format!("{} allocations", format_count(summary.allocs)));
    if summary.baseline_bytes > 0 && !recording.trace.is_state() {
        facts.push(format!("{} live {}", format_bytes(summary.baseline_bytes), before(&recording.trace)));
    }
    facts
}

/// Shows as many of the first `facts` as fit into `room` points, but at least one.
fn facts_ui(ui: &mut Ui, facts: &[String], room: f32) {
    let texts = (1..=facts.len()).rev().map(|count| facts[..count].join(SEPARATOR));
    let shown = texts.into_iter().find(|text| width(ui, text) <= room);
    let text = shown.or(facts.first().cloned()).unwrap_or_default();
    ui.scope(|ui| {
        ui.set_max_width(room.max(0.0));
        let all = facts.join(SEPARATOR);
        let is_cut = text != all;
        let label = ui.add(Label::new(RichText::new(text).weak()).truncate());
        if is_cut {
            label.on_hover_text(all);
        }
    });
}

#[derive(Debug)]
struct Trust {
    sentences: Vec<String>,
    is_warning: bool,
    /// The number of limits as text, or a text that the recording is complete.
    short: String,
}

impl Trust {
    fn of(recording: &Recording) -> Self {
        let trace = &recording.trace;
        let sentences = doubts(trace);
        let is_warning = has_losses(trace);
        let thing = if is_warning { "warning" } else { "note" };
        let short = match sentences.len() as u64 {
            0 => "Complete recording".to_owned(),
            count => count_of(count, thing),
        };
        Self { sentences, is_warning, short }
    }
}

/// Shows a single limit of accuracy if it fits, otherwise the number of limits. A click shows all of them.
fn trust_ui(ui: &mut Ui, trust: &Trust) {
    let Trust { sentences, is_warning, short } = trust;
    let Some(first) = sentences.first() else {
        let tooltip = "Nothing was lost, inferred or guessed: every number is exact.";
        ui.add(Label::new(RichText::new(short).weak()).truncate()).on_hover_text(tooltip);
        return;
    };
    let first = capital(first);
    let fits = sentences.len() == 1 && width(ui, &first) <= ui.available_width();
    let text = RichText::new(if fits { &first } else { short });
    let text = if *is_warning { text.color(Shades::in_ui(ui).warning) } else { text.weak() };
    let response = ui.add(Label::new(text).truncate().sense(Sense::CLICK)).on_hover_cursor(CursorIcon::PointingHand);
    // The accessibility label is always complete.
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, sentences.join("; ")));
    Popup::from_toggle_button_response(&response).show(|ui| sentences.iter().for_each(|text| note_ui(ui, text)));
    response.on_hover_text(sentences.join("\n"));
}

fn width(ui: &Ui, text: &str) -> f32 {
    fit::width(ui, text, &TextStyle::Body.resolve(ui.style()))
}
