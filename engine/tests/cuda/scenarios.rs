//! Tests that the losses and gradients of complete training steps equal those on the CPU device.

use highwater_engine::DType;
use highwater_engine::scenario::{DeviceChoice, Options, Session, Sizes};
use highwater_stand_in::Setup;

/// Every scenario, with the smallest sizes that it accepts.
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
            // Numbers of 16 bits are rounded at other places: some of a gradient's are off by a few roundings.
            let share = if expected.dtype().size() < 4 { 5e-2 } else { 2e-5 };
            let [expected, found] = [expected, found].map(|grad| grad.to_f64_vec().expect("it can be read"));
            let largest = expected.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()));
            for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let difference = (expected - found).abs();
                assert!(
                    difference <= share * largest,
                    "{name}, {path}, {place}: {found:e} should be {expected:e}, of {largest:e} at most"
                );
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
