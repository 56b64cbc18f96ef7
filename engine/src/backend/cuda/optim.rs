//! Fused optimizer steps, of one tensor or of many in one launch.

use highwater_kernels::{Kernel, Types};

use super::launch::{Launch, Queue, is_in_order, nest_words, number};
use super::multi_tensor::{self, Common, Operand, Part, Work};
use crate::backend::step::{AdamStep, SgdStep};
use crate::backend::{Nest, View};
use crate::{DType, Error, Result};

/// An optimizer's step for one parameter. Kernels receive the parameter, the destination of its copy, the gradient and
/// the state.
pub(super) struct Step<'a> {
    pub(super) op: &'static str,
    /// The source file of the kernels, and their names: first the kernel for many tensors in one launch, then the
    /// kernel for a gradient of any layout.
    pub(super) file: &'static str,
    pub(super) kernels: [&'static str; 2],
    /// Size in bytes of the table of tensors that the first kernel reads.
    pub(super) bytes: usize,
    /// Number of elements that a thread of the second kernel processes at a time.
    pub(super) elements_per_thread: usize,
    pub(super) parameter: View<'a>,
    pub(super) rounded: Option<View<'a>>,
    pub(super) grad: View<'a>,
    pub(super) state: Vec<Option<View<'a>>>,
    /// The step's hyperparameters as a kernel argument.
    pub(super) numbers: Vec<u64>,
}

impl<'a> Step<'a> {
    /// Returns the types of the parameter and of its gradient. They are the same, or the parameter is f32 and the
    /// gradient has a narrower type.
    fn types(&self) -> Result<Types> {
        let (parameter, grad) = (self.parameter.dtype, self.grad.dtype);
        let is_narrower = parameter == DType::F32 && matches!(grad, DType::Bf16 | DType::F16);
        if is_narrower || parameter == grad && parameter.is_float() {
            return Ok(Types::pair(number(parameter), number(grad)));
        }
        let need = "expected a gradient of the parameter's dtype, or bf16 or f16 for f32 parameters";
        Err(Error::DType { op: self.op, found: grad, need })
    }

    /// Returns the parameter's part in a launch for many tensors; `None` if the gradient is not in the parameter's
    /// order.
    pub(super) fn part(&self) -> Result<Option<(Work<'a>, Part<'a>)>> {
        let kernel = Kernel::new(self.file, self.kernels[0], self.types()?);
        let nest = Nest::new([self.parameter.layout, self.grad.layout]);
        let numbers = self.numbers.clone();
        let work = Work { op: self.op, kernel, bytes: self.bytes, common: Common::Nothing, numbers };
        let mut operands = vec![Operand::Written(self.parameter), Operand::written(self.rounded)];
        operands.push(Operand::Read(self.grad));
        operands.extend(self.state.iter().map(|&view| Operand::written(view)));
        Ok(is_in_order(&nest).then(|| (work, Part { elements: nest.elements(), operands })))
    }

    /// Updates the parameter in a separate launch.
    pub(super) fn run(self) -> Result<()> {
        if let Some((work, part)) = self.part()? {
            let queue = Queue::of(self.parameter.storage.device(), self.op)?;
            return multi_tensor::launch(&queue, &work, &[part]);
        }
        let elements = self.parameter.layout.elements();
        let launch = Launch::new(self.op, self.parameter)?.typed(self.types()?);
        let launch = launch.write(self.parameter)?.write_if(self.rounded)?.read(self.grad)?;
        let launch = self.state.iter().try_fold(launch, |launch, &view| launch.write_if(view))?;
        let nest = Nest::new([self.parameter.layout, self.grad.layout]);
        let launch = launch.with(elements as u64).words(&nest_words(&nest)).words(&self.numbers);
        launch.over(elements, self.elements_per_thread).run(self.file, self.kernels[1])
    }
}

pub(crate) fn sgd(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    direction: Option<View<'_>>,
    step: SgdStep,
) -> Result<()> {
    sgd_step(parameter, rounded, grad, direction, step).run()
}

pub(super) fn sgd_step<'a>(
    parameter: View<'a>,
    rounded: Option<View<'a>>,
    grad: View<'a>,
    direction: Option<View<'a>>,
    step: SgdStep,
) -> Step<'a> {
    let SgdStep { learning_rate, momentum, dampening, weight_decay, nesterov, is_first, grad_scale } = step;
    // `struct SgdStep` in steps.cuh.
    let numbers = [learning_rate, momentum, 1.0 - dampening, weight_decay, grad_scale];
    let mut numbers = numbers.map(f64::to_bits).to_vec();
    numbers.push(u64::from(nesterov) | u64::from(is_first) << 32);
    let (kernels, state) = (["sgd_each", "sgd_nest"], vec![direction]);
    plain_step("sgd", kernels, [parameter, grad], rounded, state, numbers)
}

pub(crate) fn adam(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    moments: [View<'_>; 2],
    step: AdamStep,
) -> Result<()> {
    adam_step(parameter, rounded, grad, moments, step).run()
}

pub(super) fn adam_step<'a>(
    parameter: View<'a>,
    rounded: Option<View<'a>>,
    grad: View<'a>,
    moments: [View<'a>; 2],
    step: AdamStep,
) -> Step<'a> {
    let (kernels, state) = (["adam_each", "adam_nest"], moments.map(Some).to_vec());
    plain_step("adam", kernels, [parameter, grad], rounded, state, adam_numbers(step))
}

/// Returns a step with the kernels of optim.cu.
fn plain_step<'a>(
    op: &'static str,
    kernels: [&'static str; 2],
    [parameter, grad]: [View<'a>; 2],
    rounded: Option<View<'a>>,
    state: Vec<Option<View<'a>>>,
    numbers: Vec<u64>,
) -> Step<'a> {
    let (file, bytes, elements_per_thread) = ("optim", 4000, 1);
    Step { op, file, kernels, bytes, elements_per_thread, parameter, rounded, grad, state, numbers }
}

/// Returns `struct AdamStep` in steps.cuh.
pub(super) fn adam_numbers(step: AdamStep) -> Vec<u64> {
    let AdamStep { rate, betas, square_scale, epsilon, weight_decay, keep, grad_scale } = step;
    let [entering, entering_square] = betas.map(|beta| 1.0 - beta);
    let numbers = [rate, entering, entering_square, betas[1], square_scale, epsilon, weight_decay, keep, grad_scale];
    numbers.map(f64::to_bits).to_vec()
}
