//! Runs `highwater check`: reads recordings and budgets, draws the picture, and prints the report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_analysis::GroupKey;
use highwater_app::files::destination::{io_error, same, write_whole};
use highwater_app::files::is_stdin;
use highwater_app::session::Recording;
use highwater_snapshots::format::Windows;
use highwater_snapshots::{Error, Trace};

use crate::args::{CheckArguments, DeviceChoice, PictureBy, PictureSize, RenderArguments, Source};
use crate::cli::budgets::Budgets;
use crate::cli::check::CheckReport;
use crate::cli::check_input::CheckInput;
use crate::cli::input::categories::read_with;
use crate::cli::input::long::{in_parts, open_long};
use crate::cli::output::caveats;
use crate::cli::output::markdown::markdown;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::render::{self, Drawing};

/// Checks the recording against its budgets.
pub fn run(arguments: &CheckArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    // Report invalid options and destinations before a long read.
    let budgets = Budgets::of(arguments)?;
    check_destinations(arguments, &budgets)?;
    let rendering = arguments.picture.as_deref().map(|picture| rendering(arguments, &budgets, picture));
    let drawing = rendering.as_ref().map(Drawing::of).transpose().map_err(of_picture)?;
    let files = std::iter::once(arguments.source.file.as_path()).chain(budgets.baseline.as_deref());
    let how = if drawing.is_some() { Reading::ForDrawing } else { Reading::InParts };
    let read = |how| files.clone().map(|file| Read::of(file, arguments, how)).collect::<Result<Vec<_>, _>>();
    let recordings = read(how)?;
    if let Some(drawing) = &drawing {
        let sides: Vec<_> = recordings.iter().rev().filter_map(Read::drawable).collect();
        drawing.draw(&sides).map_err(of_picture)?;
    }
    let outcome = answer(&recordings, &budgets, arguments, page);
    if !matches!(outcome, Err(Failure::Read { source: Error::Damaged { .. }, .. })) {
        return outcome;
    }
    // The whole is read for the report on the damage.
    answer(&read(Reading::Whole)?, &budgets, arguments, page)
}

/// Checks the first of `recordings`; the second is the baseline, if there is one.
fn answer(
    recordings: &[Read],
    budgets: &Budgets,
    arguments: &CheckArguments,
    page: &mut Page<'_>,
) -> Result<Status, Failure> {
    let report = CheckReport::of(recordings[0].input(), recordings.get(1).map(Read::input), budgets, arguments)?;
    print(&report, recordings, arguments, page)
}

/// Prints the report about `recordings`: the checked one, and the baseline if there is one.
fn print(
    report: &CheckReport<'_>,
    recordings: &[Read],
    arguments: &CheckArguments,
    page: &mut Page<'_>,
) -> Result<Status, Failure> {
    let is_markdown_only = arguments.markdown.as_deref().is_some_and(is_stdin);
    if let Some(file) = &arguments.markdown {
        let picture = arguments.picture.as_deref().map(|picture| from_file(picture, file));
        let what = match recordings {
            [_, _] => "The baseline, the recording, and what makes the difference",
            _ => "The recording's timeline",
        };
        let text = markdown(report, picture.as_deref().map(|picture| (what, picture)));
        if is_markdown_only {
            page.raw().write_all(text.as_bytes())?;
        } else {
            write_whole(file, |out| out.write_all(text.as_bytes()).map_err(io_error))?;
        }
    }
    if arguments.source.json {
        page.json(&report.figures())?;
    } else if !is_markdown_only {
        for (recording, name) in recordings.iter().zip(["", "Baseline"]) {
            caveats::lead(recording.facts(), name, page)?;
        }
        report.print(page)?;
        if arguments.github {
            report.print_github(page)?;
        }
    }
    Ok(report.status())
}

