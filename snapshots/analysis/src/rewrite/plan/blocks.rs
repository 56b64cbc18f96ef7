//! The modules that are worth recomputing: the repeated blocks of a model.

use std::collections::BTreeMap;

use highwater_snapshots::scope_pattern::ScopePattern;
use highwater_snapshots::{ScopeId, Trace};

use crate::rewrite::recompute::modules;

/// Returns the repeated modules of `trace` with their paths, in table order. The name of a repeated module is a number
/// (`h.3`, `layers.3.experts.0`), or differs from that of a sibling only in the number at its end (`encoder_layer_3`).
/// Returns those that contain modules, or if there are none, those that do not. A repeated module may be inside
/// another.
pub fn blocks(trace: &Trace) -> Vec<(ScopeId, String)> {
    let all = modules(trace);
    let mut siblings: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, path) in &all {
        *siblings.entry(without_number(path)).or_default() += 1;
    }
    let is_repeated = |path: &str| {
        let rest = without_number(path);
        // A list may have one element.
        rest != path && (rest.ends_with('.') || siblings.get(rest).is_some_and(|count| *count > 1))
    };
    let is_parent = |scope: ScopeId| all.iter().any(|(other, _)| trace.tables.scopes[other.0 as usize].parent == scope);
    let repeated: Vec<(ScopeId, String)> = all.iter().filter(|(_, path)| is_repeated(path)).cloned().collect();
    let (parents, leaves): (Vec<_>, Vec<_>) = repeated.into_iter().partition(|(scope, _)| is_parent(*scope));
    if parents.is_empty() { leaves } else { parents }
}

/// Returns the modules of `trace` that may be recomputed: those whose paths match one of `patterns`, or [`blocks`] if
/// there are no patterns.
///
/// # Errors
/// Fails if a pattern matches no module; the error is a message that names the pattern.
pub fn candidates_of(trace: &Trace, patterns: &[ScopePattern]) -> Result<Vec<(ScopeId, String)>, String> {
    if patterns.is_empty() {
        return Ok(blocks(trace));
    }
    let mut all = modules(trace);
    if let Some(other) = patterns.iter().find(|pattern| !all.iter().any(|(_, path)| pattern.matches(path))) {
        return Err(format!("no module matches '{other}'; `highwater peak --by scope` lists the modules"));
    }
    all.retain(|(_, path)| patterns.iter().any(|pattern| pattern.matches(path)));
    Ok(all)
}

/// Returns `path` without the number at its end.
fn without_number(path: &str) -> &str {
    path.trim_end_matches(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;

    fn of(paths: &[&str]) -> Vec<String> {
        let lines = paths.iter().enumerate().map(|(index, path)| format!("alloc b{index} 10 activation @{path}\n"));
        let trace = trace_from_text(&lines.collect::<String>()).unwrap();
        blocks(&trace).into_iter().map(|(_, path)| path).collect()
    }

    #[test]
    fn blocks_are_repeated_modules_with_modules_within_them() {
        assert_eq!(of(&["wte", "h.0.ln_1", "h.0.mlp.0", "h.1.mlp.0", "ln_f"]), ["h.0", "h.1"]);
        assert_eq!(of(&["e.layer_0.a", "e.layer_1.a", "head1.a"]), ["e.layer_0", "e.layer_1"], "one head is no block");
        assert_eq!(of(&["layer1.0.conv1", "layer2.0.conv1"]), ["layer1", "layer1.0", "layer2", "layer2.0"]);
        assert_eq!(of(&["net.0", "net.1", "last"]), ["net.0", "net.1"], "leaves, if there is nothing larger");
        assert!(of(&["a.b", "c"]).is_empty());
    }
}
