//! Tests that the JSON Schemas in `docs/schema` describe the JSON output of each command for recordings of many kinds.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use expect_test::expect_file;
use highwater::{Arguments, Page, versioned};
use highwater_app::figures::events::events_table;
use highwater_app::report::{Content, Facts, Table, Unit, Value};
use highwater_notation::trace_from_text;
use highwater_pytorch::open::open_file;
use highwater_snapshots::EventId;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::trace::SIMULATION;
use serde_json::{Map, json};

use super::sample::{other_trace, trace};

/// What is recorded before commands are asked.
const RECORDED: [&str; 5] = [
    "record --list",
    "record gpt2 --layers 3 --width 96 --vocab 500 --batch 2 --seq 64 --steps 3 --out gpt2.snap",
    "record gpt2 --layers 3 --width 96 --vocab 500 --batch 2 --seq 64 --steps 2 --capacity 8MiB --out full.snap",
    "record gpt2 --layers 3 --width 96 --vocab 500 --batch 2 --seq 64 --steps 2 --device meta:cuda --out ranks/rank0.snap",
    "record gpt2 --layers 3 --width 96 --vocab 500 --batch 2 --seq 64 --steps 2 --device meta:cuda --foreach --out ranks/rank1.snap",
];

/// The questions whose answers a schema describes. `ALL` is each of [`ALL`] in turn.
const ASKED: [&str; 48] = [
    "info ALL",
    "info ranks",
    "peak ALL",
    "peak ALL --by stack --top 3 --blocks 3",
    "peak ALL --metric reserved --by pool,stream",
    "peak ALL --at start --by step,phase,op,size,lifetime",
    "peak gpt2.snap --by scope --each --where activation",
    "phases ALL",
    "explain ALL",
    "explain gpt2.snap --by stack --where activation",
    "growth ALL",
    "growth ALL --metric reserved",
    "oom ALL",
    "diff step.snap other.snap",
    "diff gpt2.snap --at step:1 --at-b step:2",
    "diff gpt2.snap full.snap --by stack,size --metric reserved",
    "diff gpt2.snap",
    "diff ranks ranks",
    "check ALL --max-peak 1KiB",
    "check gpt2.snap --max-peak 100GiB --max-reserved 100GiB --max-step-growth 0B",
    "check full.snap --max-peak 100GiB",
    "check other.snap --baseline step.snap --max-growth 1%",
    "check ranks/rank1.snap --baseline ranks/rank0.snap --max-growth 1%",
    "events ALL --to 400",
    "events gpt2.snap --kind phase",
    "whatif ALL",
    "whatif ranks/rank0.snap",
    "whatif ranks/rank0.snap --alloc-conf expandable_segments:True",
    "whatif ranks/rank0.snap --capacity 30MiB",
    "whatif ranks/rank0.snap --capacity 1GiB",
    "whatif gpt2.snap --without category=gradient --out without.snap",
    "whatif gpt2.snap --scale 1/2:category=activation",
    "whatif gpt2.snap --checkpoint h.*",
    "plan gpt2.snap --budget 7MiB",
    "plan gpt2.snap --budget 1MiB",
    "plan gpt2.snap --budget 12MiB --maximize batch",
    "plan full.snap --budget 8MiB",
    "verify ALL",
    "convert gpt2.snap part.snap --events 100..900",
    "convert gpt2.snap gpt2.pickle",
    "convert gpt2.snap gpt2.folded",
    "convert ranks --to parquet tables",
    "join step.snap other.snap --out joined.snap",
    "render gpt2.snap --out gpt2.svg --size 640x400",
    "render step.snap other.snap --view diff --out diff.svg --size 640x400",
    "symbolize step.snap",
    "info joined.snap",
    "info without.snap",
];

/// Recordings of many kinds.
const ALL: [&str; 20] = [
    "step.snap",
    "falling.snap",
    "gpt2.snap",
    "full.snap",
    "oom.pickle",
    "two_devices.pickle.gz",
    "train_from_zero.pickle.gz",
    "pools.pickle",
    "context_state.pickle",
    "annotations.pickle.gz",
    "skipped_segments.pickle",
    "oom_observed.pickle",
    "other_values.pickle",
    "unknown.pickle",
    "list_of_segments.pickle",
    "two_streams.pickle",
    "ring_wrapped.pickle.gz",
    "expandable_holes.pickle",
    "pinned.pickle",
    "snapshot.json",
];

/// Objects whose names are data, such as the names of categories.
const MAPS: [&str; 4] = ["at_peak", "by_category", "keys", "settings"];

