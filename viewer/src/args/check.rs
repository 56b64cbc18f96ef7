//! Check: the options of `highwater check`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use highwater_snapshots::analysis::Metric;
use highwater_snapshots::analysis::budget::Allowance;
use highwater_snapshots::units::parse_bytes;
use highwater_snapshots::{Category, Phase};

use super::values::metric_parser;
use super::{CategoryChoice, Source};

/// Groups that are named of the difference to the baseline.
const TOP: usize = 8;

/// `highwater check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: Source,
    /// The largest total may be SIZE, such as 5GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_peak: Option<u64>,
    /// The largest `reserved` may be SIZE
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_reserved: Option<u64>,
    /// The blocks of a category together may take SIZE, at whatever moment they take most: --max activation=2GiB
    #[arg(long, value_name = "CATEGORY=SIZE")]
    pub max: Vec<CategoryLimit>,
    /// The largest total within a phase may be SIZE, in whatever step: --max-phase optimizer=5GiB
    #[arg(long, value_name = "PHASE=SIZE")]
    pub max_phase: Vec<PhaseLimit>,
    /// The recording to compare with, as of the main branch; it also tells what grew where another budget is broken
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// The peak may exceed that of the baseline by so much: a share such as 5% (a bare number is one), or a size such as
    /// 200MiB
    #[arg(long, value_name = "PCT|SIZE")]
    pub max_growth: Option<Allowance>,
    /// Each step may add SIZE on average, from the second to the last whole one: 0B lets nothing leak
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_step_growth: Option<u64>,
    /// Read budgets from a TOML file; what stands on the command line goes before
    ///
    /// peak, reserved, step_growth = a size ("5 GiB", or a number of bytes); growth = "5%" or a size; baseline = a file,
    /// from the folder of this one; metric = as in --metric; tables `category` and `phase` with a size for each name.
    #[arg(long, value_name = "FILE")]
    pub budgets: Option<PathBuf>,
    /// The total whose peaks are meant, but for --max-reserved [default: requested]
    #[arg(long, value_name = "M", value_parser = metric_parser())]
    pub metric: Option<Metric>,
    /// Check only device N [default: all, host memory only if there is nothing else]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// Name the K groups that differ most from the baseline
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// Also write the answer as Markdown, for a pull request; `-` is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Also draw the recording's timeline, beside the baseline's if there is one, as .png or .svg; the Markdown shows it
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Also print a line `::error …` for each broken budget, which GitHub Actions shows with the run
    #[arg(long, conflicts_with = "json")]
    pub github: bool,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// What the blocks of a category may take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CategoryLimit(pub Category, pub u64);

impl FromStr for CategoryLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, bytes) = limit_of(text, "activation=2GiB")?;
        Ok(Self(category_of(name)?, bytes))
    }
}

/// What may be taken within a phase, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseLimit(pub Phase, pub u64);

impl FromStr for PhaseLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, bytes) = limit_of(text, "optimizer=5GiB")?;
        Ok(Self(phase_of(name)?, bytes))
    }
}

/// The category spelt `name`.
pub fn category_of(name: &str) -> Result<Category, String> {
    let known = || Category::ALL.iter().map(|category| category.name()).collect::<Vec<_>>().join(", ");
    let found = Category::ALL.iter().copied().find(|category| category.name() == name);
    found.ok_or_else(|| format!("no category '{name}': they are {}", known()))
}

/// The phase spelt `name`.
pub fn phase_of(name: &str) -> Result<Phase, String> {
    let known = || Phase::ALL.iter().map(|phase| phase.name()).collect::<Vec<_>>().join(", ");
    let found = Phase::ALL.iter().copied().find(|phase| phase.name() == name);
    found.ok_or_else(|| format!("no phase '{name}': they are {}", known()))
}

fn limit_of<'a>(text: &'a str, example: &str) -> Result<(&'a str, u64), String> {
    let (name, size) = text.split_once('=').ok_or_else(|| format!("write a name and a size: {example}"))?;
    Ok((name.trim(), parse_bytes(size)?))
}
