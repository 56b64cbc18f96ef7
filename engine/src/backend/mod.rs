//! The primitives that do arithmetic, and their implementation on each device.
//!
//! A primitive allocates nothing: its output, and every buffer that it needs beside, was made by the caller, who does
//! not look at the kind of device. That is why the accounting device, which skips all of this, sees exactly the
//! allocations of the others.

pub mod kind;
pub mod arithmetic;
pub mod step;
pub mod call;
mod uses;
pub mod code;
pub mod nest;
pub mod cpu;
pub mod cuda;

use bytemuck::Pod;

use crate::device::Kind;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::rng::Draw;
use crate::storage::Storage;

pub use call::Call;
pub use code::{CODE_BLOCK, Code};
pub use kind::{
    AttentionSize, Binary, Comparison, Distribution, Fold, Piecewise, Rotation, Scan, Side, Spread, Ternary, Unary,
    Window,
};
pub use step::{AdamStep, SgdStep};

use uses::Uses;

/// Memory seen as numbers in a layout: what primitives read and write.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The memory.
    pub storage: &'a Storage,
    /// Where in it the elements lie.
    pub layout: &'a Layout,
    /// The element type.
    pub dtype: DType,
}

/// The elements in order, the last axis fastest, as the host's own. Waits until they are computed.
pub(crate) fn to_host<T: Pod>(input: View<'_>) -> Result<Vec<T>> {
    match input.storage.device().kind() {
        Kind::Cuda => cuda::elementwise::to_host(input),
        Kind::Cpu | Kind::Accounting => cpu::elementwise::to_host(input),
    }
}

/// Runs one call.
pub(crate) fn run(call: Call<'_>) -> Result<()> {
    match call {
        Call::Unary(out, function, input) => unary(out, function, input),
        Call::Binary(out, function, left, right) => binary(out, function, left, right),
        Call::Ternary(out, function, left, right) => ternary(out, function, left, right),
        Call::Sgd(parameter, rounded, grad, direction, step) => sgd(parameter, rounded, grad, direction, step),
        Call::Adam(parameter, rounded, grad, moments, step) => adam(parameter, rounded, grad, moments, step),
        Call::Adam8bit(parameter, rounded, grad, state, step) => adam_8bit(parameter, rounded, grad, state, step),
        Call::AddNorm(total, input, order) => add_norm(total, input, order),
        Call::ClipToNorm(out, norm, most) => clip_to_norm(out, norm, most),
        Call::Clamp(out, least, most) => clamp(out, least, most),
        Call::FindNonfinite(found, input) => find_nonfinite(found, input),
    }
}

