//! Tests that scenarios of default size produce the same events on a CUDA device as on the accounting device. The CUDA
//! device is a stand-in that allocates memory but computes nothing. Behavior that depends on sizes is the same as on a
//! GPU: how work is split, which workspaces are needed, and which segments are allocated.

use highwater_analysis::verify;
use highwater_engine::DType;
use highwater_engine::optim::Form;
use highwater_engine::scenario::{Checkpoint, DeviceChoice, Options};
use highwater_stand_in::Setup;

use crate::parity::{assert_same_events, run};

/// More memory than any scenario needs.
const MEMORY_BYTES: u64 = 200 << 30;

fn agree(name: &str, all: &[Options]) {
    Setup::new().idle().memory_bytes(MEMORY_BYTES).only_on_stand_in().run(|| {
        for (position, options) in all.iter().enumerate() {
            let what = format!("{name} {position}");
            let options = Options { steps: 2, ..options.clone() };
            let (report, trace) = run(name, DeviceChoice::Cuda(0), &options);
            assert_eq!((report.steps_done, report.oom), (2, None), "{what}");
            assert_eq!(verify::verify_trace(&trace), [], "{what}");
            assert_same_events(&what, &trace, &run(name, DeviceChoice::MetaForCuda, &options).1);
        }
    });
}

#[test]
fn vit_l_16() {
    let fused = Options { form: Some(Form::Fused), optimizer_in_backward: true, ..Options::default() };
    agree("vit-l-16", &[Options::default(), fused]);
}

#[test]
fn gpt2() {
    let autocast = Options { autocast: Some(DType::Bf16), ..Options::default() };
    let expandable = Options { alloc_conf: Some("expandable_segments:True".to_owned()), ..Options::default() };
    agree("gpt2", &[Options::default(), autocast, expandable]);
}

#[test]
fn falcon_7b() {
    agree(
        "falcon-7b",
        &[Options::default(), Options { lora: Some(16), checkpoint: Checkpoint::BLOCKS, ..Options::default() }],
    );
}

#[test]
fn llama_3_8b() {
    agree("llama-3-8b", &[Options::default()]);
}

#[test]
fn tiny_nerf() {
    agree("tiny-nerf", &[Options::default(), Options { checkpoint: Checkpoint::BLOCKS, ..Options::default() }]);
}

#[test]
fn fcn() {
    agree("fcn", &[Options::default()]);
}

#[test]
fn scenarios_that_are_small_by_default() {
    for name in ["mlp", "vit-small", "frozen-branch", "matmul-chain", "rnn"] {
        agree(name, &[Options::default()]);
    }
}
