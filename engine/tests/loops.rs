//! Tests that the radiance field, product chain, recurrent network and frozen branch use no more memory than in PyTorch
//! in any stage, and compute the right values.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use highwater_analysis::Metric;
use highwater_analysis::phases::{PhaseRow, phases_of};
use highwater_engine::models::nerf::{Rays, Samples};
use highwater_engine::models::{FrozenSum, FrozenTrunk, MatmulChain, Nerf, NerfSize, Rnn, RnnForm};
use highwater_engine::nn::{Init, Module};
use highwater_engine::scenario::{self, Checkpoint, DeviceChoice, Options, Sizes};
use highwater_engine::{DType, Device, Rng, Tensor};
use highwater_recorder::snapshots::format::read_file;

/// Requested bytes of PyTorch's stages, written by `data/torch/make_loops.py`.
const NERF: &str = include_str!("data/torch/nerf.txt");
const LOOPS: &str = include_str!("data/torch/loops.txt");

/// The recorder is one for the whole program, and so is the phase: while one test records, no other trains.
static RECORDER: RwLock<()> = RwLock::new(());

/// Held by a test that trains without a recording.
fn unrecorded() -> RwLockReadGuard<'static, ()> {
    RECORDER.read().unwrap_or_else(PoisonError::into_inner)
}

fn record(scenario: &str, options: &Options) -> (Vec<PhaseRow>, Option<Vec<f64>>) {
    let _alone = RECORDER.write().unwrap_or_else(PoisonError::into_inner);
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("loops.snap");
    let report = scenario::record(scenario, options, &file).expect("the scenario runs");
    let trace = read_file(&file).expect("the recording opens");
    assert_eq!(report.oom, None);
    (phases_of(&trace, trace.main_device(), Metric::Requested), report.losses)
}

/// PyTorch's stages of a variant: step and stage, bytes at its end, and at its peak.
fn stages<'a>(data: &'a str, variant: &'a str) -> impl Iterator<Item = (&'a str, u64, u64)> {
    data.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0] == variant).then(|| (words[1], words[2].parse().unwrap(), words[3].parse().unwrap()))
    })
}

/// Holds every stage of a scenario against PyTorch's, and gives the highest peak as a share of PyTorch's.
fn hold(data: &str, variant: &str, scenario: &str, options: &Options) -> f64 {
    hold_within(0, data, variant, scenario, options)
}

/// The same where `more` bytes above PyTorch's are allowed.
fn hold_within(more: u64, data: &str, variant: &str, scenario: &str, options: &Options) -> f64 {
    let (rows, _) = record(scenario, options);
    let mut highest = [0, 0];
    let mut compared = 0;
    for (stage, end, peak) in stages(data, variant) {
        let (step, phase) = stage.split_once('.').expect("a step and a stage");
        let is_it = |row: &&PhaseRow| row.step == step.parse().ok() && row.phase.to_string() == phase;
        let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("there is no {stage}"));
        assert!(row.end_bytes <= end + more, "{variant}, end of {stage}: {} where PyTorch has {end}", row.end_bytes);
        assert!(
            row.peak_bytes <= peak + more,
            "{variant}, peak of {stage}: {} where PyTorch has {peak}",
            row.peak_bytes
        );
        highest = [highest[0].max(row.peak_bytes), highest[1].max(peak)];
        compared += 1;
    }
    assert!(compared >= 9, "{variant} has three steps of three stages or more: {compared}");
    highest[0] as f64 / highest[1] as f64
}

fn sized(sizes: Sizes, variant: Option<&str>) -> Options {
    Options { sizes, variant: variant.map(str::to_owned), ..Options::default() }
}

#[test]
fn a_tiny_nerf_takes_a_sixth_less_than_in_pytorch() {
    let tiny =
        |width, chunk, image| Sizes { width: Some(width), chunk: Some(chunk), image: Some(image), ..Sizes::default() };
    for (variant, sizes, most) in [
        ("64", Sizes::default(), 0.79),
        ("256", tiny(256, 65_536, 100), 0.86),
        ("64-whole", tiny(64, 640_000, 100), 0.79),
        ("64-small", tiny(64, 65_536, 32), 0.80),
        ("256-small", tiny(256, 65_536, 32), 0.86),
        ("128-odd", Sizes { layers: Some(7), samples: Some(48), ..tiny(128, 20_000, 70) }, 0.86),
        ("64-shallow", Sizes { layers: Some(3), ..tiny(64, 10_000, 64) }, 0.86),
    ] {
        let share = hold(NERF, variant, "tiny-nerf", &sized(sizes, None));
        assert!(share <= most, "{variant}: {share}");
    }
}

#[test]
fn a_tiny_nerf_whose_chunks_run_again_takes_no_more_than_in_pytorch() {
    for (variant, width) in [("64-again", 64), ("256-again", 256)] {
        let sizes = Sizes { width: Some(width), ..Sizes::default() };
        hold(NERF, variant, "tiny-nerf", &Options { checkpoint: Checkpoint::BLOCKS, ..sized(sizes, None) });
    }
}