/// Runs all of these calls, of one device. None writes what another reads or writes, but
/// for what a call says that several may write. Where a kernel's launch takes longer than its work, many calls share
/// one.
pub fn run_all(calls: &[Call<'_>]) -> Result<()> {
    match calls.first().map(|call| call.out().storage.device().kind()) {
        Some(Kind::Cuda) if !arithmetic::is_left_out() => cuda::shared_launches::run_all(calls),
        _ => calls.iter().try_for_each(|&call| run(call)),
    }
}

/// Tells a recording that wants to know which memory `call` uses. Who runs it by its primitive need not.
fn report_uses(call: &Call<'_>) {
    if Uses::are_recorded() {
        Uses::report(&[call]);
    }
}

/// Writes the device's dispatch of primitives: the first parameter's device does the work. What is used is told first,
/// also of work that is left out, so that recordings are the same.
macro_rules! primitives {
    ($($(#[$doc:meta])* $family:ident::$name:ident($first:ident: $first_type:ty $(, $argument:ident: $type:ty)* $(,)?);)+) => {
        $($(#[$doc])*
        pub fn $name($first: $first_type, $($argument: $type),*) -> Result<()> {
            if Uses::are_recorded() {
                Uses::report(&[&$first, $(&$argument),*]);
            }
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
    /// `out = value`.
    elementwise::fill(out: View<'_>, value: f64);
    /// `out = input`, of the same shape and type, in any layouts; the two do not overlap.
    elementwise::copy(out: View<'_>, input: View<'_>);
    /// `out = input`, of the same shape, changed to `out`'s type.
    cast::cast(out: View<'_>, input: View<'_>);
    /// `out = f(input)`; without an input, `out = f(out)`.
    elementwise::unary(out: View<'_>, function: Unary, input: Option<View<'_>>);
    /// `out = f(left, right)`, all of one shape; without a left operand, `out = f(out, right)`.
    elementwise::binary(out: View<'_>, function: Binary, left: Option<View<'_>>, right: View<'_>);
    /// `out = f(out, left, right)`, all of one shape.
    elementwise::ternary(out: View<'_>, function: Ternary, left: View<'_>, right: View<'_>);
    /// Random numbers into contiguous `out`.
    random::random(out: View<'_>, distribution: Distribution, draw: Draw);
    /// `out = input / (1 − share)`, or 0 with probability `share`. Without an input, of `out` itself. Contiguous `out`.
    random::dropout(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw);
    /// `out[i] = i · step + start`, contiguous.
    random::arange(out: View<'_>, start: f64, step: f64);

    /// `out = scale · Σ input + keep · out`, where `out` repeats (stride 0) along the axes that are summed. Without
    /// elements, nothing is done.
    reduce::sum(out: View<'_>, input: View<'_>, scale: f64, keep: f64);
    /// The maximum along `axis`, and where it stands first. `out` and `places` have length 1 there; `places` is I64.
    reduce::max(out: View<'_>, places: View<'_>, input: View<'_>, axis: usize);
    /// `out = 0` but for `grad` at `places` along `axis`.
    reduce::put(out: View<'_>, grad: View<'_>, places: View<'_>, axis: usize);

    /// `out = scale · left · right + keep · out` over the last two axes; earlier axes are equal or repeated. Where
    /// `out` repeats along an earlier axis, products are summed over it.
    matmul::matmul(out: View<'_>, left: View<'_>, right: View<'_>, scale: f64, keep: f64);
    /// `out = left · right + bias`, like `matmul`, with one number of `bias` for each column of `out`, which repeats
    /// along no axis.
    matmul::matmul_bias(out: View<'_>, left: View<'_>, right: View<'_>, bias: View<'_>);

    /// Softmax along the last axis, or its logarithm. Without an input, of `out` itself. Contiguous.
    softmax::softmax(out: View<'_>, input: Option<View<'_>>);
    /// The logarithm of the softmax along the last axis. Without an input, of `out` itself. Contiguous.
    softmax::log_softmax(out: View<'_>, input: Option<View<'_>>);
    /// The input's gradient from the result's: `result · (grad − Σ grad · result)` by rows. Without `grad`, it is in
    /// `out`. Contiguous.
    softmax::softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>);
    /// The input's gradient from the result's: `grad − exp(result) · Σ grad` by rows. Without `grad`, it is in `out`.
    /// Contiguous.
    softmax::log_softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>);

    /// Each row, made mean 0 and variance 1, times `weight` plus `bias`. `mean` and `rstd` (1 over the deviation) are
    /// in the statistics type, one a row. Contiguous.
    norm::layer_norm(out: View<'_>, mean: View<'_>, rstd: View<'_>, input: View<'_>, affine: [Option<View<'_>>; 2], epsilon: f64);
    /// `layer_norm` again, with its statistics.
    norm::layer_norm_again(out: View<'_>, statistics: [View<'_>; 2], input: View<'_>, affine: [Option<View<'_>>; 2]);
    /// The input's gradient. Without `grad`, it is in `out`. Contiguous.
    norm::layer_norm_backward(out: View<'_>, grad: Option<View<'_>>, statistics: [View<'_>; 2], input: View<'_>, weight: Option<View<'_>>);
    /// Writes the gradients of weight and bias to `affine`, in that order, plus `keep` times what is there.
    norm::layer_norm_backward_affine(grad: View<'_>, statistics: [View<'_>; 2], input: View<'_>, affine: [Option<View<'_>>; 2], keep: [f64; 2]);

    /// Attention over `[batch, heads, length, width]` in any layout with the last axis contiguous; `statistics`, in the
    /// statistics type and shaped `[batch, heads, length]`, gets the logarithm of each row's sum of exponents.
    attention::attention(out: View<'_>, statistics: View<'_>, inputs: [View<'_>; 3], size: AttentionSize);
    /// `out[b, h, t] = Σ grad · result` over the last axis: what attention's backward needs beside its statistics.
    attention::attention_delta(out: View<'_>, grad: View<'_>, result: View<'_>);
    /// Writes the gradients of query, key and value from `[grad, statistics, delta]`.
    attention::attention_backward(query_grad: View<'_>, other_grads: [View<'_>; 2], known: [View<'_>; 3], inputs: [View<'_>; 3], size: AttentionSize);

    /// `out[i] = table[indices[i]]` by rows; `indices` contiguous I64, `table` and `out` contiguous.
    index::gather_rows(out: View<'_>, table: View<'_>, indices: View<'_>);
    /// `table[indices[i]] += rows[i]`.
    index::add_rows(table: View<'_>, rows: View<'_>, indices: View<'_>);

    /// `loss = Σ −log softmax(logits)[target] / n` over the n places whose target is not `ignored`; `statistics` gets
    /// each place's logarithm of the sum of exponents, and `count` gets n. Classes lie along axis 1 of the logits,
    /// places along all others. Contiguous.
    loss::cross_entropy(loss: View<'_>, statistics: View<'_>, count: View<'_>, logits: View<'_>, targets: View<'_>, ignored: i64);
    /// The gradient of the logits. Without logits, they are in `out` and overwritten. `known` is `[grad, statistics,
    /// count]`.
    loss::cross_entropy_backward(out: View<'_>, logits: Option<View<'_>>, known: [View<'_>; 3], targets: View<'_>, ignored: i64);

    /// How many of `targets`, contiguous I64, are not `ignored`, and 1 over that number, which is 1 for none.
    chunked_loss::count_targets(count: View<'_>, targets: View<'_>, ignored: i64);
    /// Adds the cross-entropy of these rows, over `known`'s count, to `loss`, and turns the logits into their gradient
    /// times that count.
    /// `known` is `[count, targets]`; contiguous; `loss` and count are of the statistics type.
    chunked_loss::cross_entropy_in_place(logits: View<'_>, loss: View<'_>, known: [View<'_>; 2], ignored: i64);

    /// One image's windows as columns: `out[(c, i, j), place]` for the places from `window.first` on. `out` by rows,
    /// the image in any layout.
    unfold::unfold(out: View<'_>, image: View<'_>, window: Window);
    /// The reverse: adds columns to where they came from in one image. Both by rows, the image contiguous.
    unfold::fold_add(image: View<'_>, columns: View<'_>, window: Window);

    /// Each row over the root of its mean square, times `weight`. `inverse` gets 1 over that root, in the statistics
    /// type, one a row. Contiguous.
    rms_norm::rms_norm(out: View<'_>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>, epsilon: f64);
    /// `rms_norm` again, with its statistics.
    rms_norm::rms_norm_again(out: View<'_>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>);
    /// The input's gradient. Without `grad`, it is in `out`. Contiguous.
    rms_norm::rms_norm_backward(out: View<'_>, grad: Option<View<'_>>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>);
    /// Writes the gradient of the weight to `weight`, plus `keep` times what is there.
    rms_norm::rms_norm_backward_weight(weight: View<'_>, grad: View<'_>, inverse: View<'_>, input: View<'_>, keep: f64);

    /// Turns heads `[batch, length, heads, width]` in place, stored in that order with whatever distance between
    /// places.
    rotary::rotary(heads: View<'_>, rotation: Rotation);

    /// `out = silu(gate) · up`. Contiguous.
    swiglu::swiglu(out: View<'_>, gate: View<'_>, up: View<'_>);
    /// The gradients of gate and up, as far as they are given, from the result's and `[gate, up]`. Contiguous; each may
    /// be written over any of what is read.
    swiglu::swiglu_backward(grad: View<'_>, inputs: [View<'_>; 2], gradients: [Option<View<'_>>; 2]);
    // Optimizers. All but gradients is contiguous.
    /// One step of stochastic gradient descent. `rounded`, of the gradient's type, gets the new parameter as well.
    optim::sgd(parameter: View<'_>, rounded: Option<View<'_>>, grad: View<'_>, direction: Option<View<'_>>, step: SgdStep);
    /// One step of Adam; `moments` are the averages of the gradient and of its square.
    optim::adam(parameter: View<'_>, rounded: Option<View<'_>>, grad: View<'_>, moments: [View<'_>; 2], step: AdamStep);
    /// One step of Adam; `state` is the averages as [`Code`]s, signed and unsigned (U8), and for each the largest
    /// magnitude of every [`CODE_BLOCK`] of its elements (F32).
    optim_8bit::adam_8bit(parameter: View<'_>, rounded: Option<View<'_>>, grad: View<'_>, state: [View<'_>; 4], step: AdamStep);
    /// `total += Σ |input|^order`, or the largest magnitude for an infinite order. `total` is one F64.
    clip::add_norm(total: View<'_>, input: View<'_>, order: f64);
    /// `total = total^(1 / order)`.
    clip::finish_norm(total: View<'_>, order: f64);
    /// `out *= min(1, most / (norm + 10⁻⁶))`; `norm` is one F64.
    clip::clip_to_norm(out: View<'_>, norm: View<'_>, most: f64);
    /// `out = max(least, min(most, out))`; what is NaN stays so.
    clip::clamp(out: View<'_>, least: f64, most: f64);
    /// `found = 1` if any number is infinite or NaN. `found` is one F32.
    clip::find_nonfinite(found: View<'_>, input: View<'_>);
    /// `out = left ? right`, all of one shape; `out` is Bool, the operands are of one type, any.
    compare::compare(out: View<'_>, comparison: Comparison, left: View<'_>, right: View<'_>);
    /// `out = input ? number`.
    compare::compare_number(out: View<'_>, comparison: Comparison, input: View<'_>, number: f64);
    /// `out = condition ? left : right`, all of one shape; what is not given is 0. `condition` is Bool or U8.
    where_cond::where_cond(out: View<'_>, condition: View<'_>, left: Option<View<'_>>, right: Option<View<'_>>);
    /// `out = 0` where `condition` is not `wanted`.
    where_cond::clear(out: View<'_>, condition: View<'_>, wanted: bool);
    /// `out = f(left, right)`; the slopes, two bits each in the order of contiguous `out`, go into the bytes of
    /// `slopes`. `out` and the operands are of one shape.
    piecewise::piecewise(out: View<'_>, slopes: Option<View<'_>>, function: Piecewise, left: View<'_>, right: Option<View<'_>>);
    /// `out = grad · slope` of one side. Without `grad`, it is in `out`. Contiguous `out`.
    piecewise::piecewise_backward(out: View<'_>, grad: Option<View<'_>>, slopes: View<'_>, side: Side);
    /// `out = input ^ exponent`.
    power::power(out: View<'_>, input: View<'_>, exponent: f64);
    /// `out = grad · exponent · input ^ (exponent − 1)`. Without `grad`, it is in `out`.
    power::power_backward(out: View<'_>, grad: Option<View<'_>>, input: View<'_>, exponent: f64);
    /// Running sums or products along `axis`. Without an input, of `out` itself.
    scan::scan(out: View<'_>, input: Option<View<'_>>, axis: usize, scan: Scan);
    /// The input's gradient of running products from first to last, zeros or not.
    scan::product_backward(out: View<'_>, grad: View<'_>, input: View<'_>, axis: usize, exclusive: bool);
    /// `out[…, i, …] = input[…, places[…, i, …], …]` along `axis`; `places` is I64 and of `out`'s shape.
    pick::gather(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize);
    /// `out[…, places[…, i, …], …] += input[…, i, …]` along `axis`.
    pick::scatter_add(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize);
    /// `out`, of the statistics type and repeated (stride 0) along the axes that are taken together, gets their mean.
    variance::exact_mean(out: View<'_>, input: View<'_>);
    /// `out = scale · Σ (input − mean)²`, where `out` and `mean`, of one layout, repeat along the axes that are summed.
    variance::variance(out: View<'_>, input: View<'_>, mean: View<'_>, scale: f64);
    /// `out = scale · grad · (input − mean)`, all of one shape. Without an input, it is in `out`.
    variance::variance_backward(out: View<'_>, grad: View<'_>, input: Option<View<'_>>, mean: View<'_>, scale: f64);
    /// `loss = scale · Σ (left − right)²`.
    squared_error::squared_error(loss: View<'_>, left: View<'_>, right: View<'_>, scale: f64);
    /// `out = scale · grad · (left − right)` with the loss's gradient. Without `left`, it is in `out`.
    squared_error::squared_error_backward(out: View<'_>, grad: View<'_>, left: Option<View<'_>>, right: View<'_>, scale: f64);
    /// `out = [x, sin x, cos x, sin 2x, cos 2x, sin 4x, …]` along the last axis, x the last axis of `input`.
    frequencies::frequencies(out: View<'_>, input: View<'_>);
    /// The input's gradient. All contiguous.
    frequencies::frequencies_backward(out: View<'_>, grad: View<'_>, input: View<'_>);
    /// `out[b, c, place] = max` of the window there in `input[b, c]`, and with `places` (U8 or I64) which of the window
    /// it is, counted row by row. `out` and `places` contiguous, the input in any layout.
    pool::max_pool(out: View<'_>, places: Option<View<'_>>, input: View<'_>, window: Window);
    /// Adds the gradient to where the largest stood. `out` and `places` contiguous, `grad` in any layout.
    pool::max_pool_backward(out: View<'_>, grad: View<'_>, places: View<'_>, window: Window);
    /// `out[b, c, place] = mean` of the window there in `input[b, c]`, the zeros in its padding counted or not. `out`
    /// contiguous, the input in any layout.
    pool::avg_pool(out: View<'_>, input: View<'_>, window: Window, counts_padding: bool);
    /// Adds each gradient's share to all pixels of its window. `out` contiguous, `grad` in any layout.
    pool::avg_pool_backward(out: View<'_>, grad: View<'_>, window: Window, counts_padding: bool);

    /// Mean and 1 / deviation of each channel of `[batch, channels, …]`, with `epsilon` added to the variance. The
    /// running mean and variance, in the statistics type, move towards the batch's by the share `momentum`. Contiguous.
    batch_norm::batch_norm_measure(mean: View<'_>, rstd: View<'_>, input: View<'_>, running: Option<[View<'_>; 2]>, momentum: f64, epsilon: f64);
    /// Each channel made mean 0 and variance 1 by its statistics, times weight plus bias. Contiguous.
    batch_norm::batch_norm(out: View<'_>, input: View<'_>, statistics: [View<'_>; 2], spread: Spread, affine: [Option<View<'_>>; 2]);
    /// Adds the gradients of weight and bias to them, in that order; that of the weight needs the input. Contiguous.
    batch_norm::batch_norm_backward_affine(grad: View<'_>, input: Option<View<'_>>, statistics: [View<'_>; 2], spread: Spread, affine: [Option<View<'_>>; 2]);
    /// The input's gradient. Without `grad`, it is in `out`. With the input, the statistics were computed from it;
    /// without, they were given. Contiguous.
    batch_norm::batch_norm_backward(out: View<'_>, grad: Option<View<'_>>, input: Option<View<'_>>, statistics: [View<'_>; 2], spread: Spread, weight: Option<View<'_>>);

    /// Channels of `[batch, channels, …]`, divided by `1 − share`, or 0 with probability `share`. Without an input, of
    /// `out` itself. Contiguous `out`.
    channel_dropout::dropout_channels(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw);
}
