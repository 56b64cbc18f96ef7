"""Writes what PyTorch computes, and the gradients, for every operation on many shapes: cases.json and network_cases.json.

    python make.py          needs nothing but PyTorch; a processor is enough; writes both files beside itself
    python make.py 7        the same with other numbers and shapes, to look further than the files that are kept

Made with PyTorch 2.15.0. The same numbers are drawn every time: each operation has a generator of its own, seeded with
its name, so that a new operation changes no other's cases. `engine/tests/beside_pytorch.rs` holds the engine against
the files: network_cases.json has what networks are made of, cases.json everything else.

A file is `{"torch": VERSION, "cases": [CASE, …]}`, one case a line:

  op       which operation; the test has a closure of this name
  args     whole numbers, fractions, lists of whole numbers and truth values that it takes beside tensors
  inputs   `{"shape", "values"}` and, if the numbers are no fractions, `"dtype"`: "i64" or "bool". Fractions are written
           as bf16, and are drawn so that they are bf16 numbers: every type starts from exactly the same. `"fixed": true`
           marks fractions of which no gradient is asked.
  results  by type ("f64" always, others where their own rounding or overflow is of interest): `{"shape", "result",
           "grads"}`, each written in that type, f64 in bf16 or f32 where that loses nothing. `grads` has one entry for
           each input of fractions that is not fixed; null means that there is no gradient at all.

Left out on purpose, because the engine means to differ: rows that cross-entropy ignores have a gradient of 0 even where
their logits are not finite (PyTorch: NaN), and a convolution of no channels gives its bias (PyTorch: no outputs).

Numbers are base64 of little-endian bytes. The result's own gradient is not written: element i, counted in order, has
(((2654435761 · i) mod 2³²) >> 24) / 128 − 1, which is a bf16 number as well.
"""

import base64
import json
import math
import pathlib
import random
import sys

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
INF, NAN = math.inf, math.nan

torch.set_num_threads(1)


class Draw(random.Random):
    """Shapes and numbers for one operation, from its name."""

    def __init__(self, op):
        super().__init__(" ".join([op, *sys.argv[1:]]))
        self.torch = torch.Generator().manual_seed(self.randrange(2**31))

    def numbers(self, *shape, scale=1.0, shift=0.0):
        normal = torch.randn(shape, generator=self.torch, dtype=torch.float64)
        return (normal * scale + shift).bfloat16().double()

    def within(self, low, high, *shape):
        even = torch.rand(shape, generator=self.torch, dtype=torch.float64)
        return (even * (high - low) + low).bfloat16().double()

    def whole(self, end, *shape, start=0):
        return torch.randint(start, end, shape, generator=self.torch) if end > start else torch.zeros(shape, dtype=torch.int64)

    def shape(self, least=0, most=4, lengths=(1, 2, 3, 4, 5)):
        return [self.choice(lengths) for _ in range(self.randint(least, most))]

    def two_that_broadcast(self):
        """Two shapes of which each may lack axes, or have 1 where the other has more."""
        both = self.shape(1, 4, (1, 2, 3, 4))
        def lessened():
            shape = [1 if self.random() < 0.35 else length for length in both]
            return shape[self.randrange(len(shape) + 1):] if self.random() < 0.3 else shape
        left, right = lessened(), lessened()
        return (left, both) if self.random() < 0.3 else (left, right)


def bf16_bytes(values):
    exact = values.to(torch.bfloat16)
    assert torch.equal(exact.double().nan_to_num(nan=12345.0), values.nan_to_num(nan=12345.0)), "no bf16 numbers"
    return exact


def text(values):
    flat = values.detach().contiguous().flatten()
    if flat.dtype == torch.float64:
        # In the shortest type that has exactly these numbers; the reader sees by the length which that is.
        same = lambda short: torch.equal(short.double().nan_to_num(nan=12345.0), flat.nan_to_num(nan=12345.0))
        flat = next(short for short in (flat.bfloat16(), flat.float(), flat) if same(short))
    if flat.dtype in (torch.bfloat16, torch.float16):
        flat = flat.view(torch.int16)
    if flat.dtype == torch.bool:
        flat = flat.to(torch.uint8)
    return base64.b64encode(flat.numpy().tobytes()).decode()


class Fixed:
    """An input of fractions without a gradient."""

    def __init__(self, values):
        self.values = values


def written_input(value):
    fixed = isinstance(value, Fixed)
    value = value.values if fixed else value
    entry = {"shape": list(value.shape)}
    if value.is_floating_point():
        entry["values"] = text(bf16_bytes(value))
        if fixed:
            entry["fixed"] = True
    else:
        entry["dtype"] = "bool" if value.dtype == torch.bool else "i64"
        entry["values"] = text(value)
    return entry


def seed(shape):
    i = torch.arange(math.prod(shape))
    return (((2654435761 * i) % 2**32 >> 24) / 128 - 1).double().reshape(shape)


class Cases:
    def __init__(self):
        self.lines = []
        self.counts = {}

    def add(self, op, function, *inputs, types=None, **args):
        """One case. `types` beside f64; by default the first two cases of an operation are also computed in small types,
        which shows their rounding."""
        count = self.counts[op] = self.counts.get(op, 0) + 1
        if types is None:
            types = {1: ("f32", "bf16", "f16"), 2: ("bf16",)}.get(count, ())
        results = {}
        for name in ("f64", *types):
            try:
                results[name] = computed(function, inputs, args, TYPES[name])
            except (RuntimeError, NotImplementedError) as error:
                if name == "f64" or "not implemented" not in str(error):
                    raise
                print(f"{op}: PyTorch has no {name} on a processor")
        case = {"op": op, "args": args, "inputs": [written_input(value) for value in inputs], "results": results}
        self.lines.append(json.dumps({key: value for key, value in case.items() if value != {}}, separators=(",", ":")))

    def write(self, name):
        version = torch.__version__.split("+")[0]
        path = HERE / name
        path.write_text(f'{{"torch":"{version}","cases":[\n' + ",\n".join(self.lines) + "\n]}\n")
        print(f"{name}: {len(self.lines)} cases of {len(self.counts)} operations, {path.stat().st_size} bytes")


def computed(function, inputs, args, dtype):
    given, leaves = [], []
    for value in inputs:
        if isinstance(value, Fixed):
            given.append(value.values.to(dtype))
        elif value.is_floating_point():
            leaf = value.to(dtype, copy=True).requires_grad_()
            leaves.append(leaf)
            given.append(leaf)
        else:
            given.append(value)
    out = function(*given, **args)
    if out.requires_grad:
        out.backward(seed(out.shape).to(out.dtype))
    grads = [None if leaf.grad is None else text(leaf.grad.to(dtype)) for leaf in leaves]
    return {"shape": list(out.shape), "result": text(out.to(dtype)), "grads": grads}


