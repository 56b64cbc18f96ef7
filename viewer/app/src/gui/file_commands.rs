//! Commands that change the view of a recording.

use eframe::egui::Context;
use highwater_analysis::{GroupKey, Moment, bytes_of};
use highwater_snapshots::{BlockId, DeviceId};

use crate::gui::identity::Identity;
use crate::gui::open_file::OpenFile;
use crate::gui::views::group_keys::{absent_reason, next_key};
use crate::gui::views::list::{Bottom, Side};
use crate::gui::views::moment::MomentLook;
use crate::gui::views::peaks;
use crate::gui::views::view::OfDevice;
use crate::gui::widgets::next_of;
use crate::gui::window::settings::Settings;
use crate::gui::window::top_bar;
use crate::{Axis, Command, NO_TIMES, Pin, Selection, drawn_metric};

/// Returns whether `command` concerns moments or the timeline, which a recording without events does not have.
fn needs_events(command: Command) -> bool {
    command.is_movement()
        || matches!(
            command,
            Command::GoToPeak
                | Command::FitAll
                | Command::PreviousPeak
                | Command::NextPeak
                | Command::MarkA
                | Command::MarkB
                | Command::ZoomToBlock
                | Command::BlockAbove
                | Command::BlockBelow
                | Command::ToggleFit
                | Command::ToggleAxis
                | Command::ToggleStacking
                | Command::ToggleLines
                | Command::ShowWhatIf
                | Command::ShowPlan
        )
}

impl OpenFile {
    /// Returns whether `command`, which needs a recording, is currently possible for this recording.
    pub fn can(&self, command: Command) -> bool {
        let has = |key: GroupKey| self.recording.absent.reason(key).is_none();
        let has_block = self.selection.pin.is_some_and(|pin| pin.block.is_some());
        match command {
            _ if self.recording.trace.is_state() && needs_events(command) => false,
            Command::Reload => self.recording.path.is_some(),
            Command::ToggleFollow => {
                self.following.is_some() || self.recording.is_unfinished() && self.recording.path.is_some()
            }
            Command::NextDevice => self.recording.devices.len() > 1,
            Command::ToggleAxis => self.recording.trace.has_times(),
            Command::ZoomToBlock | Command::BlockAbove | Command::BlockBelow => has_block,
            Command::Unpin => self.selection.pin.is_some(),
            Command::PreviousStep | Command::NextStep | Command::GoToStep => match &self.recording.run {
                Some(run) => run.has_steps(),
                None => !self.recording.steps.is_empty(),
            },
            Command::PreviousOom | Command::NextOom => self.recording.of_whole().has_failed_requests(),
            Command::Undo => self.history.can_go_back(),
            Command::Redo => self.history.can_go_forward(),
            Command::NextPart | Command::PreviousPart => self.recording.run.is_some(),
            Command::Unmark => self.selection.marks.iter().any(Option::is_some),
            Command::ShowRange => self.selection.range().is_some(),
            Command::ClearSearch | Command::ToggleHide => !self.search.text().is_empty(),
            command => command.colours().is_none_or(has),
        }
    }

    /// Returns a sentence with the reason that the recording does not support `command`; `None` if it does, or if the
    /// command is disabled for another reason.
    pub fn absence(&self, command: Command) -> Option<String> {
        let lacks = |key: GroupKey| self.recording.absent.reason(key).map(str::to_owned);
        match command {
            _ if self.recording.trace.is_state() && needs_events(command) => {
                Some("The recording is a state without events.".to_owned())
            }
            Command::NextPart | Command::PreviousPart => Some("All of the recording is shown.".to_owned()),
            Command::NextDevice => Some("The recording has only one device.".to_owned()),
            Command::ToggleAxis => Some(NO_TIMES.to_owned()),
            Command::PreviousStep | Command::NextStep | Command::GoToStep => lacks(GroupKey::Step),
            Command::PreviousOom | Command::NextOom => Some("No request failed in this recording.".to_owned()),
            command => command.colours().and_then(lacks),
        }
    }

