//! Navigates between the parts of a recording that is too long to be in memory.

use std::ops::Range;
use std::sync::Arc;

use eframe::egui::{Context, Frame, Margin, Panel, Ui};
use highwater_analysis::SoughtStep;
use highwater_snapshots::DeviceId;

use crate::gui::open_file::{OpenFile, Visit};
use crate::gui::views::run::{Goal, Part, Wanted};
use crate::gui::widgets::Computed as _;
use crate::session::run::{FIRST_EVENTS, Run};
use crate::{Command, View};

impl OpenFile {
    /// Shows the overview of a long recording, and reads the part that the user selects.
    pub(super) fn run_ui(&mut self, ui: &mut Ui) {
        let Some(run) = self.recording.run.clone() else { return };
        let shown = self.recording.events();
        let of = (self.recording.devices[self.selection.device].device, self.selection.metric);
        let frame = Frame::side_top_panel(ui.style()).inner_margin(Margin::symmetric(8, 4));
        let chosen = Panel::top("run").frame(frame).show(ui, |ui| self.run.run_ui(ui, &run, &shown, of)).inner;
        if let Some(events) = chosen {
            self.ask_for(ui.ctx(), &run, Wanted::Part(events, Goal::Everything));
        }
    }

    pub(super) fn take_part(&mut self, ctx: &Context) {
        if let Some(part) = self.run.take() {
            self.show_part(ctx, part);
        }
    }

    pub(super) fn show_part(&mut self, ctx: &Context, part: Result<Part, String>) {
        let returning = self.returning.take();
        // A message is shown in the next frame.
        ctx.request_repaint();
        match part {
            Err(why) => self.message = Some(format!("This part cannot be read: {why}")),
            Ok(Part { recording, goal }) => {
                if let Some(recording) = recording {
                    // The same part has the same blocks and moments.
                    let is_same = recording.events() == self.recording.events();
                    let (pin, marks) =
                        if is_same { (self.selection.pin, self.selection.marks) } else { Default::default() };
                    self.replace(recording, true);
                    (self.selection.pin, self.selection.marks) = (pin, marks);
                    if !matches!(goal, Goal::View(_)) {
                        self.selection.fit(&self.recording);
                    }
                }
                match goal {
                    Goal::Everything | Goal::Nothing => {}
                    Goal::Visit => {
                        if let Some(visit) = returning {
                            self.show_visit(ctx, visit);
                        }
                    }
                    Goal::View(events) => {
                        self.show_events(&events);
                        // The current view replaces the one shown before the recording grew.
                        self.history.amend(self.visit());
                    }
                    Goal::Event(event) => self.go_to_event(event),
                    Goal::FailedRequest(event) => {
                        let moment = event.saturating_sub(self.recording.events().start) as usize + 1;
                        let ooms = &self.recording.regions.ooms;
                        if let Some(&oom) = ooms.iter().find(|(_, known)| *known == moment) {
                            self.show_oom(oom);
                        }
                    }
                    Goal::Step(event) => {
                        let first = event.saturating_sub(self.recording.events().start) as u32;
                        self.selection.show_step(&self.recording, first);
                    }
                    Goal::NoStep(number) => self.message = Some(no_step(number)),
                }
                if self.following.is_none() {
                    // The recording may have been finished while this part was read.
                    self.renew_part(ctx);
                }
            }
        }
    }

    /// Shows these events. Indices count from the start of the whole recording.
    fn show_events(&mut self, events: &Range<u64>) {
        let first = self.recording.events().start;
        let local = |event: u64| event.saturating_sub(first).min(u64::from(u32::MAX)) as u32;
        let x = self.selection.x_of_events(&self.recording.trace, local(events.start)..local(events.end));
        let y = self.selection.view().y.clone();
        self.selection.show(&self.recording, View { x, y });
    }

    pub(super) fn ask_for(&mut self, ctx: &Context, run: &Arc<Run>, wanted: Wanted) {
        self.returning = None;
        self.run.ask(ctx, run, wanted);
    }

    /// Restores an earlier view after its part of the recording has been read.
    pub(super) fn return_to(&mut self, ctx: &Context, visit: Visit) {
        match self.recording.run.clone().filter(|_| visit.part != self.recording.events()) {
            Some(run) => {
                self.ask_for(ctx, &run, Wanted::Part(visit.part.clone(), Goal::Visit));
                self.returning = Some(visit);
            }
            None => {
                self.run.cancel();
                self.returning = None;
                self.show_visit(ctx, visit);
            }
        }
    }