fn check_destinations(arguments: &CheckArguments, budgets: &Budgets) -> Result<(), Failure> {
    let markdown = arguments.markdown.as_deref();
    if markdown.is_some_and(is_stdin) && (arguments.source.json || arguments.github) {
        let text = "--markdown -: standard output already has --json or --github; name a file for the Markdown";
        return Err(Failure::Usage(text.to_owned()));
    }
    let inputs = [Some(&arguments.source.file), budgets.baseline.as_ref(), arguments.budgets.as_ref()];
    let is_input = |file: &Path| inputs.iter().flatten().any(|input| !is_stdin(input) && same(file, input));
    for (option, file) in [("--markdown", markdown), ("--picture", arguments.picture.as_deref())] {
        if let Some(file) = file.filter(|file| !is_stdin(file) && is_input(file)) {
            let text = format!("{option} {}: that is a file to be read", file.display());
            return Err(Failure::Usage(text));
        }
    }
    Ok(())
}

/// How recordings are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Long ones in parts.
    InParts,
    /// As a whole.
    Whole,
    /// As a whole, with the data for drawing.
    ForDrawing,
}

/// A recording that was read, or is read in parts.
enum Read {
    Whole(Box<Trace>),
    Drawable(Arc<Recording>),
    /// A recording that is read in parts, its file, and a window of it without events.
    Parts(Box<Windows>, PathBuf, Box<Trace>),
}

impl Read {
    fn of(file: &Path, arguments: &CheckArguments, how: Reading) -> Result<Self, Failure> {
        if how == Reading::InParts
            && let Some(windows) = open_long(file, &arguments.categories)?
            && let Some(facts) = in_parts(&windows, file, |_| windows.window(0..0))?
        {
            return Ok(Self::Parts(Box::new(windows), file.to_owned(), Box::new(facts)));
        }
        let trace = read_with(file, &arguments.categories)?.trace;
        Ok(match how {
            Reading::ForDrawing => Self::Drawable(render::recording(file, trace)),
            Reading::Whole | Reading::InParts => Self::Whole(Box::new(trace)),
        })
    }

    fn input(&self) -> CheckInput<'_> {
        match self {
            Self::Whole(trace) => CheckInput::Memory(trace),
            Self::Drawable(recording) => CheckInput::Memory(&recording.trace),
            Self::Parts(windows, file, facts) => CheckInput::Parts { windows, facts, file },
        }
    }

    /// The recording, or a window of it without events.
    fn facts(&self) -> &Trace {
        match self {
            Self::Whole(trace) | Self::Parts(_, _, trace) => trace,
            Self::Drawable(recording) => &recording.trace,
        }
    }

    fn drawable(&self) -> Option<Arc<Recording>> {
        match self {
            Self::Whole(_) | Self::Parts(..) => None,
            Self::Drawable(recording) => Some(Arc::clone(recording)),
        }
    }
}

/// Draws the same as `highwater render FILE --out PICTURE`, or with a baseline `render BASELINE FILE --view diff`, of
/// the total and the device that are checked.
fn rendering(arguments: &CheckArguments, budgets: &Budgets, picture: &Path) -> RenderArguments {
    let file = arguments.source.file.clone();
    let of_one = RenderArguments {
        metric: budgets.metric,
        device: DeviceChoice { device: arguments.device },
        ..RenderArguments::of(file.clone(), picture.to_owned())
    };
    match &budgets.baseline {
        None => of_one,
        Some(baseline) => RenderArguments {
            source: Source { file: baseline.clone(), json: false },
            b: Some(file),
            view: "diff".to_owned(),
            by: Some(PictureBy::groups(vec![GroupKey::Category, GroupKey::Scope])),
            size: PictureSize([1600, 1000]),
            ..of_one
        },
    }
}

fn of_picture(failure: Failure) -> Failure {
    match failure {
        Failure::Usage(text) => Failure::Usage(format!("--picture: {text}")),
        other => other,
    }
}

/// Returns the picture's path in the Markdown file: relative to its folder if the picture is there or below, else as
/// given.
fn from_file(picture: &Path, markdown: &Path) -> String {
    let folder = markdown.parent().filter(|_| !is_stdin(markdown));
    let below = folder.and_then(|folder| picture.strip_prefix(folder).ok());
    below.unwrap_or(picture).display().to_string()
}