    pub(crate) fn run(&mut self, ctx: &Context, command: Command, settings: &mut Settings) {
        let seconds = ctx.input(|input| input.time);
        if matches!(command, Command::Undo | Command::Redo) {
            self.note(false, seconds);
            self.travel(ctx, command == Command::Undo);
            return;
        }
        self.note(false, seconds);
        if self.go_to_part(ctx, command) {
            return;
        }
        self.steer(ctx, command, settings);
        // Until now, the moment was the one under the pointer; now the command determines it.
        self.timeline.rest_pointer();
        match command {
            Command::Search => self.search.focus(),
            Command::ClearSearch => self.search_for(ctx, ""),
            Command::ToggleFollow if self.following.is_some() => self.following = None,
            Command::ToggleFollow => self.follow(ctx),
            _ => {}
        }
        self.note(command.is_movement(), seconds);
    }

    /// Returns the byte offset that stays in place during a vertical zoom: the middle of the pinned block, or otherwise
    /// the top of the stack.
    fn anchor(&mut self, moment: &Moment) -> f64 {
        let pinned = self.selection.pin.and_then(|pin| pin.block);
        let stack = pinned.and_then(|_| self.timeline.stack(&self.recording, &self.selection, moment.position()));
        let band = stack.and_then(|stack| stack.bands.iter().find(|(block, _)| Some(*block) == pinned).cloned());
        band.map_or(moment.bytes as f64, |(_, bytes)| (bytes.start + bytes.end) as f64 / 2.0)
    }

    fn steer(&mut self, ctx: &Context, command: Command, settings: &mut Settings) {
        let moment = self.pointed_moment();
        let position = moment.position();
        let anchor = self.anchor(&moment);
        let Self { recording, selection, .. } = self;
        if let Some(view) = command.steered(selection.view(), anchor) {
            selection.show(recording, view);
            return;
        }
        match command {
            Command::GoToPeak => selection.go_to_peak(recording),
            Command::FitAll => selection.fit(recording),
            Command::ToggleFit => selection.set_fits_bytes(recording, !selection.fits_bytes()),
            Command::PreviousStep => selection.go_to_step(recording, -1),
            Command::NextStep => selection.go_to_step(recording, 1),
            Command::PreviousEvent => selection.go_to_moment(recording, position.saturating_sub(1)),
            Command::NextEvent => {
                selection.go_to_moment(recording, (position + 1).min(recording.trace.events.len()));
            }
            Command::PreviousPeak | Command::NextPeak => {
                let key = self.peaks_key();
                self.peaks.go(ctx, &key, command == Command::NextPeak);
                self.go_to_awaited_peak();
            }
            Command::PreviousOom | Command::NextOom => self.go_to_oom(position, command == Command::NextOom),
            Command::ZoomToBlock => {
                if let Some(block) = selection.pin.and_then(|pin| pin.block) {
                    selection.go_to_block(recording, block);
                }
            }
            Command::LargestBlock => self.pin_largest_block(position, settings),
            Command::BlockAbove => self.pin_neighbour(position, 1),
            Command::BlockBelow => self.pin_neighbour(position, -1),
            Command::Unpin => {
                selection.pin = None;
                if settings.side == Side::Block {
                    settings.side = Side::Moment;
                }
            }
            Command::MarkA => selection.marks[0] = Some(position),
            Command::MarkB => selection.marks[1] = Some(position),
            Command::Unmark => selection.marks = [None; 2],
            Command::ShowRange => {
                if let Some(range) = selection.range() {
                    selection.show_moments(recording, &range);
                }
            }
            Command::ToggleAxis => {
                let other = if selection.axis() == Axis::Event { Axis::Time } else { Axis::Event };
                selection.set_axis(recording, other);
            }
            Command::NextMetric => {
                let metrics = top_bar::metrics_of(recording, selection.device);
                selection.set_metric(recording, next_of(&metrics, selection.metric));
            }
            Command::NextDevice => {
                selection.set_device(recording, (selection.device + 1) % recording.devices.len());
            }
            Command::ToggleHide => settings.paint.is_hiding = !settings.paint.is_hiding,
            Command::ToggleSide => settings.is_side_folded = !settings.is_side_folded,
            Command::NextLook => {
                settings.side = Side::Moment;
                settings.choices.show_as(next_of(MomentLook::ALL, settings.choices.look));
            }
            Command::NextKey => {
                settings.side = Side::Moment;
                let is_there = |key| absent_reason(&recording.absent, key).is_none();
                settings.choices.first = next_key(settings.choices.first, is_there);
            }
            Command::ShowKept => self.show_kept(settings),
            Command::ShowStatistics if settings.side == Side::Statistics => self.views.statistics.show_next(),
            command => {
                if let Some(side) = Side::shown_by(command) {
                    (settings.side, settings.is_side_folded) = (side, false);
                }
                if let Some(bottom) = Bottom::shown_by(command) {
                    settings.bottom = (settings.bottom != Some(bottom)).then_some(bottom);
                    if settings.bottom.is_some() {
                        bottom.of(&mut self.views).focus();
                    }
                }
            }
        }
    }

