"""References are followed without changing the program, and predict recomputed modules to the byte."""

import functools
import gc
import os
import pickle
import subprocess
import sys

import pytest

import highwater
from highwater import _references


def net(name):
    import models
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Encoder(nn.Module):
        """A block of a vision transformer, with PyTorch's own attention and broadcast scales."""

        def __init__(self, width=64):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, width))
            self.scale = nn.Parameter(torch.ones(width))

        def forward(self, x):
            y = self.norms[0](x)
            y, _ = self.attention(y, y, y, need_weights=False)
            x = x + y * self.scale
            return x + self.mlp(self.norms[1](x))

    class Residual(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            first = nn.Conv2d(channels, out, 3, stride, 1)
            self.first = nn.Sequential(first, nn.BatchNorm2d(out), nn.ReLU(inplace=True))
            self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1), nn.BatchNorm2d(out))
            self.skip = nn.Conv2d(channels, out, 1, stride) if channels != out or stride != 1 else nn.Identity()

        def forward(self, x):
            return F.relu(self.second(self.first(x)) + self.skip(x), inplace=True)

    class Decoder(nn.Module):
        """A block with written-out attention, arguments by keyword, a result in a tuple and 16-bit weights."""

        def __init__(self, width=64):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.gate, self.down = nn.Linear(width, 512), nn.Linear(256, width)

        def forward(self, x, mask=None):
            query, key, value = self.qkv(x).chunk(3, -1)
            weights = F.softmax(query @ key.transpose(1, 2) / 8 + mask, dim=-1, dtype=torch.float32).to(x.dtype)
            x = x + self.out(weights @ value)
            gate, up = self.gate(x).chunk(2, -1)
            return (x + self.down(F.silu(gate) * up) / (1 + x.abs()),)

    class UNet(nn.Module):
        """Blocks of unequal sizes, whose results are kept for later ones."""

        def __init__(self):
            super().__init__()
            sizes = [(3, 8), (8, 16), (24, 8), (8, 4)]
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Conv2d(*size, 3, padding=1), nn.GroupNorm(4, size[1]), nn.SiLU()) for size in sizes
            )

        def loss(self):
            return self(torch.zeros(4, 3, 64, 64, device="cuda"))

        def forward(self, image):
            wide = self.blocks[0](image)
            low = self.blocks[1](F.max_pool2d(wide, 2))
            joined = self.blocks[2](torch.cat((F.interpolate(low, scale_factor=2), wide), 1))
            return self.blocks[3](joined).square().mean()

    class Chain(nn.Module):
        def __init__(self, blocks, batch, **arguments):
            super().__init__()
            self.blocks, self.batch, self.arguments = nn.ModuleList(blocks), batch, arguments

        def loss(self):
            return self(torch.zeros(self.batch, device="cuda", dtype=next(self.parameters()).dtype))

        def forward(self, x):
            for block in self.blocks:
                x = block(x, **{name: make(x) for name, make in self.arguments.items()})
                x = x[0] if isinstance(x, tuple) else x
            return x.float().square().mean()

    if name == "gpt":
        return models.Gpt(blocks=4)
    if name == "vit":
        return Chain([Encoder() for _ in range(4)], (8, 50, 64))
    if name == "unet":
        return UNet()
    if name == "conv":
        widths = [(8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 48, 2)]
        return Chain([Residual(*width) for width in widths], (8, 8, 48, 48))
    return Chain([Decoder() for _ in range(4)], (8, 48, 64), mask=lambda x: x.new_zeros(1, 48, 48)).bfloat16()


def record(torch, path, name, recomputed=(), **options):
    from torch.utils.checkpoint import checkpoint

    gc.collect()
    torch.cuda.empty_cache()
    model = net(name).cuda()
    for block in recomputed:
        module = model.blocks[block]
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with highwater.record_memory_history(path, model=model, **options):
        for _ in range(3):
            model.loss().backward()
            optimizer.step()
            optimizer.zero_grad()
    return highwater.Snapshot(path)


def peaks(snapshot):
    rows = snapshot.phases()["rows"]
    return {(row["step"], row["phase"]): row["peak_bytes"] for row in rows if row["phase"] in ("forward", "backward")}


@pytest.mark.parametrize("name", ["gpt", "vit", "conv", "unet", "decoder"])
def test_recomputed_modules_have_the_predicted_peaks_in_forward_and_backward_of_every_step(torch, tmp_path, name):
    if not _references.is_available():
        pytest.skip(f"PyTorch {torch.__version__} cannot tell whether a program has hooks of its own")
    plain = record(torch, tmp_path / "plain.snap", name)
    for blocks in ([0, 1, 2, 3], [1, 2], [3]):
        real = record(torch, tmp_path / "real.snap", name, blocks)
        patterns = [f"blocks.{block}" for block in blocks]
        predicted = plain.whatif(checkpoint=patterns, out=tmp_path / "predicted.snap")
        assert predicted["recomputed"]["evidence"] == "references"
        assert peaks(highwater.Snapshot(tmp_path / "predicted.snap")) == peaks(real), (name, blocks)


def test_references_that_are_not_wanted_are_the_noted_reason_for_estimates(torch, tmp_path):
    path = tmp_path / "off.snap"
    with highwater.record_memory_history(path, references=False):
        torch.nn.Linear(8, 8).cuda()(torch.zeros(4, 8, device="cuda")).sum().backward()
    notes = highwater.Snapshot(path).info()["notes"]
    assert any(note.endswith("the program was recorded with references=False") for note in notes)