/// What values at one place of an object were, and whether they are described as optional.
#[derive(Debug, Default)]
struct Shape {
    types: BTreeSet<&'static str>,
    may_be_null: bool,
    /// The properties of objects, and in how many objects each was.
    properties: BTreeMap<String, (u64, Self)>,
    objects: u64,
    items: Option<Box<Self>>,
}

impl Shape {
    /// The shape of a property, in which one more object has it.
    fn property(&mut self, name: &str) -> &mut Self {
        let (count, shape) = self.properties.entry(name.to_owned()).or_default();
        *count += 1;
        shape
    }

    fn begin_object(&mut self) {
        self.types.insert("object");
        self.objects += 1;
    }

    fn items(&mut self) -> &mut Self {
        self.types.insert("array");
        self.items.get_or_insert_default()
    }

    fn take_facts(&mut self, facts: &Facts<'_>) {
        self.begin_object();
        for (name, fact) in &facts.0 {
            if matches!(fact.content, Content::Value(Value::Absent)) {
                continue;
            }
            let shape = self.property(name);
            shape.may_be_null |= fact.is_optional;
            match &fact.content {
                Content::Value(value) => shape.take(value),
                Content::Facts(facts) => shape.take_facts(facts),
                Content::Table(table) => shape.take_table(table),
                Content::List(list) => {
                    let items = shape.items();
                    list.iter().for_each(|facts| items.take_facts(facts));
                }
            }
        }
    }

    /// Also a table without rows has its columns.
    fn take_table(&mut self, table: &Table<'_>) {
        let items = self.items();
        for column in table.columns().iter().filter(|column| column.is_in_json()) {
            let (_, shape) = items.properties.entry(column.key.to_owned()).or_default();
            shape.may_be_null |= column.may_lack_values;
            if matches!(column.unit, Unit::Bytes | Unit::Difference | Unit::Count) {
                shape.types.insert("integer");
            }
        }
        items.types.insert("object");
        self.take(&table.list());
    }

    fn take(&mut self, value: &Value) {
        let kind = match value {
            Value::Absent => return,
            Value::Nothing => {
                self.may_be_null = true;
                return;
            }
            Value::Number(_) | Value::Difference(_) => "integer",
            Value::Fraction(_) => "number",
            Value::Flag(_) => "boolean",
            Value::Text(_) => "string",
            Value::List(values) => {
                let items = self.items();
                return values.iter().for_each(|value| items.take(value));
            }
            Value::Map(fields) => {
                self.begin_object();
                for (name, field) in fields.iter().filter(|(_, field)| field.value != Value::Absent) {
                    let shape = self.property(name);
                    shape.may_be_null |= field.is_optional;
                    shape.take(&field.value);
                }
                return;
            }
            Value::Json(value) => return self.take_json(value),
        };
        self.types.insert(kind);
    }

    /// Of values of other types nothing is known but what they are, so that all but lists may be null.
    fn take_json(&mut self, value: &serde_json::Value) {
        let kind = match value {
            serde_json::Value::Array(values) => {
                let items = self.items();
                return values.iter().for_each(|value| items.take_json(value));
            }
            serde_json::Value::Object(object) => {
                self.begin_object();
                for (name, value) in object {
                    let shape = self.property(name);
                    shape.may_be_null |= !value.is_array();
                    shape.take_json(value);
                }
                return;
            }
            serde_json::Value::Null => {
                self.may_be_null = true;
                return;
            }
            serde_json::Value::Bool(_) => "boolean",
            serde_json::Value::Number(number) if number.is_f64() => "number",
            serde_json::Value::Number(_) => "integer",
            serde_json::Value::String(_) => "string",
        };
        self.types.insert(kind);
    }

    /// Adds what another answer of the same command has.
    fn merge(&mut self, other: Self) {
        self.types.extend(other.types);
        self.may_be_null |= other.may_be_null;
        self.objects += other.objects;
        for (name, (count, shape)) in other.properties {
            let (all, own) = self.properties.entry(name).or_default();
            *all += count;
            own.merge(shape);
        }
        if let Some(items) = other.items {
            self.items.get_or_insert_default().merge(*items);
        }
    }

