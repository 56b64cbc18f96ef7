//! Tests the recordings, tables and queries in `docs/ranks.md`, run as written there, in each engine.
//!
//! The engines come as Python packages, and `query.py` runs queries in them. For example, `pip3 install --target
//! target/duckdb duckdb` installs one, and `HIGHWATER_DUCKDB=target/duckdb` names its folder. Without the variable, and
//! where Python does not have the package, the engine's test says that it was skipped; with `HIGHWATER_REQUIRE_DUCKDB`
//! it fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use highwater_analysis::{Metric, Series};
use highwater_snapshots::format::{read_file, write_trace};
use serde::Deserialize;
use serde_json::Value;

use crate::binary::{highwater, stderr};

const PAGE: &str = include_str!("../../../docs/ranks.md");

/// The ranks of the page, and the one whose batch is longer.
const RANKS: u32 = 64;
const LONGER: u32 = 37;

/// A query engine in Python.
struct Engine {
    /// The name in the page.
    title: &'static str,
    /// The name in `query.py`, and its folder in `target`.
    name: &'static str,
    /// The package in pip.
    package: &'static str,
    /// The variable that names the folder of the package.
    folder: &'static str,
    /// The variable that makes its absence a failure.
    required: &'static str,
}

const DUCKDB: Engine = Engine {
    title: "DuckDB",
    name: "duckdb",
    package: "duckdb",
    folder: "HIGHWATER_DUCKDB",
    required: "HIGHWATER_REQUIRE_DUCKDB",
};

const DATAFUSION: Engine = Engine {
    title: "DataFusion",
    name: "datafusion",
    package: "datafusion",
    folder: "HIGHWATER_DATAFUSION",
    required: "HIGHWATER_REQUIRE_DATAFUSION",
};

/// Spark, as a cluster of two workers on this machine.
const SPARK: Engine = Engine {
    title: "Spark",
    name: "spark",
    package: "pyspark",
    folder: "HIGHWATER_SPARK",
    required: "HIGHWATER_REQUIRE_SPARK",
};

/// What `query.py` prints.
#[derive(Deserialize)]
struct Answers {
    answers: Vec<Answer>,
}

