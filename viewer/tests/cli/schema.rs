//! The JSON Schemas of `docs/schema`: each describes the JSON object of a command, as printed about recordings of many
//! kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use expect_test::expect_file;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::text::trace_from_text;
use rayon::prelude::*;
use serde_json::{Map, Value, json};

use super::binary::highwater;
use super::sample::{other_trace, trace};

/// What is recorded before commands are asked.
const RECORDED: [&str; 5] = [
    "record --list --json",
    "record gpt2 --layers 3 --width 96 --vocab 500 --batch 2 --seq 64 --steps 3 --out gpt2.snap --json",
    "record gpt2 --layers 3 --width 96 --vocab 500 --batch 2 --seq 64 --steps 2 --capacity 8MiB --out full.snap --json",
    "record gpt2 --layers 3 --width 96 --vocab 500 --batch 2 --seq 64 --steps 2 --device meta:cuda --out ranks/rank0.snap --json",
    "record gpt2 --layers 3 --width 96 --vocab 500 --batch 2 --seq 64 --steps 2 --device meta:cuda --foreach --out ranks/rank1.snap --json",
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

/// What values at one place of an object were.
#[derive(Debug, Default)]
struct Shape {
    types: BTreeSet<&'static str>,
    /// The properties of objects, and in how many objects each was.
    properties: BTreeMap<String, (u64, Self)>,
    objects: u64,
    items: Option<Box<Self>>,
}

impl Shape {
    fn take(&mut self, value: &Value) {
        self.types.insert(match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        });
        match value {
            Value::Array(values) => {
                let items = self.items.get_or_insert_default();
                values.iter().for_each(|value| items.take(value));
            }
            Value::Object(object) => {
                self.objects += 1;
                for (name, value) in object {
                    let (count, shape) = self.properties.entry(name.clone()).or_default();
                    *count += 1;
                    shape.take(value);
                }
            }
            _ => {}
        }
    }

    /// The same as a schema; `name` is the property whose value it is. What does not apply is null in any answer, so
    /// that only lists are never null.
    fn schema(&self, name: &str) -> Value {
        let mut schema = Map::new();
        let mut types: BTreeSet<&str> = self.types.clone();
        if types.contains("number") {
            types.remove("integer");
        }
        if !types.contains("array") && !name.is_empty() {
            types.insert("null");
        }
        match types.iter().copied().collect::<Vec<&str>>().as_slice() {
            // Nothing is known of values that were all null.
            [] | ["null"] => {}
            [one] => drop(schema.insert("type".into(), json!(one))),
            many => drop(schema.insert("type".into(), json!(many))),
        }
        if let Some(items) = &self.items {
            schema.insert("items".into(), items.schema(name));
        }
        if self.objects > 0 && MAPS.contains(&name) {
            let mut values = Self::default();
            self.properties.values().for_each(|(_, shape)| values.types.extend(&shape.types));
            schema.insert("additionalProperties".into(), values.schema("value"));
        } else if self.objects > 0 {
            let properties = self.properties.iter().map(|(name, (_, shape))| (name.clone(), shape.schema(name)));
            schema.insert("properties".into(), Value::Object(properties.collect()));
            let required = self.properties.iter().filter(|(_, (count, _))| *count == self.objects);
            let required: Vec<&String> = required.map(|(name, _)| name).collect();
            if name.is_empty() {
                schema.insert("required".into(), json!(required));
            }
        }
        let units =
            [("_us", "microseconds"), ("bytes", "bytes")].into_iter().find(|(ending, _)| name.ends_with(ending));
        if let Some((_, unit)) = units.filter(|_| self.types.contains("integer")) {
            schema.insert("description".into(), json!(unit));
        }
        Value::Object(schema)
    }
}

/// The object that a command prints in `folder`.
fn object(folder: &Path, words: &str) -> Value {
    let output = highwater(folder, words);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{words}: {why}: {text}{errors}"))
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
    let mut asked: Vec<String> = RECORDED.iter().map(|words| (*words).to_owned()).collect();
    let mut answers: Vec<Value> = asked.par_iter().map(|words| object(folder, words)).collect();
    let questions: Vec<String> = ASKED
        .iter()
        .flat_map(|words| match words.contains("ALL") {
            true => ALL.iter().map(|file| words.replace("ALL", file)).collect(),
            false => vec![(*words).to_owned()],
        })
        .map(|words| words + " --json")
        .collect();
    // What reads a file that another command writes comes last.
    let (first, last) = questions.split_at(questions.len() - 2);
    answers.extend(first.par_iter().map(|words| object(folder, words)).collect::<Vec<_>>());
    answers.extend(last.iter().map(|words| object(folder, words)));
    asked.extend(questions);
    let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
    for (words, answer) in asked.iter().zip(&answers) {
        let mut words = words.split(' ');
        let command = words.next().unwrap_or_default();
        let kind = match words.next() {
            Some("ranks") => "-folder",
            Some("--list") => "-list",
            _ => "",
        };
        shapes.entry(format!("{command}{kind}")).or_default().take(answer);
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
        let Value::Object(own) = shape.schema("") else { unreachable!("a schema is an object") };
        schema.extend(own);
        let text = serde_json::to_string_pretty(&Value::Object(schema)).unwrap() + "\n";
        expect_file![schemas.join(format!("{command}.json"))].assert_eq(&text);
    }
}
