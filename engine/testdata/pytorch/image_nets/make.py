"""Writes what PyTorch needs and computes for image nets: the memory of their operations, and the losses of a small net.

    python make.py memory     writes memory.txt; needs a CUDA device
    python make.py losses     writes losses.txt, on the processor

The files beside this script were made with PyTorch 2.15.0; memory over a CUDA runtime whose kernels do nothing, with
`requested_bytes` of `torch.cuda.memory_stats`. Convolution workspaces are not counted.

memory.txt: `NAME KEPT FORWARD BACKWARD END` for each operation, run on a temporary that is computed from a leaf: bytes
above those before it that are live after forward, at forward's peak, at backward's peak, and after backward, when the
results are still held. `0 0` stands for the backward of an operation without gradients.
losses.txt: the loss of each step of the net of `engine/examples/resnext.rs`, whose parameters, images and labels are
computed from their position: see `number`.
"""

import gc
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).parent


# Shapes of the input and of the parameters, and the operation.
OPERATIONS = {
    "conv2d_grouped": ([4, 16, 32, 32], [[32, 4, 3, 3], [32]], lambda x, w, b: F.conv2d(x, w, b, 1, 2, 2, 4)),
    "conv2d_depthwise": ([4, 16, 32, 32], [[16, 1, 3, 3]], lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 16)),
    "conv_transpose2d_grouped": ([4, 16, 16, 16], [[16, 2, 4, 4]], lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 0, 4)),
    "group_norm": ([4, 16, 32, 32], [[16], [16]], lambda x, w, b: F.group_norm(x, 4, w, b)),
    "group_norm_plain": ([4, 16, 32, 32], [], lambda x: F.group_norm(x, 4)),
    "group_norm_rows": ([64, 256], [[256], [256]], lambda x, w, b: F.group_norm(x, 8, w, b)),
    "pad": ([4, 16, 32, 32], [], lambda x: F.pad(x, [1, 2, 0, 1])),
    "argmax": ([64, 1000], [], lambda x: x.argmax(1)),
    "argmin_first": ([64, 1000], [], lambda x: x.argmin(0)),
    "max_axis": ([64, 1000], [], lambda x: x.max(1).values),
    "min_axis": ([64, 1000], [], lambda x: x.min(1).values),
    "topk": ([64, 1000], [], lambda x: x.topk(5, 1).values),
    "divide_scalar": ([64, 1000], [], lambda x: 2.0 / x),
    "chain": ([64, 1000], [[64, 1000]], lambda x, w: (x * w + w) * 0.5 - 1.0),
}


def memory():
    lines = []
    for name, (shape, parameters, operation) in OPERATIONS.items():
        # Twice: the first run leaves what the library keeps.
        for _ in range(2):
            leaves = [torch.zeros(shape, device="cuda").requires_grad_() for shape in [shape, *parameters]]
            seed = torch.zeros_like(operation(*[leaf.detach() for leaf in leaves]))
            gc.collect()
            before = torch.cuda.memory_stats()["requested_bytes.all.current"]

            def measured(body):
                torch.cuda.reset_peak_memory_stats()
                result = body()
                stats = torch.cuda.memory_stats()
                return result, [stats[f"requested_bytes.all.{of}"] - before for of in ["current", "peak"]]

            out, (kept, forward) = measured(lambda: operation(leaves[0] + 1.0, *leaves[1:]))
            end = backward = 0
            if out.requires_grad:
                _, (end, backward) = measured(lambda: out.backward(seed))
            line = f"{name} {kept} {forward} {backward} {end}"
            del out, leaves, seed
        lines.append(line)
    (HERE / "memory.txt").write_text("".join(line + "\n" for line in lines))


def number(i):
    """From −1 up to but not including 1."""
    mixed = i * 2654435761 % 2**32
    mixed ^= mixed >> 15
    mixed = mixed * 2246822519 % 2**32
    mixed ^= mixed >> 13
    return mixed / 2**31 - 1


def numbers(first, shape):
    count = torch.Size(shape).numel()
    return torch.tensor([number(first + i) for i in range(count)], dtype=torch.float64).reshape(shape)


class Block(nn.Module):
    def __init__(self, channels, groups, dilation):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation, groups=groups, bias=False)
        self.norm2 = nn.GroupNorm(groups, channels)
        self.conv2 = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, x):
        hidden = self.conv1(F.relu(self.norm1(x)))
        return x + self.conv2(F.relu(self.norm2(hidden)))


class ResNeXt(nn.Module):
    def __init__(self, channels=16, groups=4, classes=10, dilations=(1, 2, 4)):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2)
        self.blocks = nn.ModuleList(Block(channels, groups, dilation) for dilation in dilations)
        self.head = nn.Linear(channels, classes)

    def forward(self, images):
        # A row and a column of zeros below and on the right only.
        x = self.stem(F.pad(images, [0, 1, 0, 1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def losses():
    torch.set_default_dtype(torch.float64)
    model, first = ResNeXt(), 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = 0.2 * numbers(first, parameter.shape)
            parameter.copy_(values + 1.0 if "norm" in name and name.endswith("weight") else values)
            first += parameter.numel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    labels = torch.arange(8) % 10
    lines = []
    for step in range(10):
        images = numbers(1_000_000 + step % 2 * 8 * 3 * 16 * 16, [8, 3, 16, 16]) + labels.reshape(8, 1, 1, 1) / 4
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        top = logits.topk(3, -1).indices
        hits = (top == labels[:, None]).double().sum(1).mean()
        lines.append(f"{loss.item()!r} {(logits.argmax(-1) == labels).double().mean().item()!r} {hits.item()!r}")
    (HERE / "losses.txt").write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["memory"]:
            memory()
        case ["losses"]:
            losses()
        case _:
            sys.exit(__doc__)
