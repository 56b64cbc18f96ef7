//! Status: the line at the bottom: which file and device, how large, and how far it can be trusted.

use eframe::egui::{Align, Layout, RichText, Ui};
use highwater_snapshots::units::{format_bytes, format_count};

use super::theme::Shades;
use crate::session::Recording;

/// Shows the line.
pub fn status_ui(ui: &mut Ui, recording: &Recording, device: usize, [is_drawing, is_following]: [bool; 2]) {
    let trace = &recording.trace;
    let summary = &recording.devices[device].summary;
    let shades = Shades::in_ui(ui);
    ui.horizontal(|ui| {
        let path = recording.path.as_ref().map_or_else(|| recording.name.clone(), |path| path.display().to_string());
        ui.label(&recording.name).on_hover_text(path);
        let mut facts = vec![recording.device_label(device)];
        if summary.capacity_bytes > 0 {
            facts.push(format_bytes(summary.capacity_bytes));
        }
        facts.push(format!("{} events", format_count(summary.events)));
        facts.push(format!("{} allocations", format_count(summary.allocs)));
        if summary.baseline_bytes > 0 {
            facts.push(format!("{} alive before recording", format_bytes(summary.baseline_bytes)));
        }
        if summary.oom_events > 0 {
            let plural = if summary.oom_events == 1 { "" } else { "s" };
            facts.push(format!("{} request{plural} failed (out of memory)", format_count(summary.oom_events)));
        }
        ui.label(RichText::new(facts.join("  ·  ")).weak());
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let sentences = trace.trust_sentences();
            let problems = &trace.problems;
            if sentences.is_empty() && problems.is_empty() {
                ui.label(RichText::new("complete recording").weak())
                    .on_hover_text("Nothing was lost, inferred or guessed: every number is exact.");
            } else {
                let mut told: Vec<String> = sentences.clone();
                told.extend(problems.iter().map(|problem| problem.what.clone()));
                let text = match (sentences.first(), problems.len()) {
                    (Some(first), 0) if sentences.len() == 1 => first.clone(),
                    (Some(first), more) => {
                        format!("{first} (and {} more)", sentences.len() - 1 + more)
                    }
                    (None, 1) => "1 problem".to_owned(),
                    (None, count) => format!("{} problems", format_count(count as u64)),
                };
                ui.label(RichText::new(text).color(shades.warning)).on_hover_text(told.join("\n"));
            }
            if is_following {
                let tooltip = "The file is read on as its program writes it; Ctrl+L stops that.";
                ui.label(RichText::new("following").weak()).on_hover_text(tooltip);
            }
            if is_drawing {
                ui.label(RichText::new("drawing…").weak());
            }
        });
    });
}