# Operations that the engine has.

HARD = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, INF, -INF, NAN, 88.5, -88.5, 104.0, -104.0, 708.0, 712.0, -744.0, 2.0**-126, 2.0**100, -(2.0**100)]


def hard(*skip):
    return torch.tensor([x for x in HARD if x not in skip], dtype=torch.float64)


def arithmetic(cases):
    functions = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
        "into_add": lambda x, y: (2 * x) + y,
    }
    for op, function in functions.items():
        draw = Draw(op)
        second = lambda *shape: draw.numbers(*shape).abs() + 0.5 if op == "div" else draw.numbers(*shape)
        second = (lambda make: lambda *shape: make(*shape).bfloat16().double())(second)
        cases.add(op, function, draw.numbers(2, 3), second(2, 3))
        cases.add(op, function, draw.numbers(2, 1, 3), second(4, 1))
        cases.add(op, function, draw.numbers(), second(3))
        fixed = [([3], []), ([0, 3], [1, 3]), ([2, 0], [1, 1]), ([1], [0]), ([2, 1, 0], [3, 1]), ([], []), ([1, 1], [1])]
        shapes = fixed + [draw.two_that_broadcast() for _ in range(5)]
        for left, right in shapes:
            cases.add(op, function, draw.numbers(*left), second(*right))
        grid = torch.tensor([0.0, -0.0, 1.0, -3.0, INF, -INF, NAN, 2.0**100], dtype=torch.float64)
        cases.add(op, function, grid.reshape(8, 1), grid.reshape(1, 8), types=("f32",))
        cases.add(op, function, grid.repeat_interleave(8), grid.repeat(8), types=("f32",))
    for op, function in [("add_self", lambda x: x + x), ("mul_self", lambda x: x * x), ("div_self", lambda x: x / x)]:
        draw = Draw(op)
        for shape in [[2, 3], [], [0, 2], [4, 1]]:
            cases.add(op, function, draw.within(0.5, 2.0, *shape))


def scalars(cases):
    functions = {
        "neg": (lambda x: -x, [{}]),
        "add_scalar": (lambda x, value: x + value, [{"value": 0.0}, {"value": -2.5}, {"value": 1e-3}]),
        "mul_scalar": (lambda x, value: x * value, [{"value": 0.0}, {"value": -2.5}, {"value": 1.0}]),
        "affine": (lambda x, scale, shift: scale * x + shift, [{"scale": -0.75, "shift": 3.0}, {"scale": 0.0, "shift": 1.0}]),
    }
    for op, (function, settings) in functions.items():
        draw = Draw(op)
        for args in settings:
            for shape in [[3, 4], [0], [], draw.shape(), draw.shape()]:
                cases.add(op, function, draw.numbers(*shape), **args)
            cases.add(op, function, hard(), types=("f32",), **args)
    draw = Draw("to_dtype")
    for between in ["f32", "bf16", "f16", "f64"]:
        function = lambda x, between: x.to(TYPES[between]).to(x.dtype)
        for shape in [[3, 4], [0, 2], []]:
            cases.add("to_dtype", function, draw.numbers(*shape), between=between)
        large = torch.tensor([0.0, -0.0, 65280.0, 65536.0, -(2.0**16), 2.0**-14, 2.0**-20, 2.0**-25, 2.0**-26, INF, -INF, NAN], dtype=torch.float64)
        cases.add("to_dtype", function, large, types=("f32",), between=between)


def functions(cases):
    table = {
        "exp": torch.exp,
        "log": torch.log,
        "sqrt": torch.sqrt,
        "square": torch.square,
        "tanh": torch.tanh,
        "sin": torch.sin,
        "cos": torch.cos,
        "sigmoid": torch.sigmoid,
        "silu": F.silu,
        "relu": F.relu,
        "into_relu": lambda x: F.relu(1 * x),
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    }
    for op, function in table.items():
        draw = Draw(op)
        positive = op in ("log", "sqrt")
        numbers = (lambda *shape: draw.within(0.2, 4.0, *shape)) if positive else (lambda *shape: draw.numbers(*shape, scale=2.0))
        for shape in [[3, 5], [7], [2, 1, 4], [], [0], [2, 0, 3]] + [draw.shape(2, 4) for _ in range(4)]:
            cases.add(op, function, numbers(*shape))
        # Sines of huge numbers differ by the library's reduction in the last digits only, but powers of 2 are fair.
        cases.add(op, function, hard(), types=("f32", "bf16"))
        cases.add(op, function, draw.within(-30.0, 30.0, 4, 8).abs() if positive else draw.within(-30.0, 30.0, 4, 8))


