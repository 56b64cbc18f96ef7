//! Rewrites the command that made a recording into one that makes it again with changes.

use highwater_snapshots::format_exact_bytes;

use crate::commands::next_command::quoted;

/// Returns the `highwater record` command line `program` with the given capacity and settings, and with another output
/// file; `None` if `program` is not such a command line.
pub(crate) fn rerun(program: &str, capacity: Option<u64>, alloc_conf: Option<&str>) -> Option<String> {
    let mut words = program.split_whitespace();
    let binary = words.next()?.rsplit(['/', '\\']).next()?;
    let scenario = words.next().filter(|word| *word == "record").and_then(|_| words.next())?;
    if binary.trim_end_matches(".exe") != "highwater" || scenario.starts_with('-') {
        return None;
    }
    let size = capacity.map(format_exact_bytes);
    let name =
        size.as_deref().or(alloc_conf).map_or_else(String::new, |what| format!("-{}", what.replace([':', ','], "-")));
    let changed = [
        ("--capacity", size),
        ("--alloc-conf", alloc_conf.map(quoted)),
        ("--out", Some(format!("{scenario}{name}.snap"))),
    ];
    let mut command = vec!["highwater".to_owned(), "record".to_owned(), scenario.to_owned()];
    let mut rest = words.peekable();
    while let Some(word) = rest.next() {
        let key = word.split('=').next().unwrap_or(word);
        match changed.iter().find(|(option, value)| *option == key && value.is_some()) {
            Some(_) if !word.contains('=') => drop(rest.next()),
            Some(_) => {}
            None => command.push(word.to_owned()),
        }
    }
    for (option, value) in changed {
        command.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    Some(command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_record_is_offered_again_with_the_change() {
        let again = |program: &str| rerun(program, Some(41 << 30), None);
        let expected = "highwater record falcon-7b --lora 16 --capacity 41GiB --out falcon-7b-41GiB.snap";
        assert_eq!(again("/bin/highwater record falcon-7b --capacity 40GiB --lora 16").as_deref(), Some(expected));
        assert_eq!(
            again("highwater.exe record falcon-7b --lora 16 --out=a.snap --capacity=7").as_deref(),
            Some(expected)
        );
        assert_eq!(
            ["train.py --capacity 3", "highwater run x", "highwater record --list", ""].map(again),
            [const { None }; 4]
        );
        let conf = rerun("highwater record gpt2", None, Some("expandable_segments:True")).unwrap();
        assert_eq!(
            conf,
            "highwater record gpt2 --alloc-conf expandable_segments:True --out gpt2-expandable_segments-True.snap"
        );
    }
}
