#!/usr/bin/env python3
"""Compares the simulated peak of one training step of five programs with two other estimates, without a GPU.

    pip install torch==2.15.0 transformers timm accelerate
    python tests/pytorch/estimates.py [PATH_OF_HIGHWATER] > table.md

- MemTracker of `torch.distributed._tools` under FakeTensorMode: the program is rewritten for it, and runs on the
  simulated GPU, since its backward needs a device.
- accelerate: what `accelerate estimate-memory` prints as "Training using Adam", computed by its functions for the
  model that the program trains. The command itself needs the hub.

Nothing is downloaded: models are built from configurations.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

import torch
from torch.nn.functional import cross_entropy

GPU = "h100"


def llama():
    """Llama of 8 layers in bf16, 2 x 1024 tokens"""
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model, lambda: language_loss(model, 2, 1024)


def gpt2():
    """GPT-2 124M, 4 x 1024 tokens"""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config())
    return model, lambda: language_loss(model, 4, 1024)


def bert():
    """BERT-base with gradient checkpointing, 16 x 512 tokens"""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig())
    model.gradient_checkpointing_enable()
    return model, lambda: language_loss(model, 16, 512)


def vit():
    """ViT-B/16 of timm, bf16 autocast, 32 images"""
    import timm

    model = timm.create_model("vit_base_patch16_224")

    def loss():
        with torch.autocast("cuda", torch.bfloat16):
            return image_loss(model, 32)

    return model, loss


def resnet():
    """ResNet-50 of timm, 32 images"""
    import timm

    model = timm.create_model("resnet50")
    return model, lambda: image_loss(model, 32)


def language_loss(model, batch, length):
    tokens = torch.randint(0, model.config.vocab_size, (batch, length), device="cuda")
    return model(input_ids=tokens, labels=tokens).loss


def image_loss(model, batch):
    images = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    return cross_entropy(model(images), labels)


PROGRAMS = {program.__name__: program for program in [llama, gpt2, bert, vit, resnet]}


def train(program):
    """The program as it is: one training step with AdamW."""
    with torch.device("cuda"):
        model, loss = program()
    optimizer = torch.optim.AdamW(model.parameters())
    loss().backward()
    optimizer.step()


def track(program):
    """The program rewritten for MemTracker: fake tensors, and a tracker that knows the model and the optimizer."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    # Built first: some models read values while they are built, which fake tensors do not have.
    with torch.device("cuda"):
        model, loss = program()
    mode = FakeTensorMode()
    for module in model.modules():
        for tensors in [module._parameters, module._buffers]:
            for name, tensor in tensors.items():
                tensors[name] = None if tensor is None else mode.from_tensor(tensor)
    with mode:
        optimizer = torch.optim.AdamW(model.parameters())
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            loss().backward()
            optimizer.step()
    peaks = tracker.get_tracker_snapshot("peak")
    return sum(peak["Total"] for device, peak in peaks.items() if device.type == "cuda")


def multiply(program):
    """The method of `accelerate estimate-memory`."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    with torch.device("meta"):
        model, _ = program()
    total, _ = calculate_maximum_sizes(model)
    return max(estimate_training_usage(total, "float32").values())


def run(method, name, prefix=()):
    """Runs one method for one program in a process of its own; returns the process and its seconds."""
    start = time.monotonic()
    command = [*prefix, sys.executable, os.path.abspath(__file__), method, name]
    process = subprocess.run(command, capture_output=True, text=True)
    return process, time.monotonic() - start


def table(highwater):
    row("program", "peak", "bytes", "to requested", "to reserved", "seconds")
    print("|" + "---|" * 6)
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "train.snap")
        simulate = [highwater, "simulate", "--gpu", GPU, "--steps", "0", "--out", recording]
        for name, program in PROGRAMS.items():
            process, seconds = run("train", name, [*simulate, "--json", "--"])
            answer = json.loads(process.stdout)
            peaks = answer["peaks"]
            label = f"simulated ({answer['accuracy']})"
            row(program.__doc__, f"{label}: requested", f"{peaks['requested']:,}", "", "", f"{seconds:.0f}")
            row("", f"{label}: allocated", f"{peaks['allocated']:,}", "", "", "")
            row("", f"{label}: reserved", f"{peaks['reserved']:,}", "", "", "")
            estimate("MemTracker", *run("track", name, [*simulate, "--"]), peaks)
            estimate("accelerate", *run("multiply", name), peaks)


def estimate(label, process, seconds, peaks):
    """Prints the row of an estimate, or of its error."""
    found = re.search(r"^estimate: (\d+)$", process.stdout, re.MULTILINE)
    if found is None:
        errors = [line for line in process.stderr.splitlines() if "Error" in line or "Exception" in line]
        row("", label, f"fails: {(errors or ['no output'])[-1]}", "", "", f"{seconds:.0f}")
        return
    size = int(found[1])
    to_requested, to_reserved = (100 * (size / peaks[total] - 1) for total in ["requested", "reserved"])
    row("", label, f"{size:,}", f"{to_requested:+.2f} %", f"{to_reserved:+.1f} %", f"{seconds:.0f}")


def row(*cells):
    text = "|".join(f" {cell} " if cell else " " for cell in cells)
    print(f"|{text}|".replace(" -", " \N{MINUS SIGN}"), flush=True)


def main():
    if len(sys.argv) <= 2:
        table(sys.argv[1] if len(sys.argv) == 2 else "highwater")
        return
    method = {"train": train, "track": track, "multiply": multiply}[sys.argv[1]]
    result = method(PROGRAMS[sys.argv[2]])
    if result is not None:
        print(f"estimate: {result}")


if __name__ == "__main__":
    main()
