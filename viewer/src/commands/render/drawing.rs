//! Draws a recording as requested by `highwater render`. In a build without the app, `drawing_disabled.rs` replaces
//! this file.

mod diff;
mod long;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use eframe::egui::Theme;
use highwater_analysis::{DiffAt, GroupKey, Matches};
use highwater_app::colour_by::ColourBy;
use highwater_app::files::destination::same;
use highwater_app::files::{is_stdin, recording_name};
use highwater_app::gui::{Format, Paint, Paper, PlanView, Sheet, SheetView, Stacking, TimelineStyle, save_view};
use highwater_app::report::Facts;
use highwater_app::selection::{Axis, Pin, Selection, View};
use highwater_app::session::Recording;
use highwater_snapshots::{DeviceId, Error, Trace, format_bytes};

use crate::args::{ComparedAt, FilesAndOptions};
use crate::commands::plan::RERUN;
use crate::commands::render::{PictureAt, PictureAxis, PictureBy, PictureOrder, PictureTheme, RenderArguments};
use crate::input::recording::check_metric;
use crate::input::{choose_device, event_range, on_device, read_with, with_spinner};
use crate::output::{Failure, Page, Report, Status, caveats};

pub(crate) fn run(arguments: &RenderArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let drawing = Drawing::of(arguments)?;
    if let Content::One { view, keys } = &drawing.content
        && let Some(run) = long::open(arguments, *view)?
    {
        match long::draw(arguments, drawing.paper, (*view, keys), &run) {
            // The readable part of a damaged recording is known only when all of it is read.
            Err(Failure::Damaged(_) | Failure::Read { source: Error::Damaged { .. }, .. }) => {}
            drawn => {
                let (part, written) = drawn?;
                return report(&drawing, &[part], &written, page);
            }
        }
    }
    let read = |file: &Path| read_with(file, &arguments.blocks.categories).map(|read| recording(file, read.trace));
    let first = read(&arguments.source.file)?;
    let second = arguments.b.as_deref().map(read).transpose()?;
    let recordings = [Some(first), second].into_iter().flatten().collect::<Vec<_>>();
    let written = drawing.draw(&recordings)?;
    report(&drawing, &recordings, &written, page)
}

fn report(
    drawing: &Drawing<'_>,
    recordings: &[Arc<Recording>],
    written: &Written,
    page: &mut Page<'_>,
) -> Result<Status, Failure> {
    RenderReport { drawing, recordings, written }.write(drawing.arguments.source.form(), page)?;
    Ok(Status::Fine)
}

pub(crate) fn recording(file: &Path, trace: Trace) -> Arc<Recording> {
    Arc::new(Recording::new(recording_name(file), Some(file.to_owned()), trace))
}

/// A picture whose options were checked before the recordings are read.
#[derive(Debug)]
pub(crate) struct Drawing<'a> {
    arguments: &'a RenderArguments,
    paper: Paper,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// A view of one recording. `keys` are the grouping keys of a view that shows a single moment.
    One { view: SheetView, keys: Vec<GroupKey> },
    /// Two recordings, or two moments of one, side by side.
    Two { keys: Vec<GroupKey>, at: Option<DiffAt> },
}

#[derive(Debug)]
pub(crate) struct Written {
    /// The drawn devices of A and B; for one recording, the same device twice.
    devices: [DeviceId; 2],
    bytes: u64,
}

impl<'a> Drawing<'a> {
    /// Checks the options.
    ///
    /// # Errors
    /// Fails if the options contradict each other, or the picture cannot be written.
    pub(crate) fn of(arguments: &'a RenderArguments) -> Result<Self, Failure> {
        let theme = if arguments.theme == PictureTheme::Dark { Theme::Dark } else { Theme::Light };
        let paper = Paper::new(arguments.size.0, arguments.scale, theme);
        let paper = paper.map_err(|why| Failure::Usage(format!("--size, --scale: {why}")))?;
        for file in std::iter::once(&arguments.source.file).chain(&arguments.b) {
            check_destination(&arguments.out, file)?;
        }
        if arguments.budget.is_some() && arguments.view != "plan" {
            return Err(Failure::Usage("--budget: only --view plan has a budget".to_owned()));
        }
        let content = if arguments.view == diff::VIEW {
            diff::content_of(arguments)?
        } else {
            let view = SheetView::named(&arguments.view).map_err(|why| Failure::Usage(format!("--view: {why}")))?;
            check_options(arguments)?;
            Content::One { view, keys: keys_of(arguments, view)? }
        };
        Ok(Self { arguments, paper, content })
    }

    /// Draws and writes the picture of one recording, or of A and B.
    ///
    /// # Errors
    /// Fails if the recordings lack something that the options name, or the file cannot be written.
    pub(crate) fn draw(&self, recordings: &[Arc<Recording>]) -> Result<Written, Failure> {
        match &self.content {
            Content::One { view, keys } => draw(self.arguments, self.paper, (*view, keys), &recordings[0]),
            Content::Two { keys, at } => diff::draw(self.arguments, self.paper, (keys, *at), recordings),
        }
    }
}

