//! The limits of a recording's accuracy, and the figures that they affect.

use highwater_snapshots::trace::{Trace, Trust};

/// A limit of accuracy, and its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustNote {
    /// The limit, as a sentence.
    pub fact: String,
    /// The effect on the figures.
    pub means: &'static str,
}

/// Returns the limits of the accuracy of `trace`, in the order of [`Trace::trust_sentences`].
pub fn trust_notes(trace: &Trace) -> Vec<TrustNote> {
    let trust = &trace.trust;
    let none = Trust::default;
    let facts = [
        (
            Trust { events_lost: trust.events_lost, ..none() },
            "Only the net effect of the lost events is known: peaks among them may have been higher, and blocks \
             allocated and freed among them are not counted.",
        ),
        (
            Trust { unmatched_frees: trust.unmatched_frees, ..none() },
            "Some live blocks are not counted: totals and peaks before these frees are lower bounds.",
        ),
        (
            Trust { repeated_allocs: trust.repeated_allocs, ..none() },
            "Such a block counts as freed when its address is allocated again: until then totals may be too high, and \
             lifetimes too long.",
        ),
        (
            Trust { unmatched_uses: trust.unmatched_uses, ..none() },
            "Totals and lifetimes are not affected. Last uses, and which blocks were live but not used again, may be \
             wrong for blocks whose uses are missing.",
        ),
        (
            Trust { unmatched_releases: trust.unmatched_releases, ..none() },
            "Reserved memory before these releases is a lower bound; requested, allocated and active are not affected.",
        ),
        (
            Trust { unfinished: trust.unfinished, ..none() },
            "The recording ends before the program does: blocks kept to the end may have been freed later, and a \
             higher peak may have followed.",
        ),
        (
            Trust { sizes_inferred: trust.sizes_inferred, ..none() },
            "Requested bytes are exact. Allocated, active and rounding follow the allocator's rules and are exact \
             only if the allocator followed them.",
        ),
        (
            Trust { baseline_inferred: trust.baseline_inferred, ..none() },
            "Blocks allocated before the recording and freed in it are known only from their frees. When and where \
             baseline blocks were allocated is unknown.",
        ),
        (
            Trust { categories_guessed: trust.categories_guessed, ..none() },
            "Every sum by category is an estimate. Totals, peaks and sums by anything else are not affected.",
        ),
    ];
    let phases = trace.phases_are_guessed().then(|| TrustNote {
        fact: trace.trust_sentences().pop().unwrap_or_default(),
        means: "The start of a step or phase may be off by a few events: sums by step and phase are estimates, and so \
                are lifetimes in phases and steps.",
    });
    let notes = facts.into_iter().filter_map(|(fact, means)| Some(TrustNote { fact: fact.sentences().pop()?, means }));
    notes.chain(phases).collect()
}
