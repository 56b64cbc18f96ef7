//! Writes the blocks at the peak as a profile for pprof.

use std::io::{self, Write};

use hashbrown::HashMap;
use highwater_snapshots::intern::Interner;
use highwater_snapshots::pprof::{Function, Label, LineOf, Location, Profile, Sample, ValueType};
use prost::Message;

use super::{Lines, PeakStacks};

pub(super) fn write(out: &mut impl Write, stacks: &PeakStacks<'_>) -> io::Result<()> {
    out.write_all(&profile(stacks).encode_to_vec())
}

fn profile(stacks: &PeakStacks<'_>) -> Profile {
    let (mut lines, mut strings) = (Lines::default(), Interner::<String>::default());
    let mut string = |text: &str| i64::from(strings.intern(text.to_owned()));
    // The first row must be empty.
    string("");
    // The names in Go's heap profiles, which pprof and its successors recognize.
    let sample_type = [("inuse_objects", "count"), ("inuse_space", "bytes")]
        .map(|(name, unit)| ValueType { r#type: string(name), unit: string(unit) });
    let default_sample_type = sample_type[1].r#type;
    let category_key = string("category");
    let sample = stacks.sums.iter().map(|((stack, category), sum)| Sample {
        location_id: lines.of(stacks.trace, *stack).into_iter().map(id_of).collect(),
        value: [sum.blocks, sum.bytes].map(|value| i64::try_from(value).unwrap_or(i64::MAX)).to_vec(),
        label: vec![Label { key: category_key, str: string(category.name()) }],
    });
    let sample = sample.collect();
    // A function is a name in a file; a location is a line of one.
    let mut functions: HashMap<(i64, i64), u64> = HashMap::new();
    let (mut function, mut location) = (Vec::new(), Vec::new());
    for (row, line) in lines.rows.iter().enumerate() {
        let (name, filename) = (string(&line.function), string(&line.file));
        let function_id = *functions.entry((name, filename)).or_insert_with(|| {
            let id = id_of(function.len());
            function.push(Function { id, name, filename });
            id
        });
        location.push(Location { id: id_of(row), line: vec![LineOf { function_id, line: i64::from(line.line) }] });
    }
    let comment = vec![string(&stacks.when)];
    let time_nanos = i64::try_from(stacks.trace.header.started_unix_us).unwrap_or(0).saturating_mul(1000);
    let string_table = strings.into_rows();
    let sample_type = sample_type.to_vec();
    Profile { sample_type, sample, location, function, string_table, time_nanos, comment, default_sample_type }
}

/// The id of a table row; ids start at 1.
fn id_of(row: usize) -> u64 {
    row as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::peak_stacks::StackFormat;
    use crate::question::peak_stacks::tests::written;

    #[test]
    fn samples_have_blocks_bytes_and_category() {
        let text = "baseline w 100 parameter\nalloc a 10 activation < f < main\nalloc b 30 activation < f < main\nalloc c 5 gradient < f < main";
        let profile = Profile::decode(&*written(text, StackFormat::Pprof).0).unwrap();
        let string = |row: i64| &*profile.string_table[row as usize];
        assert_eq!((string(0), string(profile.default_sample_type)), ("", "inuse_space"));
        let function = |id: &u64| {
            let line = &profile.location.iter().find(|location| location.id == *id).unwrap().line[0];
            string(profile.function.iter().find(|of| of.id == line.function_id).unwrap().name)
        };
        let sample = |of: &Sample| {
            let stack: Vec<&str> = of.location_id.iter().map(function).collect();
            format!("{} {:?} {}", stack.join(" < "), of.value, string(of.label[0].str))
        };
        let mut samples: Vec<String> = profile.sample.iter().map(sample).collect();
        samples.sort();
        assert_eq!(
            samples,
            ["(no stack) [1, 100] parameter", "f < main [1, 5] gradient", "f < main [2, 40] activation"]
        );
    }
}
