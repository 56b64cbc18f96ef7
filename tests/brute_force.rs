//! Among all sets of recomputed modules, each of them run, none is cheaper or lower than a plan's.

use highwater_tests::brute_force::{Comparison, compare, compare_scenario};
use highwater_tests::random_block::NetKind;
use highwater_tests::random_net::RandomNet;
use highwater_tests::recording_turn;

#[test]
fn nothing_cheaper_than_the_solution_fits_for_gpt2_of_2_to_7_layers() {
    let _turn = recording_turn();
    for layers in [2, 3, 5, 7] {
        let text = format!("gpt2 --batch 16 --seq 256 --width 128 --vocab 1000 --fused --layers {layers}");
        let found = compare_scenario(&text, &["h.*"]);
        assert_eq!(found.differences, Vec::<String>::new(), "{layers} layers");
        assert_eq!(found.subsets, 1 << layers);
        assert!(found.peaks > layers && found.budgets > 2 * layers, "{found:?}");
    }
}

#[test]
fn nothing_cheaper_fits_if_blocks_and_the_modules_within_them_can_be_chosen() {
    let _turn = recording_turn();
    let text = "gpt2 --batch 16 --seq 256 --width 128 --vocab 1000 --optimizer-in-backward --layers 3";
    let found = compare_scenario(text, &["h.*", "h.*.attn", "h.*.mlp"]);
    assert_eq!(found.differences, Vec::<String>::new());
    assert_eq!(found.subsets, 5 * 5 * 5, "of each layer nothing, all, one part, the other, or both");
}

fn compare_random(kind: NetKind, seed: u64) -> Comparison {
    let net = RandomNet::new(kind, seed, 6);
    let trace = net.record().expect("the net runs");
    let found = compare(&trace, &["blocks.*"], |paths| net.run(paths).expect("the net runs"));
    assert!(!found.differences.iter().any(|text| text.contains("FLOPs")), "seed {seed}: {found:?}");
    found
}

/// Where a block's result is the only input of a linear layer or convolution, backward writes the gradient over it. The
/// prediction takes such a result for one that the block itself has saved, and frees it until it is recomputed.
#[test]
fn for_most_random_nets_nothing_cheaper_fits_and_no_peak_is_predicted_much_too_low() {
    let _turn = recording_turn();
    let (mut exact, mut different) = (0, 0);
    for seed in 1..=60 {
        let found = compare_random(NetKind::Perceptron, seed);
        assert!(found.predicted[0] > 0.9 && found.predicted[1] <= 1.0, "seed {seed}: {found:?}");
        exact += usize::from(found.differences.is_empty());
        different += usize::from(found.peaks > 2);
    }
    assert!(exact >= 40 && different >= 30, "{exact} {different}");
}

#[test]
#[ignore = "predictions are not exact for blocks that save only inputs or results, or whose results hold gradients"]
fn nothing_cheaper_fits_for_random_nets_of_unequal_blocks() {
    let _turn = recording_turn();
    for kind in [NetKind::Perceptron, NetKind::Any] {
        let differing = (1..=60).filter(|seed| !compare_random(kind, *seed).differences.is_empty());
        assert_eq!(differing.collect::<Vec<_>>(), Vec::<u64>::new(), "{kind:?}");
    }
}