def views(cases):
    draw = Draw("reshape")
    for before, after in [([6, 4], [3, 8]), ([2, 3, 4], [24]), ([], [1, 1]), ([1], []), ([0, 3], [3, 0, 2]), ([2, 3], [2, 1, 3]), ([4, 1, 2], [2, 2, 2])]:
        cases.add("reshape", lambda x, shape: x.reshape(shape), draw.numbers(*before), shape=after)
        order = list(range(len(before)))[::-1]
        cases.add("reshape_of_permuted", lambda x, order, shape: x.permute(order).reshape(shape), draw.numbers(*before), order=order, shape=after)
    draw = Draw("flatten_from")
    for shape, axis in [([2, 3, 4], 1), ([2, 3, 4], 0), ([2, 3, 4], -1), ([2, 0, 4], 1), ([2, 3, 4, 2], 2), ([5], 0)]:
        cases.add("flatten_from", lambda x, axis: x.flatten(axis), draw.numbers(*shape), axis=axis)
    draw = Draw("unsqueeze")
    for shape, axis in [([2, 3], 0), ([2, 3], 1), ([2, 3], -1), ([2, 3], 2), ([], 0), ([], -1), ([0], 1), ([2, 3], -3)]:
        cases.add("unsqueeze", lambda x, axis: x.unsqueeze(axis), draw.numbers(*shape), axis=axis)
    draw = Draw("squeeze")
    for shape, axis in [([1, 3], 0), ([2, 1, 3], 1), ([2, 1], -1), ([1], 0), ([0, 1], 1), ([1, 1, 2], -3)]:
        cases.add("squeeze", lambda x, axis: x.squeeze(axis), draw.numbers(*shape), axis=axis)
    draw = Draw("transpose")
    for shape in [[2, 3], [2, 3, 4], [1, 4], [0, 3], [2, 1, 3, 2], [3], [2, 2, 0]] + [draw.shape(2, 5, (1, 2, 3)) for _ in range(6)]:
        axes = [draw.randrange(-len(shape), len(shape)) for _ in range(2)]
        cases.add("transpose", lambda x, first, second: x.transpose(first, second), draw.numbers(*shape), first=axes[0], second=axes[1])
    draw = Draw("permute")
    for shape in [[2, 3, 4], [2, 3], [], [0, 2, 3], [1, 2, 1, 3]] + [draw.shape(2, 5, (1, 2, 3)) for _ in range(7)]:
        order = draw.sample(range(len(shape)), len(shape))
        cases.add("permute", lambda x, order: x.permute(order), draw.numbers(*shape), order=[axis - len(shape) * draw.randrange(2) for axis in order])
    draw = Draw("narrow")
    for shape in [[5], [3, 4], [2, 5, 3], [4, 0], [0, 3], [1, 6]] + [draw.shape(1, 4) for _ in range(8)]:
        axis = draw.randrange(-len(shape), len(shape))
        start = draw.randint(0, shape[axis])
        length = draw.randint(0, shape[axis] - start)
        cases.add("narrow", lambda x, axis, start, length: x.narrow(axis, start, length), draw.numbers(*shape), axis=axis, start=start, length=length)
    parts = lambda x: torch.narrow(x, 1, 1, 2) * torch.narrow(x, 1, 0, 2) + torch.narrow(x, 1, 2, 2)
    for shape in [[2, 4], [1, 5], [0, 4], [3, 4, 2]]:
        cases.add("narrow_overlapping", parts, draw.numbers(*shape))
    draw = Draw("select")
    for shape in [[5], [3, 4], [2, 5, 3], [4, 0], [1, 6]] + [draw.shape(1, 4) for _ in range(6)]:
        axis = draw.choice([axis for axis in range(len(shape)) if shape[axis] > 0])
        index = draw.randrange(shape[axis])
        cases.add("select", lambda x, axis, index: x.select(axis, index), draw.numbers(*shape), axis=axis, index=index)
    draw = Draw("expand")
    pairs = [([3, 1], [2, 3, 4]), ([], [2, 3]), ([1], [0]), ([1, 3], [0, 3]), ([2, 1, 1], [2, 3, 1]), ([1, 1], [1, 1]), ([2, 0], [3, 2, 0]), ([4], [1, 4])]
    for before, after in pairs:
        cases.add("expand", lambda x, shape: x.expand(shape), draw.numbers(*before), shape=after)
        cases.add("expand_and_square", lambda x, shape: x.expand(shape).square(), draw.numbers(*before), shape=after)
    for op, function in [("contiguous", lambda x: x.transpose(0, -1).contiguous()), ("compact", lambda x: x.narrow(0, 1, 2).clone())]:
        draw = Draw(op)
        for shape in [[3, 2], [4], [3, 0], [5, 2, 3]]:
            cases.add(op, function, draw.numbers(*shape))
    draw = Draw("concat")
    for shapes, axis in [([[2, 3], [2, 1], [2, 2]], 1), ([[3], [1]], 0), ([[2, 0], [2, 3]], 1), ([[0, 2], [0, 2]], 0), ([[2, 3, 1], [2, 3, 4]], -1), ([[1, 2, 2], [3, 2, 2], [0, 2, 2]], -3), ([[4, 2]], 1)]:
        cases.add("concat", lambda *x, axis: torch.cat(x, axis), *[draw.numbers(*shape) for shape in shapes], axis=axis)
    for shape in [[2, 3], [0, 2], [1, 1, 4]]:
        cases.add("concat_thrice", lambda x, axis: torch.cat([x, x.square(), x], axis), draw.numbers(*shape), axis=draw.randrange(len(shape)))


def reductions(cases):
    draw = Draw("reductions")
    for op, function in [("sum", torch.sum), ("mean", torch.mean)]:
        for shape in [[2, 3, 4], [7], [], [1, 1], [0], [2, 0, 3], [9, 13], [3, 5, 2, 2]]:
            cases.add(op, function, draw.numbers(*shape))
        cases.add(op, function, torch.tensor([1.0, INF, 2.0], dtype=torch.float64))
        cases.add(op, function, torch.tensor([INF, -INF], dtype=torch.float64))
        cases.add(op, function, torch.tensor([1.0, NAN], dtype=torch.float64))
    table = {
        "sum_axes": lambda x, axes: x.sum(axes),
        "sum_axes_keep": lambda x, axes: x.sum(axes, keepdim=True),
        "mean_axes": lambda x, axes: x.mean(axes),
        "mean_axes_keep": lambda x, axes: x.mean(axes, keepdim=True),
    }
    for op, function in table.items():
        draw = Draw(op)
        fixed = [([2, 3, 4], [1]), ([2, 3, 4], [0, 2]), ([2, 3, 4], [-1]), ([2, 0, 3], [1]), ([2, 0, 3], [0]), ([0, 2], [0, 1]), ([3, 1], [1]), ([1, 5], [0])]
        for _ in range(6):
            shape = draw.shape(1, 5, (1, 2, 3))
            fixed.append((shape, draw.sample(range(len(shape)), draw.randint(1, len(shape)))))
        for shape, axes in fixed:
            cases.add(op, function, draw.numbers(*shape), axes=axes)
    draw = Draw("max_axis")
    largest = lambda x, axis: x.max(axis).values
    for shape in [[2, 3, 4], [5], [1, 4], [4, 1], [0, 3], [3, 2, 2]] + [draw.shape(1, 4) for _ in range(6)]:
        axis = draw.choice([axis for axis in range(-len(shape), len(shape)) if shape[axis] > 0])
        cases.add("max_axis", largest, draw.numbers(*shape), axis=axis)
    ties = draw.whole(3, 6, 5).double()
    cases.add("max_axis", largest, ties, axis=0)
    cases.add("max_axis", largest, ties, axis=1)
    rows = [[NAN, 1.0, 2.0], [1.0, NAN, NAN], [1.0, 2.0, NAN], [-INF, -INF, -INF], [INF, 1.0, INF], [0.0, -0.0, 0.0], [-0.0, 0.0, -1.0], [-INF, NAN, INF]]
    for axis in [0, 1]:
        cases.add("max_axis", largest, torch.tensor(rows, dtype=torch.float64), types=("f32", "bf16"), axis=axis)


