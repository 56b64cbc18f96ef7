"""Requested bytes of PyTorch's stages in the tiny NeRF, the product chain, the recurrent network and the frozen branch:
writes nerf.txt and loops.txt beside this file.

Needs a CUDA device for PyTorch's allocator; what its kernels compute does not matter. Each line is a variant, the step
and its stage, and the bytes requested at its end and at its peak.
"""

import pathlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

CUDA = "cuda"
LINES = []


class Stages:
    def __init__(self, variant):
        self.variant = variant
        torch.cuda.reset_peak_memory_stats()

    def mark(self, name):
        stats = torch.cuda.memory_stats()
        end, peak = (stats[f"requested_bytes.all.{what}"] for what in ("current", "peak"))
        LINES.append(f"{self.variant} {name} {end} {peak}")
        torch.cuda.reset_peak_memory_stats()


def train(variant, parameters, forward, backward=torch.Tensor.backward, optimizer=None, steps=3):
    stages = Stages(variant)
    for step in range(steps):
        loss = forward()
        stages.mark(f"{step}.forward")
        backward(loss)
        stages.mark(f"{step}.backward")
        del loss
        if optimizer:
            optimizer.step()
            stages.mark(f"{step}.optimizer")
        for parameter in parameters:
            parameter.grad = None
        stages.mark(f"{step}.zero_grad")


class Field(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        inputs = [39 if i == 0 else width + 39 if i == 5 else width for i in range(layers)]
        self.layers = nn.ModuleList(nn.Linear(i, width) for i in inputs)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        h = x
        for position, layer in enumerate(self.layers):
            h = F.relu(layer(torch.cat([h, x], -1) if position == 5 else h))
        return self.head(h)


def encoded(points):
    waves = [f(points * 2.0**octave) for octave in range(6) for f in (torch.sin, torch.cos)]
    return torch.cat([points, *waves], -1)


def rendered(raw, z, steps):
    rgb, density = torch.sigmoid(raw[..., :3]), F.relu(raw[..., 3])
    alpha = 1.0 - torch.exp(-density * steps)
    before = torch.cat([torch.ones_like(alpha[..., :1]), (1.0 - alpha + 1e-10)[..., :-1]], -1)
    weights = alpha * torch.cumprod(before, -1)
    return (weights[..., None] * rgb).sum(-2), (weights * z).sum(-1), weights.sum(-1)


def scene(width, layers=8, image=100, samples=64, chunk=65536, run_again=False):
    """A field, and what renders a picture with it and gives its loss."""
    field, rays = Field(width, layers).to(CUDA), image * image
    origins, directions, target = (torch.rand(rays, 3, device=CUDA) for _ in range(3))
    look = (lambda x: checkpoint(field, x, use_reentrant=False)) if run_again else field

    def forward():
        with torch.no_grad():
            z = torch.linspace(2, 6, samples, device=CUDA).expand(rays, samples)
            z = z + torch.rand(rays, samples, device=CUDA) * (4 / samples)
            x = encoded((origins[:, None] + directions[:, None] * z[..., None]).reshape(-1, 3))
            steps = torch.cat([z[..., 1:] - z[..., :-1], torch.full_like(z[..., :1], 1e10)], -1)
        raw = torch.cat([look(part) for part in x.split(chunk)], 0).reshape(rays, samples, 4)
        colour, depth, opacity = rendered(raw, z, steps)
        return ((colour - target) ** 2).mean()

    return field, forward


def nerf(variant, width, **sizes):
    field, forward = scene(width, **sizes)
    train(variant, list(field.parameters()), forward, optimizer=torch.optim.AdamW(field.parameters(), lr=5e-4))


def chain(variant, width, length, start_too=False):
    x = torch.rand(width, width, device=CUDA, dtype=torch.float64)
    start = torch.rand(width, width, device=CUDA, dtype=torch.float64)
    rights = []

    def forward():
        z = start
        for _ in range(length):
            z = x @ z
        return z.sum()

    def forward_by_hand():
        z = start
        for _ in range(length):
            rights.append(z)
            z = x @ z
        return z.sum()

    def backward_by_hand(loss):
        grad, total = torch.ones((), device=CUDA, dtype=torch.float64).expand(width, width), None
        while rights:
            share = grad @ rights.pop().t()
            total = share if total is None else total.add_(share)
            del share
            if rights:
                grad = x.t() @ grad
        x.grad = total

    if variant.startswith("by-hand"):
        return train(variant, [x], forward_by_hand, backward_by_hand)
    x.requires_grad_()
    start.requires_grad_(start_too)
    train(variant, [x, start], forward)


def rnn(variant, steps, batch, width, form):
    def parameter(*shape):
        return torch.rand(*shape, device=CUDA, dtype=torch.float64, requires_grad=True)

    inputs = torch.rand(steps, batch, width, device=CUDA, dtype=torch.float64)
    first = torch.zeros(batch, width, device=CUDA, dtype=torch.float64)
    if form == "cell":
        cell = nn.RNNCell(width, width, dtype=torch.float64).to(CUDA)
        parameters, step = list(cell.parameters()), cell
    elif form == "input-added":
        parameters = weight, bias = parameter(width, width), parameter(width)
        step = lambda x, h: torch.tanh(x + h @ weight + bias)
    else:
        parameters = of_input, weight, bias = parameter(width, width), parameter(width, width), parameter(width)
        step = lambda x, h: torch.tanh(x @ of_input + h @ weight + bias)

    def forward():
        h = first
        for time in range(steps):
            h = step(inputs[time], h)
        return h.sum()

    train(variant, parameters, forward)


def sums(variant, width):
    frozen = [torch.rand(width, width, device=CUDA) for _ in range(3)]
    trained = torch.rand(width, width, device=CUDA, requires_grad=True)
    train(variant, [trained], lambda: (frozen[0] + (frozen[1] + (frozen[2] + trained))).sum())


def branches(variant, batch, width, layers, with_branch):
    x, labels = torch.rand(batch, width, device=CUDA), torch.zeros(batch, dtype=torch.long, device=CUDA)
    stack = lambda: nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU()))).to(CUDA)
    trunk, branch, head = stack().requires_grad_(False), stack() if with_branch else None, nn.Linear(width, 10).to(CUDA)
    parameters = list(head.parameters()) + (list(branch.parameters()) if with_branch else [])

    def forward():
        return F.cross_entropy(head(trunk(x) + branch(x) if with_branch else trunk(x)), labels)

    train(variant, parameters, forward)


