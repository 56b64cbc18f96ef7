//! Reads the allocator's settings from a recording.

use highwater_recorder::snapshots::trace::DeviceFacts;

use crate::AllocConfig;

/// Returns the recorded settings of a device, and an error message for each setting that cannot be parsed.
pub fn recorded_config(facts: Option<&DeviceFacts>) -> (AllocConfig, Vec<String>) {
    let mut config = AllocConfig::default();
    let mut problems = Vec::new();
    let settings = facts.map_or(&[][..], |facts| &facts.settings);
    let is_named_off =
        |key: &str, off: &dyn Fn(&str) -> bool| settings.iter().any(|(name, value)| name == key && off(value.trim()));
    // Settings under separate names have the final values, even if they were changed during the run.
    let mut undone: Vec<&str> = Vec::new();
    if is_named_off("max_split_size", &|value| value.starts_with('-')) {
        undone.push("max_split_size_mb");
    }
    if is_named_off("garbage_collection_threshold", &|value| value.parse() == Ok(0.0)) {
        undone.push("garbage_collection_threshold");
    }
    let mut apply = |text: &str| match config.with(text) {
        Ok(changed) => config = changed,
        Err(why) => problems.push(why.to_string()),
    };
    for (_, text) in settings.iter().filter(|(name, _)| name.to_ascii_lowercase().ends_with("alloc_conf")) {
        let Some(mut parts) = config_of_parts(text) else {
            apply(text);
            continue;
        };
        parts.retain(|part| !undone.iter().any(|key| part.trim().starts_with(key)));
        // All at once, since some settings limit others; one by one if one of them is invalid.
        if AllocConfig::default().with(&parts.join(",")).is_ok() {
            apply(&parts.join(","));
        } else {
            parts.iter().for_each(|part| apply(part));
        }
    }
    for (name, value) in settings {
        let value = value.trim();
        match name.as_str() {
            "expandable_segments" => apply(&format!("expandable_segments:{}", truth(value))),
            "max_split_size" => {
                if let Some(bytes) = value.parse::<u64>().ok().filter(|bytes| *bytes > 0) {
                    apply(&format!("max_split_size_mb:{}", bytes >> 20));
                }
            }
            "garbage_collection_threshold" if value.parse::<f64>().is_ok_and(|share| share > 0.0) => {
                apply(&format!("garbage_collection_threshold:{value}"));
            }
            _ => {}
        }
    }
    let mut divisions: Vec<(u64, &str)> = Vec::new();
    for (name, value) in settings {
        let start = name.strip_prefix("roundup_power2_divisions.").and_then(|start| start.parse().ok());
        divisions.extend(start.map(|start| (start, value.trim())));
    }
    if divisions.iter().any(|(_, parts)| parts.parse::<u64>().is_ok_and(|parts| parts > 1)) {
        divisions.sort_unstable();
        let list: Vec<String> = divisions
            .iter()
            .map(|(start, parts)| format!("{start}:{}", if *parts == "0" { "1" } else { parts }))
            .collect();
        apply(&format!("roundup_power2_divisions:[{}]", list.join(",")));
    }
    (config, problems)
}

fn truth(value: &str) -> &'static str {
    if value.eq_ignore_ascii_case("true") || value == "1" { "True" } else { "False" }
}

/// Splits a text into separate settings, so that an invalid setting does not prevent the parsing of the others. Returns
/// `None` if the brackets do not match.
fn config_of_parts(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let (mut depth, mut part) = (0_u32, String::new());
    for letter in text.chars() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(letter);
    }
    parts.push(part);
    parts.retain(|part| !part.trim().is_empty());
    (depth == 0).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &[(&str, &str)]) -> (AllocConfig, Vec<String>) {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        recorded_config(Some(&DeviceFacts { settings, ..DeviceFacts::default() }))
    }

    #[test]
    fn the_text_and_the_settings_with_names_give_one_configuration() {
        let text = "roundup_power2_divisions:[64:8,>:2],max_split_size_mb:128";
        let (config, problems) = of(&[("alloc_conf", text)]);
        assert_eq!(
            (config.to_string(), problems),
            ("max_split_size_mb:128,roundup_power2_divisions:[64:8,>:2]".to_owned(), vec![])
        );
        let named = [
            ("PYTORCH_CUDA_ALLOC_CONF", ""),
            ("max_split_size", "134217728"),
            ("expandable_segments", "True"),
            ("garbage_collection_threshold", "0.0"),
            ("roundup_power2_divisions.1", "8"),
            ("roundup_power2_divisions.2", "0"),
        ];
        let (config, problems) = of(&named);
        assert_eq!(problems, [""; 0]);
        assert_eq!((config.max_split_bytes(), config.expandable_segments()), (Some(128 << 20), true));
        assert_eq!([1_200_000, 2_200_000].map(|bytes| config.divisions().of(bytes)), [8, 1]);
    }

    #[test]
    fn a_setting_that_is_not_understood_is_reported_and_hides_no_other() {
        let (config, problems) =
            of(&[("PYTORCH_CUDA_ALLOC_CONF", "roundup_bypass_threshold_mb:64,max_split_size_mb:64")]);
        assert_eq!(config.max_split_bytes(), Some(64 << 20));
        assert!(problems.len() == 1 && problems[0].contains("'roundup_bypass_threshold_mb'"), "{problems:?}");
        let pair = "max_split_size_mb:15,large_segment_size_mb:12";
        assert_eq!(of(&[("alloc_conf", pair)]).1, [""; 0], "one limits the other");
        let off = of(&[("alloc_conf", pair), ("max_split_size", "-1")]).0;
        assert_eq!((off.max_split_bytes(), off.large_segment_bytes()), (None, 12 << 20));
        assert_eq!(recorded_config(None), (AllocConfig::default(), vec![]));
    }
}