def products(cases):
    draw = Draw("matmul")
    shapes = [
        ([3, 4], [4, 2]), ([2, 1, 3, 4], [3, 4, 2]), ([5, 3, 4], [5, 4, 2]), ([2, 3, 4], [4, 5]), ([3, 4], [2, 4, 5]),
        ([1, 4], [4, 1]), ([1, 1], [1, 1]), ([2, 2, 3, 1], [2, 2, 1, 3]), ([3, 1, 2, 2], [1, 4, 2, 3]), ([1, 2, 3], [4, 3, 2]),
        ([0, 4], [4, 2]), ([3, 0], [0, 2]), ([3, 4], [4, 0]), ([0, 3, 4], [4, 2]), ([0, 3, 4], [0, 4, 2]), ([2, 3, 0], [2, 0, 4]),
        ([1, 3, 2], [0, 2, 3]), ([2, 0, 3], [3, 2]), ([5, 17], [17, 3]),
    ]
    for left, right in shapes:
        cases.add("matmul", torch.matmul, draw.numbers(*left), draw.numbers(*right))
    turned = lambda x, y: x.transpose(-1, -2) @ y.transpose(-1, -2)
    for left, right in [([4, 3], [2, 4]), ([2, 4, 3], [2, 5, 4]), ([3, 4, 1], [1, 4]), ([0, 3], [2, 0])]:
        cases.add("matmul_turned", turned, draw.numbers(*left), draw.numbers(*right))
    cases.add("matmul_self", lambda x: x @ x, draw.numbers(3, 3))
    cases.add("matmul_self", lambda x: x @ x, draw.numbers(2, 2, 2))
    holes = torch.tensor([[1.0, INF], [NAN, 0.0]], dtype=torch.float64)
    cases.add("matmul", torch.matmul, holes, draw.numbers(2, 3))
    cases.add("matmul_then_sum", lambda x, y: (x @ y).sum(), draw.numbers(3, 4), draw.numbers(4, 2))
    cases.add("matmul_then_sum", lambda x, y: (x @ y).sum(), draw.numbers(2, 3, 4), draw.numbers(4, 2))
    cases.add("matmul_then_sum", lambda x, y: (x @ y).sum(), draw.numbers(2, 1, 4), draw.numbers(2, 4, 3))
    for axis in [-1, -2]:
        for left, right in [([3, 4], [4, 2]), ([2, 3, 4], [2, 4, 2]), ([2, 3, 4], [4, 2])]:
            cases.add("matmul_then_sum_axis", lambda x, y, axis: (x @ y).sum(axis), draw.numbers(*left), draw.numbers(*right), axis=axis)
    draw = Draw("linear")
    for x, outputs in [([2, 3, 4], 5), ([3, 4], 2), ([4], 3), ([2, 1, 2, 3], 1), ([0, 4], 2), ([2, 0, 3], 4), ([3, 0], 2), ([3, 4], 0), ([1, 1], 1), ([3, 9], 11)]:
        for bias in [True, False]:
            given = [draw.numbers(*x), draw.numbers(outputs, x[-1])] + ([draw.numbers(outputs)] if bias else [])
            cases.add("linear", F.linear, *given)
    cases.add("linear_then_sum", lambda x, w, b: F.linear(x, w, b).sum(), draw.numbers(3, 4), draw.numbers(2, 4), draw.numbers(2))
    cases.add("linear_tied", lambda x, w: F.linear(F.linear(x, w), w.t()), draw.numbers(2, 3, 4), draw.numbers(5, 4))


def rows(cases):
    for op, function in [("softmax", F.softmax), ("log_softmax", F.log_softmax)]:
        draw = Draw(op)
        along = lambda x, axis, function=function: function(x, axis)
        for shape in [[3, 5], [2, 3, 4], [4], [1, 1], [3, 1], [0, 4], [2, 0], [2, 0, 3]] + [draw.shape(2, 4) for _ in range(5)]:
            cases.add(op, along, draw.numbers(*shape, scale=3.0), axis=draw.randrange(-len(shape), len(shape)))
        cases.add(op, along, torch.tensor([[1000.0, 1004.0, 992.0], [-1000.0, 0.0, -3008.0]], dtype=torch.float64), types=("f32",), axis=-1)
        far = torch.tensor([[4096.0, 4128.0, 4064.0], [-65536.0, -65536.0, -65536.0], [2.0**100, 1.0, 2.0]], dtype=torch.float64)
        cases.add(op, along, far, types=("f32",), axis=1)
        holes = [[-INF, 0.0, 1.0], [-INF, -INF, -INF], [INF, 0.0, 1.0], [INF, INF, 0.0], [NAN, 0.0, 1.0], [-INF, 2.0, -INF], [INF, -INF, 0.0]]
        for axis in [0, 1]:
            cases.add(op, along, torch.tensor(holes, dtype=torch.float64), types=("f32",), axis=axis)
    draw = Draw("layer_norm")

    def layer_norm(x, *given, weight, bias, epsilon):
        given = list(given)
        w = given.pop(0) if weight else None
        b = given.pop(0) if bias else None
        return F.layer_norm(x, x.shape[-1:], w, b, epsilon)

    for shape in [[2, 2, 6], [3, 4], [5], [2, 1], [0, 3], [2, 0, 3], [1, 1, 9], [2, 40]]:
        for weight, bias in [(True, True), (False, False)] + ([(True, False), (False, True)] if shape in ([3, 4], [2, 2, 6]) else []):
            given = [draw.numbers(*shape)] + [draw.numbers(shape[-1])] * weight + [draw.numbers(shape[-1])] * bias
            cases.add("layer_norm", layer_norm, *given, weight=weight, bias=bias, epsilon=1e-5)
    cases.add("layer_norm", layer_norm, draw.numbers(3, 4, shift=100.0), weight=False, bias=False, epsilon=1e-5, types=("f32",))
    cases.add("layer_norm", layer_norm, torch.ones(2, 4, dtype=torch.float64), weight=False, bias=False, epsilon=1e-5)
    cases.add("layer_norm", layer_norm, torch.tensor([[1.0, INF, 2.0], [1.0, NAN, 0.0], [1.0, 2.0, 4.0]], dtype=torch.float64), weight=False, bias=False, epsilon=1e-5)


