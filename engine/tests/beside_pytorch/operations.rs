//! Maps each operation name in PyTorch's cases to the engine's operation.

use highwater_engine::ops::{BatchStatistics, RotaryOptions};
use highwater_engine::{Result, Tensor};

use super::cases::Args;

pub(crate) type Operation = fn(&[Tensor], &Args) -> Result<Tensor>;

pub(crate) const OPERATIONS: &[(&str, Operation)] = &[
    ("add", |x, _| x[0].add(&x[1])),
    ("sub", |x, _| x[0].sub(&x[1])),
    ("mul", |x, _| x[0].mul(&x[1])),
    ("div", |x, _| x[0].div(&x[1])),
    ("into_add", |x, _| x[0].mul_scalar(2.0)?.into_add(&x[1])),
    ("add_self", |x, _| x[0].add(&x[0])),
    ("mul_self", |x, _| x[0].mul(&x[0])),
    ("div_self", |x, _| x[0].div(&x[0])),
    ("neg", |x, _| x[0].neg()),
    ("add_scalar", |x, args| x[0].add_scalar(args.number("value"))),
    ("mul_scalar", |x, args| x[0].mul_scalar(args.number("value"))),
    ("affine", |x, args| x[0].affine(args.number("scale"), args.number("shift"))),
    ("to_dtype", |x, args| x[0].to_dtype(args.dtype("between"))?.to_dtype(x[0].dtype())),
    ("exp", |x, _| x[0].exp()),
    ("log", |x, _| x[0].log()),
    ("sqrt", |x, _| x[0].sqrt()),
    ("square", |x, _| x[0].square()),
    ("tanh", |x, _| x[0].tanh()),
    ("sin", |x, _| x[0].sin()),
    ("cos", |x, _| x[0].cos()),
    ("sigmoid", |x, _| x[0].sigmoid()),
    ("silu", |x, _| x[0].silu()),
    ("relu", |x, _| x[0].relu()),
    ("into_relu", |x, _| x[0].mul_scalar(1.0)?.into_relu()),
    ("gelu", |x, _| x[0].gelu()),
    ("gelu_tanh", |x, _| x[0].gelu_tanh()),
    ("reshape", |x, args| x[0].reshape(args.shape("shape"))),
    ("reshape_of_permuted", |x, args| x[0].permute(&args.axes("order"))?.reshape(args.shape("shape"))),
    ("flatten_from", |x, args| x[0].flatten_from(args.axis("axis"))),
    ("unsqueeze", |x, args| x[0].unsqueeze(args.axis("axis"))),
    ("squeeze", |x, args| x[0].squeeze(args.axis("axis"))),
    ("transpose", |x, args| x[0].transpose(args.axis("first"), args.axis("second"))),
    ("permute", |x, args| x[0].permute(&args.axes("order"))),
    ("narrow", |x, args| x[0].narrow(args.axis("axis"), args.count("start"), args.count("length"))),
    ("narrow_overlapping", |x, _| x[0].narrow(1, 1, 2)?.mul(&x[0].narrow(1, 0, 2)?)?.add(&x[0].narrow(1, 2, 2)?)),
    ("select", |x, args| x[0].select(args.axis("axis"), args.count("index"))),
    ("expand", |x, args| x[0].expand(args.shape("shape"))),
    ("expand_and_square", |x, args| x[0].expand(args.shape("shape"))?.square()),
    ("contiguous", |x, _| x[0].transpose(0, -1)?.contiguous()),
    ("compact", |x, _| x[0].narrow(0, 1, 2)?.compact()),
    ("concat", |x, args| Tensor::concat(&x.iter().collect::<Vec<_>>(), args.axis("axis"))),
    ("concat_thrice", |x, args| Tensor::concat(&[&x[0], &x[0].square()?, &x[0]], args.axis("axis"))),
    ("sum", |x, _| x[0].sum()),
    ("mean", |x, _| x[0].mean()),
    ("sum_axes", |x, args| x[0].sum_axes(&args.axes("axes"))),
    ("sum_axes_keep", |x, args| x[0].sum_axes_keep(&args.axes("axes"))),
    ("mean_axes", |x, args| x[0].mean_axes(&args.axes("axes"))),
    ("mean_axes_keep", |x, args| x[0].mean_axes_keep(&args.axes("axes"))),
    ("max_axis", |x, args| x[0].max_axis(args.axis("axis"))),
    ("matmul", |x, _| x[0].matmul(&x[1])),
    ("matmul_turned", |x, _| x[0].transpose(-1, -2)?.matmul(&x[1].transpose(-1, -2)?)),
    ("matmul_self", |x, _| x[0].matmul(&x[0])),
    ("matmul_then_sum", |x, _| x[0].matmul(&x[1])?.sum()),
    ("matmul_then_sum_axis", |x, args| x[0].matmul(&x[1])?.sum_axes(&[args.axis("axis")])),
    ("linear", |x, _| x[0].linear(&x[1], x.get(2))),
    ("linear_then_sum", |x, _| x[0].linear(&x[1], x.get(2))?.sum()),
    ("linear_tied", |x, _| x[0].linear(&x[1], None)?.linear(&x[1].transpose(0, 1)?, None)),
    ("softmax", |x, args| x[0].softmax(args.axis("axis"))),
    ("log_softmax", |x, args| x[0].log_softmax(args.axis("axis"))),
    ("layer_norm", |x, args| {
        let mut parameters = x[1..].iter();
        let weight = if args.flag("weight") { parameters.next() } else { None };
        let bias = if args.flag("bias") { parameters.next() } else { None };
        x[0].layer_norm(weight, bias, args.number("epsilon"))
    }),
    ("rms_norm", |x, args| x[0].rms_norm(Some(&x[1]), args.number("epsilon"))),
    ("rms_norm_plain", |x, args| x[0].rms_norm(None, args.number("epsilon"))),
    ("rotary", |x, args| x[0].rotary(RotaryOptions { base: args.number("base"), first: args.count("first") })),
    ("swiglu", |x, _| Tensor::swiglu(&x[0], &x[1])),
    ("attention", |x, args| Tensor::attention(&x[0], &x[1], &x[2], args.attention())),
    ("attention_packed", |x, args| {
        x[0].attention_packed(args.count("heads"), args.count("key_heads"), args.attention())
    }),
    ("embedding", |x, _| x[0].embedding(&x[1])),
    ("embedding_twice", |x, _| x[0].embedding(&x[1])?.mul(&x[0].embedding(&x[2])?)),
    ("cross_entropy", |x, args| x[0].cross_entropy(&x[1], args.ignored())),
    ("cross_entropy_image", |x, args| x[0].cross_entropy(&x[1], args.ignored())),
    ("conv2d", |x, args| x[0].conv2d(&x[1], x.get(2), args.convolution())),
    ("conv_transpose2d", |x, args| x[0].conv_transpose2d(&x[1], x.get(2), args.transposed_convolution())),
    ("max_pool2d", |x, args| x[0].max_pool2d(args.pool())),
    ("avg_pool2d", |x, args| x[0].avg_pool2d(args.pool(), args.flag("counts_padding"))),
    ("batch_norm_train", |x, args| {
        x[0].batch_norm(Some(&x[1]), Some(&x[2]), BatchStatistics::Batch, args.number("epsilon"))
    }),
    ("batch_norm_eval", |x, args| {
        let [mean, variance] = statistics(&x[3..])?;
        let given = BatchStatistics::Given([&mean, &variance]);
        x[0].batch_norm(Some(&x[1]), Some(&x[2]), given, args.number("epsilon"))
    }),
    ("batch_norm_running", |x, args| {
        let [mean, variance] = statistics(&x[1..])?;
        let remembered = BatchStatistics::Remembered { running: [&mean, &variance], momentum: args.number("momentum") };
        x[0].batch_norm(None, None, remembered, 1e-5)?;
        Tensor::concat(&[&mean.unsqueeze(0)?, &variance.unsqueeze(0)?], 0)?.to_dtype(x[0].dtype())
    }),
    ("conv2d_grouped", |x, args| x[0].conv2d(&x[1], x.get(2), args.convolution())),
    ("conv_transpose2d_grouped", |x, args| x[0].conv_transpose2d(&x[1], x.get(2), args.transposed_convolution())),
    ("group_norm", |x, args| {
        let mut parameters = x[1..].iter();
        let weight = if args.flag("weight") { parameters.next() } else { None };
        let bias = if args.flag("bias") { parameters.next() } else { None };
        x[0].group_norm(args.count("groups"), weight, bias, args.number("epsilon"))
    }),
    ("pad", |x, args| x[0].pad(&args.pairs("pairs"), args.number("value"))),
    ("topk", |x, args| Ok(x[0].topk(args.count("count"), args.axis("axis"))?.0)),
    ("topk_places", |x, args| x[0].topk(args.count("count"), args.axis("axis"))?.1.to_dtype(x[0].dtype())),
    ("min_axis", |x, args| x[0].min_axis(args.axis("axis"))),
    ("argmax", |x, args| x[0].argmax(args.axis("axis"))?.to_dtype(x[0].dtype())),
    ("argmin", |x, args| x[0].argmin(args.axis("axis"))?.to_dtype(x[0].dtype())),
    ("divide_scalar", |x, args| args.number("scalar") / &x[0]),
    ("cumsum", |x, args| x[0].cumsum(args.axis("axis"))),
    ("cumprod", |x, args| x[0].cumprod(args.axis("axis"))),
    ("gather", |x, args| x[0].gather(args.axis("axis"), &x[1])),
    ("scatter_add", |x, args| x[0].scatter_add(args.axis("axis"), &x[1], &x[2])),
    ("where", |x, _| x[0].where_cond(&x[1], &x[2])),
    ("clamp", |x, args| x[0].clamp(args.number("low"), args.number("high"))),
    ("maximum", |x, _| x[0].maximum(&x[1])),
    ("minimum", |x, _| x[0].minimum(&x[1])),
    ("abs", |x, _| x[0].abs()),
    ("powf", |x, args| x[0].powf(args.number("exponent"))),
    ("var_axes", |x, args| x[0].var_axes(&args.axes("axes"), args.count("correction"))),
    ("mse_loss", |x, _| x[0].mse_loss(&x[1])),
    ("linear_cross_entropy", |x, args| x[0].linear_cross_entropy(&x[1], &x[2], args.ignored())?.to_dtype(x[0].dtype())),
];

/// A copy of mean and variance, in the type that statistics are of.
fn statistics(x: &[Tensor]) -> Result<[Tensor; 2]> {
    let copy = |x: &Tensor| x.to_dtype(x.dtype().statistics())?.add_scalar(0.0);
    Ok([copy(&x[0])?, copy(&x[1])?])
}
