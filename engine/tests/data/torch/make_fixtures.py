"""Writes what PyTorch computes, and which memory it takes, as text that our optimizers and models are tested against.

    python make_fixtures.py numbers      writes optimizers.txt, vit.txt and perceptron.txt; needs PyTorch and torchvision
    python make_fixtures.py memory       writes vit_l_16.txt; needs a CUDA device of 8 GiB as well

The files beside this script were made with PyTorch 2.15.0 and torchvision 0.29.2; memory over a CUDA runtime whose
kernels do nothing, with `requested_bytes` of `torch.cuda.memory_stats`. Convolution workspaces are not counted.

Numbers are not drawn but computed from their position, so that both sides have the same without a file: parameter
number i, counted through the model in order, is 0.3 sin(0.7 i + 1); input number i is cos(0.9 i).

optimizers.txt: blocks of `case NAME`, `start`, `grad` (five times, each followed by `after`): a vector of numbers each.
vit.txt, perceptron.txt: `losses RULE …`: the loss of each step; `grad PATH SUM WEIGHTED`: the gradient of the first
step, its sum and the sum of each number times the cosine of its position.
vit_l_16.txt: `VARIANT STAGE END PEAK`: requested bytes.
"""

import gc
import math
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def lines_to(name, lines):
    with open(os.path.join(HERE, name), "w") as file:
        file.writelines(line + "\n" for line in lines)


def numbers(values):
    return " ".join(repr(float(value)) for value in values)


def sine(count, first=0):
    return torch.tensor([0.3 * math.sin(0.7 * i + 1) for i in range(first, first + count)], dtype=torch.float64)


def cosine(*shape):
    return torch.tensor([math.cos(0.9 * i) for i in range(math.prod(shape))], dtype=torch.float64).reshape(shape)


RULES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd-dampening": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.2),
    "sgd-nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p),
    "adam-decay": lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2),
    "adamw": lambda p: torch.optim.AdamW(p),
    "adamw-decay": lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2),
}


def optimizers():
    lines = []
    for name, rule in RULES.items():
        parameter = torch.nn.Parameter(sine(6))
        optimizer = rule([parameter])
        lines += [f"case {name}", f"start {numbers(parameter.detach())}"]
        for step in range(5):
            grad = torch.tensor([math.cos(1.3 * i + step) * 10.0 ** (-i) for i in range(6)], dtype=torch.float64)
            lines.append(f"grad {numbers(grad)}")
            parameter.grad = grad
            optimizer.step()
            lines.append(f"after {numbers(parameter.detach())}")
    lines_to("optimizers.txt", lines)


def fill(model):
    first = 0
    for parameter in model.parameters():
        parameter.data = sine(parameter.numel(), first).reshape(parameter.shape)
        first += parameter.numel()
    return model


def training(name, make, input, labels, rules):
    lines = []
    for rule in rules:
        model = fill(make())
        optimizer = RULES[rule](model.parameters())
        losses = []
        for step in range(5):
            loss = torch.nn.functional.cross_entropy(model(input), labels)
            loss.backward()
            if step == 0 and rule == rules[0]:
                for path, parameter in model.named_parameters():
                    grad = parameter.grad.flatten()
                    weights = torch.cos(torch.arange(grad.numel(), dtype=torch.float64))
                    lines.append(f"grad {path} {numbers([grad.sum(), (grad * weights).sum()])}")
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        lines.append(f"losses {rule} {numbers(losses)}")
    lines_to(name, lines)


def vit():
    from torchvision.models.vision_transformer import VisionTransformer

    size = {"image_size": 8, "patch_size": 4, "num_layers": 2, "num_heads": 2, "hidden_dim": 8, "mlp_dim": 16, "num_classes": 3}
    training("vit.txt", lambda: VisionTransformer(**size), cosine(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]), ["adam-decay", "sgd-momentum"])


def perceptron():
    def make():
        linear, relu = torch.nn.Linear, torch.nn.ReLU
        return torch.nn.Sequential(linear(6, 10), relu(), linear(10, 10), relu(), linear(10, 3))

    training("perceptron.txt", make, cosine(5, 6), torch.tensor([0, 1, 2, 0, 1]), ["sgd-nesterov", "adamw-decay"])


def requested(of):
    return torch.cuda.memory_stats()[f"requested_bytes.all.{of}"]


def train(variant, lines):
    from torchvision.models import vit_l_16

    def stage(name, body):
        torch.cuda.reset_peak_memory_stats()
        result = body()
        lines.append(f"{variant} {name} {requested('current')} {requested('peak')}")
        return result

    model = vit_l_16(weights=None).cuda()
    input = torch.zeros(1, 3, 224, 224, device="cuda")
    optimizer = None
    if variant == "in-backward":
        own = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}

        def update(parameter):
            own[parameter].step()
            own[parameter].zero_grad()

        for parameter in own:
            parameter.register_post_accumulate_grad_hook(update)
    else:
        optimizer = torch.optim.Adam(model.parameters(), foreach=variant == "foreach")
    for step in range(3):
        loss = stage(f"{step}.forward", lambda: model(input).sum())
        stage(f"{step}.backward", loss.backward)
        del loss
        if optimizer is not None:
            stage(f"{step}.optimizer", optimizer.step)
            stage(f"{step}.zero_grad", optimizer.zero_grad)


def memory():
    lines = []
    for variant in ["foreach", "per-tensor", "in-backward"]:
        train(variant, lines)
        gc.collect()
    lines_to("vit_l_16.txt", lines)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["numbers"]:
            optimizers()
            vit()
            perceptron()
        case ["memory"]:
            memory()
        case _:
            sys.exit(__doc__)