def attentions(cases):
    draw = Draw("attention")

    def attention(q, k, v, causal, scale=None):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)

    # Shapes of the query, then heads and places of key and value.
    shapes = [
        ([2, 2, 3, 4], 2, 3), ([1, 4, 3, 3], 2, 3), ([1, 3, 2, 3], 1, 5), ([2, 2, 6, 2], 2, 3), ([1, 1, 1, 4], 1, 1), ([1, 2, 1, 2], 1, 7),
        ([0, 2, 3, 4], 2, 3), ([1, 2, 0, 4], 2, 3), ([1, 2, 3, 4], 2, 0), ([1, 6, 4, 3], 3, 4), ([1, 2, 2, 1], 2, 2), ([1, 1, 11, 2], 1, 11),
    ]
    for query, key_heads, keys in shapes:
        other = [query[0], key_heads, keys, query[3]]
        for causal in [False, True]:
            args = {"causal": causal} | ({"scale": 0.25} if draw.random() < 0.3 else {})
            cases.add("attention", attention, draw.numbers(*query), draw.numbers(*other), draw.numbers(*other), **args)
    cases.add("attention", attention, draw.numbers(1, 1, 4, 4, scale=30.0), draw.numbers(1, 1, 4, 4, scale=30.0), draw.numbers(1, 1, 4, 4), causal=True)
    cases.add("attention", attention, draw.numbers(1, 1, 4, 4), draw.numbers(1, 1, 4, 4), draw.numbers(1, 1, 4, 4), causal=False, scale=0.0)

    def by_matrices(q, k, v, causal):
        # The kernel that PyTorch would take gives 0 where a score is NaN, which is nobody's wish.
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    holes = draw.numbers(1, 1, 3, 2)
    holes[0, 0, 1, 0] = NAN
    for place in range(3):
        given = [draw.numbers(1, 1, 3, 2) for _ in range(3)]
        given[place] = holes
        cases.add("attention", by_matrices, *given, causal=False)

    def packed(x, heads, key_heads, causal):
        n, t, c = x.shape
        by_head = x.view(n, t, heads + 2 * key_heads, c // (heads + 2 * key_heads)).transpose(1, 2)
        q, k, v = by_head.split([heads, key_heads, key_heads], 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    draw = Draw("attention_packed")
    for n, t, heads, key_heads, width in [(2, 3, 2, 1, 3), (1, 5, 2, 2, 4), (2, 1, 4, 2, 2), (0, 3, 2, 1, 3), (2, 0, 2, 1, 3), (1, 8, 6, 2, 2)]:
        for causal in [True, False]:
            x = draw.numbers(n, t, (heads + 2 * key_heads) * width)
            cases.add("attention_packed", packed, x, heads=heads, key_heads=key_heads, causal=causal)


def tables_and_losses(cases):
    draw = Draw("embedding")
    look = lambda table, at: F.embedding(at, table)
    for table, at in [([5, 3], [2, 3]), ([4, 2], [7]), ([3, 1], []), ([6, 4], [2, 1, 3]), ([5, 3], [0]), ([5, 3], [2, 0]), ([5, 0], [3]), ([1, 4], [5]), ([9, 2], [3, 3])]:
        cases.add("embedding", look, draw.numbers(*table), draw.whole(table[0], *at))
    cases.add("embedding", look, draw.numbers(4, 3), torch.tensor([2, 2, 2, 2, 2, 2]))
    cases.add("embedding_twice", lambda table, a, b: look(table, a) * look(table, b), draw.numbers(4, 3), draw.whole(4, 5), draw.whole(4, 5))
    draw = Draw("cross_entropy")

    def cross_entropy(logits, targets, ignored=-100):
        return F.cross_entropy(logits, targets, ignore_index=ignored)

    for count, classes in [(4, 5), (1, 3), (7, 2), (3, 1), (2, 20), (6, 9), (0, 4)]:
        cases.add("cross_entropy", cross_entropy, draw.numbers(count, classes, scale=2.0), draw.whole(classes, count))
    for count, classes, ignored in [(6, 4, -100), (5, 3, 1), (4, 4, 0), (3, 2, -1), (1, 3, 2)]:
        targets = draw.whole(classes, count)
        targets[::2] = ignored
        cases.add("cross_entropy", cross_entropy, draw.numbers(count, classes), targets, ignored=ignored)
    cases.add("cross_entropy", cross_entropy, draw.numbers(3, 4), torch.full((3,), 2), ignored=2)
    cases.add("cross_entropy", cross_entropy, draw.numbers(0, 4), draw.whole(4, 0), ignored=1)
    far = torch.tensor([[1000.0, 1004.0, 992.0], [-1000.0, 0.0, -3008.0], [4096.0, 4128.0, 4064.0]], dtype=torch.float64)
    cases.add("cross_entropy", cross_entropy, far, torch.tensor([1, 1, 0]), types=("f32",))
    holes = [[-INF, 0.0, 1.0], [0.0, -INF, 1.0], [INF, 0.0, 1.0], [NAN, 0.0, 1.0], [-INF, -INF, -INF]]
    for row in holes:
        for target in [0, 1]:
            cases.add("cross_entropy", cross_entropy, torch.tensor([row, [0.5, 0.25, 1.0]], dtype=torch.float64), torch.tensor([target, 2]), types=("f32",))


def convolutions(cases):
    draw = Draw("conv2d")

    def conv2d(x, w, b=None, stride=(1, 1), padding=(0, 0)):
        return F.conv2d(x, w, b, stride=stride, padding=padding)

    # Input, outputs and kernel, stride, padding.
    shapes = [
        ([2, 2, 4, 4], [3, 2, 2], [2, 2], [0, 0]), ([1, 2, 5, 4], [3, 3, 3], [1, 1], [1, 1]), ([2, 1, 5, 6], [2, 3, 2], [2, 3], [0, 2]),
        ([1, 3, 3, 3], [2, 1, 1], [1, 1], [0, 0]), ([1, 1, 3, 3], [1, 3, 3], [1, 1], [0, 0]), ([2, 2, 4, 4], [2, 3, 3], [3, 1], [2, 1]),
        ([1, 2, 1, 7], [2, 1, 3], [1, 2], [0, 1]), ([0, 2, 4, 4], [3, 2, 2], [1, 1], [0, 0]),
        ([1, 2, 2, 2], [1, 4, 4], [1, 1], [1, 1]), ([1, 1, 6, 6], [1, 2, 2], [5, 5], [0, 0]),
    ]
    for x, (outputs, *kernel), stride, padding in shapes:
        for bias in [True, False]:
            given = [draw.numbers(*x), draw.numbers(outputs, x[1], *kernel)] + [draw.numbers(outputs)] * bias
            cases.add("conv2d", conv2d, *given, stride=stride, padding=padding)
    holes = draw.numbers(1, 1, 4, 4)
    holes[0, 0, 1, 1], holes[0, 0, 3, 3] = NAN, INF
    cases.add("conv2d", conv2d, holes, draw.numbers(1, 1, 2, 2), padding=[1, 1], stride=[1, 1])


# Operations that are on their way.


def pooling(cases):
    draw = Draw("pooling")
    settings = [([2, 2], [2, 2], [0, 0]), ([3, 3], [2, 2], [1, 1]), ([2, 3], [1, 2], [0, 1]), ([3, 2], [3, 3], [1, 0]), ([1, 1], [1, 1], [0, 0]), ([3, 3], [1, 1], [1, 1])]
    for kernel, stride, padding in settings:
        for shape in [[2, 1, 5, 4], [1, 2, 4, 3]]:
            for ceil in [False, True]:
                args = {"kernel": kernel, "stride": stride, "padding": padding, "ceil": ceil}
                pool = lambda x, kernel, stride, padding, ceil: F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)
                cases.add("max_pool2d", pool, draw.numbers(*shape), **args)
                for counts_padding in [False, True]:
                    pool = lambda x, kernel, stride, padding, ceil, counts_padding: F.avg_pool2d(x, kernel, stride, padding, ceil, counts_padding)
                    cases.add("avg_pool2d", pool, draw.numbers(*shape), **args, counts_padding=counts_padding)
    pool = lambda x, kernel, stride, padding, ceil: F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)
    args = {"kernel": [2, 2], "stride": [2, 2], "padding": [0, 0], "ceil": False}
    cases.add("max_pool2d", pool, draw.whole(2, 1, 2, 6, 6).double(), **args)
    holes = draw.numbers(1, 1, 4, 4)
    holes[0, 0, 0, 1], holes[0, 0, 2, 2:] = NAN, -INF
    holes[0, 0, 3, 2:] = -INF
    cases.add("max_pool2d", pool, holes, **args)


