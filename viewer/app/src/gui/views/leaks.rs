//! The line above a timeline whose recording leaks: which line of the program, and how much in each step.

use eframe::egui::Ui;
use highwater_snapshots::units::format_bytes;

use super::view::Action;
use crate::figures::leaks::leak_lines;
use crate::gui::widgets::banner::Banner;
use crate::selection::Selection;
use crate::session::Recording;

/// Shows the leaks of the selected device, once they are known; nothing if there are none, or if a request failed,
/// which has its own line. Returns what shows more of them, if that is clicked.
pub(crate) fn leaks_ui(ui: &mut Ui, recording: &Recording, selection: &Selection) -> Option<Action> {
    let index = &recording.devices[selection.device];
    let leaks = index.known_leaks().filter(|_| recording.regions.ooms.iter().all(|(of, _)| *of != index.device))?;
    let lines = leak_lines(&leaks.lines, "step");
    let (first, others) = lines.split_first()?;
    let kept = format_bytes(leaks.lines[0].kept.bytes);
    let more = if others.is_empty() { String::new() } else { format!(" · {}", others.join(" · ")) };
    let text = format!("{first}; {kept} are still live at the end{more}");
    let button = ("Show leaks", "Show the lines that keep memory from step to step, in Statistics.");
    Banner { title: "Leak", text: &text, hint: "", button }.banner_ui(ui).then_some(Action::Leaks)
}