/// The answer to one query.
#[derive(Deserialize)]
struct Answer {
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Engine {
    /// Returns whether the engine runs. Panics if it does not but is required.
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn is_available(&self) -> bool {
        let Err(why) = self.run(Path::new("."), &[]) else { return true };
        let is_required = std::env::var_os(self.required).is_some_and(|value| !value.is_empty());
        assert!(!is_required, "{} is required and not available: {why}", self.title);
        let Self { title, name, package, folder, .. } = self;
        println!(
            "skipped: {title} is not available (pip3 install --target target/{name} {package}; {folder}=target/{name})"
        );
        false
    }

    /// Runs queries of the page, or other ones, over the data set in `folder`.
    fn run(&self, folder: &Path, queries: &[&str]) -> Result<Vec<Answer>, String> {
        // Tests run in the folder of their package, and the variable counts from that of the workspace.
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut python = Command::new("python3");
        python.arg(here.join("tests/cli/query.py")).arg(self.name).args(queries).current_dir(folder);
        if let Some(packages) = std::env::var_os(self.folder).filter(|packages| !packages.is_empty()) {
            python.env("PYTHONPATH", here.parent().unwrap().join(PathBuf::from(packages)));
        }
        let output = python.output().map_err(|why| format!("python3: {why}"))?;
        if !output.status.success() {
            return Err(stderr(&output));
        }
        let answers: Answers = serde_json::from_slice(&output.stdout).map_err(|why| why.to_string())?;
        Ok(answers.answers)
    }
}

/// The table after a mark of the page.
fn answer_of(name: &str) -> String {
    let mark = format!("<!-- answer: {name} -->\n\n");
    let (_, after) = PAGE.split_once(&mark).unwrap_or_else(|| panic!("docs/ranks.md has no answer '{name}'"));
    after.lines().take_while(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n")
}

/// An answer as the page has it.
fn as_table(answer: &Answer) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let rule = format!("|{}", "---|".repeat(answer.columns.len()));
    let rows = answer.rows.iter().map(|row| line(row.iter().map(text).collect()));
    [line(answer.columns.clone()), rule].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// The recordings of the page, in `ranks`. Ranks of one batch record the same, so that two are run and the others
/// copied.
fn record(folder: &Path) {
    fs::create_dir(folder.join("ranks")).unwrap();
    for (name, batch) in [("usual", 8), ("longer", 10)] {
        let output = highwater(folder, &format!("record gpt2 --steps 2 --batch {batch} --out {name}.snap --json"));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let [usual, longer] = ["usual", "longer"].map(|name| read_file(&folder.join(format!("{name}.snap"))).unwrap());
    for rank in 0..RANKS {
        let trace = if rank == LONGER { &longer } else { &usual };
        let trace = trace.clone().edited(|trace| {
            (trace.header.rank, trace.header.world_size) = (Some(rank), Some(RANKS));
        });
        let bytes = write_trace(Vec::new(), &trace).unwrap();
        fs::write(folder.join(format!("ranks/step.rank{rank}.snap")), bytes).unwrap();
    }
}

fn object(folder: &Path, words: &str) -> Value {
    let output = highwater(folder, words);
    assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every rank's peaks, its requested bytes after the last event that has a device, and the number of its events.
const OF_EACH_RANK: &str = "
with last as (select rank, max(event) as event from events where requested_bytes is not null group by rank)
select e.rank, max(e.allocated_bytes) as allocated, max(e.reserved_bytes) as reserved,
       max(case when e.event = l.event then e.requested_bytes end) as requested,
       count(*) filter (where e.kind <> 'start') as events
from events e join last l on e.rank = l.rank group by e.rank order by e.rank";

/// Runs the queries of the page in `engine`, if it is available: their answers are those of the page and of `info`.
fn check(engine: &Engine) {
    if !engine.is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    record(at);
    object(at, "convert ranks fleet --to parquet --json");
    let told = object(at, "info ranks --json");

    let recording = read_file(&at.join(format!("ranks/step.rank{LONGER}.snap"))).unwrap();
    let series = Series::build(&recording, recording.main_device());
    let (bytes, event) = series.peak(&recording, Metric::Allocated);
    let event = event.unwrap();
    let live_at_peak = format!(
        "select category, cast(sum(allocated_bytes) as bigint) as bytes from blocks where rank = {LONGER} \
         and alloc_event <= {0} and (free_event is null or free_event > {0}) group by category order by category",
        event.0
    );
    let answers = engine.run(at, &["outliers", "difference", OF_EACH_RANK, &live_at_peak]);
    let answers = answers.unwrap_or_else(|why| panic!("{}: {why}", engine.title));
    let [outliers, difference, of_each_rank, live] = answers.as_slice() else { panic!("an answer to each query") };

    let by_info = told["outliers"].as_array().unwrap().iter().filter(|outlier| outlier["metric"] == "allocated");
    let names = ["rank", "bytes", "median_bytes", "distance_bytes"];
    let expected: Vec<Vec<Value>> = by_info.map(|outlier| names.map(|name| outlier[name].clone()).to_vec()).collect();
    assert_eq!(outliers.rows, expected, "what the query finds is what info says");
    assert_eq!((outliers.rows.len(), &outliers.rows[0][0]), (1, &LONGER.into()));
    let stale = "docs/ranks.md has another answer: what a step of gpt2 takes has changed, so change the page";
    assert_eq!(as_table(outliers), answer_of("outliers"), "{stale}");
    assert_eq!(as_table(difference), answer_of("difference"), "{stale}");

    // Every rank's peak, end and number of events are those of its recording.
    assert_eq!(of_each_rank.rows.len(), RANKS as usize);
    for (row, rank) in of_each_rank.rows.iter().zip(told["ranks"].as_array().unwrap()) {
        let peak = |metric: &str| rank["peaks"][metric]["bytes"].clone();
        let expected =
            [&rank["rank"], &peak("allocated"), &peak("reserved"), &rank["end"]["requested"], &rank["events"]];
        assert_eq!(row.iter().collect::<Vec<_>>(), expected);
    }
    // The blocks that live at the peak of the outlier sum to it, category by category.
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for id in recording.blocks.ids().filter(|id| recording.blocks.get(*id).is_live_after(event)) {
        let block = recording.blocks.get(id);
        *sums.entry(block.category.name()).or_default() += block.allocated;
    }
    let found: BTreeMap<&str, u64> =
        live.rows.iter().map(|row| (row[0].as_str().unwrap(), row[1].as_u64().unwrap())).collect();
    assert_eq!(found, sums);
    assert_eq!(found.values().sum::<u64>(), bytes);
}

#[test]
fn the_queries_of_the_page_find_the_outlier_with_the_figures_of_info_in_duckdb() {
    check(&DUCKDB);
}

#[test]
fn the_queries_of_the_page_find_the_outlier_with_the_figures_of_info_in_datafusion() {
    check(&DATAFUSION);
}

#[test]
fn the_queries_of_the_page_find_the_outlier_with_the_figures_of_info_in_a_spark_cluster_of_two_workers() {
    check(&SPARK);
}
