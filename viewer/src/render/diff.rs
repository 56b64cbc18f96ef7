//! `highwater render --view diff`: draws two recordings side by side.

use std::path::Path;
use std::sync::Arc;

use highwater_analysis::GroupKey;
use highwater_analysis::diff::Asked;
use highwater_app::gui::surface::{DiffSheet, Paper, save_view};
use highwater_app::gui::views::diff::{Align, DiffChoices, DiffLook, Paint};
use highwater_app::gui::views::timeline::Stacking;
use highwater_app::selection::{Axis, Selection};
use highwater_app::session::Recording;
use highwater_snapshots::units::format_bytes;

use super::{RenderFigures, by_of, check_destination, colour_by, name_of, theme_of};
use crate::args::{PictureAt, PictureAxis, PictureColours, PictureOrder, RenderArguments};
use crate::cli::diff::{missing_step, moments_of};
use crate::cli::input::categories::read_with;
use crate::cli::input::devices::{compared_devices, of_side, on_device};
use crate::cli::input::recording::spinner;
use crate::cli::output::caveats;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::cli::output::shell::quoted;

/// The name of the view.
pub(super) const VIEW: &str = "diff";

/// Reads both recordings, draws them, and prints what was written.
pub(super) fn run(arguments: &RenderArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    // Report what cannot be drawn before a long read.
    let paper = Paper::new(arguments.size.0, arguments.scale, theme_of(arguments));
    let paper = paper.map_err(|why| Failure::Usage(format!("--size, --scale: {why}")))?;
    let files: Vec<&Path> = std::iter::once(&arguments.source.file).chain(&arguments.b).map(|file| &**file).collect();
    for file in &files {
        check_destination(&arguments.out, file)?;
    }
    if arguments.from.is_some() || arguments.to.is_some() {
        return Err(Failure::Usage("--from, --to: --view diff shows all of both recordings".to_owned()));
    }
    let keys = by_of(arguments).keys.map_err(|why| Failure::Usage(format!("--by: {why}")))?.0;
    let at = match arguments.at {
        Some(PictureAt::Event(event)) => {
            let text = format!("--at {event}: --view diff takes peak, end, step:N and step-end:N");
            return Err(Failure::Usage(text));
        }
        Some(PictureAt::Compared(at)) => Some(at),
        None => None,
    };
    let read = |file: &Path| -> Result<Arc<Recording>, Failure> {
        let trace = read_with(file, &arguments.categories)?.trace;
        Ok(Arc::new(Recording::new(name_of(file), Some(file.to_owned()), trace)))
    };
    let first = read(files[0])?;
    let second = arguments.b.as_deref().map_or_else(|| Ok(Arc::clone(&first)), read)?;
    let recordings = [first, second];
    let wanted = [arguments.device.device, arguments.device_b.or(arguments.device.device)];
    let devices = compared_devices([&recordings[0].trace, &recordings[1].trace], wanted, arguments.metric)?;
    let first = (&*recordings[0].trace, devices[0]);
    let at = moments_of([at, arguments.at_b.map(|at| at.0)], arguments.b.is_none(), first)?;
    let selection = |side: usize| -> Result<Selection, Failure> {
        let recording = &recordings[side];
        let mut selection = Selection::new(recording);
        let row = recording.devices.iter().position(|index| index.device == devices[side]);
        selection.set_device(recording, row.unwrap_or(selection.device));
        selection.set_axis(recording, if arguments.axis == PictureAxis::Time { Axis::Time } else { Axis::Event });
        let index = &recording.devices[selection.device];
        let asked = Asked { trace: &recording.trace, series: &index.series, live: &index.live };
        if at[side].find(asked, arguments.metric).is_none() {
            return Err(missing_step(at[side], side, &recording.trace, devices[side]));
        }
        Ok(selection)
    };
    let sided = |side: usize| selection(side).map_err(|failure| of_side(failure, side));
    let selections = [sided(0)?, sided(1)?];
    let paint = Paint {
        colour_by: colour_by(colours_of(arguments, &keys), &recordings[1])?,
        stacking: if arguments.stack_by == PictureOrder::Age { Stacking::Age } else { Stacking::Colour },
        has_lines: true,
        is_hiding: false,
    };
    let (align, look) = (Align::default(), DiffLook::default());
    let choices = DiffChoices { metric: arguments.metric, at, keys, align, hides_internals: true, look };
    let bar = spinner(format!("drawing {}", arguments.out.display()));
    let mut sheet = DiffSheet::new(recordings.clone(), selections.each_ref(), choices, paint);
    sheet.search_for(arguments.blocks.filter.stated().unwrap_or_default());
    let title = sheet.title();
    let written = save_view(&arguments.out, paper, &title, |ui| sheet.sheet_ui(ui));
    bar.finish_and_clear();
    let bytes = written?;
    let [width, height] = paper.size();
    if arguments.source.json {
        let file = arguments.out.display().to_string();
        page.json(&RenderFigures { file, device: devices[1].0, width, height, view: VIEW, bytes })?;
        return Ok(Status::Fine);
    }
    let size = format!("{width} x {height} pixels, {}", format_bytes(bytes));
    let what = if arguments.b.is_some() { "two recordings" } else { "two moments" };
    for (recording, name) in recordings.iter().zip(["A", "B"]).take(files.len()) {
        caveats::lead(&recording.trace, if files.len() > 1 { name } else { "" }, page)?;
    }
    let is_same = devices[0] == devices[1];
    let on = if is_same { on_device(&recordings[1].trace, devices[1]) } else { String::new() };
    page.headline(&format!("{on}Wrote {what} side by side to {} ({size}).", arguments.out.display()))?;
    for (recording, name) in recordings.iter().zip(["A", "B"]).take(files.len()) {
        caveats::print_of(&recording.trace, if files.len() > 1 { name } else { "" }, page)?;
    }
    page.gap()?;
    let names: Vec<String> = files.iter().map(|file| quoted(&file.display().to_string())).collect();
    page.hint(&format!("Next: highwater diff {}   for the same in figures", names.join(" ")))?;
    Ok(Status::Fine)
}

/// The colours that go with the keys.
fn colours_of(arguments: &RenderArguments, keys: &[GroupKey]) -> PictureColours {
    if let Ok(colours) = by_of(arguments).colours {
        return colours;
    }
    match keys.first() {
        Some(GroupKey::Scope) => PictureColours::Scope(1),
        Some(GroupKey::ScopeTo(depth)) => PictureColours::Scope(usize::from(*depth)),
        Some(GroupKey::Op) => PictureColours::Op,
        Some(GroupKey::Stack | GroupKey::Frame) => PictureColours::Stack,
        Some(GroupKey::Lifetime) => PictureColours::Lifetime,
        Some(GroupKey::Stream) => PictureColours::Stream,
        _ => PictureColours::Category,
    }
}
