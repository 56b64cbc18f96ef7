//! Random networks of unequal blocks, built with the engine's public interface and trained on the accounting device.

use highwater_engine::backend::cost;
use highwater_engine::nn::{Child, Init, Linear, Module, Sequence, checkpoint_scopes};
use highwater_engine::optim::{AdamW, Form, Optimizer, RuleOptimizer, Sgd, run_in_backward};
use highwater_engine::{DType, Device, Result, Shape, Tensor};
use highwater_recorder::{Category, Phase, scope};
use highwater_recorder::{HistoryOptions, Level, WhenBehind, record_memory_history};
use highwater_snapshots::Trace;

use crate::brute_force::Ran;
use crate::random_block::{Block, BlockSize, NetKind, Numbers, images, vectors};

/// Steps of a run: the first also creates the optimizer's state.
const STEPS: u32 = 2;

/// A random network and how it is trained.
#[derive(Clone, Debug)]
pub struct RandomNet {
    input: Shape,
    blocks: Vec<BlockSize>,
    /// The block whose result is added to the input of another, later one.
    bridge: Option<[usize; 2]>,
    last: usize,
    optimizer: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Adam(Form),
    Sgd,
    InBackward,
}

impl RandomNet {
    /// Returns the network of `kind` that `seed` makes, of 2 to `most` blocks.
    pub fn new(kind: NetKind, seed: u64, most: usize) -> Self {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            numbers.below(2);
        }
        let count = 2 + numbers.below(most - 1);
        let is_image = kind == NetKind::Any && numbers.below(3) == 0;
        let mut width = if is_image { 3 } else { numbers.one_of(&[16, 24, 40]) };
        let input: Shape = if is_image { [numbers.one_of(&[2, 4]), width, 32, 32].into() } else { [256, width].into() };
        let mut widths = vec![width];
        let mut blocks = Vec::new();
        for position in 0..count {
            let wider = numbers.one_of(&[width, width, 8, 16, 32, 48]);
            // Images shrink at most three times.
            let may_shrink = is_image && position % 3 == 1;
            let block = if is_image {
                images(&mut numbers, [width, wider], may_shrink)
            } else {
                vectors(&mut numbers, kind, [width, wider])
            };
            width = wider;
            widths.push(if may_shrink { 0 } else { width });
            blocks.push(block);
        }
        let bridge = [numbers.below(count), numbers.below(count)];
        let is_possible =
            |[from, to]: &[usize; 2]| from + 1 < *to && !is_image && widths[from + 1] == widths[*to] && widths[*to] > 0;
        let optimizer = match numbers.below(4) {
            0 => Kind::Adam(Form::Foreach),
            1 => Kind::Adam(Form::Fused),
            2 => Kind::Sgd,
            _ => Kind::InBackward,
        };
        Self { input, blocks, bridge: Some(bridge).filter(is_possible), last: width, optimizer }
    }

    /// Trains the network with the blocks at `paths` recomputed.
    ///
    /// # Errors
    ///
    /// Fails if the engine does.
    pub fn run(&self, paths: &[&str]) -> Result<Ran> {
        let device = Device::accounting(1 << 40);
        let flops = self.train(&device, paths)?.1;
        Ok(Ran { peak: device.allocator().stats().requested_bytes.all.peak, flops })
    }

    /// Records the training without recomputation, with uses of blocks.
    ///
    /// # Errors
    ///
    /// Fails if the engine does, or if another recording is running.
    pub fn record(&self) -> Result<Trace, Box<dyn std::error::Error>> {
        let device = Device::accounting(1 << 40);
        scope::leave_steps();
        let history = HistoryOptions {
            level: Level::Events,
            when_behind: WhenBehind::Wait,
            uses: true,
            per_rank: false,
            ..HistoryOptions::default()
        };
        // The model lives until the recording has ended.
        let recorded = record_memory_history(history, || Ok(self.train(&device, &[])))?;
        recorded.value?;
        recorded.trace.ok_or_else(|| "no recording".into())
    }

    /// Returns what has to outlive a recording, and the floating-point operations of the last step.
    fn train(&self, device: &Device, paths: &[&str]) -> Result<(Net, u64)> {
        let setup = scope::phase(Phase::Setup);
        let net = Net::new(&mut Init::new(device, DType::F32, 1), self)?;
        for path in paths {
            assert_eq!(checkpoint_scopes(&net, path).unwrap(), 1, "{path}");
        }
        let input = {
            let _category = scope::category(Category::Input);
            Tensor::zeros(self.input, DType::F32, device)?
        };
        let mut optimizer: Option<Box<dyn Optimizer>> = match self.optimizer {
            Kind::Adam(form) => {
                Some(Box::new(RuleOptimizer::new(AdamW { form, ..AdamW::default() }, net.parameters())?))
            }
            Kind::Sgd => Some(Box::new(RuleOptimizer::new(Sgd { momentum: 0.9, ..Sgd::default() }, net.parameters())?)),
            Kind::InBackward => {
                run_in_backward(&AdamW::default(), &net.parameters())?;
                None
            }
        };
        drop(setup);
        let mut flops = 0;
        for number in 0..STEPS {
            let (result, costs) = cost::count(|| step_of(&net, &input, number, &mut optimizer));
            result?;
            flops = costs.total().flops;
        }
        Ok((net, flops))
    }
}

fn step_of(net: &Net, input: &Tensor, number: u32, optimizer: &mut Option<Box<dyn Optimizer>>) -> Result<()> {
    scope::step(number);
    let loss = {
        let _phase = scope::phase(Phase::Forward);
        net.forward(input)?.mean()?
    };
    {
        let _phase = scope::phase(Phase::Backward);
        loss.backward()?;
        drop(loss);
    }
    let Some(optimizer) = optimizer else { return Ok(()) };
    {
        let _phase = scope::phase(Phase::Optimizer);
        optimizer.step()?;
    }
    let _phase = scope::phase(Phase::ZeroGrad);
    optimizer.zero_grad();
    Ok(())
}

/// The network itself: its blocks are `blocks.0`, `blocks.1` and so on.
#[derive(Debug)]
struct Net {
    blocks: Child<Sequence<Block>>,
    head: Child<Linear>,
    bridge: Option<[usize; 2]>,
}

impl Net {
    fn new(init: &mut Init, net: &RandomNet) -> Result<Self> {
        let make = |init: &mut Init| {
            Sequence::new(net.blocks.len(), init, |position, init| Block::new(init, &net.blocks[position]))
        };
        Ok(Self {
            blocks: Child::new("blocks", init, make)?,
            head: Child::new("head", init, |init| Linear::new(init, [net.last, 10]))?,
            bridge: net.bridge,
        })
    }
}

impl Module for Net {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let bridge = self.bridge;
        let hidden = self.blocks.run([input.clone()], move |blocks, [mut hidden]| {
            let mut kept = None;
            for (position, block) in blocks.iter().enumerate() {
                if bridge.is_some_and(|[_, to]| to == position)
                    && let Some(earlier) = kept.take()
                {
                    hidden = hidden.add(&earlier)?;
                }
                hidden = block.forward(&hidden)?;
                if bridge.is_some_and(|[from, _]| from == position) {
                    kept = Some(hidden.clone());
                }
            }
            Ok(hidden)
        })?;
        let rows = if hidden.shape().rank() == 4 { hidden.mean_axes(&[2, 3])? } else { hidden };
        self.head.forward(&rows)
    }

    highwater_engine::visit_fields!(blocks, head);
}
