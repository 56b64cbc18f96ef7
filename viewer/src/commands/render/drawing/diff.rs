//! `highwater render --view diff`: draws two recordings side by side.

use std::io;
use std::path::Path;
use std::sync::Arc;

use highwater_analysis::{DiffAt, GroupKey};
use highwater_app::colour_by::ColourBy;
use highwater_app::gui::{Align, DiffChoices, DiffLook, DiffSheet, Paint, Paper, Stacking, save_view};
use highwater_app::selection::Selection;
use highwater_app::session::Recording;
use highwater_snapshots::DeviceId;

use super::{Content, Written, by_of, colours_in};
use crate::commands::diff::{missing_at, moments_of};
use crate::commands::next_command::quoted;
use crate::commands::render::{PictureAt, PictureOrder, RenderArguments};
use crate::input::source::PLAIN;
use crate::input::{Input, compared_devices, on_device, with_spinner};
use crate::output::{Failure, Page, about, caveats};

pub(super) const VIEW: &str = "diff";

pub(super) fn content_of(arguments: &RenderArguments) -> Result<Content, Failure> {
    if arguments.from.is_some() || arguments.to.is_some() {
        return Err(Failure::Usage("--from, --to: --view diff shows all of both recordings; omit them".to_owned()));
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
    Ok(Content::Two { keys, at })
}

pub(super) fn draw(
    arguments: &RenderArguments,
    paper: Paper,
    (keys, at): (&[GroupKey], Option<DiffAt>),
    recordings: &[Arc<Recording>],
) -> Result<Written, Failure> {
    let recordings = [0, recordings.len() - 1].map(|side| Arc::clone(&recordings[side]));
    let wanted = [arguments.device.device, arguments.device_b.or(arguments.device.device)];
    let input = |recording: &Arc<Recording>| {
        Input::of(recording.source.clone(), PLAIN, recording.path.as_deref().unwrap_or(Path::new(&recording.name)))
    };
    let inputs = recordings.each_ref().map(input);
    let devices = compared_devices(inputs.each_ref(), wanted, arguments.metric)?;
    let moments = [at, arguments.at_b.map(|at| at.0)];
    let at = moments_of(moments, arguments.b.is_none(), (&inputs[0], devices[0]))?;
    let selection = |side: usize| -> Result<Selection, Failure> {
        let recording = &recordings[side];
        let mut selection = Selection::new(recording);
        let row = recording.devices.iter().position(|index| index.device == devices[side]);
        selection.set_device(recording, row.unwrap_or(selection.device));
        super::set_axis(&mut selection, arguments, recording)?;
        let found = inputs[side].ask(|source, _| at[side].find(source, devices[side], arguments.metric))?;
        if found.is_none() {
            return Err(missing_at(at[side], side, &inputs[side], devices[side])?);
        }
        Ok(selection)
    };
    let sided = |side: usize| selection(side).map_err(|failure| about(["A", "B"][side], failure));
    let selections = [sided(0)?, sided(1)?];
    let paint = Paint {
        colour_by: colours_in(&recordings[1], colours_of(arguments, keys))?,
        stacking: if arguments.stack_by == PictureOrder::Age { Stacking::Age } else { Stacking::Colour },
        ..Paint::default()
    };
    let (align, look) = (Align::default(), DiffLook::default());
    let choices = DiffChoices { metric: arguments.metric, at, keys: keys.to_vec(), align, hides_internals: true, look };
    let bytes = with_spinner(&format!("drawing {}", arguments.out.display()), || {
        let mut sheet = DiffSheet::new(recordings.clone(), selections.each_ref(), choices, paint);
        sheet.search_for(arguments.blocks.filter.stated().unwrap_or_default());
        let title = sheet.title();
        save_view(&arguments.out, paper, &title, |ui| sheet.sheet_ui(ui))
    })?;
    Ok(Written { devices, bytes })
}

pub(super) fn print(
    arguments: &RenderArguments,
    recordings: &[Arc<Recording>],
    devices: [DeviceId; 2],
    size: &str,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let name_of = |name: &'static str| if recordings.len() > 1 { name } else { "" };
    let what = if arguments.b.is_some() { "two recordings" } else { "two moments" };
    for (recording, name) in recordings.iter().zip(["A", "B"]) {
        caveats::lead(&recording.trace, name_of(name), page)?;
    }
    let is_same = devices[0] == devices[1];
    let on = if is_same { on_device(&recordings[recordings.len() - 1].trace, devices[1]) } else { String::new() };
    page.headline(&format!("{on}Wrote {what} side by side to {} ({size}).", arguments.out.display()))?;
    for (recording, name) in recordings.iter().zip(["A", "B"]) {
        caveats::print_of(&recording.trace, name_of(name), page)?;
    }
    page.gap()?;
    let files = std::iter::once(&arguments.source.file).chain(&arguments.b);
    let names: Vec<String> = files.map(|file| quoted(&file.display().to_string())).collect();
    page.hint(&format!("Next: highwater diff {}   for the same comparison in figures", names.join(" ")))
}

/// Returns the colours that match the keys. For several keys, returns those of the category if it is one of them.
fn colours_of(arguments: &RenderArguments, keys: &[GroupKey]) -> ColourBy {
    if let Ok(colours) = by_of(arguments).colours {
        return colours;
    }
    match keys {
        keys if keys.contains(&GroupKey::Category) => ColourBy::default(),
        [GroupKey::Scope, ..] => ColourBy(GroupKey::ScopeTo(1)),
        [GroupKey::Stack, ..] => ColourBy(GroupKey::Frame),
        [key, ..] => ColourBy(*key),
        [] => ColourBy::default(),
    }
}