def write(name):
    header = f"# Made by make_loops.py with PyTorch {torch.__version__.split('+')[0]}; do not edit.\n"
    pathlib.Path(__file__).with_name(name).write_text(header + "\n".join(LINES) + "\n")
    LINES.clear()


def main():
    nerf("64", 64)
    nerf("256", 256)
    nerf("64-whole", 64, chunk=640_000)
    nerf("64-small", 64, image=32)
    nerf("256-small", 256, image=32)
    nerf("128-odd", 128, layers=7, image=70, samples=48, chunk=20_000)
    nerf("64-shallow", 64, layers=3, image=64, chunk=10_000)
    nerf("64-again", 64, run_again=True)
    nerf("256-again", 256, run_again=True)
    write("nerf.txt")

    chain("x", 1000, 100)
    chain("both", 1000, 100, start_too=True)
    chain("by-hand", 1000, 100)
    chain("x-short", 300, 7)
    chain("both-short", 300, 7, start_too=True)
    chain("by-hand-short", 300, 7)
    rnn("weighted", 100, 64, 1000, "weighted")
    rnn("input-added", 100, 64, 1000, "input-added")
    rnn("input-added-wide", 100, 1000, 1000, "input-added")
    rnn("cell", 100, 64, 1000, "cell")
    rnn("weighted-other", 17, 200, 96, "weighted")
    rnn("cell-other", 17, 200, 96, "cell")
    sums("sum", 1000)
    branches("trunk", 512, 1024, 4, False)
    branches("branches", 512, 1024, 4, True)
    branches("branches-other", 2000, 256, 7, True)
    write("loops.txt")


if __name__ == "__main__":
    main()
