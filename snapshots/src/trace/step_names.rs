//! Recognizes steps and phases in the names of annotations.
//!
//! A name is split into words, which are runs of letters or of digits, ignoring case. A capital within a run begins a
//! new word, as in `ForwardPass`. Only the beginning of a very long name is used.
//!
//! **Tags.** `highwater.step#7` and `highwater.phase#backward`, which are derived from the tags of allocations, take
//! precedence over all other names.
//!
//! **Step.** `ProfilerStep#7`, the name that `torch.profiler` gives to a step, is step 7. With less certainty, a word
//! `step`, `iteration`, `iter` or `batch` followed by a number denotes a step, as in `step 3`, `train_step_3`,
//! `iteration: 7` or `## step 4 ##`, but not in a name that denotes a phase, such as `forward step 3`.
//!
//! **Phase.** `Optimizer.step#…` and `Optimizer.zero_grad#…`, the names that PyTorch itself gives to these calls;
//! otherwise by the words `optimizer`, `optim` and a call `step()`; `zero_grad`; `forward`, `fwd`; `backward`, `bwd`;
//! `eval`, `evaluate`, `evaluation`, `validate`, `validation`. A name with words of two phases denotes no phase, except
//! that `zero_grad` takes precedence over `optimizer`, and evaluation over `forward`. All other names, including those
//! of data loading, denote no phase.

use crate::Phase;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) step: Option<StepName>,
    pub(super) phase: Option<Phase>,
    /// Whether the name was derived from allocation tags.
    pub(super) is_tag: bool,
}

/// The step number, by how reliably the name denotes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepName {
    /// Named by allocation tags.
    Tag(u32),
    /// Named by `torch.profiler`.
    Profiler(u32),
    /// Recognized by words.
    Worded(u32),
}

/// Prefix of the names of step annotations that are derived from allocation tags.
pub const TAGGED_STEP: &str = "highwater.step#";
/// Prefix of the names of phase annotations that are derived from allocation tags.
pub const TAGGED_PHASE: &str = "highwater.phase#";

/// Maximum number of characters of a name that are examined.
const MAX_CHARACTERS: usize = 500;

impl Meaning {
    pub(super) fn of(name: &str) -> Self {
        let name = name.char_indices().nth(MAX_CHARACTERS).map_or(name, |(end, _)| &name[..end]);
        let step = |prefix: &str| name.strip_prefix(prefix).and_then(|number| number.parse().ok());
        if let Some(number) = step(TAGGED_STEP) {
            return Self { step: Some(StepName::Tag(number)), phase: None, is_tag: true };
        }
        if let Some(phase) = name.strip_prefix(TAGGED_PHASE).and_then(Phase::from_name) {
            return Self { step: None, phase: Some(phase), is_tag: true };
        }
        if let Some(number) = step("ProfilerStep#") {
            return Self { step: Some(StepName::Profiler(number)), ..Self::default() };
        }
        let phase = match name {
            _ if name.starts_with("Optimizer.step#") => Some(Phase::Optimizer),
            _ if name.starts_with("Optimizer.zero_grad#") => Some(Phase::ZeroGrad),
            _ => phase_by_words(name),
        };
        let step = if phase.is_none() { step_by_words(name) } else { None };
        Self { step: step.map(StepName::Worded), phase, is_tag: false }
    }
}

fn step_by_words(name: &str) -> Option<u32> {
    let mut before = "";
    words(name).find_map(|(_, word)| {
        let is_counted = ["step", "iteration", "iter", "batch"].iter().any(|name| before.eq_ignore_ascii_case(name));
        before = word;
        if is_counted { word.parse().ok() } else { None }
    })
}