    /// The same as a schema; `name` is the property whose value it is.
    fn schema(&self, name: &str) -> serde_json::Value {
        let mut schema = Map::new();
        let mut types: BTreeSet<&str> = self.types.clone();
        if types.contains("number") {
            types.remove("integer");
        }
        // Nothing is known of values that were all null.
        if self.may_be_null && !types.is_empty() {
            types.insert("null");
        }
        match types.iter().copied().collect::<Vec<&str>>().as_slice() {
            [] => {}
            [one] => drop(schema.insert("type".into(), json!(one))),
            many => drop(schema.insert("type".into(), json!(many))),
        }
        if let Some(items) = &self.items {
            schema.insert("items".into(), items.schema(name));
        }
        if self.types.contains("object") && MAPS.contains(&name) {
            let mut values = Self::default();
            for (_, shape) in self.properties.values() {
                values.types.extend(&shape.types);
                values.may_be_null |= shape.may_be_null;
            }
            schema.insert("additionalProperties".into(), values.schema("value"));
        } else if self.types.contains("object") {
            let properties = self.properties.iter().map(|(name, (_, shape))| (name.clone(), shape.schema(name)));
            schema.insert("properties".into(), properties.collect());
            if name.is_empty() {
                let required = self.properties.iter().filter(|(_, (count, _))| *count == self.objects);
                schema.insert("required".into(), required.map(|(name, _)| name.as_str()).collect());
            }
        }
        let units =
            [("_us", "microseconds"), ("bytes", "bytes")].into_iter().find(|(ending, _)| name.ends_with(ending));
        if let Some((_, unit)) = units.filter(|_| self.types.contains("integer")) {
            schema.insert("description".into(), json!(unit));
        }
        serde_json::Value::Object(schema)
    }
}

/// The names of files and folders in the questions.
fn is_file(word: &str) -> bool {
    let endings = [".snap", ".pickle", ".gz", ".json", ".folded", ".svg", ".sh"];
    ["ranks", "tables"].contains(&word) || endings.iter().any(|ending| word.ends_with(ending))
}

/// The shape of the answer to a command in `folder`.
fn shape(folder: &Path, words: &str) -> Shape {
    let words = words.split(' ').map(|word| if is_file(word) { folder.join(word) } else { word.into() });
    let words: Vec<PathBuf> = std::iter::once("highwater".into()).chain(words).collect();
    if words[1] == Path::new("events") {
        return shape_of_events(&words[2]);
    }
    let arguments = Arguments::try_parse_from(&words).unwrap_or_else(|why| panic!("{words:?}: {why}"));
    let (mut text, mut shape) = (Vec::new(), None);
    let mut keep = |facts: Facts<'_>| {
        let mut found = Shape::default();
        found.take_facts(&versioned(facts));
        // `simulate` prints the peak too.
        shape.get_or_insert(found);
    };
    let answered = arguments.command.unwrap().run(&mut Page::plain(&mut text).with_facts(&mut keep));
    answered.unwrap_or_else(|why| panic!("{words:?}: {why}"));
    shape.unwrap_or_else(|| panic!("{words:?} has no facts"))
}

/// The events are written one by one, from tables.
fn shape_of_events(file: &Path) -> Shape {
    let trace = open_file(file, &mut |_| ControlFlow::Continue(())).unwrap().trace;
    let ids: Vec<EventId> = (0..trace.events.len().min(400)).map(EventId::from_index).collect();
    let stacks = RefCell::default();
    let (events, problems) = (events_table(&trace, &ids, &stacks), Vec::<String>::new());
    let mut shape = Shape::default();
    shape.take_facts(&versioned(Facts::new([("problems", problems.into()), ("events", events.into())])));
    shape
}