    fn show_visit(&mut self, ctx: &Context, Visit { selection, search, .. }: Visit) {
        // A part of a file that has grown may have other devices.
        if selection.device < self.recording.devices.len() {
            self.selection = selection;
        }
        self.search_for(ctx, &search);
    }

    /// Switches to reading the recording in parts, because it has become too long for memory. Shows the visible part.
    pub(super) fn become_long(&mut self, ctx: &Context, run: &Arc<Run>) {
        let view = self.view_of_run();
        let length = Run::length_around(&view);
        let is_all = self.selection.view().x == self.selection.whole(&self.recording).x;
        let wanted = match self.selection.is_at_end(&self.recording) {
            _ if is_all => Wanted::End { length: FIRST_EVENTS, in_view: FIRST_EVENTS },
            true => Wanted::End { length, in_view: view.end - view.start },
            false => Wanted::Part(run.around_step(&view, length), Goal::View(view)),
        };
        self.ask_for(ctx, run, wanted);
    }

    /// After a long recording has grown, reads the last part again if its end was visible. Once the recording is
    /// finished, reads any part again, because its end may have been missing.
    pub(super) fn renew_part(&mut self, ctx: &Context) {
        let Some(run) = self.recording.run.clone() else { return };
        let shown = self.recording.events();
        let was_last = shown.end == self.recording.trace.event_count();
        let is_at_end = was_last && self.selection.is_at_end(&self.recording);
        let is_stale = self.recording.trace.trust.unfinished && !run.source().facts().trust.unfinished;
        // The user's request comes first.
        if self.run.is_busy() {
            return;
        }
        let view = self.view_of_run();
        if is_at_end && run.events() > shown.end {
            self.ask_for(ctx, &run, Wanted::End { length: shown.end - shown.start, in_view: view.end - view.start });
        } else if is_stale {
            self.ask_for(ctx, &run, Wanted::Part(shown, Goal::View(view)));
        }
    }

    /// Returns the indices of the visible events in the whole recording.
    fn view_of_run(&self) -> Range<u64> {
        let first = self.recording.events().start;
        let view = self.selection.events_in_view(&self.recording);
        first + u64::from(view.start)..first + u64::from(view.end)
    }

    /// Shows an event. Its index counts from the start of the whole recording.
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

    /// Shows the step with this number: the first such step at or after the view, or otherwise the first of all.
    pub(crate) fn go_to_step(&mut self, ctx: &Context, number: u32) {
        let seconds = ctx.input(|input| input.time);
        self.note(false, seconds);
        self.timeline.rest_pointer();
        if let Some(run) = self.recording.run.clone() {
            let shown = self.recording.events();
            let from = shown.start + u64::from(self.selection.first_event_to_search(&self.recording));
            self.ask_for(ctx, &run, Wanted::Step(SoughtStep::Number { number, from }, shown));
        } else if !self.selection.go_to_step_number(&self.recording, number) {
            self.message = Some(no_step(number));
        }
        self.note(false, seconds);
    }

    /// Executes a command that moves to another part of a long recording. Returns false for other commands.
    pub(super) fn go_to_part(&mut self, ctx: &Context, command: Command) -> bool {
        let Some(run) = self.recording.run.clone() else { return false };
        let shown = self.recording.events();
        let length = shown.end - shown.start;
        let events = match command {
            Command::GoToPeak => {
                let device = self.recording.devices[self.selection.device].device;
                self.ask_for(ctx, &run, Wanted::Peak(device, self.selection.metric, shown));
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
                self.ask_for(ctx, &run, Wanted::Step(sought, shown));
                return true;
            }
            Command::PreviousOom | Command::NextOom => {
                let is_forward = command == Command::NextOom;
                let (position, ooms) = (self.pointed_moment().position(), &self.recording.regions.ooms);
                let has_other = |(_, moment): &(DeviceId, usize)| match is_forward {
                    true => *moment > position,
                    false => *moment < position,
                };
                if ooms.iter().any(has_other) {
                    return false;
                }
                let from = if is_forward { shown.end } else { shown.start };
                self.ask_for(ctx, &run, Wanted::FailedRequest { from, is_forward, shown });
                return true;
            }
            _ => return false,
        };
        if events != shown {
            self.ask_for(ctx, &run, Wanted::Part(events, Goal::Everything));
        }
        true
    }
}

fn no_step(number: u32) -> String {
    format!("This recording has no step {number}.")
}
