//! If one layer of a model is widened, the exceeded budget names that layer.

use std::ops::ControlFlow;

use highwater_analysis::budget::{Allowance, Budget, Checked, Outcome, check};
use highwater_analysis::growth::{GrowthQuery, StepRange, growth};
use highwater_analysis::{Filter, GroupKey, Metric, Source};
use highwater_engine::nn::{Child, Filling, Init, LinearFilling, Mlp, Module, Sequence, Visitor};
use highwater_engine::optim::{AdamW, Form, Optimizer, RuleOptimizer};
use highwater_engine::{DType, Device, Result, Tensor};
use highwater_recorder::{Category, HistoryOptions, Recording, scope};
use highwater_snapshots::{DeviceId, Phase};
use highwater_tests::recording_turn;

const LAYERS: usize = 6;

/// MLPs one after another.
struct Net {
    blocks: Child<Sequence<Mlp>>,
}

impl Net {
    /// With `hidden` numbers within the layer `wide`, and 256 within the others.
    fn new(init: &mut Init, wide: usize, hidden: usize) -> Result<Self> {
        let filling = |[inputs, outputs]: [usize; 2]| LinearFilling {
            weight: Filling::xavier_uniform(inputs, outputs),
            bias: Some(Filling::Zeros),
        };
        let hidden_of = |layer| if layer == wide { hidden } else { 256 };
        let layers = |init: &mut Init| {
            Sequence::new(LAYERS, init, |layer, init| Mlp::new(init, [64, hidden_of(layer)], filling))
        };
        Ok(Self { blocks: Child::new("blocks", init, layers)? })
    }
}

impl Module for Net {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.blocks.forward(input)
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.child(&self.blocks);
    }
}

struct Run {
    source: Source<'static>,
    device: DeviceId,
}

impl Run {
    /// Four steps on the accounting device, each of which may leave something behind.
    fn of(wide: usize, hidden: usize, form: Form, leak: Option<usize>) -> Self {
        let turn = recording_turn();
        scope::leave_steps();
        let recording = Recording::start(HistoryOptions::in_memory()).expect("nothing else records");
        train(wide, hidden, form, leak).expect("it fits");
        let trace = recording.finish().expect("memory takes everything").trace.expect("wanted in memory");
        drop(turn);
        let device = trace.main_device();
        Self { source: Source::in_memory(trace), device }
    }

    fn checked(&self, budget: Budget) -> Checked<'_> {
        let watch = &mut |_| ControlFlow::Continue(());
        Checked::of(&self.source, self.device, Metric::Requested, &[budget], watch).expect("it is in memory")
    }

    fn check(&self, baseline: Option<&Self>, budget: Budget) -> Outcome {
        let baseline = baseline.map(|run| run.checked(budget));
        let outcomes = check(&self.checked(budget), baseline.as_ref(), &[budget]).expect("it is in memory");
        outcomes.into_iter().next().expect("there is one budget").expect("it can be measured")
    }
}

fn train(wide: usize, hidden: usize, form: Form, leak: Option<usize>) -> Result<()> {
    let device = Device::accounting(1 << 34);
    let mut init = Init::new(&device, DType::F32, 0);
    let net = Net::new(&mut init, wide, hidden)?;
    let mut optimizer = RuleOptimizer::new(AdamW { form, ..AdamW::default() }, net.parameters())?;
    let input = {
        let _category = scope::category(Category::Input);
        Tensor::ones([512, 64], DType::F32, &device)?
    };
    let mut cache = Vec::new();
    for step in 0..4 {
        scope::step(step);
        let loss = {
            let _phase = scope::phase(Phase::Forward);
            if let Some(numbers) = leak {
                let _scope = scope::scope("cache");
                cache.push(Tensor::ones([numbers], DType::F32, &device)?);
            }
            net.forward(&input)?.sum()?
        };
        loss.backward()?;
        drop(loss);
        {
            let _phase = scope::phase(Phase::Optimizer);
            optimizer.step()?;
        }
        let _phase = scope::phase(Phase::ZeroGrad);
        optimizer.zero_grad();
    }
    scope::leave_steps();
    Ok(())
}

#[test]
fn the_widened_layer_is_named_whatever_the_optimizer_and_the_budget() {
    for form in [Form::Foreach, Form::PerTensor, Form::Fused] {
        let (before, after) = (Run::of(4, 256, form, None), Run::of(4, 1024, form, None));
        let budgets = [
            Budget::Growth(Allowance::Share(1_000_000)),
            Budget::Peak(before.check(None, Budget::Peak(0)).actual_bytes),
            Budget::Category(
                Category::Activation,
                before.check(None, Budget::Category(Category::Activation, 0)).actual_bytes,
            ),
            Budget::Phase(Phase::Optimizer, before.check(None, Budget::Phase(Phase::Optimizer, 0)).actual_bytes),
        ];
        for budget in budgets {
            assert!(!before.check(Some(&before), budget).is_broken(), "{budget} of the same run");
            let outcome = after.check(Some(&before), budget);
            let culprit = outcome.culprit.unwrap_or_else(|| panic!("{form:?}: {budget} is broken"));
            assert!(culprit.place.starts_with("blocks.4"), "{form:?}: {budget}: {}", culprit.text);
            assert!(culprit.text.contains("of scope `blocks.4") && culprit.text.contains(" grew "), "{}", culprit.text);
        }
        assert!(
            !before.check(Some(&after), Budget::Growth(Allowance::Bytes(0))).is_broken(),
            "the other way it shrinks"
        );
    }
}

#[test]
fn what_every_step_leaves_behind_is_measured_to_the_byte_and_named() {
    let (tight, leaky) = (Run::of(0, 256, Form::Fused, None), Run::of(0, 256, Form::Fused, Some(1000)));
    let none = tight.check(None, Budget::StepGrowth(0));
    assert_eq!((none.actual_bytes, none.is_broken()), (0, false));
    let some = leaky.check(Some(&tight), Budget::StepGrowth(3999));
    assert_eq!((some.actual_bytes, some.baseline_bytes, some.is_broken()), (4000, Some(0), true));
    let text = some.culprit.expect("it is broken").text;
    assert!(text.starts_with("1 line keeps memory of every step: `gate.rs:") && text.contains(" train"), "{text}");
    assert!(text.ends_with("3.91 KiB a step; in all 11.72 KiB in 3 blocks over 3 steps"), "{text}");
    let query = GrowthQuery { metric: Metric::Requested, keys: &[GroupKey::Scope], top: 1, filter: &Filter::default() };
    let found =
        growth(&leaky.source, &[leaky.device], StepRange::default(), &[query], &mut |_| ControlFlow::Continue(()));
    let growth = found.expect("it is in memory").remove(0).remove(0).expect("it has steps");
    assert_eq!((growth.window.from(), growth.window.to(), growth.net()), (1, 3, 12_000));
}