def transposed_convolutions(cases):
    draw = Draw("conv_transpose2d")

    def transposed(x, w, b=None, stride=(1, 1), padding=(0, 0), output_padding=(0, 0)):
        return F.conv_transpose2d(x, w, b, stride=stride, padding=padding, output_padding=output_padding)

    shapes = [
        ([1, 2, 3, 4], [3, 2, 2], [1, 1], [0, 0]), ([2, 2, 3, 2], [2, 4, 3], [2, 2], [1, 1]), ([1, 1, 2, 5], [1, 3, 2], [3, 1], [0, 1]),
        ([1, 2, 1, 1], [2, 5, 3], [2, 2], [0, 0]), ([2, 1, 4, 3], [1, 1, 1], [2, 3], [0, 0]), ([1, 2, 4, 4], [2, 3, 3], [1, 1], [2, 1]),
    ]
    for x, (outputs, *kernel), stride, padding in shapes:
        for bias in [True, False]:
            given = [draw.numbers(*x), draw.numbers(x[1], outputs, *kernel)] + [draw.numbers(outputs)] * bias
            output_padding = [draw.randrange(step) for step in stride] if bias else [0, 0]
            cases.add("conv_transpose2d", transposed, *given, stride=stride, padding=padding, output_padding=output_padding)


def batch_norms(cases):
    draw = Draw("batch_norm")
    train = lambda x, w, b, epsilon: F.batch_norm(x, None, None, w, b, True, 0.1, epsilon)
    evaluate = lambda x, w, b, mean, variance, epsilon: F.batch_norm(x, mean, variance, w, b, False, 0.1, epsilon)

    def running(x, mean, variance, momentum):
        mean, variance = mean.clone(), variance.clone()
        F.batch_norm(x, mean, variance, None, None, True, momentum)
        return torch.stack([mean, variance])

    for shape in [[4, 3], [2, 3, 2, 4], [3, 1, 5, 1], [2, 2, 3, 3], [5, 4, 1, 1]]:
        width = shape[1]
        parameters = lambda: [draw.numbers(width), draw.numbers(width)]
        statistics = lambda: [Fixed(draw.numbers(width)), Fixed(draw.within(0.5, 2.0, width))]
        cases.add("batch_norm_train", train, draw.numbers(*shape), *parameters(), epsilon=1e-5)
        cases.add("batch_norm_eval", evaluate, draw.numbers(*shape), *parameters(), *statistics(), epsilon=1e-5)
        # The result is running mean and variance after one step, one below the other; it has no gradient.
        cases.add("batch_norm_running", running, Fixed(draw.numbers(*shape)), *statistics(), momentum=0.25, types=())


def scans(cases):
    for op, function in [("cumsum", torch.cumsum), ("cumprod", torch.cumprod)]:
        draw = Draw(op)
        along = lambda x, axis, function=function: function(x, axis)
        for shape in [[3, 4], [5], [2, 3, 4], [1, 4], [4, 1], [0, 3], [3, 0]] + [draw.shape(1, 4) for _ in range(4)]:
            cases.add(op, along, draw.numbers(*shape), axis=draw.randrange(-len(shape), len(shape)))
    zeros = torch.tensor([[1.0, 2.0, 0.0, 3.0], [0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 4.0, 0.0], [0.0, 1.5, -2.0, 3.0]], dtype=torch.float64)
    for axis in [0, 1]:
        cases.add("cumprod", lambda x, axis: torch.cumprod(x, axis), zeros, axis=axis)


def picking(cases):
    draw = Draw("gather")
    for shape, places, axis in [([3, 4], [3, 2], 1), ([3, 4], [5, 4], 0), ([5], [7], 0), ([2, 3, 4], [2, 3, 1], -1), ([2, 3], [1, 2], 0), ([3, 4], [3, 0], 1), ([2, 5, 3], [2, 6, 3], 1)]:
        index = draw.whole(shape[axis], *places)
        cases.add("gather", lambda x, index, axis: x.gather(axis, index), draw.numbers(*shape), index, axis=axis)
        cases.add("scatter_add", lambda x, index, values, axis: x.scatter_add(axis, index, values), draw.numbers(*shape), index, draw.numbers(*places), axis=axis)
    draw = Draw("where")
    for condition, left, right in [([2, 3], [2, 3], [2, 3]), ([3], [2, 3], [2, 1]), ([2, 1], [3], []), ([], [2], [2]), ([0, 3], [3], [1, 3]), ([4, 1, 2], [3, 1], [1])]:
        cases.add("where", torch.where, draw.whole(2, *condition).bool(), draw.numbers(*left), draw.numbers(*right))
    holes = torch.tensor([NAN, INF, 1.0, -INF], dtype=torch.float64)
    cases.add("where", torch.where, torch.tensor([False, True, False, True]), holes, torch.zeros(4, dtype=torch.float64))


