//! Executes the actions that the views of an open file request.

use eframe::egui;

use crate::gui::open_file::OpenFile;
use crate::gui::views::list::{Bottom, Side};
use crate::gui::views::run::Wanted;
use crate::gui::views::view::Action;
use crate::gui::window::settings::Settings;
use crate::{Command, Pin, View};

impl OpenFile {
    pub(crate) fn grant(&mut self, ctx: &egui::Context, action: Action, settings: &mut Settings) {
        let seconds = ctx.input(|input| input.time);
        self.note(false, seconds);
        self.timeline.rest_pointer();
        let recording = &self.recording;
        let is_movement = matches!(action, Action::Across(_));
        match action {
            Action::Across(x) => {
                let y = self.selection.view().y.clone();
                self.selection.show(recording, View { x, y });
            }
            Action::Moment(moment) => self.selection.go_to_moment(recording, moment),
            Action::Event(event) => {
                let events = recording.events();
                let position = event.map_or(0, |event| event.saturating_sub(events.start) as usize + 1);
                let is_here = event.map_or(events.start == 0, |event| events.contains(&event));
                match recording.run.clone().filter(|_| !is_here) {
                    Some(run) => self.ask_for(ctx, &run, Wanted::Event(event.unwrap_or(0))),
                    None => self.selection.go_to_moment(recording, position),
                }
            }
            // The recording may have been replaced in this frame.
            Action::Block(block) | Action::Life(block) if block.0 as usize >= recording.trace.blocks.len() => {}
            Action::Block(block) => {
                let row = recording.trace.blocks.get(block);
                let now = self.pointed_moment();
                let lives = now.event.map_or(row.is_baseline(), |event| row.is_live_after(event));
                let born = row.alloc.index().map_or(0, |index| index + 1);
                let moment = if lives { now.position() } else { born };
                self.selection.go_to_moment(recording, moment);
                self.selection.pin = Some(Pin { block: Some(block), moment });
                settings.side = Side::Block;
            }
            Action::Life(block) => self.selection.go_to_block(recording, block),
            Action::Span(moments) => self.selection.show_moments(recording, &moments),
            Action::Where(condition) => self.search.add(ctx, recording, &condition),
            Action::Only(condition) => self.search.set(ctx, recording, &condition),
            Action::Oom => {
                let device = recording.devices[self.selection.device].device;
                let now = self.pointed_moment();
                let mut ooms = recording.regions.ooms.iter().filter(|(of, _)| *of == device).map(|(_, moment)| *moment);
                let first = ooms.clone().next();
                if let Some(moment) = ooms.find(|moment| *moment == now.position()).or(first) {
                    self.selection.go_to_moment(recording, moment);
                    settings.bottom = Some(Bottom::Segments);
                } else if self.go_to_part(ctx, Command::NextOom) {
                    settings.bottom = Some(Bottom::Segments);
                }
            }
            Action::Leaks => self.show_kept(settings),
            Action::ShowMessage(text) => self.message = Some(text),
        }
        self.note(is_movement, seconds);
    }
}
