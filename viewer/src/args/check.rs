//! The options of `highwater check`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use highwater_analysis::Metric;
use highwater_analysis::budget::Allowance;
use highwater_snapshots::suggest::did_you_mean;
use highwater_snapshots::units::parse_size;
use highwater_snapshots::{Category, Phase};

use super::values::metric_parser;
use super::{CategoryChoice, Source};

/// Default number of groups of the difference from the baseline.
const TOP: usize = 8;

/// `highwater check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// Limit of the peak, such as 5GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_peak: Option<u64>,
    /// Limit of the peak of reserved memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_reserved: Option<u64>,
    /// Limit of a category at the moment when it is largest: --max activation=2GiB
    #[arg(long, value_name = "CATEGORY=SIZE")]
    pub max: Vec<CategoryLimit>,
    /// Limit of the peak within a phase, in any step: --max-phase optimizer=5GiB
    #[arg(long, value_name = "PHASE=SIZE")]
    pub max_phase: Vec<PhaseLimit>,
    /// Recording to compare with, such as the main branch's; names what grew where a budget is exceeded
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
    /// peak, reserved, step_growth, reserved_growth = a size ("5 GiB", or a number of bytes); growth = "5%" or a size; baseline = a file,
    /// from the folder of this one; metric = as in --metric; tables `category` and `phase` with a size for each name.
    #[arg(long, value_name = "FILE")]
    pub budgets: Option<PathBuf>,
    /// Memory total that the limits apply to, except --max-reserved [default: requested]
    #[arg(long, value_name = "M", value_parser = metric_parser())]
    pub metric: Option<Metric>,
    /// Device N [default: all GPUs, or host memory if there are none]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// Number of groups to list of the difference to the baseline
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
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// The budget of a category, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CategoryLimit(pub Category, pub u64);

impl FromStr for CategoryLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, size) = limit_of(text, "activation=2GiB")?;
        Ok(Self(category_of(name)?, parse_size(size)?))
    }
}

/// The budget of a phase, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseLimit(pub Phase, pub u64);

impl FromStr for PhaseLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, size) = limit_of(text, "optimizer=5GiB")?;
        Ok(Self(phase_of(name)?, parse_size(size)?))
    }
}

/// The category spelt `name`.
pub fn category_of(name: &str) -> Result<Category, String> {
    let known = || Category::ALL.iter().map(|category| category.name()).collect::<Vec<_>>().join(", ");
    let found = Category::ALL.iter().copied().find(|category| category.name() == name);
    let hint = || did_you_mean(name, Category::ALL.iter().map(|category| category.name()));
    found.ok_or_else(|| format!("no category '{name}'{}: they are {}", hint(), known()))
}

/// The phase spelt `name`.
pub fn phase_of(name: &str) -> Result<Phase, String> {
    let known = || Phase::ALL.iter().map(|phase| phase.name()).collect::<Vec<_>>().join(", ");
    let found = Phase::ALL.iter().copied().find(|phase| phase.name() == name);
    let hint = || did_you_mean(name, Phase::ALL.iter().map(|phase| phase.name()));
    found.ok_or_else(|| format!("no phase '{name}'{}: they are {}", hint(), known()))
}

fn limit_of<'a>(text: &'a str, example: &str) -> Result<(&'a str, &'a str), String> {
    let (name, size) = text.split_once('=').ok_or_else(|| format!("write a name and a size: {example}"))?;
    Ok((name.trim(), size))
}
