"""Writes what PyTorch's optimizers, clipping and gradient scaler compute and which memory optimizers take.

    python make_optim.py        writes optim.txt; needs PyTorch, and a CUDA device for the memory

The file beside this script was made with PyTorch 2.15.0; memory over a CUDA runtime whose kernels do nothing.

`narrow DTYPE RULE FORM`, then `start`, and five times `grad` and `after`: numbers of that type. FORM is fused or single
(neither fused nor foreach).
`clip ORDER LARGEST NORM`, then `grads` before and `clipped` after. `values LARGEST`, likewise.
`scaler`, then pairs of whether a gradient was infinite, and the scale after that step.
`memory RULE FORM BYTES`: the most requested bytes of the second step above what was there before, for parameters of 2, 1000
and 64 numbers in f32.
"""

import math
import os

import torch

LINES = []


def numbers(values):
    return " ".join(repr(float(value)) for value in values)


RULES = {
    "sgd-nesterov": lambda p, **form: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2, nesterov=True, **form),
    "sgd-dampening": lambda p, **form: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.2, **form),
    "adam-decay": lambda p, **form: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2, **form),
    "adamw-decay": lambda p, **form: torch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2, **form),
}


def narrow():
    for name, dtype in [("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)]:
        for rule, make in RULES.items():
            for form, setting in [("single", {"foreach": False}), ("fused", {"fused": True})]:
                start = torch.tensor([0.3 * math.sin(0.7 * i + 1) for i in range(6)]).to(dtype)
                parameter = torch.nn.Parameter(start)
                optimizer = make([parameter], **setting)
                LINES.append(f"narrow {name} {rule} {form}")
                LINES.append(f"start {numbers(parameter.detach())}")
                for step in range(5):
                    grad = torch.tensor([math.cos(1.3 * i + step) * 10.0 ** (-i / 2) for i in range(6)]).to(dtype)
                    LINES.append(f"grad {numbers(grad)}")
                    parameter.grad = grad
                    optimizer.step()
                    LINES.append(f"after {numbers(parameter.detach())}")


def clipped():
    first = torch.tensor([3.0, -4.0, 0.5], dtype=torch.float64)
    second = torch.tensor([-12.0, 0.0], dtype=torch.float64)

    def parameters():
        made = [torch.nn.Parameter(torch.zeros(3, dtype=torch.float64)), torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))]
        made[0].grad, made[1].grad = first.clone(), second.clone()
        return made

    for order in [2.0, 1.0, 3.0, math.inf]:
        for largest in [1.5, 100.0]:
            made = parameters()
            norm = torch.nn.utils.clip_grad_norm_(made, largest, norm_type=order)
            LINES.append(f"clip {order} {largest} {float(norm)!r}")
            LINES.append(f"grads {numbers(torch.cat([first, second]))}")
            LINES.append(f"clipped {numbers(torch.cat([p.grad for p in made]))}")
    made = parameters()
    torch.nn.utils.clip_grad_value_(made, 3.5)
    LINES.append("values 3.5")
    LINES.append(f"grads {numbers(torch.cat([first, second]))}")
    LINES.append(f"clipped {numbers(torch.cat([p.grad for p in made]))}")


def scaler():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    outcome = []
    for infinite in [0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]:
        scaler.scale(parameter.sum()).backward()
        if infinite:
            parameter.grad.fill_(math.inf)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        outcome += [infinite, scaler.get_scale()]
    LINES.append("scaler")
    LINES.append(f"scales {numbers(outcome)}")


def memory():
    forms = [("foreach", {"foreach": True}), ("single", {"foreach": False}), ("fused", {"fused": True})]
    rules = {
        "sgd-momentum": lambda p, **form: torch.optim.SGD(p, momentum=0.9, **form),
        "sgd-decay": lambda p, **form: torch.optim.SGD(p, momentum=0.9, weight_decay=0.1, **form),
        "adam": lambda p, **form: torch.optim.Adam(p, **form),
        "adam-decay": lambda p, **form: torch.optim.Adam(p, weight_decay=0.1, **form),
        "adamw": lambda p, **form: torch.optim.AdamW(p, **form),
    }
    requested = lambda of: torch.cuda.memory_stats()[f"requested_bytes.all.{of}"]
    for rule, make in rules.items():
        for form, setting in forms:
            parameters = [torch.nn.Parameter(torch.zeros(length, device="cuda")) for length in [2, 1000, 64]]
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
            optimizer = make(parameters, **setting)
            optimizer.step()
            torch.cuda.reset_peak_memory_stats()
            before = requested("current")
            optimizer.step()
            LINES.append(f"memory {rule} {form} {requested('peak') - before}")


narrow()
clipped()
scaler()
memory()
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "optim.txt"), "w") as file:
    file.writelines(line + "\n" for line in LINES)
