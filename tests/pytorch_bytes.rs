//! Tests that no scenario uses more memory than in PyTorch at any stage.

use highwater_tests::pytorch_table::Comparison;
use highwater_tests::{recording_turn, workspace_root};

#[test]
fn no_stage_of_any_scenario_takes_more_than_pytorch_and_the_page_that_says_so_is_true() {
    let _turn = recording_turn();
    let folder = tempfile::tempdir().unwrap();
    let comparison = Comparison::measure(&[], folder.path());
    assert!(comparison.above.is_empty(), "{}", comparison.above.join("\n"));
    assert!(comparison.mean() <= 0.92, "the geometric mean of the peaks is {} of PyTorch's", comparison.mean());
    let page = std::fs::read_to_string(workspace_root().join("docs/beside-pytorch.md")).unwrap();
    let differs = page.lines().rev().zip(comparison.text.lines().rev()).find(|(written, measured)| written != measured);
    let how = "write it anew: cargo run -p highwater-tests --example beside_pytorch -- --write";
    assert_eq!(differs, None, "docs/beside-pytorch.md is of another time; {how}");
}
