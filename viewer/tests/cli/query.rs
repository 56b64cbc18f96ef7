//! Query: the recordings, tables and queries of `docs/ranks.md`, made and run as they stand there.
//!
//! DuckDB comes as a Python package: `pip3 install --target target/duckdb duckdb`, then `HIGHWATER_DUCKDB=target/duckdb`
//! names the folder. Without it, and where Python does not have it, the test says that it was skipped; with
//! `HIGHWATER_REQUIRE_DUCKDB` it fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use highwater_analysis::{Metric, Series};
use highwater_snapshots::format::{read_file, write_trace};
use serde_json::Value;

use crate::binary::{highwater, stderr};

const PAGE: &str = include_str!("../../../docs/ranks.md");

/// The ranks of the page, and the one whose batch is longer.
const RANKS: u32 = 64;
const LONGER: u32 = 37;

/// Runs statements, and prints the answer to the last one: an array of names, then one of each row.
const RUN: &str = "
import duckdb, json, sys
connection = duckdb.connect()
for statement in sys.argv[1:]:
    answer = connection.execute(statement)
print(json.dumps([[column[0] for column in answer.description], *answer.fetchall()]))
";

/// DuckDB in Python, run in one folder.
struct Engine {
    packages: Option<PathBuf>,
}

impl Engine {
    /// The engine, if it is there; fails where it must be.
    fn find() -> Option<Self> {
        let packages = std::env::var_os("HIGHWATER_DUCKDB").filter(|folder| !folder.is_empty());
        // Tests run in the folder of their package, and the variable counts from that of the workspace.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let engine = Self { packages: packages.map(|folder| root.join(folder)) };
        let found = engine.run(Path::new("."), &["select 1 as one"]);
        match found {
            Ok(_) => Some(engine),
            Err(why) => {
                let is_required = std::env::var_os("HIGHWATER_REQUIRE_DUCKDB").is_some_and(|value| !value.is_empty());
                assert!(!is_required, "DuckDB is required and not there: {why}");
                None
            }
        }
    }

    fn run(&self, folder: &Path, statements: &[&str]) -> Result<Vec<Vec<Value>>, String> {
        let mut python = Command::new("python3");
        python.args(["-c", RUN]).args(statements).current_dir(folder);
        if let Some(packages) = &self.packages {
            python.env("PYTHONPATH", packages);
        }
        let output = python.output().map_err(|why| format!("python3: {why}"))?;
        serde_json::from_slice(&output.stdout).map_err(|_| stderr(&output))
    }

    /// The answer to the query that the page calls `name`.
    fn ask(&self, folder: &Path, query: &str) -> Vec<Vec<Value>> {
        let tables = query_of("tables");
        let statements: Vec<&str> =
            tables.split(';').map(str::trim).filter(|statement| !statement.is_empty()).chain([query]).collect();
        self.run(folder, &statements).unwrap_or_else(|why| panic!("{query}\n{why}"))
    }
}

/// The text between the next two lines of three backticks after a mark of the page.
fn query_of(name: &str) -> &'static str {
    let mark = format!("<!-- query: {name} -->\n```sql\n");
    let (_, after) = PAGE.split_once(&mark).unwrap_or_else(|| panic!("docs/ranks.md has no query '{name}'"));
    after.split("\n```").next().unwrap()
}

/// The table after a mark of the page.
fn answer_of(name: &str) -> String {
    let mark = format!("<!-- answer: {name} -->\n\n");
    let (_, after) = PAGE.split_once(&mark).unwrap_or_else(|| panic!("docs/ranks.md has no answer '{name}'"));
    after.lines().take_while(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n")
}

/// An answer as the page has it.
fn as_table(answer: &[Vec<Value>]) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let line = |row: &Vec<Value>| format!("| {} |", row.iter().map(text).collect::<Vec<_>>().join(" | "));
    let rule = format!("|{}", "---|".repeat(answer[0].len()));
    let mut lines: Vec<String> = answer.iter().map(line).collect();
    lines.insert(1, rule);
    lines.join("\n")
}

