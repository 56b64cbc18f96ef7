//! Writes the allocator settings, which a trace stores as strings, with the types used by PyTorch.

use hashbrown::HashMap;

use super::document::{Document, Plain};
use highwater_snapshots::error::Result;

/// Settings that are always strings, even if the value looks like another type.
const TEXTS: [&str; 1] = ["PYTORCH_CUDA_ALLOC_CONF"];

/// Writes `settings` as a dict. Names with a dot become nested dicts.
pub(super) fn write(document: &mut impl Document, settings: &[(String, String)]) -> Result<()> {
    let mut order: Vec<&str> = Vec::new();
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    for (row, (name, _)) in settings.iter().enumerate() {
        let outer = name.split_once('.').map_or(name.as_str(), |(outer, _)| outer);
        let group = groups.entry(outer).or_default();
        if group.is_empty() {
            order.push(outer);
        }
        group.push(row);
    }
    document.open_dict()?;
    for outer in order {
        let rows = groups[outer].iter().map(|&row| &settings[row]);
        if rows.clone().any(|(name, _)| name == outer) {
            for (name, value) in rows {
                document.free_key(name)?;
                write_value(document, name, value)?;
            }
            continue;
        }
        document.free_key(outer)?;
        document.open_dict()?;
        for (name, value) in rows {
            let inner = name.get(outer.len() + 1..).unwrap_or_default();
            document.free_key(inner)?;
            write_value(document, inner, value)?;
        }
        document.close_dict()?;
    }
    document.close_dict()
}

fn write_value(document: &mut impl Document, name: &str, value: &str) -> Result<()> {
    if TEXTS.contains(&name) {
        return document.text(value);
    }
    // Only values that would be printed the same way again are integers: `007` and `+1` are strings.
    let same = |number: &dyn ToString| number.to_string() == value;
    let looks_like_float = value.starts_with(|c: char| c.is_ascii_digit() || c == '-') && value.contains(['.', 'e']);
    let float = || value.parse().ok().filter(|number: &f64| looks_like_float && number.is_finite()).map(Plain::Float);
    let number = || value.parse().ok().filter(|number: &u64| same(number)).map(Plain::Number);
    let negative = || value.parse().ok().filter(|number: &i64| same(number)).map(Plain::Negative);
    let plain = match value {
        "True" | "true" => Some(Plain::Truth(true)),
        "False" | "false" => Some(Plain::Truth(false)),
        "None" | "null" => Some(Plain::None),
        _ => number().or_else(negative).or_else(float),
    };
    match plain {
        Some(plain) => document.plain(plain),
        None => document.text(value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::JsonWriter;
    use super::*;

    #[test]
    fn texts_get_their_types_back_and_dotted_names_their_dicts() {
        let settings = [
            ("PYTORCH_CUDA_ALLOC_CONF", "1"),
            ("max_split_size", "-1"),
            ("expandable_segments", "True"),
            ("roundup_power2_divisions.1", "0"),
            ("garbage_collection_threshold", "0.8"),
            ("roundup_power2_divisions.2", "16"),
            ("version", "1.2.3"),
            ("none", "None"),
            ("big", "18446744073709551615"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut bytes = Vec::new();
        let mut json = JsonWriter::new(&mut bytes);
        write(&mut json, &settings).unwrap();
        json.finish().unwrap();
        let expected = r#"{"PYTORCH_CUDA_ALLOC_CONF":"1","max_split_size":-1,"expandable_segments":true,"roundup_power2_divisions":{"1":0,"2":16},"garbage_collection_threshold":0.8,"version":"1.2.3","none":null,"big":18446744073709551615}"#;
        assert_eq!(String::from_utf8(bytes).unwrap().trim_end(), expected);
    }
}
