//! A recording with some modules recomputed in backward, chosen by patterns of their paths.

use highwater_analysis::Evidence;
use highwater_analysis::recompute::{Members, Recomputed, apply, effects, modules};
use highwater_snapshots::suggest::did_you_mean;
use highwater_snapshots::{DeviceId, Phase, ScopePattern, Trace};

/// A summary of the recomputed modules, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recomputation {
    /// The patterns, as given by the user.
    pub patterns: Vec<ScopePattern>,
    /// Number of modules that match.
    pub modules: usize,
    /// Number of recomputed calls. Modules that save nothing for backward have none.
    pub calls: usize,
    /// The evidence in the recording for when forward no longer needs a block.
    pub evidence: Evidence,
}

/// Recomputes the modules of `trace` whose paths match `patterns`.
///
/// # Errors
/// Returns the reason recomputation is impossible, and the options to record with instead.
pub fn recompute(
    trace: &Trace,
    device: DeviceId,
    patterns: &[ScopePattern],
) -> Result<(Recomputed, Recomputation), String> {
    check_patterns(trace, patterns)?;
    let members = Members::matching(trace, patterns);
    let effects = effects(trace, device, &members);
    let recomputation = Recomputation {
        patterns: patterns.to_vec(),
        modules: members.modules.len(),
        calls: effects.len(),
        evidence: Evidence::of(trace, device),
    };
    Ok((apply(trace, device, &effects), recomputation))
}

/// Checks that modules of `trace` can be recomputed, and that each of `patterns` matches one.
///
/// # Errors
/// Returns the reason recomputation is impossible, and the options to record with instead.
pub(crate) fn check_patterns(trace: &Trace, patterns: &[ScopePattern]) -> Result<(), String> {
    let known = modules(trace);
    if known.is_empty() {
        let text = "the recording has no module paths: record with `highwater.record_memory_history` in Python, or with \
                    scopes in Rust";
        return Err(text.to_owned());
    }
    for pattern in patterns {
        if !known.iter().any(|(_, path)| pattern.matches(path)) {
            let near = did_you_mean(&pattern.to_string(), known.iter().map(|(_, path)| path.as_str()));
            return Err(format!("no module matches '{pattern}'{near}; `highwater peak --by scope` lists the modules"));
        }
    }
    let has = |phase: Phase| trace.spans.rows().iter().any(|span| span.phase == phase);
    if !has(Phase::Forward) {
        return Err("the recording has no forward phase, so nothing can be recomputed".to_owned());
    }
    Ok(())
}
