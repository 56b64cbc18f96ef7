//! Truncates answers to a size that a language model can read.

use highwater_snapshots::count_of;
use serde_json::{Map, Value, json};

/// Maximum bytes of the text of an answer, as JSON.
const MAX_TEXT: usize = 6 << 10;

/// Maximum bytes of the JSON object of an answer.
const MAX_FACTS: usize = 9 << 10;

/// Maximum length in bytes of the line that lists the truncated parts.
const MAX_MISSING: usize = 240;

/// Limits of rows per list and of characters per text, in the order in which they are tried.
const LIMITS: [(usize, usize); 8] =
    [(200, 4000), (50, 1000), (20, 600), (10, 400), (5, 300), (3, 200), (1, 120), (0, 80)];

/// Returns `text`, or if that has more than [`MAX_TEXT`] bytes as JSON, its first lines, each shortened, and a line
/// with the number of lines that were cut.
pub(super) fn cut_text(text: &str) -> String {
    if as_json(text) <= MAX_TEXT {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    let lines: Vec<&str> = text.lines().collect();
    for (row, line) in lines.iter().enumerate() {
        let line = cut_line(line, MAX_TEXT / 4);
        used += as_json(&line);
        if used > MAX_TEXT - MAX_MISSING {
            kept += &format!(
                "… {}: ask for fewer rows with `top`, for fewer steps with `from_step` and `to_step`, or for \
                 fewer blocks with `where`, where the tool has them\n",
                count_of((lines.len() - row) as u64, "more line")
            );
            break;
        }
        kept += &line;
        kept.push('\n');
    }
    kept
}

/// Shortens a message, because it may repeat a client's text.
pub(super) fn cut_message(text: &str) -> String {
    cut_line(text, MAX_TEXT / 8)
}

/// Shortens `facts` to at most [`MAX_FACTS`] bytes, by keeping only the first entries of lists and the beginning of
/// texts. The key `cut` of the result lists the truncated lists with their original lengths; if nothing is short
/// enough, it is the only key.
pub(super) fn cut_facts(facts: &Value) -> Value {
    for (rows, letters) in LIMITS {
        let mut cut = Map::new();
        let mut kept = bounded(facts, "", (rows, letters), &mut cut);
        if let (false, Some(object)) = (cut.is_empty(), kept.as_object_mut()) {
            object.insert("cut".to_owned(), Value::Object(cut));
        }
        if kept.to_string().len() <= MAX_FACTS {
            return kept;
        }
    }
    json!({"cut": "all: the answer is too large; see the text"})
}

/// Returns `value` with at most `rows` entries in each list and `letters` characters in each text. Adds the paths of
/// truncated lists to `cut`.
fn bounded(value: &Value, path: &str, limits: (usize, usize), cut: &mut Map<String, Value>) -> Value {
    let (rows, letters) = limits;
    match value {
        Value::Array(entries) => {
            if entries.len() > rows {
                cut.insert(path.to_owned(), json!({"shown": rows, "of": entries.len()}));
            }
            let path = format!("{path}[]");
            entries.iter().take(rows).map(|entry| bounded(entry, &path, limits, cut)).collect()
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                (name.clone(), bounded(value, &path, limits, cut))
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::String(text) => cut_line(text, letters).into(),
        _ => value.clone(),
    }
}

fn cut_line(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters).chain(['…']).collect()
}

fn as_json(text: &str) -> usize {
    Value::from(text).to_string().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_objects_have_fewer_rows_and_say_how_many_there_were() {
        let row = |at: u64| json!({"key": format!("layers.{at}.mlp"), "bytes": at, "stack": "main ".repeat(100)});
        let facts = json!({"bytes": 5, "groups": (0..1000).map(row).collect::<Vec<Value>>()});
        let cut = cut_facts(&facts);
        assert!(cut.to_string().len() <= MAX_FACTS && cut["bytes"] == 5, "{cut}");
        assert_eq!(cut["cut"]["groups"]["of"], 1000);
        let shown = cut["cut"]["groups"]["shown"].as_u64().unwrap();
        assert!(shown > 4 && cut["groups"].as_array().unwrap().len() as u64 == shown, "{cut}");
    }

    #[test]
    fn small_answers_stay_as_they_are() {
        let facts = json!({"groups": [1, 2, 3], "name": "größe"});
        assert_eq!(cut_facts(&facts), facts);
        assert_eq!(cut_text("a\nb\n"), "a\nb\n");
    }

    #[test]
    fn whatever_an_object_has_it_is_cut_to_the_size() {
        let wide: Map<String, Value> = (0..5000).map(|at| (format!("key {at}"), at.into())).collect();
        let deep = (0..100).fold(json!("x".repeat(20_000)), |inner, _| json!([inner, "\u{1}".repeat(999)]));
        for facts in [Value::Object(wide), deep] {
            assert!(cut_facts(&facts).to_string().len() <= MAX_FACTS);
        }
    }

    #[test]
    fn long_texts_end_with_the_number_of_lines_that_are_missing() {
        let cut = cut_text(&"a \"line\" of text\n".repeat(2000));
        assert!(as_json(&cut) <= MAX_TEXT, "{}", cut.len());
        assert!(cut.lines().last().unwrap().contains("more lines"), "{cut}");
        assert!(as_json(&cut_text(&"\u{1}".repeat(100_000))) <= MAX_TEXT);
    }
}
