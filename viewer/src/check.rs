//! Runs `highwater check`: reads recordings and budgets, draws the picture, and prints the report.

use std::ffi::OsString;
use std::path::Path;

use clap::Parser as _;
use highwater_app::files::destination::{io_error, same, write_whole};
use highwater_app::files::is_stdin;

use crate::args::{Arguments, CheckArguments, Command, RenderArguments};
use crate::cli::budgets::Budgets;
use crate::cli::check::CheckReport;
use crate::cli::input::categories::read_with;
use crate::cli::output::caveats;
use crate::cli::output::markdown::markdown;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::render;

/// Holds the recording to its budgets.
pub fn run(arguments: &CheckArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    // What cannot be asked or written is told before a long reading.
    let budgets = Budgets::of(arguments)?;
    check_destinations(arguments, &budgets)?;
    draw(arguments, &budgets)?;
    let recording = read_with(&arguments.source.file, &arguments.categories)?;
    let baseline = budgets.baseline.as_ref().map(|file| read_with(file, &arguments.categories)).transpose()?;
    let baseline = baseline.as_ref().map(|recording| &recording.trace);
    let report = CheckReport::of(&recording.trace, baseline, &budgets, arguments)?;
    let is_markdown_only = arguments.markdown.as_deref().is_some_and(is_stdin);
    if let Some(file) = &arguments.markdown {
        let picture = arguments.picture.as_deref().map(|picture| from_file(picture, file));
        let what = match compared(&budgets) {
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
        caveats::lead(&recording.trace, "", page)?;
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

/// Draws the picture that is asked for.
fn draw(arguments: &CheckArguments, budgets: &Budgets) -> Result<(), Failure> {
    let Some(picture) = &arguments.picture else { return Ok(()) };
    if is_stdin(&arguments.source.file) {
        let text = "--picture: the recording is read once more for it, which standard input cannot be; name a file";
        return Err(Failure::Usage(text.to_owned()));
    }
    let rendering = rendering(arguments, budgets, picture)?;
    let mut nobody = std::io::sink();
    match render::run(&rendering, &mut Page::plain(&mut nobody)) {
        Err(Failure::Usage(text)) => Err(Failure::Usage(format!("--picture: {text}"))),
        other => other.map(drop),
    }
}

/// The same as `highwater render FILE --out PICTURE`, or with a baseline `render BASELINE FILE --view diff`, of the total
/// and the device that are checked.
fn rendering(arguments: &CheckArguments, budgets: &Budgets, picture: &Path) -> Result<RenderArguments, Failure> {
    let mut words: Vec<OsString> =
        ["highwater", "render", "--metric", budgets.metric.name(), "--out"].map(Into::into).into();
    words.push(picture.into());
    if let Some(device) = arguments.device {
        words.extend(["--device".into(), device.to_string().into()]);
    }
    let baseline = compared(budgets);
    if baseline.is_some() {
        words.extend(["--view", "diff", "--by", "category,scope", "--size", "1600x1000"].map(Into::into));
    }
    words.push("--".into());
    words.extend(baseline.map(Into::into));
    words.push(arguments.source.file.clone().into());
    let parsed = Arguments::try_parse_from(words).map(|arguments| arguments.command);
    let Ok(Some(Command::Render(mut rendering))) = parsed else {
        return Err(Failure::Usage(format!("--picture {}: cannot be drawn", picture.display())));
    };
    rendering.categories = arguments.categories.clone();
    Ok(*rendering)
}

/// The baseline that the picture shows: what came by standard input cannot be read once more.
fn compared(budgets: &Budgets) -> Option<&Path> {
    budgets.baseline.as_deref().filter(|file| !is_stdin(file))
}

/// How the Markdown file names the picture: from its own folder where the picture lies there or below, else as it was
/// named.
fn from_file(picture: &Path, markdown: &Path) -> String {
    let folder = markdown.parent().filter(|_| !is_stdin(markdown));
    let below = folder.and_then(|folder| picture.strip_prefix(folder).ok());
    below.unwrap_or(picture).display().to_string()
}
