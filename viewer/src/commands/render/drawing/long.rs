//! `highwater render` for a recording that is too long for memory. Draws the whole recording as a chart of its
//! summaries, a range of events as a timeline, and a moment from the window that contains it.

use std::sync::Arc;

use highwater_analysis::{DeviceSummary, GroupKey, Moment};
use highwater_app::colour_by::ColourBy;
use highwater_app::gui::{Paper, RunChart, Sheet, SheetView};
use highwater_app::selection::Selection;
use highwater_app::session::Recording;
use highwater_app::session::run::{MAX_EVENTS, Run};
use highwater_snapshots::format_count;

use super::{Written, check_event, colours_of, events_of, look_of, save};
use crate::commands::render::{PictureAt, PictureAxis, RenderArguments};
use crate::input::source::{PLAIN, open_windows};
use crate::input::{Input, choose_device, origin_keys};
use crate::output::Failure;

/// Opens the recording if it is too long for memory and `view` can be drawn from windows. A plan needs the whole
/// recording.
pub(super) fn open(arguments: &RenderArguments, view: SheetView) -> Result<Option<Arc<Run>>, Failure> {
    if view.name == "plan" {
        return Ok(None);
    }
    let file = &arguments.source.file;
    let windows = open_windows(file, &arguments.blocks.categories)?;
    // Errors in the file are reported when all of it is read.
    Ok(windows.and_then(|windows| Run::new(windows, file).ok()).map(Arc::new))
}

/// Draws `view`. Returns the part of the recording that was read for it.
pub(super) fn draw(
    arguments: &RenderArguments,
    paper: Paper,
    (view, keys): (SheetView, &[GroupKey]),
    run: &Arc<Run>,
) -> Result<(Arc<Recording>, Written), Failure> {
    let has_range = arguments.from.is_some() || arguments.to.is_some();
    let events = if has_range { events_of(arguments, run.events())? } else { 0..run.events() };
    let unreadable = |why: String| Failure::Damaged(format!("{}: {why}", run.path().display()));
    if has_range && !view.is_of_moment() && events.end - events.start <= MAX_EVENTS {
        let part = Arc::new(Recording::part(run, events).map_err(unreadable)?);
        let written = super::draw(arguments, paper, (view, keys), &part)?;
        return Ok((part, written));
    }
    let input = Input::of(run.source(), PLAIN, &arguments.source.file);
    let device = choose_device(input.facts(), arguments.device.device)?;
    input.check_metric(device, arguments.metric)?;
    if !view.is_of_moment() {
        check_drawn(arguments)?;
    }
    let peak: Moment = input.ask(|source, _| source.peak(device, arguments.metric))?;
    let at = match arguments.at {
        Some(PictureAt::Event(at)) => {
            check_event(at, run.events())?;
            Some(at)
        }
        _ => peak.number(),
    };
    let moment = at.map_or(0..0, |event| event..event + 1);
    let part = Arc::new(Recording::part(run, moment).map_err(unreadable)?);
    let mut selection = Selection::new(&part);
    let row = part.devices.iter().position(|index| index.device == device);
    selection.set_device(&part, row.unwrap_or(selection.device));
    selection.set_metric(&part, arguments.metric);
    // The window of a moment may lack rows that the recording has.
    let tables = &input.facts().tables;
    let is_known = |key: &GroupKey| match key {
        GroupKey::Step => run.has_steps(),
        GroupKey::Scope | GroupKey::ScopeTo(_) => !tables.scopes.is_empty(),
        GroupKey::Op => origin_keys(input.facts()).is_some_and(|(keys, _)| keys.contains("op")),
        _ => false,
    };
    let absent = |key: &GroupKey| part.absent.reason(*key).filter(|_| !is_known(key));
    if let Some((key, why)) = keys.iter().find_map(|key| Some((key, absent(key)?))) {
        return Err(Failure::Usage(format!("--by {}: {why}", key.name())));
    }
    let summary = input.ask(|source, watch| DeviceSummary::of(source, device, watch))?;
    let chart = RunChart::new(Arc::clone(run), summary, peak, events).map_err(|why| input.unreadable(why))?;
    let conditions = arguments.blocks.filter.stated().unwrap_or_default();
    let mut sheet = Sheet::new(Arc::clone(&part), selection, look_of(arguments, &part), conditions);
    (sheet.keys, sheet.whole) = (keys.to_vec(), Some(chart));
    let bytes = save(arguments, paper, sheet, view)?;
    Ok((part, Written { devices: [device; 2], bytes }))
}

/// Returns an error if the options request data that summaries do not contain.
fn check_drawn(arguments: &RenderArguments) -> Result<(), Failure> {
    let lacking = match colours_of(arguments)? {
        _ if arguments.axis == PictureAxis::Time => "--axis time",
        _ if !arguments.blocks.filter.filter.is_empty() => "--where",
        colours if colours == ColourBy::default() => return Ok(()),
        _ => "--by",
    };
    Err(Failure::Usage(format!(
        "{lacking} is not supported for more than {} events; choose fewer with --from and --to",
        format_count(MAX_EVENTS)
    )))
}
