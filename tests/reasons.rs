//! Tests that the effect of a cause stated in an explanation equals that measured by a run without the cause.

use std::ops::ControlFlow;
use std::path::PathBuf;

use highwater_analysis::diff::{Comparison, DiffGroup};
use highwater_analysis::explain::Remedy;
use highwater_analysis::peak::Query;
use highwater_analysis::{Explanation, Filter, GroupKey, Metric, Origin, Siblings, Source};
use highwater_engine::scenario::{self, Options};
use highwater_snapshots::format::read_file;
use highwater_snapshots::{Category, DeviceId, Phase};
use highwater_tests::recording_turn;

struct Run {
    source: Source<'static>,
    device: DeviceId,
}

impl Run {
    fn of(name: &str, options: &Options, file: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
        let turn = recording_turn();
        scenario::record(name, options, &path).expect("the scenario runs");
        drop(turn);
        let trace = read_file(&path).expect("the recording opens");
        let device = trace.main_device();
        Self { source: Source::in_memory(trace), device }
    }

    fn explain(&self, filter: &str) -> Explanation {
        let filter: Filter = filter.parse().expect("the filter is one");
        let keys = [GroupKey::Category, GroupKey::Phase];
        let query = Query { keys: &keys, top: 20, filter: &filter, siblings: Siblings::Each };
        Explanation::of(&self.source, self.device, Metric::Requested, &query, &mut |_| ControlFlow::Continue(()))
            .expect("it is in memory")
    }
}

/// PyTorch's tutorial on fusing the optimizer into backward: 2.4 GB of gradients and temporaries go, but the peak falls
/// by less, since it moves to backward.
#[test]
fn a_peak_without_gradients_and_temporaries_is_that_of_a_step_within_backward() {
    let plain = Run::of("vit-l-16", &Options { steps: 2, ..Options::default() }, "reasons_plain.snap");
    let options = Options { steps: 2, optimizer_in_backward: true, ..Options::default() };
    let within = Run::of("vit-l-16", &options, "reasons_within.snap");
    let (explained, other) = (plain.explain(""), within.explain(""));
    let [first, second] = &explained.removals[..2] else { panic!("two parts are worth a line") };
    let mut causes = [first.cause, second.cause].map(|cause| (cause.category, cause.origin));
    causes.sort_unstable();
    let in_phase = |category, phase| (category, Origin::Phase(phase));
    let expected = [in_phase(Category::Gradient, Phase::Backward), in_phase(Category::Temporary, Phase::Optimizer)];
    assert_eq!(causes, expected);
    assert_eq!((explained.peak.phase, other.peak.phase), (Phase::Optimizer, Phase::Backward));
    // Without any gradient, the end of forward is as high as it gets; with one at a time, the beginning of backward is.
    assert_eq!(second.left.phase, Phase::Forward, "where most activations are alive");
    // What is held of both at the plain peak, less than which the peak falls.
    let held = explained.peak.bytes - first.bytes_at_peak - second.bytes_at_peak;
    assert!(second.left.bytes > held);
    let off = other.peak.bytes.abs_diff(second.left.bytes);
    assert!(off * 100 < other.peak.bytes, "predicted {}, and it is {}", second.left.bytes, other.peak.bytes);

    let diff = Comparison::of(
        [&plain.source, &within.source],
        [&plain, &within].map(|run| run.source.peak(run.device, Metric::Requested).expect("it is in memory")),
        &Query { keys: &[GroupKey::Category], top: 3, filter: &Filter::default(), siblings: Siblings::Each },
        &mut |_| ControlFlow::Continue(()),
    );
    let diff = diff.expect("both are in memory").diff;
    let listed: i128 = diff.groups.iter().map(DiffGroup::delta).sum();
    let rest = i128::from(diff.rest_bytes[1]) - i128::from(diff.rest_bytes[0]);
    assert_eq!(listed + rest, i128::from(other.peak.bytes) - i128::from(explained.peak.bytes));
    let named: Vec<&str> = diff.groups.iter().map(|group| group.key[0].as_str()).collect();
    assert!(named.contains(&"gradient") && named.contains(&"temporary"), "{named:?}");
}

/// The 13 GB between 53 and 66 that the owner of a Falcon-7B could not account for.
#[test]
fn what_vanishes_from_a_falcon_is_named_as_temporaries_of_the_optimizer() {
    let falcon = Run::of("falcon-7b", &Options { steps: 2, ..Options::default() }, "reasons_falcon.snap");
    let explained = falcon.explain("");
    let advice = &explained.advice[..];
    let fused = advice.iter().find(|one| one.remedy == Remedy::FusedOptimizer).expect("the optimizer's temporaries");
    let gigabytes = fused.bytes as f64 / 1e9;
    assert!((gigabytes - 13.8).abs() < 0.05, "{gigabytes} GB: {}", fused.text);
    let temporary =
        explained.groups.iter().find(|group| group.key == ["temporary", "optimizer"]).expect("it is a group");
    assert_eq!(temporary.bytes_at_peak, fused.bytes);
}