struct RenderReport<'a> {
    drawing: &'a Drawing<'a>,
    recordings: &'a [Arc<Recording>],
    written: &'a Written,
}

impl Report for RenderReport<'_> {
    fn facts(&self) -> Facts<'_> {
        let (arguments, [width, height]) = (self.drawing.arguments, self.drawing.paper.size());
        let [.., device] = self.written.devices;
        Facts::new([
            ("file", arguments.out.as_path().into()),
            ("device", device.0.into()),
            ("width", width.into()),
            ("height", height.into()),
            ("view", arguments.view.as_str().into()),
            ("bytes", self.written.bytes.into()),
        ])
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let (arguments, [width, height]) = (self.drawing.arguments, self.drawing.paper.size());
        let size = format!("{width} x {height} pixels, {}", format_bytes(self.written.bytes));
        let devices = self.written.devices;
        match self.drawing.content {
            Content::One { .. } => print(arguments, (&self.recordings[0].trace, devices[0]), &size, page),
            Content::Two { .. } => diff::print(arguments, self.recordings, devices, &size, page),
        }
    }
}

fn draw(
    arguments: &RenderArguments,
    paper: Paper,
    (view, keys): (SheetView, &[GroupKey]),
    recording: &Arc<Recording>,
) -> Result<Written, Failure> {
    let device = choose_device(&recording.trace, arguments.device.device)?;
    check_metric(&recording.source, device, arguments.metric)?;
    let selection = selection_of(arguments, recording, device)?;
    if let Some((key, why)) = keys.iter().find_map(|key| Some((key, recording.absent.reason(*key)?))) {
        return Err(Failure::Usage(format!("--by {}: {why}", key.name())));
    }
    // A view of one moment has its own colours.
    let colours = if view.is_of_moment() { ColourBy::default() } else { colours_of(arguments)? };
    let mut look = look_of(arguments, recording);
    look.paint.colour_by = colours_in(recording, colours)?;
    look.has_overview = recording.run.is_none() && (arguments.from.is_some() || arguments.to.is_some());
    let conditions = arguments.blocks.filter.stated().unwrap_or_default();
    let mut sheet = Sheet::new(Arc::clone(recording), selection, look, conditions);
    sheet.views.plan = arguments.budget.map_or_else(PlanView::default, PlanView::for_budget).with_rerun(RERUN);
    sheet.keys = keys.to_vec();
    let bytes = save(arguments, paper, sheet, view)?;
    Ok(Written { devices: [device; 2], bytes })
}

/// Returns the style of a timeline that is coloured by category.
fn look_of(arguments: &RenderArguments, recording: &Recording) -> TimelineStyle {
    let stacking = if arguments.stack_by == PictureOrder::Age { Stacking::Age } else { Stacking::Colour };
    TimelineStyle {
        paint: Paint { stacking, ..Paint::default() },
        has_overview: false,
        matches: Arc::new(Matches::of(&recording.trace, &arguments.blocks.filter.filter)),
    }
}

/// Draws and writes a sheet. Returns the size of the file.
fn save(arguments: &RenderArguments, paper: Paper, mut sheet: Sheet, view: SheetView) -> Result<u64, Failure> {
    let (doing, title) = (format!("drawing {}", arguments.out.display()), sheet.title(view));
    with_spinner(&doing, || save_view(&arguments.out, paper, &title, |ui| sheet.sheet_ui(ui, view)))
}

fn by_of(arguments: &RenderArguments) -> PictureBy {
    arguments.by.clone().unwrap_or_default()
}

/// Returns the keys by which a view of a single moment groups blocks. Empty for the view's default keys, and for other
/// views.
fn keys_of(arguments: &RenderArguments, view: SheetView) -> Result<Vec<GroupKey>, Failure> {
    let Some(by) = arguments.by.as_ref().filter(|_| view.is_of_moment()) else { return Ok(Vec::new()) };
    let keys = by.keys.clone().map_err(|why| Failure::Usage(format!("--by: {why}")))?.0;
    if keys.len() > 2 {
        return Err(Failure::Usage(format!(
            "--by: --view {} groups by one or two keys, not {}",
            view.name,
            keys.len()
        )));
    }
    Ok(keys)
}

fn colours_of(arguments: &RenderArguments) -> Result<ColourBy, Failure> {
    by_of(arguments).colours.map_err(|why| Failure::Usage(format!("--by: {why}")))
}

/// Rejects options that only a comparison accepts.
fn check_options(arguments: &RenderArguments) -> Result<(), Failure> {
    let only = |what: &str| Err(Failure::Usage(format!("{what}: only --view diff has two sides")));
    if let Some(b) = &arguments.b {
        return only(&b.display().to_string());
    }
    if arguments.at_b.is_some() {
        return only("--at-b");
    }
    if arguments.device_b.is_some() {
        return only("--device-b");
    }
    if let Some(PictureAt::Compared(at)) = arguments.at {
        let text = format!("--at {}: expected an event number; only --view diff supports such moments", ComparedAt(at));
        return Err(Failure::Usage(text));
    }
    Ok(())
}