    /// Pins the first failed request after or before `position` on any device, and shows that device. Wraps around.
    fn go_to_oom(&mut self, position: usize, is_forward: bool) {
        let ooms = &self.recording.regions.ooms;
        let wrapped = if is_forward { ooms.first() } else { ooms.last() };
        if let Some(&oom) = beside(ooms, |(_, moment)| *moment, position, is_forward).or(wrapped) {
            self.show_oom(oom);
        }
    }

    /// Opens the Statistics panel, with memory that is never freed and leaks.
    pub(super) fn show_kept(&mut self, settings: &mut Settings) {
        (settings.side, settings.is_side_folded) = (Side::Statistics, false);
        self.views.statistics.show("Kept");
    }

    /// Pins a failed request, and shows its device.
    pub(super) fn show_oom(&mut self, (device, moment): (DeviceId, usize)) {
        if let Some(row) = self.recording.devices.iter().position(|index| index.device == device) {
            self.choose_device(row);
            self.selection.go_to_moment(&self.recording, moment);
        }
    }

    /// Moves to a peak that was requested while the peaks were still being computed.
    pub(super) fn go_to_awaited_peak(&mut self) {
        let key = self.peaks_key();
        let Some((moments, is_forward)) = self.peaks.awaited(&key) else { return };
        let position = self.pointed_moment().position();
        if let Some(&moment) = beside(&moments, |moment| *moment, position, is_forward) {
            self.selection.go_to_moment(&self.recording, moment);
        }
    }

    fn peaks_key(&self) -> peaks::Key {
        let (recording, Selection { device, metric, .. }) = (Identity::of(&self.recording), &self.selection);
        (OfDevice { recording, device: *device }, *metric)
    }

    /// Pins the largest block at `position` that matches the search; the first one in a tie.
    fn pin_largest_block(&mut self, position: usize, settings: &mut Settings) {
        let trace = &self.recording.trace;
        let metric = drawn_metric(self.selection.metric);
        let live = self.recording.devices[self.selection.device].live.before_position(trace, metric, position);
        let matches = self.search.matches();
        let size = |block: &BlockId| (bytes_of(trace, metric, *block), std::cmp::Reverse(*block));
        if let Some(block) = live.into_iter().filter(|block| matches.contains(*block)).max_by_key(size) {
            self.selection.pin = Some(Pin { block: Some(block), moment: position });
            settings.side = Side::Block;
        }
    }

    /// Pins the block `by` bands above the pinned one at `position`.
    fn pin_neighbour(&mut self, position: usize, by: isize) {
        let Some(block) = self.selection.pin.and_then(|pin| pin.block) else { return };
        let Some(stack) = self.timeline.stack(&self.recording, &self.selection, position) else { return };
        let Some(row) = stack.bands.iter().position(|(other, _)| *other == block) else { return };
        if let Some((block, _)) = row.checked_add_signed(by).and_then(|row| stack.bands.get(row)) {
            self.selection.pin = Some(Pin { block: Some(*block), moment: position });
        }
    }
}

/// Returns the first element of `all` after `position` if `is_forward`, otherwise the last one before it. `all` must be
/// sorted by moment.
fn beside<T>(all: &[T], moment: impl Fn(&T) -> usize, position: usize, is_forward: bool) -> Option<&T> {
    match is_forward {
        true => all.get(all.partition_point(|one| moment(one) <= position)),
        false => all.get(all.partition_point(|one| moment(one) < position).checked_sub(1)?),
    }
}
