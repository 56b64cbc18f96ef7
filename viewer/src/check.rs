//! Runs `highwater check`: reads recordings and budgets, draws the picture, and prints the report.

use std::path::Path;
use std::sync::Arc;

use highwater_analysis::GroupKey;
use highwater_app::files::destination::{io_error, same, write_whole};
use highwater_app::files::is_stdin;
use highwater_app::session::Recording;
use highwater_snapshots::Trace;

use crate::args::{CheckArguments, DeviceChoice, PictureBy, PictureSize, RenderArguments, Source};
use crate::cli::budgets::Budgets;
use crate::cli::check::CheckReport;
use crate::cli::input::categories::read_with;
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
    let read = |file: &Path| -> Result<Read, Failure> {
        Ok(Read::new(file, read_with(file, &arguments.categories)?.trace, drawing.is_some()))
    };
    let recording = read(&arguments.source.file)?;
    let baseline = budgets.baseline.as_deref().map(read).transpose()?;
    if let Some(drawing) = &drawing {
        let sides: Vec<_> = baseline.iter().chain([&recording]).filter_map(Read::drawable).collect();
        drawing.draw(&sides).map_err(of_picture)?;
    }
    let (trace, baseline) = (recording.trace(), baseline.as_ref().map(Read::trace));
    let report = CheckReport::of(trace, baseline, &budgets, arguments)?;
    let is_markdown_only = arguments.markdown.as_deref().is_some_and(is_stdin);
    if let Some(file) = &arguments.markdown {
        let picture = arguments.picture.as_deref().map(|picture| from_file(picture, file));
        let what = match budgets.baseline {
            Some(_) => "The baseline, the recording, and what makes the difference",
            None => "The recording's timeline",
        };
        let text = markdown(&report, picture.as_deref().map(|picture| (what, picture)));
        if is_markdown_only {
            page.raw().write_all(text.as_bytes())?;
        } else {
            write_whole(file, |out| out.write_all(text.as_bytes()).map_err(io_error))?;
        }
    }
    if arguments.source.json {
        page.json(&report.figures())?;
    } else if !is_markdown_only {
        caveats::lead(trace, "", page)?;
        if let Some(baseline) = baseline {
            caveats::lead(baseline, "Baseline", page)?;
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

/// A recording, with the data for drawing if there is a picture.
enum Read {
    Plain(Box<Trace>),
    Drawable(Arc<Recording>),
}

impl Read {
    fn new(file: &Path, trace: Trace, is_drawn: bool) -> Self {
        if is_drawn { Self::Drawable(render::recording(file, trace)) } else { Self::Plain(Box::new(trace)) }
    }

    fn trace(&self) -> &Trace {
        match self {
            Self::Plain(trace) => trace,
            Self::Drawable(recording) => &recording.trace,
        }
    }

    fn drawable(&self) -> Option<Arc<Recording>> {
        match self {
            Self::Plain(_) => None,
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
