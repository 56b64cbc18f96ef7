//! Runs `highwater check`: reads recordings and budgets, draws the picture, and prints the report.

pub(crate) mod budgets;
mod devices;
pub(crate) mod report;
mod markdown;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use highwater_analysis::budget::Allowance;
use highwater_analysis::{GroupKey, Metric};
use highwater_app::files::destination::{io_error, same, write_whole};
use highwater_app::files::is_stdin;
use highwater_snapshots::suggest::did_you_mean;
use highwater_snapshots::{Category, Phase, parse_size};

use self::budgets::Budgets;
use self::markdown::markdown;
use self::report::CheckReport;
use crate::args::values::metric_parser;
use crate::args::{CategoryChoice, DeviceChoice, FilesAndOptions, Source, TablelessSource, arguments_of};
use crate::commands::render::{self, Drawing, PictureBy, PictureSize, RenderArguments};
use crate::input::{Input, Recording, answer_from, read_with};
use crate::output::{Failure, Page, Report as _, Status, about, caveats};

const TOP: usize = 8;

/// Arguments of `highwater check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: Source,
    /// Limit of the peak, such as 5GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_peak: Option<u64>,
    /// Limit of the peak of reserved memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_reserved: Option<u64>,
    /// Limit of a category at its own peak: --max activation=2GiB
    #[arg(long, value_name = "CATEGORY=SIZE", value_parser = |text: &str| limit_of(text, "activation=2GiB", category_of))]
    pub max: Vec<(Category, u64)>,
    /// Limit of the peak within a phase, in any step: --max-phase optimizer=5GiB
    #[arg(long, value_name = "PHASE=SIZE", value_parser = |text: &str| limit_of(text, "optimizer=5GiB", phase_of))]
    pub max_phase: Vec<(Phase, u64)>,
    /// Recording to compare with, such as the main branch's; if a budget is exceeded, the growth is broken down
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Limit of the peak's growth over the baseline: a percentage such as 5% (the % may be left out), or a size such as
    /// 200MiB
    #[arg(long, value_name = "PCT|SIZE")]
    pub max_growth: Option<Allowance>,
    /// Limit of the growth per step, on average from the second to the last whole step: 0B allows no leak
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_step_growth: Option<u64>,
    /// Limit of the growth of reserved memory per step, on average over the same steps
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_reserved_growth: Option<u64>,
    /// TOML file of budgets; options on the command line take precedence
    ///
    /// peak, reserved, step_growth, reserved_growth = a size ("5 GiB", or a number of bytes); growth = "5%" or a size;
    /// baseline = a file, from the folder of this one; metric = as in --metric; tables `category` and `phase` with a
    /// size for each name.
    #[arg(long, value_name = "FILE")]
    pub budgets: Option<PathBuf>,
    /// Memory total that the limits apply to, except --max-reserved [default: requested]
    #[arg(long, value_name = "M", value_parser = metric_parser())]
    pub metric: Option<Metric>,
    /// Device N [default: all GPUs, or host memory if there are none]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// Number of groups to list in the difference to the baseline
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// Write the result as Markdown too, for a pull request; `-` prints it in place of the text
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Draw the timeline, beside the baseline's if there is one, as .png or .svg; the Markdown shows it
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Print a line `::error …` for each exceeded budget, which GitHub Actions shows with the run
    #[arg(long, conflicts_with = "json")]
    pub github: bool,
    /// The source of categories that were not recorded.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

pub(crate) fn category_of(name: &str) -> Result<Category, String> {
    named("category", name, Category::ALL, |category| category.name())
}

pub(crate) fn phase_of(name: &str) -> Result<Phase, String> {
    named("phase", name, Phase::ALL, |phase| phase.name())
}

fn named<T: Copy>(kind: &str, name: &str, all: &[T], spelt: fn(T) -> &'static str) -> Result<T, String> {
    let names = all.iter().map(|one| spelt(*one));
    let found = all.iter().copied().find(|one| spelt(*one) == name);
    found.ok_or_else(|| {
        let (hint, known) = (did_you_mean(name, names.clone()), names.collect::<Vec<_>>().join(", "));
        format!("unknown {kind} '{name}'{hint}: expected one of {known}")
    })
}

/// Parses a budget with a name, such as `activation=2GiB`; the size is in bytes.
fn limit_of<T>(text: &str, example: &str, parse: fn(&str) -> Result<T, String>) -> Result<(T, u64), String> {
    let (name, size) = text.split_once('=').ok_or_else(|| format!("expected a name and a size, such as {example}"))?;
    Ok((parse(name.trim())?, parse_size(size)?))
}

impl CheckArguments {
    /// Returns the file and options that a suggested command repeats; the budgets limit `metric`.
    pub(crate) fn given(&self, metric: Metric) -> FilesAndOptions {
        FilesAndOptions::of(&self.source.file).with("device", self.device).metric(metric).categories(&self.categories)
    }
}

pub(crate) fn run(arguments: &CheckArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    // Report invalid options and destinations before a long read.
    let budgets = Budgets::of(arguments)?;
    check_destinations(arguments, &budgets)?;
    let rendering = arguments.picture.as_deref().map(|picture| rendering(arguments, &budgets, picture));
    let of_picture = |failure| about("--picture", failure);
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

/// Checks the first of `inputs`, and prints the report; the second is the baseline, if there is one.
fn answer(
    inputs: &[&Input],
    budgets: &Budgets,
    arguments: &CheckArguments,
    page: &mut Page<'_>,
) -> Result<Status, Failure> {
    let report = CheckReport::of(inputs[0], inputs.get(1).copied(), budgets, arguments)?;
    let is_markdown_only = arguments.markdown.as_deref().is_some_and(is_stdin);
    if let Some(file) = &arguments.markdown {
        let picture = arguments.picture.as_deref().map(|picture| from_file(picture, file));
        let what = match inputs {
            [_, _] => "The baseline, the recording, and their differences",
            _ => "The recording's timeline",
        };
        let text = markdown(&report, picture.as_deref().map(|picture| (what, picture)));
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
        report.write(form, page)?;
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
            return Err(Failure::Usage(format!("{option} {}: this is an input; name another file", file.display())));
        }
    }
    Ok(())
}

/// Returns the arguments of `highwater render` for a picture of the checked total and device. With a baseline, these
/// are the arguments for a comparison with the baseline.
fn rendering(arguments: &CheckArguments, budgets: &Budgets, picture: &Path) -> RenderArguments {
    let file = arguments.source.file.clone();
    let mut out = OsString::from("--out=");
    out.push(picture);
    let of_one = RenderArguments {
        metric: budgets.metric,
        device: DeviceChoice { device: arguments.device },
        ..arguments_of([&out, OsStr::new("--"), file.as_os_str()])
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

/// Returns the path of the picture for a link in the Markdown file: relative to the folder of the file if the picture
/// is in this folder or below it, otherwise unchanged.
fn from_file(picture: &Path, markdown: &Path) -> String {
    let folder = markdown.parent().filter(|_| !is_stdin(markdown));
    let below = folder.and_then(|folder| picture.strip_prefix(folder).ok());
    below.unwrap_or(picture).display().to_string()
}
