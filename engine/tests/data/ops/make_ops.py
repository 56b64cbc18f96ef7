"""Values of every operation and its gradients, as PyTorch computes them: writes ops.txt beside this file.

Run with a PyTorch for the CPU: python make_ops.py
Each case is the operation's name, its inputs, its result, and each input's gradient where the result's gradient is
((7 i) mod 5 - 2) / 2 at element i. Whole numbers are written without a point.
"""

import pathlib

import torch
import torch.nn.functional as F

CASES = []


def numbers(shape, low=-2.0, high=2.0):
    return torch.rand(shape, generator=GENERATOR) * (high - low) + low


def case(name, function, *inputs):
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    out = function(*leaves)
    weights = ((7 * torch.arange(out.numel())) % 5 - 2) / 2
    if out.requires_grad:
        out.backward(weights.reshape(out.shape).to(out.dtype))
    lines = [f"case {name}"]
    lines += [line("input", x) for x in inputs]
    lines.append(line("result", out.detach()))
    lines += [line("grad", x.grad) for x in leaves if x.is_floating_point()]
    CASES.append("\n".join(lines))


def line(what, tensor):
    shape = " ".join(str(n) for n in tensor.shape)
    values = tensor.contiguous().flatten().tolist()
    text = " ".join(str(v) if isinstance(v, int) else f"{v:.9g}" if v != int(v) else f"{v:.1f}" for v in values)
    return f"{what} [{shape}] {text}".rstrip()


GENERATOR = torch.Generator().manual_seed(0)
a, b, row = numbers((2, 3)), numbers((2, 3)), numbers((3,))
positive, divisor = numbers((2, 3), 0.2, 3.0), numbers((2, 1), 0.5, 2.0)

case("add", lambda x, y: x + y, a, b)
case("add_broadcast", lambda x, y: x + y, numbers((2, 1, 3)), numbers((4, 1)))
case("sub", lambda x, y: x - y, a, row)
case("mul", lambda x, y: x * y, a, row)
case("div", lambda x, y: x / y, a, divisor)
case("neg", lambda x: -x, a)
case("affine", lambda x: 2.5 * x - 0.5, a)
case("exp", torch.exp, a)
case("log", torch.log, positive)
case("sqrt", torch.sqrt, positive)
case("square", torch.square, a)
case("tanh", torch.tanh, a)
case("sin", torch.sin, a)
case("cos", torch.cos, a)
case("sigmoid", torch.sigmoid, a)
case("silu", F.silu, numbers((3, 4), -6.0, 6.0))
case("relu", F.relu, a)
case("gelu", F.gelu, numbers((3, 5), -6.0, 6.0))
case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), numbers((3, 5), -6.0, 6.0))

cube = numbers((2, 3, 4))
case("sum", torch.sum, cube)
case("mean", torch.mean, cube)
case("sum_axes", lambda x: x.sum((0, 2)), cube)
case("mean_axes_keep", lambda x: x.mean((1,), keepdim=True), cube)
case("max_axis", lambda x: x.max(1).values, cube)
case("max_axis_ties", lambda x: x.max(-1).values, torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]]))

case("matmul", torch.matmul, numbers((3, 4)), numbers((4, 2)))
case("matmul_batched", torch.matmul, numbers((2, 1, 3, 4)), numbers((3, 4, 2)))
case("matmul_turned", lambda x, y: x.transpose(0, 1) @ y.transpose(0, 1), numbers((4, 3)), numbers((2, 4)))
case("linear", F.linear, numbers((2, 3, 4)), numbers((5, 4)), numbers((5,)))

case("reshape_transpose", lambda x: x.reshape(6, 4).t().reshape(3, 8), cube)
case("permute", lambda x: x.permute(2, 0, 1).contiguous(), cube)
case("narrow", lambda x: x.narrow(2, 1, 2), cube)
case("expand", lambda x: x.expand(2, 3, 4).contiguous(), numbers((3, 1)))
case("concat", lambda x, y: torch.cat([x, y, x], 1), numbers((2, 3)), numbers((2, 1)))

case("softmax", lambda x: x.softmax(-1), numbers((3, 5), -4.0, 4.0))
case("softmax_first", lambda x: x.softmax(0), cube)
case("softmax_large", lambda x: x.softmax(-1), torch.tensor([[1000.0, 1001.0, 999.0], [-1000.0, 0.0, -3000.0]]))
case("log_softmax", lambda x: x.log_softmax(1), cube)
case("layer_norm", lambda x, w, c: F.layer_norm(x, (6,), w, c, 1e-5), numbers((2, 2, 6)), numbers((6,)), numbers((6,)))
case("layer_norm_plain", lambda x: F.layer_norm(x, (4,)), numbers((3, 4)) + 100.0)

q, k, v = numbers((2, 4, 5, 8)), numbers((2, 4, 5, 8)), numbers((2, 4, 5, 8))
case("attention", F.scaled_dot_product_attention, q, k, v)
case("attention_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q[:1], k[:1], v[:1])
case(
    "attention_shared_heads",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True, scale=0.3),
    numbers((1, 4, 3, 3)), numbers((1, 2, 6, 3)), numbers((1, 2, 6, 3)),
)


def packed(x, heads, key_heads):
    n, t, c = x.shape
    q, k, v = x.view(n, t, heads + 2 * key_heads, -1).transpose(1, 2).split([heads, key_heads, key_heads], 1)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2).reshape(n, t, -1)


case("attention_packed", lambda x: packed(x, 2, 1), numbers((2, 3, 12)))

case("embedding", lambda w, i: F.embedding(i, w), numbers((5, 3)), torch.tensor([[4, 1, 1], [0, 4, 2]]))
case("cross_entropy", F.cross_entropy, numbers((4, 5), -3.0, 3.0), torch.tensor([1, 4, 0, 1]))
case("cross_entropy_ignored", F.cross_entropy, numbers((4, 5), -3.0, 3.0), torch.tensor([1, -100, 0, -100]))
case("conv2d_patches", lambda x, w, c: F.conv2d(x, w, c, stride=2), numbers((2, 3, 4, 6)), numbers((4, 3, 2, 2)), numbers((4,)))
case("conv2d_padded", lambda x, w, c: F.conv2d(x, w, c, padding=1), numbers((1, 2, 5, 4)), numbers((3, 2, 3, 3)), numbers((3,)))
case("conv2d_strided", lambda x, w: F.conv2d(x, w, stride=(2, 3), padding=(0, 2)), numbers((2, 1, 5, 6)), numbers((2, 1, 3, 2)))

header = f"# Made by make_ops.py with PyTorch {torch.__version__.split('+')[0]}; do not edit.\n"
path = pathlib.Path(__file__).with_name("ops.txt")
path.write_text(header + "\n\n".join(CASES) + "\n")
print(f"{len(CASES)} cases, {path.stat().st_size} bytes")
