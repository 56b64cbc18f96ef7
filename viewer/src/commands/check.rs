//! Runs `highwater check`: reads recordings and budgets, draws the picture, and prints the report.

pub mod budgets;
mod advice;
mod parts;
mod devices;
pub mod report;
mod markdown;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_analysis::GroupKey;
use highwater_app::files::destination::{io_error, same, write_whole};
use highwater_app::files::is_stdin;

use crate::args::{CheckArguments, DeviceChoice, PictureBy, PictureSize, RenderArguments, TablelessSource};
use crate::commands::check::budgets::Budgets;
use crate::commands::check::markdown::markdown;
use crate::commands::check::report::CheckReport;
use crate::commands::render::{self, Drawing};
use crate::input::categories::read_with;
use crate::input::recording::Recording;
use crate::input::source::{Input, answer_from};
use crate::output::answer::Report as _;
use crate::output::caveats;
use crate::output::outcome::{Failure, Status};
use crate::output::page::Page;

/// Checks the recording against its budgets.
pub fn run(arguments: &CheckArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    // Report invalid options and destinations before a long read.
    let budgets = Budgets::of(arguments)?;
    check_destinations(arguments, &budgets)?;
    let rendering = arguments.picture.as_deref().map(|picture| rendering(arguments, &budgets, picture));
    let drawing = rendering.as_ref().map(Drawing::of).transpose().map_err(of_picture)?;
    let file = &arguments.source.file;
    let Some(drawing) = &drawing else {
        return answer_from(file, &arguments.categories, |own| match &budgets.baseline {
            Some(baseline) => answer_from(baseline, &arguments.categories, |baseline| {
                answer(&[own, baseline], &budgets, arguments, page)
            }),
            None => answer(&[own], &budgets, arguments, page),
        });
    };
    let files = std::iter::once(file).chain(&budgets.baseline);
    let read = |file: &PathBuf| {
        let Recording { trace, format } = read_with(file, &arguments.categories)?;
        let drawable = render::recording(file, trace);
        Ok((Input::of(drawable.source.clone(), format, file), drawable))
    };
    let read = files.map(read).collect::<Result<Vec<_>, Failure>>()?;
    let sides: Vec<_> = read.iter().rev().map(|(_, drawable)| Arc::clone(drawable)).collect();
    drawing.draw(&sides).map_err(of_picture)?;
    let inputs: Vec<&Input> = read.iter().map(|(input, _)| input).collect();
    answer(&inputs, &budgets, arguments, page)
}

/// Checks the first of `inputs`; the second is the baseline, if there is one.
fn answer(
    inputs: &[&Input],
    budgets: &Budgets,
    arguments: &CheckArguments,
    page: &mut Page<'_>,
) -> Result<Status, Failure> {
    let report = CheckReport::of(inputs[0], inputs.get(1).copied(), budgets, arguments)?;
    print(&report, inputs, arguments, page)
}

/// Prints the report about `inputs`: the checked one, and the baseline if there is one.
fn print(
    report: &CheckReport<'_>,
    inputs: &[&Input],
    arguments: &CheckArguments,
    page: &mut Page<'_>,
) -> Result<Status, Failure> {
    let is_markdown_only = arguments.markdown.as_deref().is_some_and(is_stdin);
    if let Some(file) = &arguments.markdown {
        let picture = arguments.picture.as_deref().map(|picture| from_file(picture, file));
        let what = match inputs {
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
    let form = arguments.source.form;
    if !form.is_text() {
        report.write(form, page)?;
    } else if !is_markdown_only {
        for (input, name) in inputs.iter().zip(["", "Baseline"]) {
            caveats::lead(input.facts(), name, page)?;
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
    if markdown.is_some_and(is_stdin) && (!arguments.source.form.is_text() || arguments.github) {
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
            source: TablelessSource { file: baseline.clone(), json: false },
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
