//! The budgets of `check`, from the command line and from a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use highwater_analysis::Metric;
use highwater_analysis::budget::{Allowance, Budget};
use highwater_app::files::is_stdin;
use highwater_snapshots::parse_size;
use serde::Deserialize;

use crate::commands::check::{CheckArguments, category_of, phase_of};
use crate::output::{Failure, unreadable};

/// The budgets, and the total limited by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// The budgets in the order of reports, at most one of each name.
    pub rows: Vec<Budget>,
    /// The total that the budgets limit, except those of reserved memory.
    pub metric: Metric,
    /// The recording to compare with, if one is given.
    pub baseline: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetsFile {
    metric: Option<String>,
    baseline: Option<PathBuf>,
    peak: Option<Size>,
    reserved: Option<Size>,
    growth: Option<Size>,
    step_growth: Option<Size>,
    reserved_growth: Option<Size>,
    #[serde(default)]
    category: BTreeMap<String, Size>,
    #[serde(default)]
    phase: BTreeMap<String, Size>,
}

/// A size as written in the file: a number of bytes, or text with a unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    fn bytes(&self) -> Result<u64, String> {
        match self {
            Self::Bytes(bytes) => Ok(*bytes),
            Self::Text(text) => parse_size(text),
        }
    }

    fn allowance(&self) -> Result<Allowance, String> {
        match self {
            Self::Bytes(bytes) => Ok(Allowance::Bytes(*bytes)),
            Self::Text(text) => text.parse(),
        }
    }
}

impl Budgets {
    /// Reads the budget file, if one is given. Options on the command line take precedence.
    pub fn of(arguments: &CheckArguments) -> Result<Self, Failure> {
        let mut budgets = match &arguments.budgets {
            Some(file) => Self::read(file)?,
            None => Self { rows: Vec::new(), metric: Metric::default(), baseline: None },
        };
        budgets.metric = arguments.metric.unwrap_or(budgets.metric);
        budgets.baseline = arguments.baseline.clone().or(budgets.baseline);
        let stated = [
            arguments.max_peak.map(Budget::Peak),
            arguments.max_reserved.map(Budget::Reserved),
            arguments.max_growth.map(Budget::Growth),
            arguments.max_step_growth.map(Budget::StepGrowth),
            arguments.max_reserved_growth.map(Budget::ReservedGrowth),
        ];
        let stated = stated.into_iter().flatten();
        let of_categories = arguments.max.iter().map(|limit| Budget::Category(limit.0, limit.1));
        let of_phases = arguments.max_phase.iter().map(|limit| Budget::Phase(limit.0, limit.1));
        for budget in stated.chain(of_categories).chain(of_phases) {
            // Of two budgets with the same name, the later one counts.
            budgets.rows.retain(|other| other.to_string() != budget.to_string());
            budgets.rows.push(budget);
        }
        budgets.rows.sort_by_key(rank);
        budgets.refuse_what_is_missing(arguments)?;
        Ok(budgets)
    }

