//! Tests that models learn, runs are reproducible, every device sees the same events, and no stage uses more memory
//! than in PyTorch.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_analysis::Metric;
use highwater_analysis::phases::{PhaseRow, phases_of};
use highwater_engine::optim::Form;
use highwater_engine::scenario::{self, DeviceChoice, OptimizerKind, Options, Report, Sizes};
use highwater_recorder::snapshots::event::EventKind;
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::trace::{Block, Subject};
use highwater_recorder::snapshots::{EventId, Trace};
use highwater_recorder::{Category, DeviceId, Phase};

/// Requested bytes of PyTorch's stages, written by `data/torch/make_fixtures.py`.
const VIT_L_16: &str = include_str!("data/torch/vit_l_16.txt");

/// The recorder is one for the whole program.
fn alone() -> MutexGuard<'static, ()> {
    static RECORDER: Mutex<()> = Mutex::new(());
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(name: &str, options: &Options, file: &str) -> (Report, Trace) {
    let _alone = alone();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    let report = scenario::record(name, options, &path).expect("the scenario runs");
    let trace = read_file(&path).expect("the recording opens");
    assert_eq!(trace.problems, []);
    (report, trace)
}

fn on_cpu(steps: u32) -> Options {
    Options { device: DeviceChoice::Cpu, steps, ..Options::default() }
}

/// Every event from the first allocation on, but for times and addresses, as text.
fn events(trace: &Trace) -> Vec<String> {
    let block = |id| {
        let block = trace.blocks.get(id);
        let (scope, op) = (trace.tables.scope_path(block.scope), trace.tables.op_name(block.op));
        format!("{} bytes {} {scope} {op}", block.requested, block.category)
    };
    let line = |id: EventId| match trace.subject(id) {
        Subject::Block(key) => format!("{key:?} {}", block(key)),
        Subject::Segment(id) => format!("segment {}", trace.segments.get(id).range.bytes),
        other => format!("{other:?}"),
    };
    let kind = |id: EventId| trace.events.kind[id.index().unwrap()];
    let ids = trace.events.ids().skip_while(|&id| kind(id) != EventKind::SegmentAlloc);
    ids.map(|id| format!("{:?} {}", kind(id), line(id))).collect()
}

#[test]
fn the_accounting_device_sees_every_event_that_the_processor_sees() {
    for (name, options) in [
        ("mlp", on_cpu(2)),
        (
            "mlp",
            Options {
                capacity: Some(64 << 20),
                alloc_conf: Some("garbage_collection_threshold:0.1".to_owned()),
                ..on_cpu(2)
            },
        ),
        ("vit-small", Options { form: Some(Form::PerTensor), ..on_cpu(2) }),
        ("vit-small", Options { optimizer_in_backward: true, optimizer: Some(OptimizerKind::Sgd), ..on_cpu(2) }),
    ] {
        let options = Options { uses: true, ..options };
        let (on_cpu, computed) = run(name, &options, "cpu.snap");
        let (on_meta, counted) = run(name, &Options { device: DeviceChoice::Meta, ..options.clone() }, "meta.snap");
        assert!(computed.records_uses() && computed.trust.is_complete(), "{:?}", computed.trust);
        let capacities = [&computed, &counted].map(|trace| trace.devices.first().map(|facts| facts.capacity_bytes));
        let (computed, counted) = (events(&computed), events(&counted));
        for (one, other) in computed.iter().zip(&counted) {
            assert_eq!(one, other, "{name}");
        }
        assert_eq!(computed.len(), counted.len());
        assert!(computed.len() > 100);
        if options.capacity.is_some() {
            assert_eq!(capacities, [options.capacity; 2], "{name}");
        }
        assert_eq!((on_cpu.losses.map(|losses| losses.len()), on_meta.losses), (Some(2), None));
    }
}

#[test]
fn without_steps_the_setup_alone_is_recorded() {
    let (report, trace) = run("mlp", &on_cpu(0), "setup.snap");
    assert_eq!((report.steps_done, report.losses), (0, Some(vec![])));
    let rows = phases_of(&trace, DeviceId(0), Metric::Requested);
    assert!(rows.iter().any(|row| row.phase == Phase::Setup && row.end_bytes > 0));
    assert!(rows.iter().all(|row| row.step.is_none()));
}

