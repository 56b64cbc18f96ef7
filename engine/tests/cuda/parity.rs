//! Tests that a scenario on a CUDA device produces the same events as on the accounting device and the same losses as
//! on the CPU device, and that the driver's memory in use equals the allocator's reserved memory plus the known other
//! memory.

use std::collections::BTreeSet;

use highwater_analysis::verify;
use highwater_engine::device::WORKSPACE_BYTES;
use highwater_engine::optim::Form;
use highwater_engine::scenario::{self, Checkpoint, DeviceChoice, OptimizerKind, Options, Report, Sizes};
use highwater_engine::{DType, Device};
use highwater_recorder::snapshots::event::EventKind;
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::text::event_text;
use highwater_recorder::snapshots::{EventId, Trace};
use highwater_stand_in::Setup;
use highwater_stand_in::setup::GPU_VARIABLE;

use crate::recorded::samples;

/// Memory that the stand-in's context uses on a device.
const CONTEXT: u64 = 8 << 20;

pub(crate) fn run(name: &str, device: DeviceChoice, options: &Options) -> (Report, Trace) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.snap");
    let options = Options { device, ..options.clone() };
    let report = scenario::record(name, &options, &file).unwrap_or_else(|why| panic!("{name} on {device}: {why}"));
    (report, read_file(&file).expect("the recording opens"))
}

/// One line for each event, without times, addresses, devices and stacks, and without samples of memory in use.
fn events(trace: &Trace) -> Vec<String> {
    let is_sample = |id: EventId| trace.events.kind[id.index().expect("an event")] == EventKind::DeviceUsed;
    let line = |id: EventId| {
        let text = event_text(trace, id);
        let words = text.split(" < ").next().unwrap_or_default().split(' ');
        words.filter(|word| !word.starts_with("0x") && !word.starts_with("device=")).collect::<Vec<_>>().join(" ")
    };
    trace.events.ids().filter(|&id| !is_sample(id)).map(line).collect()
}

/// Fails unless both recordings have the same events, apart from times, addresses and devices.
pub(crate) fn assert_same_events(what: &str, found: &Trace, expected: &Trace) {
    let (found, expected) = (events(found), events(expected));
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "{what}, event {number}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(found.len() > 30, "{what}: {found:?}");
}

/// Runs two steps of the scenario on a CUDA device, on the accounting device, and on the CPU.
fn agree(name: &str, all: &[Options]) {
    Setup::new().run(|| {
        for (position, options) in all.iter().enumerate() {
            let what = format!("{name} {position}");
            let options = Options { steps: 2, uses: true, ..options.clone() };
            let (report, trace) = run(name, DeviceChoice::Cuda(0), &options);
            assert_eq!((report.steps_done, report.oom), (2, None), "{what}");
            assert_eq!(verify::verify_trace(&trace), [], "{what}");
            assert!(trace.records_uses() && trace.trust.unmatched_uses == 0, "{what}");
            assert_same_events(&what, &trace, &run(name, DeviceChoice::MetaForCuda, &options).1);

            let losses = report.losses.expect("a CUDA device computes");
            // The cpu has no virtual memory, which settings may ask for.
            let on_cpu = Options { alloc_conf: None, ..options.clone() };
            let on_cpu = run(name, DeviceChoice::Cpu, &on_cpu).0.losses.expect("so does the cpu");
            let narrow = options.dtype.or(options.autocast).is_some_and(|dtype| dtype.size() < 4);
            let most = if narrow { 2e-2 } else { 1e-4 };
            for (found, expected) in losses.iter().zip(&on_cpu) {
                let off = (found - expected).abs();
                assert!(off <= most * expected.abs().max(1e-3), "{what}: {losses:?} and {on_cpu:?}");
            }
            // An expandable segment is mapped by pages of 20 MiB, of which the workspace takes one.
            let kept = if options.alloc_conf.is_some() { 20 << 20 } else { WORKSPACE_BYTES };
            check_totals(&what, &trace, kept);
        }
    });
}

/// Checks samples of the memory in use; `kept` are the bytes of the workspace, allocated before the recording.
fn check_totals(what: &str, trace: &Trace, kept: u64) {
    let samples = samples(trace, trace.main_device());
    // One at the beginning, and one whenever segments change; further ones at phases depend on the time between them.
    let levels: BTreeSet<u64> = samples.iter().map(|(_, reserved)| *reserved).collect();
    assert!(levels.len() > 1 && levels.first() == Some(&0), "{what}: {samples:?}");
    for (used, reserved) in samples {
        let known = reserved + kept;
        if std::env::var_os(GPU_VARIABLE).is_some_and(|value| value == "1") {
            assert!(used >= known, "{what}: {used} in use, of which {known} here");
        } else {
            assert_eq!(used, known + CONTEXT, "{what}");
        }
    }
}