/// Simulates programs that write such recordings as PyTorch's would be, with notes about the simulation.
fn shape_of_simulations(folder: &Path) -> Shape {
    let read =
        r#"{"name": "8 bytes", "file": "train.py", "line": 3, "function": "main", "text": "x.item()", "count": 2}"#;
    let unknown = r#"{"name": "cudnnFind", "file": null, "line": null, "function": null, "text": "", "count": 1}"#;
    let notes = [
        ("plain", "{}".to_owned()),
        ("reads", format!(r#"{{"reads": [{read}], "read_order": [[0, 0]], "is_stopped": true, "skipped_bytes": 5}}"#)),
        ("unknown", format!(r#"{{"unknown_workspaces": [{unknown}], "autotuned": [{read}], "missing": [{unknown}]}}"#)),
    ];
    for (name, from) in [("plain", "ranks/rank0.snap"), ("ones", "ranks/rank1.snap"), ("full", "full.snap")] {
        let opened = open_file(&folder.join(from), &mut |_| ControlFlow::Continue(())).unwrap();
        for (noted, json) in &notes {
            let trace = opened.trace.clone().edited(|trace| {
                trace.header.facts.push(("torch".to_owned(), "2.9.0".to_owned()));
                trace.header.facts.retain(|(name, _)| name != SIMULATION);
                trace.header.facts.push((SIMULATION.to_owned(), json.clone()));
            });
            let file = folder.join(format!("{name}-{noted}.snap"));
            std::fs::write(file, write_trace(Vec::new(), &trace).unwrap()).unwrap();
        }
    }
    let mut shapes = Shape::default();
    let programs = [("plain-plain", "ones-plain", 0), ("plain-reads", "ones-reads", 0), ("plain-unknown", "", 0)];
    for (zeros, ones, status) in programs.into_iter().chain([("full-plain", "", 1), ("plain-reads", "", 3)]) {
        let script = format!(
            "from={zeros}\ntest -z \"$HIGHWATER_SIMULATE_ASSUMES_ONES\" || from={ones}\n\
             cp {0}/$from.snap \"$HIGHWATER_SIMULATE_FOLDER/7.snap\"\nexit {status}\n",
            folder.display()
        );
        std::fs::write(folder.join("program.sh"), script).unwrap();
        let bounds = if ones.is_empty() { "" } else { " --bounds" };
        shapes.merge(shape(folder, &format!("simulate --gpu a100{bounds} --out simulated.snap -- sh program.sh")));
    }
    shapes
}

#[test]
fn schemas_describe_what_commands_print() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("ranks")).unwrap();
    let falling = trace_from_text(
        "baseline w 4096\nattribute shape \"[32, 32] float32\"\nbaseline_segment 0x0 2097152\nfree w\n",
    )
    .unwrap();
    for (name, trace) in [("step.snap", trace()), ("other.snap", other_trace()), ("falling.snap", falling)] {
        std::fs::write(folder.join(name), write_trace(Vec::new(), &trace).unwrap()).unwrap();
    }
    for name in ALL.iter().filter(|name| !name.ends_with(".snap")) {
        std::fs::copy(root.join("../snapshots/pytorch/testdata").join(name), folder.join(name)).unwrap();
    }
    // One after the other: commands share workers, and one that waits in a worker could stop the others.
    let mut asked: Vec<String> = RECORDED.iter().map(|words| (*words).to_owned()).collect();
    let mut answers: Vec<Shape> = asked.iter().map(|words| shape(folder, words)).collect();
    // A recording names the program that can record it again, which here is this test.
    for words in &asked {
        let Some((_, file)) = words.split_once(" --out ") else { continue };
        let file = folder.join(file);
        let trace = open_file(&file, &mut |_| ControlFlow::Continue(()))
            .unwrap()
            .trace
            .edited(|trace| trace.header.program = format!("highwater {words}"));
        std::fs::write(file, write_trace(Vec::new(), &trace).unwrap()).unwrap();
    }
    let questions = ASKED.iter().flat_map(|words| match words.contains("ALL") {
        true => ALL.iter().map(|file| words.replace("ALL", file)).collect(),
        false => vec![(*words).to_owned()],
    });
    let (alone, questions): (Vec<String>, Vec<String>) = questions.partition(|words| words.starts_with("plan"));
    answers.extend(alone.iter().map(|words| shape(folder, words)));
    // What reads a file that another command writes comes last.
    let (first, last) = questions.split_at(questions.len() - 2);
    answers.extend(first.iter().map(|words| shape(folder, words)));
    answers.extend(last.iter().map(|words| shape(folder, words)));
    asked.extend(alone.into_iter().chain(questions));
    asked.push("simulate".to_owned());
    answers.push(shape_of_simulations(folder));
    let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
    for (words, answer) in asked.iter().zip(answers) {
        let mut words = words.split(' ');
        let command = words.next().unwrap_or_default();
        let kind = match words.next() {
            Some("ranks") => "-folder",
            Some("--list") => "-list",
            _ => "",
        };
        shapes.entry(format!("{command}{kind}")).or_default().merge(answer);
    }
    let schemas = root.join("../docs/schema");
    let names = std::fs::read_dir(&schemas).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names {
        assert!(shapes.contains_key(name.trim_end_matches(".json")), "docs/schema/{name} is of no command");
    }
    for (command, shape) in shapes {
        let mut schema = Map::new();
        schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        schema.insert(
            "title".into(),
            json!(format!("highwater {} --json", command.replace("-folder", " FOLDER").replace("-list", " --list"))),
        );
        let serde_json::Value::Object(own) = shape.schema("") else { unreachable!("a schema is an object") };
        schema.extend(own);
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        expect_file![schemas.join(format!("{command}.json"))].assert_eq(&text);
    }
}
