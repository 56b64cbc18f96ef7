//! Scenarios: whole training steps. What is computed is what the cpu device computes, and what becomes of memory is what
//! the accounting device counts.

use highwater_engine::DType;
use highwater_engine::optim::Form;
use highwater_engine::scenario::{self, DeviceChoice, OptimizerKind, Options, Session, Sizes};
use highwater_recorder::snapshots::event::EventKind;
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::text::event_text;
use highwater_recorder::snapshots::{EventId, Trace};
use highwater_stand_in::Setup;

/// Every scenario, as small as it still is one.
fn small() -> Vec<(&'static str, Options)> {
    let sizes = |sizes: Sizes| Options { sizes, ..Options::default() };
    let language = Sizes {
        batch: Some(2),
        seq: Some(6),
        width: Some(16),
        layers: Some(2),
        heads: Some(2),
        vocab: Some(20),
        ..Sizes::default()
    };
    let image = Sizes { batch: Some(1), image: Some(32), width: Some(1), padding: Some(1), ..Sizes::default() };
    let vit = Sizes {
        image: Some(8),
        patch: Some(4),
        width: Some(16),
        layers: Some(2),
        heads: Some(2),
        hidden: Some(24),
        classes: Some(3),
        ..Sizes::default()
    };
    let nerf = Sizes {
        width: Some(8),
        layers: Some(6),
        image: Some(4),
        samples: Some(4),
        chunk: Some(24),
        ..Sizes::default()
    };
    vec![
        ("mlp", sizes(Sizes { batch: Some(5), width: Some(7), ..Sizes::default() })),
        ("tiny-nerf", sizes(nerf)),
        ("fcn", Options { variant: Some("no-dropout".to_owned()), ..sizes(image) }),
        ("frozen-branch", sizes(Sizes { batch: Some(3), width: Some(8), ..Sizes::default() })),
        ("matmul-chain", sizes(Sizes { width: Some(6), layers: Some(4), ..Sizes::default() })),
        ("rnn", sizes(Sizes { seq: Some(3), batch: Some(4), width: Some(6), ..Sizes::default() })),
        ("vit-l-16", sizes(vit)),
        ("gpt2", sizes(Sizes { positions: Some(8), ..language })),
        ("falcon-7b", Options { dtype: Some(DType::F32), ..sizes(language) }),
        (
            "llama-3-8b",
            Options {
                dtype: Some(DType::F32),
                lora: Some(2),
                ..sizes(Sizes { hidden: Some(20), key_heads: Some(1), ..language })
            },
        ),
    ]
}

/// The same in other forms: of the optimizer, of what is kept, of numbers.
fn in_other_forms() -> Vec<(&'static str, Options)> {
    let of = |wanted: &str| small().into_iter().find(|(name, _)| *name == wanted).expect("a scenario of that name");
    let change = |name: &str, change: fn(Options) -> Options| {
        let (name, options) = of(name);
        (name, change(options))
    };
    vec![
        change("mlp", |options| Options { form: Some(Form::Fused), ..options }),
        change("mlp", |options| Options { form: Some(Form::PerTensor), ..options }),
        change("mlp", |options| Options { optimizer: Some(OptimizerKind::Sgd), ..options }),
        change("vit-l-16", |options| Options { optimizer_in_backward: true, ..options }),
        change("vit-l-16", |options| Options { checkpoint: true, no_recompute: true, ..options }),
        change("gpt2", |options| Options { dtype: Some(DType::Bf16), ..options }),
        change("gpt2", |options| Options { autocast: Some(DType::Bf16), ..options }),
        change("fcn", |options| Options { variant: Some("fcn32s".to_owned()), ..options }),
    ]
}

fn session(name: &str, options: &Options, device: DeviceChoice) -> Session {
    let options = Options { device, ..options.clone() };
    Session::start(name, &options).unwrap_or_else(|why| panic!("{name} on {device}: {why}"))
}

#[test]
fn gradients_and_losses_are_those_of_the_processor() {
    on_every_scenario(|name, options| {
        let [mut cpu, mut cuda] =
            [DeviceChoice::Cpu, DeviceChoice::Cuda(0)].map(|device| session(name, options, device));
        let [expected, found] = [&mut cpu, &mut cuda].map(|session| session.gradients().expect("backward runs"));
        assert_eq!(expected.len(), found.len(), "{name}");
        for ((path, expected), (other, found)) in expected.iter().zip(&found) {
            assert_eq!(path, other);
            let [expected, found] = [expected, found].map(|grad| grad.to_f64_vec().expect("it can be read"));
            let largest = expected.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()));
            for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let difference = (expected - found).abs();
                assert!(difference <= 2e-5 * largest, "{name}, {path}, {place}: {found:e} should be {expected:e}");
            }
        }
        for step in 0..3 {
            let [expected, found] = [&mut cpu, &mut cuda].map(|session| session.step().expect("a step runs"));
            let (expected, found) = (expected.expect("the processor has values"), found.expect("a GPU has values"));
            let difference = (expected - found).abs();
            assert!(difference <= 1e-4 * expected.abs().max(1e-3), "{name}, step {step}: {found} should be {expected}");
        }
    });
}

fn on_every_scenario(body: fn(&'static str, &Options)) {
    Setup::new().run(|| small().iter().for_each(|(name, options)| body(name, options)));
}

/// What happened to which block, of what size, category, operation and module; nothing of times and addresses.
fn events(trace: &Trace) -> Vec<String> {
    let is_sample = |id: EventId| trace.events.kind[id.index().expect("an event")] == EventKind::DeviceUsed;
    let line = |id| {
        let text = event_text(trace, id);
        let words = text.split(" < ").next().unwrap_or_default().split(' ');
        words.filter(|word| !word.starts_with("0x") && !word.starts_with("device=")).collect::<Vec<_>>().join(" ")
    };
    trace.events.ids().filter(|&id| !is_sample(id)).map(line).collect()
}

#[test]
fn events_are_those_that_the_accounting_device_counts() {
    Setup::new().run(|| {
        let folder = tempfile::tempdir().expect("a folder for the test");
        for (name, options) in small().into_iter().chain(in_other_forms()) {
            let [computed, counted] = [DeviceChoice::Cuda(0), DeviceChoice::MetaForCuda].map(|device| {
                let (options, file) = (Options { device, steps: 2, ..options.clone() }, folder.path().join("run.snap"));
                let report = scenario::record(name, &options, &file);
                let report = report.unwrap_or_else(|why| panic!("{name} on {device}: {why}"));
                assert_eq!((report.steps_done, report.oom), (2, None), "{name} on {device}");
                events(&read_file(&file).expect("a recording that was just made is readable"))
            });
            let first = computed.iter().zip(&counted).find(|(computed, counted)| computed != counted);
            assert_eq!(first, None, "{name} {options:?}");
            assert_eq!(computed.len(), counted.len(), "{name} {options:?}");
        }
    });
}
