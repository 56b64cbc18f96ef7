//! The memory of PyTorch's runs of the scenarios, stage by stage, next to ours.

use std::collections::BTreeMap;
use std::path::Path;

use highwater_analysis::Metric;
use highwater_analysis::phases::{PhaseRow, phases_of};
use highwater_engine::scenario;
use highwater_snapshots::Phase;
use highwater_snapshots::format::read_file;
use serde::Deserialize;

use crate::command::parse;

/// Requested bytes of one training step. Stages that a run does not have are left out.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Stages {
    /// When forward has ended.
    pub after_forward: u64,
    /// The most in backward.
    pub backward_peak: u64,
    /// When backward has ended.
    pub after_backward: u64,
    /// The most in the optimizer.
    pub optimizer_peak: Option<u64>,
    /// When gradients are gone.
    pub after_zero_grad: u64,
}

impl Stages {
    /// Each stage that there is, by its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("after forward", Some(self.after_forward)),
            ("peak of backward", Some(self.backward_peak)),
            ("after backward", Some(self.after_backward)),
            ("peak of optimizer", self.optimizer_peak),
            ("after zero_grad", Some(self.after_zero_grad)),
        ];
        all.into_iter().filter_map(|(name, bytes)| Some((name, bytes?)))
    }

    /// The most in backward and optimizer.
    pub fn peak(&self) -> u64 {
        self.backward_peak.max(self.optimizer_peak.unwrap_or(0))
    }
}

/// One run of PyTorch, and the command that does the same here.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    /// The model and its data.
    pub scenario: String,
    /// How it was trained.
    pub variant: String,
    /// The words after `highwater record`; none where there is no such option here.
    pub command: Option<String>,
    /// By training step.
    pub steps: Vec<Stages>,
}

/// All runs, measured with PyTorch 2.15: its own autograd, optimizers and CUDA caching allocator, on a runtime whose
/// kernels do nothing.
pub fn runs() -> Vec<Run> {
    serde_json::from_str(include_str!("../data/pytorch_bytes.json")).expect("the file of PyTorch's runs is well formed")
}

/// Does what `command` says, on the accounting device, and measures it from its recording in `folder`.
pub fn measure(command: &str, steps: usize, folder: &Path) -> Vec<Stages> {
    let (name, mut options) = parse(command).unwrap_or_else(|why| panic!("{command}: {why}"));
    options.steps = steps as u32;
    let file = folder.join("run.snap");
    let report = scenario::record(&name, &options, &file).unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(report.oom.is_none(), "{command} ran out of memory");
    let trace = read_file(&file).expect("a recording that was just made is readable");
    let rows = phases_of(&trace, trace.main_device(), Metric::Requested);
    (0..steps as u32).map(|step| stages(&rows, step)).collect()
}

fn stages(rows: &[PhaseRow], step: u32) -> Stages {
    let of_step: BTreeMap<Phase, &PhaseRow> =
        rows.iter().filter(|row| row.step == Some(step)).map(|row| (row.phase, row)).collect();
    let (forward, backward) = (of_step[&Phase::Forward], of_step[&Phase::Backward]);
    let optimizer = of_step.get(&Phase::Optimizer);
    let last = of_step.get(&Phase::ZeroGrad).or(optimizer).unwrap_or(&backward);
    Stages {
        after_forward: forward.end_bytes,
        backward_peak: backward.peak_bytes,
        after_backward: backward.end_bytes,
        optimizer_peak: optimizer.map(|row| row.peak_bytes),
        after_zero_grad: last.end_bytes,
    }
}
