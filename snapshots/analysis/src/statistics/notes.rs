//! Notes: what limits trust in a recording, each fact with what it means for the numbers.

use serde::Serialize;

use highwater_snapshots::trace::{Trace, Trust};

/// A fact that limits trust, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrustNote {
    /// The fact, in plain words.
    pub fact: String,
    /// What it means for the numbers.
    pub means: &'static str,
}

/// Every fact that limits trust in `trace`, in the order of [`Trace::trust_sentences`].
pub fn trust_notes(trace: &Trace) -> Vec<TrustNote> {
    let trust = &trace.trust;
    let none = Trust::default;
    let facts = [
        (
            Trust { events_lost: trust.events_lost, ..none() },
            "What happened in the gap is known only by its outcome: peaks within it may have been higher, and blocks \
             made and freed in it are not counted.",
        ),
        (
            Trust { unmatched_frees: trust.unmatched_frees, ..none() },
            "Blocks were alive that no total counts: totals and peaks before these frees are lower bounds.",
        ),
        (
            Trust { repeated_allocs: trust.repeated_allocs, ..none() },
            "Such a block counts as freed at the moment when its address was given out again: until then totals may \
             be too high, and lifetimes too long.",
        ),
        (
            Trust { unmatched_uses: trust.unmatched_uses, ..none() },
            "Totals and lifetimes are not touched; what was last used when, and what was held without being used \
             again, may be wrong for blocks of which uses went astray.",
        ),
        (
            Trust { unmatched_releases: trust.unmatched_releases, ..none() },
            "Reserved memory before these releases is a lower bound; requested, allocated and active are not touched.",
        ),
        (
            Trust { unfinished: trust.unfinished, ..none() },
            "The end of the recording is not the end of the program: what is kept to the end may have been freed \
             later, and a higher peak may have followed.",
        ),
        (
            Trust { sizes_inferred: trust.sizes_inferred, ..none() },
            "Requested bytes are exact. Allocated and active, and what rounding costs, follow the allocator's rules \
             and are exact only if it keeps to them.",
        ),
        (
            Trust { baseline_inferred: trust.baseline_inferred, ..none() },
            "Blocks that were there before the recording and were freed in it are known by their frees alone. When \
             any block of the start was made, and by whom, is not known.",
        ),
        (
            Trust { categories_guessed: trust.categories_guessed, ..none() },
            "Every sum by category is an estimate. Totals, peaks and sums by anything else do not rest on it.",
        ),
    ];
    let phases = trace.phases_are_guessed().then(|| TrustNote {
        fact: trace.trust_sentences().pop().unwrap_or_default(),
        means: "Where a step or phase begins may be off by some events: sums by step and phase are estimates, and so \
                are lifetimes in phases and steps.",
    });
    let notes = facts.into_iter().filter_map(|(fact, means)| Some(TrustNote { fact: fact.sentences().pop()?, means }));
    notes.chain(phases).collect()
}