# Runs a model on a device of the given size; the status is 3 if that is too small.
PROGRAM = """
import os, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
import torch
from test_references import record
try:
    record(torch, sys.argv[2], sys.argv[3], [int(block) for block in sys.argv[4].split(",") if block])
except torch.OutOfMemoryError:
    os._exit(3)
# Without waiting for threads of CUDA's, of which the simulated GPU has none.
os._exit(0)
"""


@pytest.mark.parametrize("name", ["gpt", "conv"])
def test_the_least_device_of_a_plan_is_enough_for_the_real_allocator_and_less_is_not(torch, tmp_path, name):
    if not _references.is_available():
        pytest.skip(f"PyTorch {torch.__version__} cannot tell whether a program has hooks of its own")
    if "HIGHWATER_SIMULATE_MEMORY_BYTES" not in os.environ:
        pytest.skip("the size of a device can be set only with the simulated GPU")
    least = record(torch, tmp_path / "plain.snap", name).plan(2**20, forbid="fused")["minimum"]

    def status(bytes):
        paths = os.pathsep.join([os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))])
        blocks = ",".join(scope.removeprefix("blocks.") for scope in least["scopes"])
        environment = {**os.environ, "HIGHWATER_SIMULATE_MEMORY_BYTES": str(bytes)}
        environment["PYTORCH_CUDA_ALLOC_CONF"] = least["settings"] or ""
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM, paths, str(tmp_path / "run.snap"), name, blocks]
        return subprocess.run(command, env=environment, check=False).returncode

    assert status(least["device_bytes"]) == 0, least
    assert status(least["device_bytes"] * 98 // 100) == 3, least


@pytest.mark.parametrize("name", ["gpt", "vit", "conv", "unet", "decoder"])
def test_following_references_changes_no_allocation(torch, tmp_path, name):
    def events(**options):
        record(torch, tmp_path / "step.pickle", name, **options)
        with open(tmp_path / "step.pickle", "rb") as file:
            events = pickle.load(file)["device_traces"][0]
        return [(event["action"], event["size"]) for event in events if not event["action"].startswith("segment")]

    assert events() == events(references=False)


def losses(torch, tmp_path, model, **options):
    with highwater.record_memory_history(tmp_path / "step.snap", **options):
        model(torch.ones(8, 64, device="cuda")).sum().backward()


def test_programs_that_hooks_of_saved_tensors_would_disturb_run_as_they_are(torch, tmp_path):
    class Gradient(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(64, 64)

        def forward(self, x):
            # Does not work within hooks.
            return torch.func.grad(lambda row: self.inner(row).sum())(x) + torch.vmap(self.inner)(x)

    losses(torch, tmp_path, Gradient().cuda())
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: packed.append(1) or tensor, lambda tensor: tensor):
        losses(torch, tmp_path, torch.nn.Linear(64, 64).cuda())
    assert packed, "the program's own hooks come first"
    torch.autograd.graph.disable_saved_tensors_hooks("none is left").__enter__()
    torch._C._autograd._saved_tensors_hooks_enable()


def test_a_function_of_the_program_finds_the_tensors_that_it_saved_with_their_attributes(torch, tmp_path):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x * weight

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            weight.sum_of_gradients += 1
            return gradient * weight, gradient * x

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64))
            self.weight.sum_of_gradients = 0

        def forward(self, x):
            return Scaled.apply(x, self.weight)

    apply = torch.autograd.Function.__dict__["apply"]
    model = Module().cuda()
    model.weight.sum_of_gradients = 0
    losses(torch, tmp_path, model)
    assert model.weight.sum_of_gradients == 1
    assert torch.autograd.Function.__dict__["apply"] is apply


def test_a_program_that_allows_no_hooks_and_parameters_whose_data_is_exchanged_run_as_they_are(torch, tmp_path):
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        losses(torch, tmp_path, torch.nn.Linear(64, 64).cuda())

    class Frozen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64), requires_grad=False)

        def forward(self, x):
            return x * self.weight

    model, x = Frozen(), torch.ones(64, requires_grad=True)
    with highwater.record_memory_history(tmp_path / "step.snap"):
        y = model(x)
        model.weight.data = torch.full((64,), 7.0)
        y.sum().backward()
    assert x.grad[0] == 7, "on the CPU, where values are real"


def test_a_program_without_steps_keeps_no_facts_of_evaluation(torch, tmp_path):
    model = torch.nn.Linear(64, 64).cuda()
    with highwater.record_memory_history(tmp_path / "step.snap") as run:
        references = run._session._tracker.references
        with torch.no_grad():
            for _ in range(10):
                model(torch.ones(8, 64, device="cuda"))
        assert references.text() == ""
        model(torch.ones(8, 64, device="cuda")).sum().backward()
        assert references.text() != "" or not _references.is_available()


def test_a_tensor_changed_in_place_after_it_was_saved_is_an_error_as_without_a_recording(torch, tmp_path):
    class Wrong(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(64, 64)

        def forward(self, x):
            y = self.inner(x).exp()
            z = y * 1
            y.add_(1)
            return z + y

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        losses(torch, tmp_path, Wrong().cuda())
    with highwater.record_memory_history(tmp_path / "step.snap"):
        y = Wrong()(torch.ones(8, 64))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