/// Returns an error if the picture cannot be written, or would overwrite `input`.
fn check_destination(out: &Path, input: &Path) -> Result<(), Failure> {
    if is_stdin(out) {
        return Err(Failure::Usage("--out is '-': name a file that ends in .png or .svg".to_owned()));
    }
    Format::of(out).map_err(|why| Failure::Usage(format!("--out {why}")))?;
    if std::fs::metadata(out).is_ok_and(|facts| !facts.is_file()) {
        return Err(Failure::Usage(format!("--out {}: exists but is not a regular file", out.display())));
    }
    if !is_stdin(input) && same(out, input) {
        return Err(Failure::Usage(format!("--out {}: that is the recording; name another file", out.display())));
    }
    Ok(())
}

/// Sets the horizontal axis, which the recording must support.
fn set_axis(selection: &mut Selection, arguments: &RenderArguments, recording: &Recording) -> Result<(), Failure> {
    let is_time = arguments.axis == PictureAxis::Time;
    if is_time && !recording.trace.has_times() {
        return Err(Failure::Usage("--axis time: the recording has no times; use --axis event".to_owned()));
    }
    selection.set_axis(recording, if is_time { Axis::Time } else { Axis::Event });
    Ok(())
}

fn selection_of(arguments: &RenderArguments, recording: &Recording, device: DeviceId) -> Result<Selection, Failure> {
    let mut selection = Selection::new(recording);
    let row = recording.devices.iter().position(|index| index.device == device);
    selection.set_device(recording, row.unwrap_or(selection.device));
    selection.set_metric(recording, arguments.metric);
    set_axis(&mut selection, arguments, recording)?;
    if let Some(PictureAt::Event(at)) = arguments.at {
        let events = recording.events();
        check_event(at, recording.run.as_ref().map_or(events.end, |run| run.events()))?;
        if !events.contains(&at) {
            return Err(Failure::Usage(format!("--at {at}: not among the events of --from and --to")));
        }
        selection.pin = Some(Pin { block: None, moment: (at - events.start) as usize + 1 });
    }
    // A part of a long recording has only the requested events.
    if recording.run.is_none() && (arguments.from.is_some() || arguments.to.is_some()) {
        let events = events_of(arguments, recording.trace.events.len() as u64)?;
        let [from, to] = [events.start, events.end - 1].map(|event| event as u32);
        let mut x = selection.x_of_events(&recording.trace, from..to.saturating_add(1));
        if x.end <= x.start {
            x.end = x.start + 1.0;
        }
        let y = selection.view().y.clone();
        selection.show(recording, View { x, y });
    }
    Ok(selection)
}

fn check_event(at: u64, count: u64) -> Result<(), Failure> {
    if at < count {
        return Ok(());
    }
    Err(Failure::Usage(match count.checked_sub(1) {
        Some(last) => format!("invalid value '{at}' for --at: expected an event from 0 to {last}"),
        None => format!("--at {at}: the recording has no events"),
    }))
}

fn events_of(arguments: &RenderArguments, count: u64) -> Result<Range<u64>, Failure> {
    let range = event_range(arguments.from.unwrap_or(0), arguments.to, count)?;
    range.ok_or_else(|| Failure::Usage("--from, --to: the recording has no events; omit them".to_owned()))
}

/// Returns the colours for `recording`. Limits the depth of module paths to that of the deepest module.
fn colours_in(recording: &Recording, colours: ColourBy) -> Result<ColourBy, Failure> {
    match colours.0 {
        GroupKey::Scope | GroupKey::ScopeTo(_) if recording.deepest_scope == 0 => {
            Err(Failure::Usage("--by scope: the recording names no modules; try --by stack".to_owned()))
        }
        GroupKey::ScopeTo(depth) => Ok(ColourBy::scope(usize::from(depth), recording.deepest_scope)),
        _ => Ok(colours),
    }
}

fn print(
    arguments: &RenderArguments,
    (trace, device): (&Trace, DeviceId),
    size: &str,
    page: &mut Page<'_>,
) -> io::Result<()> {
    caveats::lead(trace, "", page)?;
    let on = on_device(trace, device);
    page.headline(&format!("{on}Wrote {} ({size}).", arguments.out.display()))?;
    caveats::print(trace, page)?;
    page.gap()?;
    let at = match arguments.at {
        Some(PictureAt::Event(event)) => Some(event.to_string()),
        _ => None,
    };
    let (options, what_for): (Vec<&str>, _) = match &at {
        Some(at) => (vec!["--at", at], "for the memory at that event as text"),
        None => (vec![], "for the peak as text"),
    };
    page.hint(&FilesAndOptions::of(&arguments.source.file).next("peak", &options, what_for))
}