fn sized(sizes: Sizes) -> Options {
    Options { sizes, ..Options::default() }
}

fn variants(options: &Options, names: &[&str]) -> Vec<Options> {
    let named = names.iter().map(|name| Options { variant: Some((*name).to_owned()), ..options.clone() });
    std::iter::once(options.clone()).chain(named).collect()
}

#[test]
fn mlp() {
    let small = sized(Sizes { batch: Some(4), width: Some(24), layers: Some(3), ..Sizes::default() });
    let optimizer = |optimizer, form| Options { optimizer: Some(optimizer), form: Some(form), ..small.clone() };
    agree(
        "mlp",
        &[
            small.clone(),
            optimizer(OptimizerKind::Sgd, Form::Foreach),
            optimizer(OptimizerKind::AdamW, Form::PerTensor),
            optimizer(OptimizerKind::Adam, Form::Fused),
            Options { optimizer_in_backward: true, no_recompute: true, ..small.clone() },
            Options { dtype: Some(DType::F16), optimizer: Some(OptimizerKind::Sgd), ..small.clone() },
            Options { alloc_conf: Some("expandable_segments:True".to_owned()), ..small.clone() },
        ],
    );
}

#[test]
fn vit_small() {
    let small = sized(Sizes { batch: Some(1), ..Sizes::default() });
    agree("vit-small", &[small.clone(), Options { checkpoint: Checkpoint::BLOCKS, ..small }]);
}

#[test]
fn vit_l_16() {
    let small = sized(Sizes {
        image: Some(16),
        patch: Some(8),
        width: Some(16),
        layers: Some(2),
        heads: Some(2),
        hidden: Some(24),
        classes: Some(5),
        ..Sizes::default()
    });
    agree("vit-l-16", &[small.clone(), Options { dtype: Some(DType::Bf16), ..small }]);
}

fn language() -> Sizes {
    Sizes {
        batch: Some(1),
        seq: Some(7),
        width: Some(16),
        layers: Some(2),
        heads: Some(2),
        vocab: Some(40),
        ..Sizes::default()
    }
}

#[test]
fn gpt2() {
    let small = sized(Sizes { positions: Some(8), ..language() });
    let autocast = Options { autocast: Some(DType::Bf16), ..small.clone() };
    agree("gpt2", &[small.clone(), autocast, Options { checkpoint: Checkpoint::BLOCKS, ..small }]);
}

#[test]
fn falcon_7b() {
    let small = sized(language());
    agree("falcon-7b", &[small.clone(), Options { lora: Some(2), ..small }]);
}

#[test]
fn llama_3_8b() {
    agree("llama-3-8b", &[sized(Sizes { key_heads: Some(1), hidden: Some(24), ..language() })]);
}

#[test]
fn tiny_nerf() {
    let sizes = Sizes {
        width: Some(16),
        layers: Some(5),
        image: Some(3),
        samples: Some(4),
        chunk: Some(20),
        ..Sizes::default()
    };
    agree("tiny-nerf", &[sized(sizes), Options { checkpoint: Checkpoint::BLOCKS, ..sized(sizes) }]);
}

#[test]
fn fcn() {
    let sizes = Sizes {
        batch: Some(1),
        image: Some(32),
        padding: Some(1),
        width: Some(1),
        classes: Some(3),
        ..Sizes::default()
    };
    agree("fcn", &variants(&sized(sizes), &["fcn32s", "no-dropout"]));
}

#[test]
fn rnn() {
    let sizes = Sizes { seq: Some(3), batch: Some(5), width: Some(8), ..Sizes::default() };
    agree("rnn", &variants(&sized(sizes), &["input-added", "cell"]));
}

#[test]
fn matmul_chain() {
    let sizes = Sizes { width: Some(9), layers: Some(4), ..Sizes::default() };
    agree("matmul-chain", &variants(&sized(sizes), &["both", "by-hand"]));
}

#[test]
fn frozen_branch() {
    let sizes = Sizes { width: Some(9), layers: Some(3), batch: Some(4), ..Sizes::default() };
    agree("frozen-branch", &variants(&sized(sizes), &["trunk", "branches"]));
}

#[test]
fn every_scenario_is_tried() {
    let tried = include_str!("parity.rs");
    for info in scenario::all() {
        assert!(tried.contains(&format!("\"{}\",", info.name)), "{}", info.name);
    }
    // A recording's numbers are only as good as the device's: what counts for a GPU keeps what it keeps.
    let counting = Device::accounting_for_cuda(1 << 30, "".parse().expect("settings")).expect("there is memory");
    assert_eq!(counting.allocator().stats().reserved_bytes.all.current, WORKSPACE_BYTES);
}