def choices(cases):
    draw = Draw("clamp")
    for low, high in [(-0.5, 0.75), (0.0, 1.0), (0.5, -0.5)]:
        for shape in [[3, 4], [], [0, 2]]:
            cases.add("clamp", lambda x, low, high: x.clamp(low, high), draw.numbers(*shape), low=low, high=high)
        edges = torch.tensor([-0.5, 0.75, 0.0, 1.0, 0.5, INF, -INF, NAN], dtype=torch.float64)
        cases.add("clamp", lambda x, low, high: x.clamp(low, high), edges, low=low, high=high)
    for op, function in [("maximum", torch.maximum), ("minimum", torch.minimum)]:
        draw = Draw(op)
        for left, right in [([2, 3], [2, 3]), ([2, 1, 3], [4, 1]), ([], [3]), ([0, 3], [1, 3])] + [draw.two_that_broadcast() for _ in range(4)]:
            cases.add(op, function, draw.numbers(*left), draw.numbers(*right))
        grid = torch.tensor([0.0, -0.0, 1.0, INF, -INF, NAN], dtype=torch.float64)
        cases.add(op, function, grid.reshape(6, 1), grid.reshape(1, 6))
        cases.add(op, function, draw.whole(3, 12).double(), draw.whole(3, 12).double())
    draw = Draw("powf")
    for exponent in [2.0, 3.0, -1.0, 0.5, 1.5, 0.0, 1.0]:
        numbers = draw.within(0.25, 3.0, 2, 3) if exponent % 1 else draw.numbers(2, 3)
        cases.add("powf", lambda x, exponent: x.pow(exponent), numbers, exponent=exponent)
        cases.add("powf", lambda x, exponent: x.pow(exponent), torch.tensor([0.0, -0.0, 1.0, -2.0, INF, -INF, NAN], dtype=torch.float64), exponent=exponent)
    draw = Draw("var_axes")
    for shape, axes, correction in [([3, 4], [1], 1), ([3, 4], [0], 0), ([2, 3, 4], [0, 2], 1), ([2, 3], [0, 1], 0), ([1, 5], [-1], 1), ([0, 3], [1], 1)]:
        cases.add("var_axes", lambda x, axes, correction: x.var(axes, correction=correction), draw.numbers(*shape, shift=2.0), axes=axes, correction=correction)
    draw = Draw("abs")
    for shape in [[3, 4], [5], [], [0], [2, 1, 3]]:
        cases.add("abs", torch.abs, draw.numbers(*shape))
    cases.add("abs", torch.abs, torch.tensor([0.0, -0.0, INF, -INF, NAN], dtype=torch.float64))


def language_models(cases):
    draw = Draw("rms_norm")
    for shape in [[2, 2, 6], [3, 4], [5], [2, 1], [0, 3], [2, 40]]:
        norm = lambda x, w, epsilon: F.rms_norm(x, x.shape[-1:], w, epsilon)
        cases.add("rms_norm", norm, draw.numbers(*shape), draw.numbers(shape[-1]), epsilon=1e-6)
        cases.add("rms_norm_plain", lambda x, epsilon: F.rms_norm(x, x.shape[-1:], None, epsilon), draw.numbers(*shape), epsilon=1e-5)
    draw = Draw("rotary")

    def rotary(x, base, first):
        """As in Hugging Face's models, heads `[batch, length, heads, width]`: the halves of the last axis are real and
        imaginary parts. In double precision, whatever the type."""
        width = x.shape[-1]
        angles = torch.outer(torch.arange(first, first + x.shape[1]).double(), base ** (-torch.arange(0, width, 2).double() / width))
        cosine, sine = (torch.cat([table, table], -1).unsqueeze(1) for table in (angles.cos(), angles.sin()))
        turned = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], -1)
        return (x.double() * cosine + turned.double() * sine).to(x.dtype)

    for shape, base, first in [([2, 3, 4, 6], 10000.0, 0), ([1, 5, 1, 2], 10000.0, 3), ([1, 1, 2, 8], 500000.0, 0), ([2, 0, 2, 4], 10000.0, 0), ([3, 7, 1, 4], 10.0, 100)]:
        cases.add("rotary", rotary, draw.numbers(*shape), base=base, first=first)
    draw = Draw("swiglu")
    for shape in [[2, 3], [4], [2, 1, 5], [0, 3], []]:
        cases.add("swiglu", lambda gate, up: F.silu(gate) * up, draw.numbers(*shape, scale=2.0), draw.numbers(*shape))
    draw = Draw("mse_loss")
    for shape in [[2, 3], [7], [], [0, 2], [3, 2, 4]]:
        cases.add("mse_loss", F.mse_loss, draw.numbers(*shape), draw.numbers(*shape))
    draw = Draw("linear_cross_entropy")

    def linear_cross_entropy(x, weight, targets, ignored=-100):
        return F.cross_entropy(F.linear(x, weight), targets, ignore_index=ignored)

    for count, width, classes in [(5, 4, 7), (1, 3, 2), (6, 2, 1), (33, 3, 5), (4, 1, 3), (0, 3, 4)]:
        targets = draw.whole(classes, count)
        cases.add("linear_cross_entropy", linear_cross_entropy, draw.numbers(count, width), draw.numbers(classes, width), targets)
        targets = targets.clone()
        targets[::2] = -100
        cases.add("linear_cross_entropy", linear_cross_entropy, draw.numbers(count, width), draw.numbers(classes, width), targets, ignored=-100)
    draw = Draw("cross_entropy_image")

    def of_images(logits, targets, ignored=-100):
        return F.cross_entropy(logits, targets, ignore_index=ignored)

    for n, c, h, w in [(2, 3, 2, 4), (1, 2, 3, 1), (3, 5, 1, 1), (1, 1, 2, 2), (0, 3, 2, 2), (2, 4, 0, 3)]:
        cases.add("cross_entropy_image", of_images, draw.numbers(n, c, h, w), draw.whole(c, n, h, w))
        targets = draw.whole(c, n, h, w)
        targets[..., ::2] = -100
        cases.add("cross_entropy_image", of_images, draw.numbers(n, c, h, w), targets, ignored=-100)


