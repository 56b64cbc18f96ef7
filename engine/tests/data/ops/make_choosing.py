"""Values of operations that choose, compare, pick and run along an axis, as PyTorch computes them: writes choosing.txt.

Run with a PyTorch for the CPU: python make_choosing.py
Each case is the operation's name, its inputs, its result, and each input's gradient where the result's gradient is
((7 i) mod 5 - 2) / 2 at element i. Whole numbers and truth values are written without a point.
"""

import pathlib

import torch
import torch.nn.functional as F

CASES = []
GENERATOR = torch.Generator().manual_seed(0)


def numbers(shape, low=-2.0, high=2.0):
    return torch.rand(shape, generator=GENERATOR) * (high - low) + low


def case(name, function, *inputs):
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    out = function(*leaves)
    lines = [f"case {name}"]
    lines += [line("input", x) for x in inputs]
    lines.append(line("result", out.detach()))
    if out.requires_grad:
        weights = ((7 * torch.arange(out.numel())) % 5 - 2) / 2
        out.backward(weights.reshape(out.shape).to(out.dtype))
        lines += [line("grad", x.grad) for x in leaves if x.is_floating_point()]
    CASES.append("\n".join(lines))


def line(what, tensor):
    shape = " ".join(str(n) for n in tensor.shape)
    values = tensor.contiguous().flatten()
    values = (values.long() if not values.is_floating_point() else values).tolist()
    text = " ".join(str(v) if isinstance(v, int) else f"{v:.9g}" if v != int(v) else f"{v:.1f}" for v in values)
    return f"{what} [{shape}] {text}".rstrip()


a, b = numbers((2, 3)), numbers((2, 3))
b[0, 1] = a[0, 1]
steps = torch.tensor([[-1.0, 0.5, 1.0, 2.0], [0.25, -3.0, 0.5, 1.5]])
zeros = torch.tensor([[1.5, 0.0, -2.0, 0.5], [0.0, 3.0, 0.0, 1.0], [2.0, 0.5, 1.5, 0.0]])
cube = numbers((2, 3, 4))


def exclusive(x, dim):
    first = torch.ones_like(x.narrow(dim, 0, 1))
    return torch.cat([first, x.narrow(dim, 0, x.shape[dim] - 1)], dim).cumprod(dim)


case("lt", torch.lt, a, b)
case("le", torch.le, a, b)
case("gt", torch.gt, a, b)
case("ge", torch.ge, a, b)
case("eq", torch.eq, a, b)
case("ne", torch.ne, a, b)
case("gt_scalar", lambda x: x > 0.5, steps)
case("le_broadcast", lambda x, y: x <= y, numbers((2, 1, 3)), numbers((4, 1)))
case("eq_whole", lambda x: x == 2, torch.tensor([1, 2, 3, 2]))
case("choose", lambda x, y: torch.where(x > y, x, y * 3), a, b)
case("choose_broadcast", lambda c, x, y: torch.where(c != 0, x, y), torch.tensor([1, 0, 1]), numbers((2, 1)), numbers((1, 3)))
case("abs", torch.abs, torch.tensor([[-1.5, 0.0, 2.5], [-0.5, 1.0, -3.0]]) * 1.1)
case("clamp", lambda x: x.clamp(0.5, 1.5), steps)
case("clamp_below", lambda x: x.clamp(min=0.5), steps)
case("maximum", torch.maximum, a, b)
case("minimum", torch.minimum, a, b)
case("maximum_broadcast", torch.maximum, numbers((2, 1, 3)), numbers((4, 1)))
case("powf", lambda x: x ** 2.5, numbers((2, 3), 0.1, 3.0))
case("powi", lambda x: x ** 3, a)
case("powi_below", lambda x: x ** -2, a)
case("powi_nothing", lambda x: x ** 0, steps)
case("cumsum", lambda x: x.cumsum(1), cube)
case("cumsum_last", lambda x: x.cumsum(-1), cube)
case("cumprod", lambda x: x.cumprod(1), cube)
case("cumprod_zeros", lambda x: x.cumprod(-1), zeros)
case("cumprod_exclusive", lambda x: exclusive(x, 1), cube)
case("cumprod_exclusive_zeros", lambda x: exclusive(x, 1), zeros)
case("gather", lambda x, i: x.gather(1, i), cube, torch.tensor([[[0, 2, 1], [2, 2, 0]]]))
case("gather_first", lambda x, i: x.gather(0, i), numbers((3, 2)), torch.tensor([[2, 0], [2, 1], [0, 0], [2, 2]]))
case("scatter_add", lambda x, i, y: x.scatter_add(1, i, y), a, torch.tensor([[2, 2, 0, 1], [0, 0, 0, 2]]), numbers((2, 4)))
case("split", lambda x: x.split(3, 1)[1] * x.split(3, 1)[0][:, :1], numbers((2, 5)))
case("chunk", lambda x: x.chunk(2, 1)[0] + x.chunk(2, 1)[1], numbers((3, 4)))
case("stack", lambda x, y: torch.stack([x, y, x], 1), a, b)
case("stack_last", lambda x, y: torch.stack([x, y], -1), a, b)
case("var", lambda x: x.var(), cube)
case("var_axes", lambda x: x.var((0, 2), correction=0), cube)
case("var_axes_keep", lambda x: x.var((1,), keepdim=True), cube)
case("mse_loss", F.mse_loss, a, b)
case(
    "frequencies",
    lambda x: torch.cat([x] + [f(x * 2.0**k) for k in range(3) for f in (torch.sin, torch.cos)], -1),
    numbers((2, 3)),
)

header = f"# Made by make_choosing.py with PyTorch {torch.__version__.split('+')[0]}; do not edit.\n"
path = pathlib.Path(__file__).with_name("choosing.txt")
path.write_text(header + "\n\n".join(CASES) + "\n")
print(f"{len(CASES)} cases, {path.stat().st_size} bytes")
