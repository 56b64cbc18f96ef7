//! The primitives, which do all arithmetic on tensors, and their implementation for each device.
//!
//! A primitive allocates no tensor memory. The caller allocates its output and every buffer that it needs,
//! independently of the kind of device. The accounting device, which skips primitives, therefore makes exactly the same
//! allocations as the others.

pub mod kind;
pub mod arithmetic;
pub mod step;
mod operand;
pub mod call;
mod uses;
pub mod cost;
pub mod code;
pub mod nest;
mod cpu;
mod cuda;

use bytemuck::Pod;

use crate::device::Kind;
use crate::rng::Draw;
use crate::storage::Storage;
use crate::{DType, Layout, Result};

pub use call::Call;
pub use code::{CODE_BLOCK, Code};
pub use kind::{
    AttentionSize, Binary, Comparison, Distribution, Extremum, Fold, Piecewise, Rotation, Scan, Side, Spread, Ternary,
    Unary, Window,
};
pub use step::{AdamStep, SgdStep};

use nest::Nest;
use operand::Argument;

/// Memory interpreted as a tensor, the operand type of primitives.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Memory.
    pub storage: &'a Storage,
    /// Layout of the elements in the memory.
    pub layout: &'a Layout,
    /// Element type.
    pub dtype: DType,
}

/// Copies the elements to the host in logical order, in which the last axis varies fastest. Waits until they are
/// computed.
pub(crate) fn to_host<T: Pod>(input: View<'_>) -> Result<Vec<T>> {
    match input.storage.device().kind() {
        Kind::Cuda => cuda::elementwise::to_host(input),
        Kind::Cpu | Kind::Accounting => cpu::elementwise::to_host(input),
    }
}

