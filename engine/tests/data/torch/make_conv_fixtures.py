"""Writes what PyTorch computes for convolution nets, and which memory it takes, as text that ours are tested against.

    python make_conv_fixtures.py numbers     writes conv_ops.txt and fcn.txt
    python make_conv_fixtures.py memory      writes fcn_memory.txt; needs a CUDA device of 4 GiB as well

The files beside this script were made with PyTorch 2.15.0; memory over a CUDA runtime whose kernels do nothing, with
`requested_bytes` of `torch.cuda.memory_stats`. Convolution workspaces are not counted.

Numbers are not drawn but computed from their position, so that both sides have the same without a file. In conv_ops.txt
number i of an input is cos(f · i) with its own f, and the gradient of the result is cos(0.5 · i). In fcn.txt they are as in
`make_fixtures.py`.

conv_ops.txt: blocks of `case NAME`; `input F SHAPE` for each input; `result SHAPE NUMBERS`; `grad SHAPE NUMBERS` for each.
fcn.txt: `losses NET …`: the loss of each step of SGD; `grad NET PATH SUM WEIGHTED`: the gradient of the first step, its
sum and the sum of each number times the cosine of its position.
fcn_memory.txt: `NET PADDING IMAGE BATCH OPTIMIZER DROPOUT STAGE END PEAK`: requested bytes.
"""

import gc
import math
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


def lines_to(name, lines):
    with open(os.path.join(HERE, name), "w") as file:
        file.writelines(line + "\n" for line in lines)


def numbers(values):
    return " ".join(repr(value) for value in torch.as_tensor(values).tolist())


def cosine(frequency, shape):
    count = math.prod(shape)
    return torch.tensor([math.cos(frequency * i) for i in range(count)], dtype=torch.float64).reshape(shape)


TARGETS = torch.tensor([[[0, 2]], [[-100, 1]]])

OPS = {
    "max_pool side by side": ([(0.9, (1, 2, 3, 5))], lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True)),
    "max_pool over one another": ([(0.9, (2, 1, 4, 5))], lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max_pool of other sides": ([(0.9, (1, 2, 3, 5))], lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 0))),
    "max_pool with a border": ([(0.9, (1, 2, 3, 5))], lambda x: F.max_pool2d(x, 3, 3, 1, ceil_mode=True)),
    "max_pool of a large window": ([(0.9, (1, 1, 18, 17))], lambda x: F.max_pool2d(x, 17, 1)),
    "avg_pool side by side": ([(0.9, (1, 2, 3, 5))], lambda x: F.avg_pool2d(x, 2, 2, 0, True)),
    "avg_pool with zeros": ([(0.9, (1, 2, 3, 5))], lambda x: F.avg_pool2d(x, 3, 3, 1, True)),
    "avg_pool without zeros": ([(0.9, (1, 2, 3, 5))], lambda x: F.avg_pool2d(x, 3, 2, 1, True, False)),
    "conv_transpose": (
        [(0.9, (2, 2, 2, 3)), (0.4, (2, 3, 3, 2)), (0.3, (3,))],
        lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 1), (1, 0), (1, 0)),
    ),
    "conv_transpose of pixels": (
        [(0.9, (1, 2, 2, 3)), (0.4, (2, 3, 1, 1))],
        lambda x, w: F.conv_transpose2d(x, w),
    ),
    "conv_transpose cut": (
        [(0.9, (1, 2, 3, 2)), (0.4, (2, 2, 4, 4))],
        lambda x, w: F.conv_transpose2d(x, w, stride=2)[:, :, 1:6, 2:5],
    ),
    "batch_norm of the batch": (
        [(0.9, (2, 2, 3)), (0.4, (2,)), (0.3, (2,))],
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-3),
    ),
    "batch_norm as given": (
        [(0.9, (2, 2, 1, 3)), (0.4, (2,)), (0.3, (2,))],
        lambda x, w, b: F.batch_norm(x, *running(), w, b, False, 0.1, 1e-3),
    ),
    "batch_norm without parameters": (
        [(0.9, (3, 2))],
        lambda x: F.batch_norm(x, None, None, None, None, True, 0.1, 1e-3),
    ),
    "batch_norm's memory": (
        [(0.9, (2, 2, 3))],
        lambda x: remembered(x),
    ),
    "cross_entropy of images": ([(0.9, (2, 3, 1, 2))], lambda x: F.cross_entropy(3 * x, TARGETS)),
}


