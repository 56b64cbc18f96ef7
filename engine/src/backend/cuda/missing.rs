//! Missing: primitives that have no kernel yet.

macro_rules! missing {
    ($($family:ident: $($name:ident($($argument:ident: $type:ty),* $(,)?);)+;)+) => {
        $(pub mod $family {
            use crate::backend::*;
            use crate::error::{Error, Result};
            use crate::rng::Draw;
            $(#[allow(missing_docs, clippy::too_many_arguments)]
            pub fn $name($($argument: $type),*) -> Result<()> {
                $(let _ = $argument;)*
                Err(Error::NotOnCuda { op: stringify!($name) })
            })+
        })+
    };
}

missing! {
    cast:
        cast(out: View<'_>, input: View<'_>);
    ;
    random:
        random(out: View<'_>, distribution: Distribution, draw: Draw);
        dropout(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw);
        arange(out: View<'_>, start: f64, step: f64);
    ;
    reduce:
        add_sum(out: View<'_>, input: View<'_>, scale: f64);
        max(out: View<'_>, places: View<'_>, input: View<'_>, axis: usize);
        put(out: View<'_>, grad: View<'_>, places: View<'_>, axis: usize);
    ;
    matmul:
        matmul(out: View<'_>, left: View<'_>, right: View<'_>, scale: f64, keep: f64);
    ;
    softmax:
        softmax(out: View<'_>, input: Option<View<'_>>);
        log_softmax(out: View<'_>, input: Option<View<'_>>);
        softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>);
        log_softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>);
    ;
    norm:
        layer_norm(out: View<'_>, mean: View<'_>, rstd: View<'_>, input: View<'_>, affine: [Option<View<'_>>; 2], epsilon: f64);
        layer_norm_again(out: View<'_>, statistics: [View<'_>; 2], input: View<'_>, affine: [Option<View<'_>>; 2]);
        layer_norm_backward(out: View<'_>, grad: Option<View<'_>>, statistics: [View<'_>; 2], input: View<'_>, weight: Option<View<'_>>);
        layer_norm_backward_affine(grad: View<'_>, statistics: [View<'_>; 2], input: View<'_>, affine: [Option<View<'_>>; 2]);
    ;
    attention:
        attention(out: View<'_>, statistics: View<'_>, inputs: [View<'_>; 3], size: AttentionSize);
        attention_delta(out: View<'_>, grad: View<'_>, result: View<'_>);
        attention_backward(query_grad: View<'_>, other_grads: [View<'_>; 2], known: [View<'_>; 3], inputs: [View<'_>; 3], size: AttentionSize);
    ;
    index:
        gather_rows(out: View<'_>, table: View<'_>, indices: View<'_>);
        add_rows(table: View<'_>, rows: View<'_>, indices: View<'_>);
    ;
    loss:
        cross_entropy(loss: View<'_>, statistics: View<'_>, count: View<'_>, logits: View<'_>, targets: View<'_>, ignored: i64);
        cross_entropy_backward(out: View<'_>, logits: Option<View<'_>>, known: [View<'_>; 3], targets: View<'_>, ignored: i64);
    ;
    chunked_loss:
        count_targets(count: View<'_>, targets: View<'_>, ignored: i64);
        cross_entropy_in_place(logits: View<'_>, loss: View<'_>, known: [View<'_>; 2], ignored: i64);
    ;
    unfold:
        unfold(out: View<'_>, image: View<'_>, window: Window);
        fold_add(image: View<'_>, columns: View<'_>, window: Window);
    ;
    rms_norm:
        rms_norm(out: View<'_>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>, epsilon: f64);
        rms_norm_again(out: View<'_>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>);
        rms_norm_backward(out: View<'_>, grad: Option<View<'_>>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>);
        rms_norm_backward_weight(weight: View<'_>, grad: View<'_>, inverse: View<'_>, input: View<'_>);
    ;
    rotary:
        rotary(heads: View<'_>, rotation: Rotation);
    ;
    swiglu:
        swiglu(out: View<'_>, gate: View<'_>, up: View<'_>);
        swiglu_backward(grad: View<'_>, inputs: [View<'_>; 2], gradients: [Option<View<'_>>; 2]);
    ;
    optim:
        sgd(parameter: View<'_>, rounded: Option<View<'_>>, grad: View<'_>, direction: Option<View<'_>>, step: SgdStep);
        adam(parameter: View<'_>, rounded: Option<View<'_>>, grad: View<'_>, moments: [View<'_>; 2], step: AdamStep);
    ;
    optim_8bit:
        adam_8bit(parameter: View<'_>, rounded: Option<View<'_>>, grad: View<'_>, state: [View<'_>; 4], step: AdamStep);
    ;
    clip:
        add_norm(total: View<'_>, input: View<'_>, order: f64);
        finish_norm(total: View<'_>, order: f64);
        clip_to_norm(out: View<'_>, norm: View<'_>, most: f64);
        clamp(out: View<'_>, least: f64, most: f64);
        find_nonfinite(found: View<'_>, input: View<'_>);
    ;
    compare:
        compare(out: View<'_>, comparison: Comparison, left: View<'_>, right: View<'_>);
        compare_number(out: View<'_>, comparison: Comparison, input: View<'_>, number: f64);
    ;
    choose:
        choose(out: View<'_>, condition: View<'_>, left: Option<View<'_>>, right: Option<View<'_>>);
        clear(out: View<'_>, condition: View<'_>, wanted: bool);
    ;
    piecewise:
        piecewise(out: View<'_>, slopes: Option<View<'_>>, function: Piecewise, left: View<'_>, right: Option<View<'_>>);
        piecewise_backward(out: View<'_>, grad: Option<View<'_>>, slopes: View<'_>, side: Side);
    ;
    power:
        power(out: View<'_>, input: View<'_>, exponent: f64);
        power_backward(out: View<'_>, grad: Option<View<'_>>, input: View<'_>, exponent: f64);
    ;
    scan:
        scan(out: View<'_>, input: Option<View<'_>>, axis: usize, scan: Scan);
        product_backward(out: View<'_>, grad: View<'_>, input: View<'_>, axis: usize, exclusive: bool);
    ;
    pick:
        gather(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize);
        scatter_add(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize);
    ;
    variance:
        exact_mean(out: View<'_>, input: View<'_>);
        variance(out: View<'_>, input: View<'_>, mean: View<'_>, scale: f64);
        variance_backward(out: View<'_>, grad: View<'_>, input: Option<View<'_>>, mean: View<'_>, scale: f64);
    ;
    squared_error:
        squared_error(loss: View<'_>, left: View<'_>, right: View<'_>, scale: f64);
        squared_error_backward(out: View<'_>, grad: View<'_>, left: Option<View<'_>>, right: View<'_>, scale: f64);
    ;
    frequencies:
        frequencies(out: View<'_>, input: View<'_>);
        frequencies_backward(out: View<'_>, grad: View<'_>, input: View<'_>);
    ;
    pool:
        max_pool(out: View<'_>, places: Option<View<'_>>, input: View<'_>, window: Window);
        max_pool_backward(out: View<'_>, grad: View<'_>, places: View<'_>, window: Window);
        avg_pool(out: View<'_>, input: View<'_>, window: Window, counts_padding: bool);
        avg_pool_backward(out: View<'_>, grad: View<'_>, window: Window, counts_padding: bool);
    ;
    batch_norm:
        batch_norm_measure(mean: View<'_>, rstd: View<'_>, input: View<'_>, running: Option<[View<'_>; 2]>, momentum: f64, epsilon: f64);
        batch_norm(out: View<'_>, input: View<'_>, statistics: [View<'_>; 2], spread: Spread, affine: [Option<View<'_>>; 2]);
        batch_norm_backward_affine(grad: View<'_>, input: Option<View<'_>>, statistics: [View<'_>; 2], spread: Spread, affine: [Option<View<'_>>; 2]);
        batch_norm_backward(out: View<'_>, grad: Option<View<'_>>, input: Option<View<'_>>, statistics: [View<'_>; 2], spread: Spread, weight: Option<View<'_>>);
    ;
    channel_dropout:
        dropout_channels(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw);
    ;
}
