//! The JSON format of [speedscope](https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources).

use std::io::{self, Write};

use serde::Serialize;

use super::{Line, Lines, PeakStacks};

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'a str,
    shared: Shared<'a>,
    profiles: [Profile<'a>; 1],
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'a> Frame<'a> {
    fn of(line: &'a Line) -> Self {
        Self { name: &line.function, file: &line.file, line: Some(line.line).filter(|line| *line > 0) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    r#type: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// The frames of each stack, outermost first.
    samples: Vec<Vec<usize>>,
    /// The bytes of each stack.
    weights: Vec<u64>,
}

pub(super) fn write(out: &mut impl Write, stacks: &PeakStacks<'_>) -> io::Result<()> {
    let mut lines = Lines::default();
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for ((stack, _), sum) in &stacks.sums {
        let mut rows = lines.of(stacks.trace, *stack);
        rows.reverse();
        samples.push(rows);
        weights.push(sum.bytes);
    }
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("highwater ", env!("CARGO_PKG_VERSION")),
        name: &stacks.when,
        shared: Shared { frames: lines.rows.iter().map(Frame::of).collect() },
        profiles: [Profile {
            r#type: "sampled",
            name: &stacks.when,
            unit: "bytes",
            start_value: 0,
            end_value: stacks.bytes,
            samples,
            weights,
        }],
    };
    serde_json::to_writer(out, &file).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::question::peak_stacks::StackFormat;
    use crate::question::peak_stacks::tests::written;

    #[test]
    fn samples_name_frames_from_the_outermost_and_weights_add_up() {
        let text = "baseline w 100\nalloc a 10 activation < f < main\nalloc b 30 gradient < g < main";
        let file: Value = serde_json::from_slice(&written(text, StackFormat::Speedscope).0).unwrap();
        let names: Vec<&str> =
            file["shared"]["frames"].as_array().unwrap().iter().map(|frame| frame["name"].as_str().unwrap()).collect();
        let profile = &file["profiles"][0];
        assert_eq!(
            (&profile["type"], &profile["unit"], &profile["endValue"]),
            (&json!("sampled"), &json!("bytes"), &json!(140))
        );
        let samples: Vec<Vec<&str>> = profile["samples"]
            .as_array()
            .unwrap()
            .iter()
            .map(|sample| sample.as_array().unwrap().iter().map(|row| names[row.as_u64().unwrap() as usize]).collect())
            .collect();
        for (stack, bytes) in [(vec!["(no stack)"], 100), (vec!["main", "f"], 10), (vec!["main", "g"], 30)] {
            let row = samples.iter().position(|sample| *sample == stack).unwrap();
            assert_eq!(profile["weights"][row], bytes, "{stack:?}");
        }
    }
}
