//! Tests that tables as comma-separated values have the same numbers as in JSON.

use serde_json::Value;

use super::sample::{answer, json, trace};

/// Every command with a table, and the list of its JSON object that has the table's rows, if it has them as they are.
const TABLES: [(&str, Option<&str>); 11] = [
    ("info step.snap", Some("devices")),
    ("peak step.snap", Some("groups")),
    ("peak step.snap --by scope,op --top 1", Some("groups")),
    ("phases step.snap", Some("rows")),
    ("explain step.snap", Some("groups")),
    ("growth step.snap", Some("groups")),
    ("oom step.snap", Some("ooms")),
    ("diff step.snap other.snap", Some("groups")),
    ("check step.snap --max-peak 1GiB", Some("rules")),
    ("events step.snap", Some("events")),
    ("whatif step.snap", None),
];

/// The cells of a line, of which none contains a quote.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            letter => cell.push(letter),
        }
    }
    cells.push(cell);
    cells
}

/// A value of a JSON object as CSV has it.
fn bare(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(bare).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

#[test]
fn the_rows_of_csv_are_those_of_json_and_sums_follow() {
    for (words, list) in TABLES {
        let text = answer(trace(), &format!("{words} --csv")).unwrap();
        let mut lines = text.lines().map(cells);
        let names = lines.next().expect("names come first");
        let rows: Vec<Vec<String>> = lines.collect();
        assert!(names.len() > 3 && names.iter().all(|name| !name.is_empty()), "{words}: {names:?}");
        assert!(rows.iter().all(|row| row.len() == names.len()), "{words}: {text}");
        let Some(list) = list else { continue };
        let object = json(trace(), &format!("{words} --json"));
        let objects = object[list].as_array().unwrap();
        assert!(rows.len() >= objects.len(), "{words}: {text}");
        for (row, object) in rows.iter().zip(objects) {
            for (name, cell) in names.iter().zip(row) {
                let value = object.get(name).filter(|value| !value.is_object());
                if let Some(value) = value.or_else(|| object["keys"].get(name)) {
                    assert_eq!(*cell, bare(value), "{words}: {name}");
                }
            }
        }
    }
}

#[test]
fn groups_rest_and_total_add_up_in_csv() {
    let text = answer(trace(), "peak step.snap --by scope,op --top 1 --csv").unwrap();
    let rows: Vec<Vec<String>> = text.lines().map(cells).collect();
    let at = rows[0].iter().position(|name| name == "bytes").unwrap();
    let bytes = |row: &Vec<String>| row[at].parse::<u64>().unwrap();
    let (total, parts) = rows[1..].split_last().unwrap();
    assert_eq!((total[0].as_str(), parts.len()), ("total", 2), "{text}");
    assert_eq!(parts.iter().map(bytes).sum::<u64>(), bytes(total), "{text}");
    assert!(parts[1][0].ends_with("more groups") || parts[1][0].ends_with("more group"), "{text}");
}

#[test]
fn every_object_states_the_version_of_its_keys() {
    for (words, _) in TABLES {
        assert_eq!(json(trace(), &format!("{words} --json"))["schema_version"], 1, "{words}");
    }
}