/// The recordings of the page, in `ranks`. Ranks of one batch record the same, so that two are run and the others copied.
fn record(folder: &Path) {
    fs::create_dir(folder.join("ranks")).unwrap();
    for (name, batch) in [("usual", 8), ("longer", 10)] {
        let output = highwater(folder, &format!("record gpt2 --steps 2 --batch {batch} --out {name}.snap --json"));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let [mut usual, mut longer] =
        ["usual", "longer"].map(|name| read_file(&folder.join(format!("{name}.snap"))).unwrap());
    for rank in 0..RANKS {
        let trace = if rank == LONGER { &mut longer } else { &mut usual };
        (trace.header.rank, trace.header.world_size) = (Some(rank), Some(RANKS));
        let bytes = write_trace(Vec::new(), trace).unwrap();
        fs::write(folder.join(format!("ranks/step.rank{rank}.snap")), bytes).unwrap();
    }
}

fn object(folder: &Path, words: &str) -> Value {
    let output = highwater(folder, words);
    assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn the_queries_of_the_page_find_the_outlier_with_the_figures_of_info() {
    let Some(engine) = Engine::find() else {
        println!(
            "skipped: DuckDB is not there (pip3 install --target target/duckdb duckdb; HIGHWATER_DUCKDB=target/duckdb)"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    record(at);
    object(at, "convert ranks fleet --to parquet --json");
    let told = object(at, "info ranks --json");

    let outliers = engine.ask(at, query_of("outliers"));
    let by_info: Vec<&Value> =
        told["outliers"].as_array().unwrap().iter().filter(|outlier| outlier["metric"] == "allocated").collect();
    let names = ["rank", "bytes", "median_bytes", "distance_bytes"];
    let expected: Vec<Vec<Value>> =
        by_info.iter().map(|outlier| names.map(|name| outlier[name].clone()).to_vec()).collect();
    assert_eq!(outliers[1..], expected, "what the query finds is what info says");
    assert_eq!((outliers.len(), &outliers[1][0]), (2, &LONGER.into()));
    let stale = "docs/ranks.md has another answer: what a step of gpt2 takes has changed, so change the page";
    assert_eq!(as_table(&outliers), answer_of("outliers"), "{stale}");

    let difference = engine.ask(at, query_of("difference"));
    assert_eq!(as_table(&difference), answer_of("difference"), "{stale}");

    // Every rank's peak, end and number of events are those of its recording.
    let all = "select rank, max(allocated_bytes), max(reserved_bytes), max_by(requested_bytes, event), \
               count(*) filter (where kind <> 'start') from events group by rank order by rank";
    let rows = engine.ask(at, all);
    assert_eq!(rows.len() - 1, RANKS as usize);
    for (row, rank) in rows[1..].iter().zip(told["ranks"].as_array().unwrap()) {
        let peak = |metric: &str| rank["peaks"][metric]["bytes"].clone();
        let expected =
            [&rank["rank"], &peak("allocated"), &peak("reserved"), &rank["end"]["requested"], &rank["events"]];
        assert_eq!(row.iter().collect::<Vec<_>>(), expected);
    }
    // The blocks that live at the peak of the outlier sum to it, category by category.
    let recording = read_file(&at.join(format!("ranks/step.rank{LONGER}.snap"))).unwrap();
    let series = Series::build(&recording, recording.main_device());
    let (bytes, event) = series.peak(&recording, Metric::Allocated);
    let event = event.unwrap();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for id in recording.blocks.ids().filter(|id| recording.blocks.get(*id).is_live_after(event)) {
        let block = recording.blocks.get(id);
        *sums.entry(block.category.name()).or_default() += block.allocated;
    }
    let held = format!(
        "select category, cast(sum(allocated_bytes) as bigint) from blocks where rank = {LONGER} \
         and alloc_event <= {0} and (free_event is null or free_event > {0}) group by category order by category",
        event.0
    );
    let held = engine.ask(at, &held);
    let found: BTreeMap<&str, u64> =
        held[1..].iter().map(|row| (row[0].as_str().unwrap(), row[1].as_u64().unwrap())).collect();
    assert_eq!(found, sums);
    assert_eq!(found.values().sum::<u64>(), bytes);
}