def grouped_convolutions(cases):
    def conv2d(x, w, b=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
        return F.conv2d(x, w, b, stride, padding, dilation, groups)

    # Input, outputs and kernel, stride, padding, dilation, groups.
    draw = Draw("conv2d_grouped")
    shapes = [
        ([1, 4, 4, 4], [8, 1, 1], [1, 1], [0, 0], [1, 1], 4), ([2, 4, 5, 5], [6, 3, 3], [1, 1], [1, 1], [1, 1], 2), ([1, 3, 6, 5], [3, 3, 2], [2, 1], [1, 0], [1, 2], 3),
        ([2, 2, 7, 7], [4, 3, 3], [1, 2], [2, 2], [2, 2], 1), ([1, 2, 9, 4], [2, 3, 2], [2, 1], [3, 1], [3, 2], 2), ([0, 4, 4, 4], [4, 2, 2], [1, 1], [0, 0], [1, 1], 2),
        ([1, 6, 3, 3], [9, 1, 1], [2, 2], [0, 0], [4, 4], 3), ([1, 1, 6, 6], [1, 2, 2], [1, 1], [0, 0], [5, 4], 1),
    ]
    for x, (outputs, *kernel), stride, padding, dilation, groups in shapes:
        for bias in [True, False]:
            given = [draw.numbers(*x), draw.numbers(outputs, x[1] // groups, *kernel)] + [draw.numbers(outputs)] * bias
            cases.add("conv2d_grouped", conv2d, *given, stride=stride, padding=padding, dilation=dilation, groups=groups)

    def transposed(x, w, b=None, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1), groups=1):
        return F.conv_transpose2d(x, w, b, stride, padding, output_padding, groups, dilation)

    # Input, outputs of a group and kernel, stride, padding, output padding, dilation, groups.
    draw = Draw("conv_transpose2d_grouped")
    shapes = [
        ([1, 4, 3, 4], [3, 2, 2], [1, 1], [0, 0], [0, 0], [1, 1], 2), ([2, 2, 3, 2], [1, 4, 3], [2, 2], [1, 1], [1, 0], [1, 2], 2), ([1, 1, 2, 5], [2, 3, 2], [3, 1], [0, 1], [0, 1], [2, 2], 1),
        ([1, 6, 2, 2], [2, 1, 1], [1, 1], [0, 0], [0, 0], [1, 1], 3), ([2, 3, 4, 3], [1, 3, 3], [1, 2], [2, 1], [0, 1], [2, 1], 3),
    ]
    for x, (outputs, *kernel), stride, padding, output_padding, dilation, groups in shapes:
        for bias in [True, False]:
            given = [draw.numbers(*x), draw.numbers(x[1], outputs, *kernel)] + [draw.numbers(outputs * groups)] * bias
            args = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation, "groups": groups}
            cases.add("conv_transpose2d_grouped", transposed, *given, **args)


def group_norms(cases):
    draw = Draw("group_norm")

    def group_norm(x, *parameters, groups, weight, bias, epsilon):
        w, b = parameters[0] if weight else None, parameters[-1] if bias else None
        return F.group_norm(x, groups, w, b, epsilon)

    for shape, groups in [([2, 4, 3, 3], 2), ([3, 6, 2], 3), ([1, 4, 2, 2], 1), ([2, 3, 4, 1], 3), ([4, 8], 2), ([2, 6, 1, 5], 2), ([3, 2, 70], 2)]:
        for weight, bias in [(True, True), (True, False), (False, True), (False, False)]:
            parameters = [draw.numbers(shape[1]) for given in (weight, bias) if given]
            cases.add("group_norm", group_norm, draw.numbers(*shape), *parameters, groups=groups, weight=weight, bias=bias, epsilon=1e-5)


def padding(cases):
    draw = Draw("pad")

    def pad(x, pairs, value):
        """`pairs` has the elements before and after each of the last axes, in the order of the axes."""
        return F.pad(x, [count for axis in range(len(pairs) - 2, -1, -2) for count in pairs[axis : axis + 2]], value=value)

    for shape, pairs, value in [
        ([2, 3], [1, 2], 0.0), ([2, 3, 4, 4], [1, 1, 2, 0], 0.5), ([3], [0, 0], 1.0), ([2, 2, 3], [1, 0, 0, 1, 2, 2], -1.5), ([2, 0], [1, 1, 0, 3], 2.0), ([4, 1], [], 0.0),
    ]:
        cases.add("pad", pad, draw.numbers(*shape), pairs=pairs, value=value)


def extremes(cases):
    draw = Draw("extremes")
    # Numbers that all differ, so that it does not matter which of equal ones is found.
    distinct = lambda *shape: ((torch.randperm(math.prod(shape), generator=draw.torch) - 20) / 8).double().reshape(shape)
    for shape, axis, count in [([3, 7], 1, 3), ([5], 0, 5), ([2, 3, 4], 1, 1), ([4, 6], -2, 2), ([2, 4, 3], -1, 0), ([0, 3], 1, 2)]:
        cases.add("topk", lambda x, axis, count: x.topk(count, axis).values, distinct(*shape), axis=axis, count=count)
        cases.add("topk_places", lambda x, axis, count: x.topk(count, axis).indices.to(x.dtype), distinct(*shape), axis=axis, count=count)
    for op, function in [("min_axis", lambda x, axis: x.min(axis).values), ("argmax", lambda x, axis: x.argmax(axis).to(x.dtype)), ("argmin", lambda x, axis: x.argmin(axis).to(x.dtype))]:
        for shape, axis in [([3, 7], 1), ([5], 0), ([2, 3, 4], 1), ([4, 6], -2), ([0, 3], 1), ([3, 1], 1)]:
            cases.add(op, function, distinct(*shape), axis=axis)
    holes = torch.tensor([[1.0, NAN, 3.0, NAN], [INF, 2.0, INF, -INF], [-INF, -INF, 0.0, -0.0]], dtype=torch.float64)
    for op, function in [("argmax", torch.argmax), ("argmin", torch.argmin)]:
        for axis in [0, 1]:
            cases.add(op, lambda x, axis, function=function: function(x, axis).to(x.dtype), holes, axis=axis)
    draw = Draw("divide_scalar")
    for shape in [[3, 4], [], [0, 2]]:
        for scalar in [1.0, -2.5]:
            cases.add("divide_scalar", lambda x, scalar: scalar / x, draw.within(0.5, 2.0, *shape), scalar=scalar)


if __name__ == "__main__":
    here = Cases()
    for group in [arithmetic, scalars, functions, views, reductions, products, rows, attentions, tables_and_losses, convolutions]:
        group(here)
    here.write("cases.json")
    networks = Cases()
    for group in [pooling, transposed_convolutions, batch_norms, scans, picking, choices, language_models, grouped_convolutions, group_norms, padding, extremes]:
        group(networks)
    networks.write("network_cases.json")
