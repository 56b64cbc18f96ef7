//! Moves through a recording that is too long to be held in memory, part by part.

use eframe::egui::{Context, Frame, Margin, Panel, Ui};
use highwater_analysis::long::SoughtStep;

use crate::command::Command;
use crate::gui::open_file::OpenFile;
use crate::gui::views::run::{Goal, Part, Wanted};

impl OpenFile {
    /// Shows the whole of a long recording, and reads the part that the user chooses.
    pub(super) fn run_ui(&mut self, ui: &mut Ui) {
        let Some(run) = self.recording.run.clone() else { return };
        let shown = self.recording.events();
        let of = (self.recording.devices[self.selection.device].device, self.selection.metric);
        let frame = Frame::side_top_panel(ui.style()).inner_margin(Margin::symmetric(8, 4));
        let chosen = Panel::top("run").frame(frame).show(ui, |ui| self.run.run_ui(ui, &run, &shown, of)).inner;
        if let Some(events) = chosen {
            self.run.ask(ui.ctx(), &run, Wanted::Events(events));
        }
    }

    /// Shows the part that was asked for, once it is read.
    pub(super) fn take_part(&mut self) {
        if let Some(part) = self.run.take() {
            self.show_part(part);
        }
    }

    /// Shows a part that was read.
    pub(super) fn show_part(&mut self, part: Result<Part, String>) {
        match part {
            Err(why) => self.notice = Some(format!("This part cannot be read: {why}")),
            Ok(Part { recording, goal }) => {
                if let Some(recording) = recording {
                    self.replace(recording, true);
                    self.selection.pin = None;
                    self.selection.marks = [None; 2];
                    self.selection.fit(&self.recording);
                    self.forget_visits();
                }
                match goal {
                    Goal::Everything | Goal::NoStep(None) => {}
                    Goal::Peak(event) => self.go_to_event(event),
                    Goal::Step(event) => {
                        let first = event.saturating_sub(self.recording.events().start) as u32;
                        self.selection.show_step(&self.recording, first);
                    }
                    Goal::NoStep(Some(number)) => self.notice = Some(no_step(number)),
                }
            }
        }
    }

    /// Goes to an event, by its number in the whole recording, that is the peak of the whole.
    fn go_to_event(&mut self, event: u64) {
        let Self { recording, selection, .. } = self;
        let moment = (event.saturating_sub(recording.events().start) as usize + 1).min(recording.trace.events.len());
        selection.go_to_peak(recording);
        // Another moment of this part may have the same total.
        let index = &recording.devices[selection.device];
        if index.peak(&recording.trace, selection.metric).position() != moment {
            selection.go_to_moment(recording, moment);
        }
    }

    /// Shows a step by its number: the next one in view or later, else the first.
    pub fn go_to_step(&mut self, ctx: &Context, number: u32) {
        let seconds = ctx.input(|input| input.time);
        self.note(false, seconds);
        self.timeline.rest_pointer();
        if let Some(run) = self.recording.run.clone() {
            let shown = self.recording.events();
            let from = shown.start + u64::from(self.selection.first_event_to_search(&self.recording));
            self.run.ask(ctx, &run, Wanted::Step(SoughtStep::Number { number, from }, shown));
        } else if !self.selection.go_to_step_number(&self.recording, number) {
            self.notice = Some(no_step(number));
        }
        self.note(false, seconds);
    }

    /// Carries out a command that leads to another part of a long recording; returns whether it does.
    pub(super) fn go_to_part(&mut self, ctx: &Context, command: Command) -> bool {
        let Some(run) = self.recording.run.clone() else { return false };
        let shown = self.recording.events();
        let length = shown.end - shown.start;
        let events = match command {
            Command::GoToPeak => {
                let device = self.recording.devices[self.selection.device].device;
                self.run.ask(ctx, &run, Wanted::Peak(device, self.selection.metric, shown));
                return true;
            }
            Command::NextPart => run.within(shown.end..shown.end + length),
            Command::PreviousPart => {
                let start = shown.start.saturating_sub(length);
                run.within(start..start + length)
            }
            Command::PreviousStep | Command::NextStep => {
                let by = if command == Command::NextStep { 1 } else { -1 };
                let Some(sought) = self.selection.step_elsewhere(&self.recording, by) else { return false };
                self.run.ask(ctx, &run, Wanted::Step(sought, shown));
                return true;
            }
            _ => return false,
        };
        if events != shown {
            self.run.ask(ctx, &run, Wanted::Events(events));
        }
        true
    }
}

fn no_step(number: u32) -> String {
    format!("This recording has no step {number}.")
}