#[test]
fn a_chain_of_products_stays_flat_in_backward() {
    let short = Sizes { width: Some(300), layers: Some(7), ..Sizes::default() };
    for (variant, sizes, form) in [
        ("x", Sizes::default(), None),
        ("both", Sizes::default(), Some("both")),
        ("by-hand", Sizes::default(), Some("by-hand")),
        ("x-short", short, None),
        ("both-short", short, Some("both")),
        ("by-hand-short", short, Some("by-hand")),
    ] {
        hold(LOOPS, variant, "matmul-chain", &sized(sizes, form));
    }
}

#[test]
fn a_recurrent_network_adds_its_gradients_up_in_place() {
    let other = Sizes { seq: Some(17), batch: Some(200), width: Some(96), ..Sizes::default() };
    for (variant, sizes, form) in [
        ("weighted", Sizes::default(), None),
        ("input-added", Sizes::default(), Some("input-added")),
        ("input-added-wide", Sizes { batch: Some(1000), ..Sizes::default() }, Some("input-added")),
        ("cell", Sizes::default(), Some("cell")),
        ("weighted-other", other, None),
        ("cell-other", other, Some("cell")),
    ] {
        hold(LOOPS, variant, "rnn", &sized(sizes, form));
    }
}

#[test]
fn what_is_frozen_takes_no_more_than_in_pytorch() {
    let other = Sizes { batch: Some(2000), width: Some(256), layers: Some(7), ..Sizes::default() };
    hold(LOOPS, "sum", "frozen-branch", &Options::default());
    // Cross-entropy keeps one number a row beside the logits, which pays where there are many classes.
    for (variant, sizes, form, rows) in [
        ("trunk", Sizes::default(), "trunk", 512),
        ("branches", Sizes::default(), "branches", 512),
        ("branches-other", other, "branches", 2000),
    ] {
        hold_within(4 * rows, LOOPS, variant, "frozen-branch", &sized(sizes, Some(form)));
    }
}

#[test]
fn a_radiance_field_learns_the_picture_of_a_sphere() {
    let sizes = Sizes {
        width: Some(32),
        layers: Some(6),
        image: Some(12),
        samples: Some(12),
        chunk: Some(1000),
        ..Sizes::default()
    };
    let options = Options { device: DeviceChoice::Cpu, steps: 80, learning_rate: Some(5e-3), ..sized(sizes, None) };
    let (_, losses) = record("tiny-nerf", &options);
    let losses = losses.expect("the processor computes values");
    let last = losses[70..].iter().sum::<f64>() / 10.0;
    assert!(losses[0] > 0.05 && last < losses[0] / 5.0, "from {} to {last}", losses[0]);
}

#[test]
fn chunks_and_running_again_change_no_gradient() {
    let _beside = unrecorded();
    let device = Device::cpu();
    let gradients = |chunk: usize, run_again: bool| {
        let size = NerfSize { width: 8, layers: 6, octaves: 2, chunk };
        let model = Nerf::new(&mut Init::new(&device, DType::F64, 3), size).unwrap();
        if run_again {
            assert_eq!(highwater_engine::nn::checkpoint_scopes(&model, "network").unwrap(), 1);
        }
        let mut rng = Rng::new(5);
        let rays = Rays {
            origins: Tensor::randn([4, 3], DType::F64, &device, &mut rng).unwrap(),
            directions: Tensor::randn([4, 3], DType::F64, &device, &mut rng).unwrap(),
        };
        let samples = Samples::along(&rays, 5, [1.0, 3.0], &mut rng).unwrap();
        let colours = model.render(samples).unwrap();
        assert_eq!(**colours.shape(), [4, 3]);
        colours.mse_loss(&colours.zeros_like().unwrap()).unwrap().backward().unwrap();
        let gradient = |parameter: &highwater_engine::nn::Parameter| {
            parameter.tensor.grad().expect("every parameter takes part").to_vec::<f64>().unwrap()
        };
        model.parameters().iter().flat_map(gradient).collect::<Vec<f64>>()
    };
    let whole = gradients(20, false);
    assert!(whole.iter().any(|&number| number.abs() > 1e-6), "there is something to compare");
    for (chunk, run_again) in [(7, false), (20, true), (7, true)] {
        for (found, expected) in gradients(chunk, run_again).iter().zip(&whole) {
            assert!((found - expected).abs() <= 1e-12 * (1.0 + expected.abs()), "{found} instead of {expected}");
        }
    }
}