def running():
    return torch.tensor([0.5, -0.5], dtype=torch.float64), torch.tensor([2.0, 3.0], dtype=torch.float64)


def remembered(x):
    """The running statistics after two batches; the input has no part in their gradient."""
    mean, variance = running()
    for scale in [1, 2]:
        F.batch_norm(scale * x.detach(), mean, variance, None, None, True, 0.1, 1e-3)
    return torch.stack([mean, variance]) + 0 * x.sum()


def ops():
    lines = []
    for name, (inputs, operation) in OPS.items():
        lines.append(f"case {name}")
        tensors = [cosine(*input).requires_grad_() for input in inputs]
        lines += [f"input {frequency} {list(shape)}" for frequency, shape in inputs]
        result = operation(*tensors)
        grads = torch.autograd.grad(result, tensors, cosine(0.5, result.shape))
        lines += [f"result {list(result.shape)} {numbers(result.flatten())}"]
        lines += [f"grad {list(grad.shape)} {numbers(grad.flatten())}" for grad in grads]
    lines_to("conv_ops.txt", lines)


class FCN(nn.Module):
    """The networks of Long, Shelhamer and Darrell (2015), in the order of ours."""

    def __init__(self, net, padding, classes=21, dropout=True, divisor=1):
        super().__init__()
        self.net, self.padding, self.dropout = net, padding, dropout
        self.features = nn.Module()
        self.blocks = list(zip([2, 2, 3, 3, 3], [width // divisor for width in [64, 128, 256, 512, 512]]))
        inputs, hidden = 3, 4096 // divisor
        for block, (count, width) in enumerate(self.blocks, 1):
            for number in range(1, count + 1):
                border = padding if (block, number) == (1, 1) else 1
                setattr(self.features, f"conv{block}_{number}", nn.Conv2d(inputs, width, 3, padding=border))
                inputs = width
        self.fc6 = nn.Conv2d(inputs, hidden, 7, padding=0 if padding > 1 else 3)
        self.fc7 = nn.Conv2d(hidden, hidden, 1)
        self.score_fr = nn.Conv2d(hidden, classes, 1)
        if net == "fcn8s":
            self.score_pool3 = nn.Conv2d(self.blocks[2][1], classes, 1)
            self.score_pool4 = nn.Conv2d(self.blocks[3][1], classes, 1)
            self.upscore2 = nn.ConvTranspose2d(classes, classes, 4, 2, bias=False)
            self.upscore8 = nn.ConvTranspose2d(classes, classes, 16, 8, bias=False)
            self.upscore_pool4 = nn.ConvTranspose2d(classes, classes, 4, 2, bias=False)
        else:
            self.upscore = nn.ConvTranspose2d(classes, classes, 64, 32, bias=False)

    def forward(self, image):
        x, pools = image, []
        for block, (count, _) in enumerate(self.blocks, 1):
            for number in range(1, count + 1):
                x = F.relu(getattr(self.features, f"conv{block}_{number}")(x))
            x = F.max_pool2d(x, 2, 2, ceil_mode=True)
            pools.append(x)
        for layer in [self.fc6, self.fc7]:
            x = F.relu(layer(x))
            if self.dropout:
                x = F.dropout2d(x)
        x = self.score_fr(x)
        if self.net == "fcn8s":
            x = self.join(self.upscore2(x), self.score_pool4(pools[3]), 5)
            x = self.join(self.upscore_pool4(x), self.score_pool3(pools[2]), 9)
            x, start = self.upscore8(x), 31
        else:
            x, start = self.upscore(x), 19
        return self.cut(x, image, start if self.padding > 1 else None).contiguous()

    def join(self, grown, scores, start):
        if self.padding > 1:
            return grown + self.cut(scores, grown, start)
        return self.cut(grown, scores, None) + scores

    def cut(self, x, like, start):
        height, width = like.shape[2:]
        down, right = [(x.shape[axis] - like.shape[axis]) // 2 if start is None else start for axis in (2, 3)]
        return x[:, :, down : down + height, right : right + width]


def fill(model):
    first = 0
    for parameter in model.parameters():
        count = parameter.numel()
        values = [0.3 * math.sin(0.7 * i + 1) for i in range(first, first + count)]
        parameter.data = torch.tensor(values, dtype=torch.float64).reshape(parameter.shape)
        first += count
    return model


NETS = {
    "fcn8s-100": ("fcn8s", 100, (2, 3, 5, 9)),
    "fcn32s-100": ("fcn32s", 100, (1, 3, 8, 3)),
    "fcn8s-1": ("fcn8s", 1, (2, 3, 70, 41)),
    "fcn32s-1": ("fcn32s", 1, (1, 3, 33, 65)),
}


def fcn():
    lines = []
    for name, (net, padding, shape) in NETS.items():
        model = fill(FCN(net, padding, 3, False, 64))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
        labels = torch.arange(math.prod([shape[0], *shape[2:]])).reshape(shape[0], *shape[2:]) % 3
        losses = []
        for step in range(3):
            loss = F.cross_entropy(model(cosine(0.9, shape)), labels)
            loss.backward()
            if step == 0:
                for path, parameter in model.named_parameters():
                    grad = parameter.grad.flatten()
                    weights = torch.cos(torch.arange(grad.numel(), dtype=torch.float64))
                    lines.append(f"grad {name} {path} {numbers(torch.stack([grad.sum(), (grad * weights).sum()]))}")
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        lines.append(f"losses {name} {numbers(losses)}")
    lines_to("fcn.txt", lines)


def train(lines, net, padding, image, batch, optimizer, dropout):
    def stage(name, body):
        torch.cuda.reset_peak_memory_stats()
        result = body()
        stats = torch.cuda.memory_stats()
        end, peak = [stats[f"requested_bytes.all.{of}"] for of in ["current", "peak"]]
        lines.append(f"{net} {padding} {image} {batch} {optimizer} {dropout} {name} {end} {peak}")
        return result

    model = FCN(net, padding, dropout=dropout == "dropout").cuda()
    images = torch.zeros(batch, 3, image, image, device="cuda")
    labels = torch.zeros(batch, image, image, dtype=torch.long, device="cuda")
    rule = torch.optim.AdamW if optimizer == "adamw" else lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9)
    rule = rule(model.parameters())
    for step in range(2):
        loss = stage(f"{step}.forward", lambda: F.cross_entropy(model(images), labels))
        stage(f"{step}.backward", loss.backward)
        del loss
        stage(f"{step}.optimizer", rule.step)
        stage(f"{step}.zero_grad", rule.zero_grad)


def memory():
    lines = []
    for variant in [
        ("fcn8s", 100, 256, 3, "sgd", "dropout"),
        ("fcn8s", 100, 256, 3, "adamw", "none"),
        ("fcn32s", 100, 256, 3, "sgd", "dropout"),
        ("fcn8s", 1, 288, 3, "sgd", "dropout"),
        ("fcn8s", 100, 500, 1, "sgd", "dropout"),
        ("fcn8s", 1, 32, 1, "sgd", "dropout"),
        ("fcn8s", 1, 100, 2, "sgd", "dropout"),
        ("fcn32s", 1, 64, 8, "sgd", "dropout"),
    ]:
        train(lines, *variant)
        gc.collect()
    lines_to("fcn_memory.txt", lines)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["numbers"]:
            torch.set_default_dtype(torch.float64)
            ops()
            fcn()
        case ["memory"]:
            memory()
        case _:
            sys.exit(__doc__)