#[test]
fn small_models_learn() {
    for (name, steps) in [("mlp", 8), ("vit-small", 12)] {
        let (report, _) = run(name, &on_cpu(steps), "learn.snap");
        let losses = report.losses.expect("the processor computes losses");
        assert_eq!(losses.len(), steps as usize);
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(first.is_finite() && last < 0.8 * first, "{name}: {losses:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_losses_and_another_seed_others() {
    let losses = |seed| run("mlp", &Options { seed, ..on_cpu(3) }, "seed.snap").0.losses;
    assert_eq!(losses(1), losses(1));
    assert_ne!(losses(1), losses(2));
}

#[test]
fn the_form_and_the_place_of_the_optimizer_do_not_change_the_losses() {
    let losses = |options: Options| run("mlp", &options, "form.snap").0.losses.unwrap();
    let foreach = losses(on_cpu(4));
    assert_eq!(losses(Options { form: Some(Form::PerTensor), ..on_cpu(4) }), foreach);
    assert_eq!(losses(Options { optimizer_in_backward: true, ..on_cpu(4) }), foreach);
}

#[test]
fn parameters_gradients_and_state_are_recorded_within_their_module() {
    let (_, trace) = run("vit-small", &Options { steps: 2, ..Options::default() }, "scopes.snap");
    let bytes = |category| -> u64 {
        let blocks = trace.blocks.ids().map(|id| trace.blocks.get(id));
        let here = |scope| trace.tables.scope_path(scope) == "encoder.layers.3.mlp.fc1";
        let wanted = |block: &Block| block.category == category && here(block.scope);
        blocks.filter(wanted).map(|block| block.requested).sum()
    };
    let parameters = (64 * 256 + 256) * 4;
    assert_eq!(bytes(Category::Parameter), parameters);
    assert_eq!(bytes(Category::OptimizerState), 2 * parameters, "two averages");
    assert_eq!(bytes(Category::Gradient), 2 * parameters, "two steps");
    assert!(bytes(Category::Activation) > 0);
}

/// Bytes at the end and at the peak of a stage, by PyTorch.
fn pytorchs(variant: &str, stage: &str) -> [u64; 2] {
    let prefix = format!("{variant} {stage} ");
    let numbers = VIT_L_16.lines().find_map(|line| line.strip_prefix(&prefix)).expect("PyTorch has this stage");
    let (end, peak) = numbers.split_once(' ').expect("two numbers");
    [end, peak].map(|number| number.parse().expect("bytes"))
}

fn stages_of_vit(variant: &str, options: &Options) -> Vec<PhaseRow> {
    let (report, trace) = run("vit-l-16", options, &format!("{variant}.snap"));
    assert_eq!((report.steps_done, report.oom), (3, None));
    let rows = phases_of(&trace, DeviceId(0), Metric::Requested);
    let mut compared = 0;
    for row in rows.iter().filter(|row| !matches!(row.phase, Phase::Setup | Phase::Other)) {
        let stage = format!("{}.{}", row.step.unwrap(), row.phase);
        let [end, peak] = pytorchs(variant, &stage);
        assert!(row.end_bytes <= end, "{variant} {stage} ends with {} bytes, PyTorch with {end}", row.end_bytes);
        assert!(row.peak_bytes <= peak, "{variant} {stage} peaks at {} bytes, PyTorch at {peak}", row.peak_bytes);
        compared += 1;
    }
    assert_eq!(compared, VIT_L_16.lines().filter(|line| line.starts_with(variant)).count());
    rows
}

fn highest(rows: &[PhaseRow]) -> &PhaseRow {
    rows.iter().max_by_key(|row| row.peak_bytes).expect("there are phases")
}

fn at_peak(row: &PhaseRow, category: Category) -> u64 {
    row.at_peak.get(category)
}

const PARAMETERS: u64 = 1_217_306_528;

#[test]
fn vit_l_16_peaks_in_the_optimizers_list_of_temporaries_at_pytorchs_bytes_or_less() {
    let rows = stages_of_vit("foreach", &Options::default());
    let highest = highest(&rows);
    assert_eq!(highest.phase, Phase::Optimizer);
    assert_eq!(at_peak(highest, Category::Temporary), PARAMETERS, "one root for every parameter");
    assert_eq!(at_peak(highest, Category::OptimizerState), 2 * PARAMETERS);
    assert_eq!(at_peak(highest, Category::Parameter), PARAMETERS);
    assert_eq!(at_peak(highest, Category::Gradient), PARAMETERS);
    assert_eq!(at_peak(highest, Category::Input), 3 * 224 * 224 * 4);
    let setup = rows.first().expect("the model is built while recording");
    assert_eq!((setup.step, setup.phase, setup.end_bytes), (None, Phase::Setup, PARAMETERS + 3 * 224 * 224 * 4));
}

#[test]
fn vit_l_16_without_foreach_needs_one_temporary() {
    let rows = stages_of_vit("per-tensor", &Options { form: Some(Form::PerTensor), ..Options::default() });
    let optimizer = rows.iter().rfind(|row| row.phase == Phase::Optimizer).expect("there is an optimizer phase");
    assert_eq!(at_peak(optimizer, Category::Temporary), 4096 * 1024 * 4, "the largest parameter");
}

#[test]
fn vit_l_16_with_its_optimizer_in_backward_peaks_early_in_backward() {
    let rows = stages_of_vit("in-backward", &Options { optimizer_in_backward: true, ..Options::default() });
    let highest = highest(&rows);
    assert_eq!(highest.phase, Phase::Backward);
    assert!(rows.iter().all(|row| !matches!(row.phase, Phase::Optimizer | Phase::ZeroGrad)));
    assert!(at_peak(highest, Category::Gradient) < PARAMETERS / 20, "gradients are freed one by one");
}

#[test]
fn a_run_out_of_memory_is_described_and_its_recording_opens() {
    let options = Options { capacity: Some(3 << 30), ..Options::default() };
    let (report, trace) = run("vit-l-16", &options, "oom.snap");
    let oom = report.oom.expect("3 GiB are too little for Adam's state");
    assert_eq!(report.steps_done, 0);
    assert!(oom.requested > 0 && oom.description.contains("out of memory"), "{}", oom.description);
    assert_eq!(trace.ooms.len(), 1);
    assert_eq!(trace.ooms[0].requested, oom.requested);
    for device in [DeviceChoice::Meta, DeviceChoice::Cpu] {
        let options = Options { device, capacity: Some(1 << 20), ..Options::default() };
        let (report, _) = run("mlp", &options, "oom.snap");
        assert!(report.oom.is_some(), "the model itself does not fit on {device}");
    }
}

#[test]
fn names_and_options_that_do_not_exist_are_answered_with_those_that_do() {
    let refusal = |name: &str, options: &Options| {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("refused.snap");
        scenario::record(name, options, &path).unwrap_err().to_string()
    };
    let name = refusal("vit", &Options::default());
    assert!(scenario::all().iter().all(|info| name.contains(info.name)), "{name}");
    let option = refusal("mlp", &Options { sizes: Sizes { seq: Some(8), ..Sizes::default() }, ..Options::default() });
    assert!(option.contains("--seq") && option.contains("--batch"), "{option}");
    let zero = refusal("mlp", &Options { sizes: Sizes { batch: Some(0), ..Sizes::default() }, ..Options::default() });
    assert!(zero.contains("invalid value 0 for --batch"), "{zero}");
    let conf = Some("expandable_segments:True".to_owned());
    let options = Options { capacity: Some(1 << 63), alloc_conf: conf, ..Options::default() };
    let capacity = refusal("mlp", &options);
    assert!(capacity.contains("invalid value 9223372036854775808 for --capacity"), "{capacity}");
    let conf = refusal("mlp", &Options { alloc_conf: Some("no_such_key:1".to_owned()), ..Options::default() });
    assert!(conf.contains("no_such_key"), "{conf}");
    let cuda = refusal("mlp", &Options { device: DeviceChoice::Cuda(99), ..Options::default() });
    assert!(cuda.contains("cuda:99") && cuda.contains("--device"), "{cuda}");
    assert!("lion".parse::<OptimizerKind>().unwrap_err().to_string().contains("adamw"));
}