#[test]
fn samples_lie_in_their_parts_of_each_ray() {
    let _beside = unrecorded();
    let device = Device::cpu();
    let rays = Rays {
        origins: Tensor::from_slice(&[1.0, 2.0, 3.0], [1, 3], &device).unwrap(),
        directions: Tensor::from_slice(&[0.0, 0.0, -1.0], [1, 3], &device).unwrap(),
    };
    let samples = Samples::along(&rays, 4, [2.0, 6.0], &mut Rng::new(0)).unwrap();
    let points = samples.points.to_vec::<f64>().unwrap();
    let steps = samples.steps.to_vec::<f64>().unwrap();
    for (place, point) in points.chunks(3).enumerate() {
        let distance = 3.0 - point[2];
        assert_eq!(point[..2], [1.0, 2.0]);
        assert!((2.0 + place as f64..3.0 + place as f64).contains(&distance), "{distance}");
        let next = points.get(3 * place + 5).map_or(-1e10, |z| z - point[2]);
        assert!((steps[place] - next).abs() < 1e-9, "{} instead of {next}", steps[place]);
    }
}

#[test]
fn the_loop_by_hand_and_the_graph_give_one_gradient() {
    let _beside = unrecorded();
    let device = Device::cpu();
    let chain = MatmulChain::new(&mut Init::new(&device, DType::F64, 1), 5, 4, true).unwrap();
    chain.loss().unwrap().backward().unwrap();
    let factor = chain.parameters()[0].tensor.clone();
    let by_graph = factor.take_grad().unwrap().to_vec::<f64>().unwrap();
    let (loss, rights) = chain.loss_by_hand().unwrap();
    assert!((loss.item().unwrap() - chain.loss().unwrap().item().unwrap()).abs() < 1e-12);
    chain.gradient_by_hand(rights).unwrap();
    let by_hand = factor.take_grad().unwrap().to_vec::<f64>().unwrap();
    for (graph, hand) in by_graph.iter().zip(&by_hand) {
        assert!((graph - hand).abs() < 1e-12 * (1.0 + hand.abs()), "{graph} and {hand}");
    }
    assert!(chain.parameters()[1].tensor.grad().is_some(), "the start requires one too");
}

#[test]
fn a_recurrent_network_computes_its_formula_in_every_form() {
    let _beside = unrecorded();
    let device = Device::cpu();
    let inputs = Tensor::randn([2, 1, 3], DType::F64, &device, &mut Rng::new(2)).unwrap();
    let numbers = |tensor: &Tensor| tensor.to_vec::<f64>().unwrap();
    let x = numbers(&inputs);
    for form in [RnnForm::Weighted, RnnForm::Added, RnnForm::TwoBiases] {
        let model = Rnn::new(&mut Init::new(&device, DType::F64, 4), 3, form).unwrap();
        let parts: Vec<Vec<f64>> = model.parameters().iter().map(|parameter| numbers(&parameter.tensor)).collect();
        let by_columns = |x: &[f64], w: &[f64], to: usize| (0..3).map(|from| x[from] * w[3 * from + to]).sum::<f64>();
        let by_rows = |x: &[f64], w: &[f64], to: usize| (0..3).map(|from| x[from] * w[3 * to + from]).sum::<f64>();
        let mut state = vec![0.0; 3];
        for x in x.chunks(3) {
            let at = |to: usize| match form {
                RnnForm::Weighted => by_columns(x, &parts[0], to) + by_columns(&state, &parts[1], to) + parts[2][to],
                RnnForm::Added => x[to] + by_columns(&state, &parts[0], to) + parts[1][to],
                RnnForm::TwoBiases => {
                    by_rows(x, &parts[0], to) + parts[1][to] + by_rows(&state, &parts[2], to) + parts[3][to]
                }
            };
            state = (0..3).map(|to| at(to).tanh()).collect();
        }
        for (found, expected) in numbers(&model.forward(&inputs).unwrap()).iter().zip(&state) {
            assert!((found - expected).abs() < 1e-12, "{form:?}: {found} instead of {expected}");
        }
    }
}

#[test]
fn only_what_is_trained_has_a_gradient() {
    let _beside = unrecorded();
    let device = Device::cpu();
    let mut init = Init::new(&device, DType::F32, 0);
    let sum = FrozenSum::new(&mut init, 3).unwrap();
    sum.loss().unwrap().backward().unwrap();
    let with_gradient = |model: &dyn Module| {
        let parameters = model.parameters().into_iter();
        parameters.filter(|parameter| parameter.tensor.grad().is_some()).map(|p| p.path).collect::<Vec<_>>()
    };
    assert_eq!(with_gradient(&sum), ["trained"]);
    let input = Tensor::ones([2, 4], DType::F32, &device).unwrap();
    for (with_branch, expected) in [(false, 2), (true, 4)] {
        let model = FrozenTrunk::new(&mut init, [4, 1, 2], with_branch).unwrap();
        model.forward(&input).unwrap().sum().unwrap().backward().unwrap();
        let found = with_gradient(&model);
        assert!(found.len() == expected && found.iter().all(|path| !path.starts_with("trunk")), "{found:?}");
    }
}