fn phase_by_words(name: &str) -> Option<Phase> {
    let mut named = [false; Phase::ALL.len()];
    let mut before = "";
    for (at, word) in words(name) {
        let is = |texts: &[&str]| texts.iter().any(|text| word.eq_ignore_ascii_case(text));
        // `optimizer.step()`, but not `train_step()`.
        let is_call = || name[at + word.len()..].starts_with("()") && !name[..at].ends_with('_');
        let phase = match () {
            () if is(&["optimizer", "optim"]) || (is(&["step"]) && is_call()) => Some(Phase::Optimizer),
            () if is(&["zerograd"]) || (is(&["grad"]) && before.eq_ignore_ascii_case("zero")) => Some(Phase::ZeroGrad),
            () if is(&["forward", "fwd"]) => Some(Phase::Forward),
            () if is(&["backward", "bwd"]) => Some(Phase::Backward),
            () if is(&["eval", "evaluate", "evaluation", "validate", "validation"]) => Some(Phase::Eval),
            () => None,
        };
        if let Some(phase) = phase {
            named[phase as usize] = true;
        }
        before = word;
    }
    if named[Phase::ZeroGrad as usize] {
        named[Phase::Optimizer as usize] = false;
    }
    if named[Phase::Eval as usize] {
        // `eval_forward`
        named[Phase::Forward as usize] = false;
    }
    let mut phases = Phase::ALL.iter().filter(|phase| named[**phase as usize]);
    let phase = phases.next().copied();
    if phases.next().is_some() { None } else { phase }
}

/// The words of `name`, each with its byte offset.
fn words(name: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + name[at..].find(char::is_alphanumeric)?;
        at = start + word_length(&name[start..]);
        Some((start, &name[start..at]))
    })
}

/// The length in bytes of the first word of `text`.
fn word_length(text: &str) -> usize {
    let mut characters = text.char_indices().peekable();
    let Some((_, mut before)) = characters.next() else {
        return 0;
    };
    while let Some((at, this)) = characters.next() {
        let is_before_small = characters.peek().is_some_and(|(_, after)| after.is_lowercase());
        let is_hump = this.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && is_before_small));
        if !this.is_alphanumeric() || is_hump || before.is_ascii_digit() != this.is_ascii_digit() {
            return at;
        }
        before = this;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_known_by_the_profilers_name_and_by_words() {
        assert_eq!(Meaning::of("ProfilerStep#12").step, Some(StepName::Profiler(12)));
        let worded = [
            ("step 3", 3),
            ("train_step_3", 3),
            ("iteration: 7", 7),
            ("iter 12", 12),
            ("## step 4 ##", 4),
            ("batch 5", 5),
            ("Step3", 3),
            ("TRAIN STEP #8/100", 8),
            ("epoch 2, trainStep=9", 9),
            ("forward and backward of step 6", 6),
        ];
        for (name, number) in worded {
            let step = Some(StepName::Worded(number));
            assert_eq!(Meaning::of(name), Meaning { step, ..Meaning::default() }, "{name}");
        }
        for name in ["", "step", "3", "epoch 3", "batch_size 32", "footstep 1", "step 99999999999", "forward step 3"] {
            assert_eq!(Meaning::of(name).step, None, "{name}");
        }
    }

    #[test]
    fn phases_are_known_by_pytorchs_names_and_by_words() {
        let named = [
            ("Optimizer.step#AdamW.step", Phase::Optimizer),
            ("Optimizer.step#ForwardBackwardSplitting.step", Phase::Optimizer),
            ("Optimizer.zero_grad#SGD.zero_grad", Phase::ZeroGrad),
            ("## optimizer ##", Phase::Optimizer),
            ("optim", Phase::Optimizer),
            ("optimizer_step", Phase::Optimizer),
            ("opt.step()", Phase::Optimizer),
            ("AdamWOptimizer", Phase::Optimizer),
            ("optimizer.zero_grad()", Phase::ZeroGrad),
            ("forward", Phase::Forward),
            ("DistributedDataParallel.forward", Phase::Forward),
            ("ForwardPass", Phase::Forward),
            ("forward_pass", Phase::Forward),
            ("FWD 3", Phase::Forward),
            ("loss.backward()", Phase::Backward),
            ("bwd", Phase::Backward),
            ("validation_step 3", Phase::Eval),
            ("EvalForward", Phase::Eval),
        ];
        for (name, phase) in named {
            assert_eq!(Meaning::of(name), Meaning { phase: Some(phase), ..Meaning::default() }, "{name}");
        }
        let unnamed = [
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            "data loading",
            "train_step()",
            "forward/backward",
            "straightforward",
            "grad",
            "ProfilerStep#",
            "größe",
        ];
        for name in unnamed {
            assert_eq!(Meaning::of(name), Meaning::default(), "{name}");
        }
    }

    #[test]
    fn only_the_beginning_of_a_name_counts() {
        let long = format!("{} forward", "x".repeat(1 << 20));
        assert_eq!(Meaning::of(&long), Meaning::default());
    }
}
