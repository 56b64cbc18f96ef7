//! Tests of advice on the temporaries of an optimizer.

use super::tests::explain;
use super::*;
use crate::GroupKey;

#[test]
fn temporaries_of_one_parameter_at_a_time_promise_nothing_of_foreach() {
    let one = "alloc w 100 parameter\nphase optimizer\nalloc t1 400 temporary < adam.py:3 step\n\
               alloc t2 400 temporary < adam.py:4 step\nfree t1\nfree t2\n";
    let fused = |text: &str| {
        let (_, explanation) = explain(text, &[GroupKey::Category], "");
        explanation.advice.into_iter().find(|one| one.remedy == Remedy::FusedOptimizer).expect("it is much")
    };
    let advice = fused(one);
    assert!(advice.text.contains("one parameter at a time. In-place") && !advice.text.contains("foreach"));
    assert_eq!(advice.without, None);
    assert!(
        fused(&one.replace("adam.py:4", "adam.py:3")).text.contains("with foreach=False, only those of one parameter")
    );
}

#[test]
fn an_optimizer_without_a_fused_form_is_not_advised_to_be_fused() {
    let text = |file: &str, last: u32| {
        let stack = |line: u32| format!("< /site/torch/optim/{file}:{line} step");
        let text = format!(
            "alloc w 100 parameter\nphase optimizer\nalloc t1 400 temporary {}\nalloc t2 400 temporary {}\nfree t1\nfree t2\n",
            stack(3),
            stack(last)
        );
        let (_, explanation) = explain(&text, &[GroupKey::Category], "");
        let advice =
            explanation.advice.into_iter().find(|one| one.text.contains("of the optimizer")).expect("it is much");
        (advice.remedy, advice.text)
    };
    assert_eq!(text("adamw.py", 3).0, Remedy::FusedOptimizer);
    for last in [3, 4] {
        let (remedy, text) = text("radam.py", last);
        assert_eq!(remedy, Remedy::FewerTemporaries);
        assert!(!text.contains("a fused optimizer") && !text.contains("A fused optimizer"), "{text}");
    }
}
