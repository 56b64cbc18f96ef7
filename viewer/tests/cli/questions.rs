//! Tests that tools answer typical questions of an assistant with the right numbers.
//!
//! The figures do not come from this program: see the sources in `questions/questions.json`.

use std::path::{Path, PathBuf};

use highwater_notation::trace_from_text;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::units::format_bytes;
use serde_json::{Value, json};

use crate::binary::{highwater, stderr};
use crate::mcp::{MAX_ANSWER, answers, text_of};

/// Where the recordings are kept, for `ask.py`.
const KEEP: &str = "HIGHWATER_QUESTIONS";

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/questions").join(name)
}

/// Makes a recording in `folder`.
fn make(folder: &Path, recording: &Value) {
    let file = recording["file"].as_str().unwrap();
    let path = folder.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    if let Some(words) = recording["record"].as_str() {
        let done = highwater(folder, &format!("record {words} --out {file}"));
        assert!(done.status.success(), "{}", stderr(&done));
    } else if let Some(name) = recording["copy"].as_str() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshots/pytorch/testdata");
        std::fs::copy(folder.join(name), path).unwrap();
    } else {
        let text = std::fs::read_to_string(here(recording["text"].as_str().unwrap())).unwrap();
        write_trace(std::fs::File::create(path).unwrap(), &trace_from_text(&text).unwrap()).unwrap();
    }
}

/// The value at a path in `value`: names, numbers of entries, and conditions that entries of a list meet.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let mut found = vec![value];
    for part in path.split('/').skip(1) {
        found = match part.split_once('=') {
            Some((name, wanted)) => {
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let is_wanted = |entry: &&Value| text(&entry[name]) == wanted;
                let entries =
                    found.iter().flat_map(|value| value.as_array().map_or(std::slice::from_ref(*value), Vec::as_slice));
                entries.filter(is_wanted).collect()
            }
            None => {
                let value = *found.first()?;
                vec![part.parse::<usize>().map_or_else(|_| value.get(part), |row| value.get(row))?]
            }
        };
    }
    found.first().copied()
}

/// Why an answer does not have the figure of its question.
fn mistake(question: &Value, result: &Value) -> Option<String> {
    let Some(found) = at(&result["structuredContent"], question["at"].as_str().unwrap()) else {
        return Some("nothing is there".to_owned());
    };
    let text = text_of(result);
    let is_right = match (&question["bytes"], &question["value"], question["says"].as_str()) {
        (Value::Number(bytes), ..) => {
            let size = format_bytes(bytes.as_u64().unwrap());
            // In a column with decimals, all sizes have them.
            let in_column = size.replacen(' ', ".00 ", 1);
            found == &question["bytes"] && (text.contains(&size) || text.contains(&in_column))
        }
        (_, Value::Null, Some(says)) => found.to_string().contains(says) && text.contains(says),
        (_, value, Some(says)) => found == value && text.to_lowercase().contains(says),
        _ => false,
    };
    (!is_right).then(|| format!("found {found} in\n{text}"))
}

#[test]
fn the_obvious_call_answers_each_question() {
    let data: Value = serde_json::from_str(&std::fs::read_to_string(here("questions.json")).unwrap()).unwrap();
    let (temporary, kept) = (tempfile::tempdir().unwrap(), std::env::var_os(KEEP).map(PathBuf::from));
    let folder = kept.as_deref().unwrap_or(temporary.path());
    let recordings = data["recordings"].as_array().unwrap();
    std::thread::scope(|threads| {
        for recordings in recordings.chunks(recordings.len().div_ceil(2)) {
            threads.spawn(move || recordings.iter().for_each(|recording| make(folder, recording)));
        }
    });
    let questions = data["questions"].as_array().unwrap();
    let lines: Vec<String> = (0..)
        .zip(questions)
        .map(|(id, question)| {
            let mut arguments = json!({"file": question["file"]});
            arguments.as_object_mut().unwrap().extend(question["arguments"].as_object().unwrap().clone());
            let parameters = json!({"name": question["tool"], "arguments": arguments});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": parameters}).to_string()
        })
        .collect();
    let answers = answers(folder, &["."], &lines);
    let mut wrong = Vec::new();
    for (question, answer) in questions.iter().zip(&answers) {
        let bytes = answer.to_string().len();
        let why = match mistake(question, &answer["result"]) {
            None if bytes <= MAX_ANSWER => continue,
            None => format!("{bytes} bytes"),
            Some(why) => why,
        };
        wrong.push(format!("{} {}\n{why}", question["file"], question["ask"]));
    }
    assert!(answers.len() >= 30 && wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn figures_of_pytorch_are_those_of_its_own_counters() {
    let data: Value = serde_json::from_str(&std::fs::read_to_string(here("questions.json")).unwrap()).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut checked = 0;
    for question in data["questions"].as_array().unwrap() {
        let source = question["source"].as_str().unwrap();
        let file = source.split([' ', ':']).find(|word| word.ends_with(".json"));
        if let (Some(file), Some(bytes)) = (file, question["bytes"].as_u64()) {
            let numbers = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(numbers.split(|c: char| !c.is_ascii_digit()).any(|number| number == bytes.to_string()), "{source}");
            checked += 1;
        }
    }
    assert!(checked > 8, "{checked}");
}