/// Runs calls on one device, in any order. No call may write memory that another call reads or writes, except where
/// [`Call`] allows it. On a CUDA device, calls that differ only in their tensors share launches, if there is a kernel
/// for many tensors and theirs are contiguous.
///
/// # Errors
/// Fails if memory is in use by another operation, a dtype or index is invalid, or the device's driver fails.
pub fn run_all(calls: &[Call<'_>]) -> Result<()> {
    match calls.first().map(|call| call.out().storage.device().kind()) {
        Some(Kind::Cuda) if !arithmetic::is_left_out() => cuda::shared_launches::run_all(calls),
        _ => calls.iter().try_for_each(|&call| call.run()),
    }
}

#[inline]
fn observe(primitive: &str, arguments: &[&dyn Argument]) {
    if uses::are_recorded() {
        uses::report(arguments);
    }
    if cost::is_counted() {
        cost::add(primitive, arguments);
    }
}

/// Defines functions that dispatch primitives to the device of the first parameter. Memory accesses are reported and
/// work is counted first, even if the work is skipped, so that recordings are the same.
macro_rules! primitives {
    ($($(#[$doc:meta])* $family:ident::$name:ident($first:ident: $first_type:ty $(, $argument:ident: $type:ty)* $(,)?);)+) => {
        $($(#[$doc])*
        ///
        /// # Errors
        /// Fails if memory is in use by another operation, a dtype or index is invalid, or the device's driver fails.
        pub fn $name($first: $first_type, $($argument: $type),*) -> Result<()> {
            observe(stringify!($name), &[&$first, $(&$argument),*]);
            if arithmetic::is_left_out() {
                return Ok(());
            }
            match $first.storage.device().kind() {
                Kind::Cpu => cpu::$family::$name($first, $($argument),*),
                Kind::Cuda => {
                    let _turn = $first.storage.device().workspace_turn();
                    cuda::$family::$name($first, $($argument),*)
                }
                Kind::Accounting => Ok(()),
            }
        })+
    };
}

primitives! {
    /// Fills `out` with `value`.
    elementwise::fill(out: View<'_>, value: f64);
    /// Copies, `out = input`, between tensors of the same shape and dtype in any layouts that do not overlap.
    elementwise::copy(out: View<'_>, input: View<'_>);
    /// Converts, `out = input`, between tensors of the same shape, to the dtype of `out`.
    cast::cast(out: View<'_>, input: View<'_>);
    /// Applies a unary function, `out = f(input)`, or without an input `out = f(out)`.
    elementwise::unary(out: View<'_>, function: Unary, input: Option<View<'_>>);
    /// Applies a binary function, `out = f(left, right)`, to tensors of the same shape, or without a left operand
    /// `out = f(out, right)`.
    elementwise::binary(out: View<'_>, function: Binary, left: Option<View<'_>>, right: View<'_>);
    /// Applies a ternary function, `out = f(out, left, right)`, to tensors of the same shape.
    elementwise::ternary(out: View<'_>, function: Ternary, left: View<'_>, right: View<'_>);
    /// Fills contiguous `out` with random numbers.
    random::random(out: View<'_>, distribution: Distribution, draw: Draw);
    /// Computes dropout, `out = input / (1 − share)`, or 0 with probability `share`, for contiguous `out`. Works in
    /// place without an input.
    random::dropout(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw);
    /// Computes `out[i] = i · step + start` for contiguous `out`.
    random::arange(out: View<'_>, start: f64, step: f64);

    /// Computes `out = scale · Σ input + keep · out`, where `out` repeats (stride 0) along the reduced axes. Does
    /// nothing if `input` is empty.
    reduce::sum(out: View<'_>, input: View<'_>, scale: f64, keep: f64);
    /// Finds the largest or smallest elements along `axis`, as many as `places` (I64) has along this axis. Writes their
    /// indices in order to `places`, and optionally the elements to `found`, which has the same shape. Of equal
    /// elements, the first comes first. NaN comes before all others.
    extremes::extremes(places: View<'_>, found: Option<View<'_>>, input: View<'_>, axis: usize, extremum: Extremum);

    /// Computes `out = scale · left · right + keep · out` over the last two axes. Earlier axes are equal or broadcast.
    /// If `out` repeats along an earlier axis, products are summed over it.
    matmul::matmul(out: View<'_>, left: View<'_>, right: View<'_>, scale: f64, keep: f64);
    /// Computes `out = left · right + bias`, like `matmul`, with one element of `bias` per column of `out`. `out`
    /// repeats along no axis.
    matmul::matmul_bias(out: View<'_>, left: View<'_>, right: View<'_>, bias: View<'_>);

    /// Computes the softmax along the last axis of contiguous tensors. Works in place without an input.
    softmax::softmax(out: View<'_>, input: Option<View<'_>>);
    /// Computes the log-softmax along the last axis of contiguous tensors. Works in place without an input.
    softmax::log_softmax(out: View<'_>, input: Option<View<'_>>);
    /// Computes the input's gradient of `softmax`, `result · (grad − Σ grad · result)`, by rows. A missing `grad` is
    /// read from `out`. All tensors are contiguous.
    softmax::softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>);
    /// Computes the input's gradient of `log_softmax`, `grad − exp(result) · Σ grad`, by rows. A missing `grad` is read
    /// from `out`. All tensors are contiguous.
    softmax::log_softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>);

    /// Normalizes each row to mean 0 and variance 1, then multiplies by the weight and adds the bias in `affine`.
    /// `mean` and `rstd` (1 / standard deviation) have the statistics dtype and one element per row. If `mean` is
    /// missing, here and below, the row is only divided by its root mean square (RMS norm). All tensors are contiguous.
    norm::layer_norm(out: View<'_>, mean: Option<View<'_>>, rstd: View<'_>, input: View<'_>, affine: [Option<View<'_>>; 2], epsilon: f64);
    /// Recomputes the result of `layer_norm` from the input, the statistics `mean` and `rstd`, and `affine`.
    norm::layer_norm_again(out: View<'_>, mean: Option<View<'_>>, rstd: View<'_>, input: View<'_>, affine: [Option<View<'_>>; 2]);
    /// Computes the input's gradient of `layer_norm`. A missing `grad` is read from `out`. All tensors are contiguous.
    norm::layer_norm_backward(out: View<'_>, grad: Option<View<'_>>, mean: Option<View<'_>>, rstd: View<'_>, input: View<'_>, weight: Option<View<'_>>);
    /// Writes the gradients of weight and bias to `affine`, in that order, plus `keep` times the previous values.
    norm::layer_norm_backward_affine(grad: View<'_>, mean: Option<View<'_>>, rstd: View<'_>, input: View<'_>, affine: [Option<View<'_>>; 2], keep: [f64; 2]);

    /// Computes attention over `[batch, heads, length, width]` in any layout with a contiguous last axis; the
    /// log-sum-exp of each row goes to `statistics`, of the statistics dtype and shape `[batch, heads, length]`.
    attention::attention(out: View<'_>, statistics: View<'_>, inputs: [View<'_>; 3], size: AttentionSize);
    /// Computes `out[b, h, t] = Σ grad · result` over the last axis, which attention's backward needs besides its
    /// statistics.
    attention::attention_delta(out: View<'_>, grad: View<'_>, result: View<'_>);
    /// Writes the gradients of query, key and value, from `known = [grad, statistics, delta]`.
    attention::attention_backward(query_grad: View<'_>, other_grads: [View<'_>; 2], known: [View<'_>; 3], inputs: [View<'_>; 3], size: AttentionSize);

    /// Gathers rows: `out[i] = table[indices[i]]`; `indices` contiguous I64, `table` and `out` contiguous.
    index::gather_rows(out: View<'_>, table: View<'_>, indices: View<'_>);
    /// Scatter-adds rows: `table[indices[i]] += rows[i]`.
    index::add_rows(table: View<'_>, rows: View<'_>, indices: View<'_>);

    /// Computes `loss = Σ −log softmax(logits)[target] / n` over the n positions whose target is not `ignored`. Writes
    /// the log-sum-exp of each position to `statistics`, and n to `count`. Classes are axis 1 of the logits, and all
    /// other axes are positions. All tensors are contiguous.
    loss::cross_entropy(loss: View<'_>, statistics: View<'_>, count: View<'_>, logits: View<'_>, targets: View<'_>, ignored: i64);
    /// Computes the gradient of the logits of `cross_entropy`. Missing `logits` are read from `out` and overwritten.
    /// `known` is `[grad, statistics, count]`.
    loss::cross_entropy_backward(out: View<'_>, logits: Option<View<'_>>, known: [View<'_>; 3], targets: View<'_>, ignored: i64);

    /// Writes to `count` two numbers: how many of the contiguous I64 `targets` are not `ignored`, and 1 / that count,
    /// or 1 if it is 0.
    chunked_loss::count_targets(count: View<'_>, targets: View<'_>, ignored: i64);
    /// Adds the cross-entropy of these rows, divided by the count in `known`, to `loss`, and replaces the logits with
    /// their gradients times that count. `known` is `[count, targets]`. `loss` and the count have the statistics dtype.
    /// All tensors are contiguous.
    chunked_loss::cross_entropy_in_place(logits: View<'_>, loss: View<'_>, known: [View<'_>; 2], ignored: i64);

    /// Unfolds the windows of one image into columns, `out[(c, i, j), position]`, for the positions from `window.first`
    /// on. `out` is row-major, and the image has any layout.
    unfold::unfold(out: View<'_>, image: View<'_>, window: Window);
    /// Reverses `unfold` by adding columns to their positions in one image. The columns are row-major, and the image is
    /// contiguous.
    unfold::fold_add(image: View<'_>, columns: View<'_>, window: Window);

    /// Rotates heads `[batch, length, heads, width]` in place. They are stored in that order, with any stride between
    /// positions.
    rotary::rotary(heads: View<'_>, rotation: Rotation);

    /// Computes `out = silu(gate) · up` for contiguous tensors.
    swiglu::swiglu(out: View<'_>, gate: View<'_>, up: View<'_>);
    /// Computes the given gradients of gate and up from the result's gradient and `inputs = [gate, up]`. All tensors
    /// are contiguous. Each gradient may overwrite `grad` or either input.
    swiglu::swiglu_backward(grad: View<'_>, inputs: [View<'_>; 2], gradients: [Option<View<'_>>; 2]);
    // Optimizers. All operands except gradients are contiguous.
    /// Runs one step of stochastic gradient descent. `rounded`, if given, receives a copy of the new parameter in the
    /// gradient's dtype.
    optim::sgd(parameter: View<'_>, rounded: Option<View<'_>>, grad: View<'_>, direction: Option<View<'_>>, step: SgdStep);
    /// Runs one step of Adam. `moments` contains the averages of the gradient and of its square.
    optim::adam(parameter: View<'_>, rounded: Option<View<'_>>, grad: View<'_>, moments: [View<'_>; 2], step: AdamStep);
    /// Runs one step of Adam. `state` contains the averages as [`Code`]s, signed and unsigned (U8), and for each the
    /// largest magnitude of every [`CODE_BLOCK`] of its elements (F32).
    optim_8bit::adam_8bit(parameter: View<'_>, rounded: Option<View<'_>>, grad: View<'_>, state: [View<'_>; 4], step: AdamStep);
    /// Computes `total += Σ |input|^order`, or for an infinite order `total = max(total, max |input|)`. `total` is a
    /// single F64.
    clip::add_norm(total: View<'_>, input: View<'_>, order: f64);
    /// Computes `total = total^(1 / order)` for a single F64, which an infinite order leaves unchanged.
    clip::finish_norm(total: View<'_>, order: f64);
    /// Computes `out *= min(1, most / (norm + 10⁻⁶))`, where `norm` is a single F64.
    clip::clip_to_norm(out: View<'_>, norm: View<'_>, most: f64);
    /// Clamps with `out = max(least, min(most, out))`, where NaN stays NaN.
    clip::clamp(out: View<'_>, least: f64, most: f64);
    /// Sets `found = 1` if any element is infinite or NaN. `found` is a single F32.
    clip::find_nonfinite(found: View<'_>, input: View<'_>);
    /// Compares elements, `out = left ? right`, of tensors of the same shape. `out` is Bool, and the operands have the
    /// same dtype.
    compare::compare(out: View<'_>, comparison: Comparison, left: View<'_>, right: View<'_>);
    /// Compares elements with a scalar, `out = input ? number`.
    compare::compare_number(out: View<'_>, comparison: Comparison, input: View<'_>, number: f64);
    /// Selects elements, `out = condition ? left : right`, of tensors of the same shape. A missing operand is 0.
    /// `condition` is Bool or U8.
    where_cond::where_cond(out: View<'_>, condition: View<'_>, left: Option<View<'_>>, right: Option<View<'_>>);
    /// Sets `out = 0` where `condition` is not `wanted`.
    where_cond::clear(out: View<'_>, condition: View<'_>, wanted: bool);
    /// Computes `out = f(left, right)` for tensors of the same shape. The slopes, two bits each in the order of
    /// contiguous `out`, are packed into the bytes of `slopes`.
    piecewise::piecewise(out: View<'_>, slopes: Option<View<'_>>, function: Piecewise, left: View<'_>, right: Option<View<'_>>);
    /// Computes `out = grad · slope` for one side, with contiguous `out`. A missing `grad` is read from `out`.
    piecewise::piecewise_backward(out: View<'_>, grad: Option<View<'_>>, slopes: View<'_>, side: Side);
    /// Computes `out = input ^ exponent`.
    power::power(out: View<'_>, input: View<'_>, exponent: f64);
    /// Computes `out = grad · exponent · input ^ (exponent − 1)`. A missing `grad` is read from `out`.
    power::power_backward(out: View<'_>, grad: Option<View<'_>>, input: View<'_>, exponent: f64);
    /// Computes cumulative sums or products along `axis`. Works in place without an input.
    scan::scan(out: View<'_>, input: Option<View<'_>>, axis: usize, scan: Scan);
    /// Computes the input's gradient of forward cumulative products, also with zeros in the input.
    scan::product_backward(out: View<'_>, grad: View<'_>, input: View<'_>, axis: usize, exclusive: bool);
    /// Gathers elements along `axis`, `out[…, i, …] = input[…, places[…, i, …], …]`. `places` is I64 and has the shape
    /// of `out`.
    pick::gather(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize);
    /// Scatter-adds elements along `axis`, `out[…, places[…, i, …], …] += input[…, i, …]`.
    pick::scatter_add(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize);
    /// Computes the mean. `out` has the statistics dtype and repeats (stride 0) along the reduced axes.
    variance::exact_mean(out: View<'_>, input: View<'_>);
    /// Computes `out = scale · Σ (input − mean)²`, where `out` and `mean` have the same layout and repeat along the
    /// reduced axes.
    variance::variance(out: View<'_>, input: View<'_>, mean: View<'_>, scale: f64);
    /// Computes `out = scale · grad · (input − mean)` for tensors of the same shape. A missing input is read from
    /// `out`.
    variance::variance_backward(out: View<'_>, grad: View<'_>, input: Option<View<'_>>, mean: View<'_>, scale: f64);
    /// Computes `loss = scale · Σ (left − right)²`.
    squared_error::squared_error(loss: View<'_>, left: View<'_>, right: View<'_>, scale: f64);
    /// Computes `out = scale · grad · (left − right)`, where `grad` is the loss's gradient. A missing `left` is read
    /// from `out`.
    squared_error::squared_error_backward(out: View<'_>, grad: View<'_>, left: Option<View<'_>>, right: View<'_>, scale: f64);
    /// Computes `out = [x, sin x, cos x, sin 2x, cos 2x, sin 4x, …]` along the last axis, where x is the last axis of
    /// `input`.
    frequencies::frequencies(out: View<'_>, input: View<'_>);
    /// Computes the input's gradient of `frequencies` for contiguous tensors.
    frequencies::frequencies_backward(out: View<'_>, grad: View<'_>, input: View<'_>);
    /// Computes the maximum of each window, `out[b, c, position]` from `input[b, c]`, and optionally its row-major
    /// index within the window in `places` (U8 or I64). `out` and `places` are contiguous, and the input has any
    /// layout.
    pool::max_pool(out: View<'_>, places: Option<View<'_>>, input: View<'_>, window: Window);
    /// Adds each gradient to the position of its window's maximum. `out` and `places` are contiguous, and `grad` has
    /// any layout.
    pool::max_pool_backward(out: View<'_>, grad: View<'_>, places: View<'_>, window: Window);
    /// Computes the mean of each window, `out[b, c, position]` from `input[b, c]`, with or without padding zeros in the
    /// divisor. `out` is contiguous, and the input has any layout.
    pool::avg_pool(out: View<'_>, input: View<'_>, window: Window, counts_padding: bool);
    /// Adds an equal share of each gradient to all pixels of its window. `out` is contiguous, and `grad` has any
    /// layout.
    pool::avg_pool_backward(out: View<'_>, grad: View<'_>, window: Window, counts_padding: bool);

    /// Computes the mean and 1 / standard deviation of each channel of `[batch, channels, …]`, with `epsilon` added to
    /// the variance. Moves the running mean and variance, which have the statistics dtype, towards the mean and the
    /// unbiased variance of the batch by `momentum`. All tensors are contiguous.
    batch_norm::batch_norm_measure(mean: View<'_>, rstd: View<'_>, input: View<'_>, running: Option<[View<'_>; 2]>, momentum: f64, epsilon: f64);
    /// Normalizes each channel with its statistics to mean 0 and variance 1, then applies the weight and bias of each
    /// channel. Statistics of shape `[batch, groups]` are those of groups of channels of each example. All tensors are
    /// contiguous.
    batch_norm::batch_norm(out: View<'_>, input: View<'_>, statistics: [View<'_>; 2], spread: Spread, affine: [Option<View<'_>>; 2]);
    /// Accumulates the gradients of weight and bias in `affine`, in that order. That of the weight needs the input. All
    /// tensors are contiguous.
    batch_norm::batch_norm_backward_affine(grad: View<'_>, input: Option<View<'_>>, statistics: [View<'_>; 2], spread: Spread, affine: [Option<View<'_>>; 2]);
    /// Computes the input's gradient of `batch_norm`. A missing `grad` is read from `out`. If the input is given, the
    /// statistics depend on it; otherwise they are constants. All tensors are contiguous.
    batch_norm::batch_norm_backward(out: View<'_>, grad: Option<View<'_>>, input: Option<View<'_>>, statistics: [View<'_>; 2], spread: Spread, weight: Option<View<'_>>);

    /// Drops channels of `[batch, channels, …]`. A channel becomes 0 with probability `share`, and is otherwise divided
    /// by `1 − share`. Works in place without an input. `out` is contiguous.
    channel_dropout::dropout_channels(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw);
}
