//! Tests that advice does not recommend what the recorded program already does.

use super::remedy::Remedy;
use super::tests::explain;
use crate::grouping::dimension::GroupKey;

#[test]
fn what_the_program_does_already_is_not_advised() {
    let remedies = |text: &str| -> Vec<Remedy> {
        let (_, explanation) = explain(text, &[GroupKey::Category], "");
        explanation.advice.iter().map(|one| one.remedy).collect()
    };
    let step = "alloc w 100 parameter\nstep 0\nphase backward\nalloc g0 900 gradient\nalloc g1 900 gradient\n\
                phase optimizer\nalloc t 9 temporary\nfree t\nfree g0\nfree g1\n";
    // Each parameter is updated in backward, and its gradient is freed.
    let update = |number: u32| {
        format!(
            "phase backward\nalloc g{number} 900 gradient\nphase optimizer\nalloc t{number} 9 temporary\nfree t{number}\nfree g{number}\n"
        )
    };
    let in_backward = format!("alloc w 100 parameter\nstep 0\nphase forward\n{}{}{}", update(0), update(1), update(2));
    assert!(!remedies(&in_backward).contains(&Remedy::StepInBackward));
    assert!(remedies(step).contains(&Remedy::StepInBackward));
    let accumulated = step.replacen("phase optimizer", "phase forward\nphase backward\nphase optimizer", 1);
    assert!(!remedies(&accumulated).contains(&Remedy::StepInBackward));

    // Of three modules, one is recomputed: it keeps only its input.
    let forward = "step 0\nphase forward\nalloc a0 600 activation @h.0\nalloc a1 700 activation @h.1\n\
                   alloc a2 700 activation @h.2\nphase backward\n";
    assert!(remedies(forward).contains(&Remedy::Checkpoint));
    let again = |number: u32| {
        format!(
            "alloc r{number} 50 activation @h.{number}.mlp\nalloc q{number} 5 activation @h.{number}\n\
             free r{number}\nfree a{number}\n"
        )
    };
    let (_, one) = explain(&format!("{forward}{}", again(2)), &[GroupKey::Category], "");
    let advice = one.advice.iter().find(|one| one.remedy == Remedy::Checkpoint).expect("two are not");
    assert_eq!(advice.bytes, 1300, "{}", advice.text);
    let all = remedies(&format!("{forward}{}{}{}", again(2), again(1), again(0)));
    assert!(!all.contains(&Remedy::Checkpoint) && !all.contains(&Remedy::FewerActivations), "{all:?}");

    let fused = "alloc w 100 parameter\nphase optimizer\nalloc t1 400 temporary < adam.py:3 _fused_adamw\n\
                 alloc t2 400 temporary < adam.py:3 _fused_adamw\nfree t1\nfree t2\n";
    assert!(!remedies(fused).contains(&Remedy::FusedOptimizer));
    assert!(remedies(&fused.replace("_fused_adamw", "_multi_tensor_adamw")).contains(&Remedy::FusedOptimizer));

    let free = |kind: &str| {
        let bytes = 256 << 20;
        format!("{kind} 0x10000000 {bytes}\nalloc a {} large\n", bytes / 2)
    };
    assert!(remedies(&free("segment_alloc")).contains(&Remedy::ExpandableSegments));
    assert!(!remedies(&free("segment_map")).contains(&Remedy::ExpandableSegments));
}