    fn refuse_what_is_missing(&self, arguments: &CheckArguments) -> Result<(), Failure> {
        if self.rows.is_empty() {
            let text = "nothing to check: give --max-peak SIZE, --max-reserved SIZE, --max CATEGORY=SIZE, \
                        --max-phase PHASE=SIZE, --max-step-growth SIZE, --max-reserved-growth SIZE, --baseline FILE --max-growth PCT, or --budgets FILE";
            return Err(Failure::Usage(text.to_owned()));
        }
        let needs_baseline = self.rows.iter().any(|budget| matches!(budget, Budget::Growth(_)));
        if needs_baseline && self.baseline.is_none() {
            return Err(Failure::Usage("--max-growth needs --baseline FILE, the recording to compare with".to_owned()));
        }
        let is_stdin_twice = is_stdin(&arguments.source.file) && self.baseline.as_deref().is_some_and(is_stdin);
        if is_stdin_twice {
            return Err(Failure::Usage("standard input can be the recording or the baseline, not both".to_owned()));
        }
        Ok(())
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|why| unreadable(path, why))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).map_err(|why| Failure::Usage(format!("{}: {why}", path.display())))
    }

    /// Parses the text of a budget file in `folder`, to which the path of the baseline is relative.
    fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let file: BudgetsFile = toml::from_str(text).map_err(|why| line_and_reason(text, &why))?;
        let named = |name: &str, why: String| format!("{name}: {why}");
        let bytes = |name: &str, size: &Option<Size>| {
            size.as_ref().map(Size::bytes).transpose().map_err(|why| named(name, why))
        };
        let metric = match file.metric.as_deref() {
            None => Metric::default(),
            Some(name) => Metric::from_name(&name.replace('-', "_")).ok_or_else(|| {
                let known = Metric::ALL.map(Metric::name).join(", ");
                format!("metric: invalid value '{name}': expected one of {known}")
            })?,
        };
        let mut rows = Vec::new();
        rows.extend(bytes("peak", &file.peak)?.map(Budget::Peak));
        rows.extend(bytes("reserved", &file.reserved)?.map(Budget::Reserved));
        for (name, size) in &file.category {
            let limit = category_of(name).and_then(|category| Ok(Budget::Category(category, size.bytes()?)));
            rows.push(limit.map_err(|why| named("[category]", why))?);
        }
        for (name, size) in &file.phase {
            let limit = phase_of(name).and_then(|phase| Ok(Budget::Phase(phase, size.bytes()?)));
            rows.push(limit.map_err(|why| named("[phase]", why))?);
        }
        let growth = file.growth.as_ref().map(Size::allowance).transpose().map_err(|why| named("growth", why))?;
        rows.extend(growth.map(Budget::Growth));
        rows.extend(bytes("step_growth", &file.step_growth)?.map(Budget::StepGrowth));
        rows.extend(bytes("reserved_growth", &file.reserved_growth)?.map(Budget::ReservedGrowth));
        Ok(Self { rows, metric, baseline: file.baseline.map(|file| folder.join(file)) })
    }
}

/// Formats an error as the number of its line and the first line of its message.
fn line_and_reason(text: &str, why: &toml::de::Error) -> String {
    let before = why.span().and_then(|span| text.get(..span.start));
    let line = before.map_or_else(String::new, |before| format!("line {}: ", before.matches('\n').count() + 1));
    format!("{line}{}", why.message().lines().next().unwrap_or_default())
}

/// Returns the position of a budget in reports.
fn rank(budget: &Budget) -> (u8, u8) {
    match budget {
        Budget::Peak(_) => (0, 0),
        Budget::Growth(_) => (1, 0),
        Budget::Reserved(_) => (2, 0),
        Budget::Category(category, _) => (3, *category as u8),
        Budget::Phase(phase, _) => (4, *phase as u8),
        Budget::StepGrowth(_) => (5, 0),
        Budget::ReservedGrowth(_) => (6, 0),
    }
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::{Category, Phase};

    use super::*;

    #[test]
    fn a_file_of_budgets_is_read_with_units_and_from_its_own_folder() {
        let text = "# main branch\nmetric = \"allocated\"\nbaseline = \"main.snap\"\npeak = \"5 GiB\"\ngrowth = \"2.5%\"\n\
                    step_growth = 0\nreserved_growth = \"2 MiB\"\n[category]\nactivation = 1048576\n[phase]\noptimizer = \"1MiB\"\n";
        let budgets = Budgets::parse(text, Path::new("ci")).unwrap();
        assert_eq!((budgets.metric, budgets.baseline), (Metric::Allocated, Some(PathBuf::from("ci/main.snap"))));
        let expected = [
            Budget::Peak(5 << 30),
            Budget::Category(Category::Activation, 1 << 20),
            Budget::Phase(Phase::Optimizer, 1 << 20),
            Budget::Growth(Allowance::Share(2_500_000)),
            Budget::StepGrowth(0),
            Budget::ReservedGrowth(2 << 20),
        ];
        assert_eq!(budgets.rows, expected);
    }

    #[test]
    fn mistakes_in_a_file_of_budgets_say_where_and_what_is_allowed() {
        let why = |text: &str| Budgets::parse(text, Path::new("")).unwrap_err();
        assert!(why("peak = \"lots\"").contains("peak: unknown unit 'lots'"), "{}", why("peak = \"lots\""));
        assert!(why("\npaek = 3").starts_with("line 2: unknown field `paek`"), "{}", why("\npaek = 3"));
        assert!(why("[category]\nweights = 3").contains("unknown category 'weights': expected one of parameter"));
        assert!(why("[phase]\nnight = 3").contains("unknown phase 'night'"));
        assert!(why("metric = \"weight\"").contains("expected one of requested"));
        assert!(why("growth = \"5 apples\"").contains("such as 5% or 200MiB"));
        assert!(why("peak = -3").starts_with("line 1"), "{}", why("peak = -3"));
        assert!(why("peak 3").starts_with("line 1"));
    }
}
