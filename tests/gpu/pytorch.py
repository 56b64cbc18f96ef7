"""What PyTorch takes for the training steps that ours stand beside in docs/gpu.md, on the same GPU. Prints one JSON object.

    python pytorch.py step SCENARIO [--tiny] [--seconds S]     step times and peaks
    python pytorch.py snapshot SCENARIO FILE [--tiny]          its own recording of two steps, from the first allocation on
    python pytorch.py alloc                                    what a cached malloc and its free cost

The models are those of `pytorch_bytes.py`, `make_loops.py` and `make_conv_fixtures.py`, whose bytes ours are tested
against; here they get random numbers to work on. All settings are PyTorch's defaults. A step is forward, backward,
optimizer and gradients set to none, until the GPU is done.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Beside this script in an archive, or where the sources have them.
for folder in ["data", os.path.join(ROOT, "tests", "data"), os.path.join(ROOT, "engine", "tests", "data", "torch")]:
    sys.path.append(os.path.join(HERE, folder))

import make_conv_fixtures
import make_loops
import pytorch_bytes

TINY = {
    "vit": {"image": 32, "patch": 16, "width": 64, "layers": 2, "heads": 4, "mlp": 128, "classes": 10},
    "gpt2": {"batch": 2, "seq": 32, "width": 64, "layers": 2, "heads": 4, "vocab": 100, "positions": 32},
    "nerf": {"image": 8, "samples": 8, "chunk": 256},
}


def of_tables(name, tiny):
    """A model of pytorch_bytes.py with random inputs, and its optimizer."""
    sizes = pytorch_bytes.DEFAULTS[name] | (TINY[name] if tiny else {})
    model = pytorch_bytes.build(name, sizes)
    if name == "vit":
        model.images.normal_()
    else:
        model.ids.random_(sizes["vocab"])
        model.labels.random_(sizes["vocab"])
    return model, list(model.parameters()), pytorch_bytes.rule(sizes, list(model.parameters()))


def nerf(tiny):
    field, forward = make_loops.scene(16 if tiny else 64, **(TINY["nerf"] if tiny else {}))
    return forward, list(field.parameters()), torch.optim.AdamW(field.parameters(), lr=5e-4)


def fcn(tiny):
    padding, batch, image = (1, 1, 32) if tiny else (100, 3, 256)
    model = make_conv_fixtures.FCN("fcn8s", padding, divisor=64 if tiny else 1).cuda()
    images = torch.randn(batch, 3, image, image, device="cuda")
    labels = torch.randint(21, (batch, image, image), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return lambda: F.cross_entropy(model(images), labels), list(model.parameters()), optimizer


SCENARIOS = {
    "vit-l-16": lambda tiny: of_tables("vit", tiny),
    "gpt2": lambda tiny: of_tables("gpt2", tiny),
    "tiny-nerf": nerf,
    "fcn": fcn,
}


def stepper(scenario, tiny):
    forward, parameters, optimizer = SCENARIOS[scenario](tiny)

    def step():
        loss = forward()
        loss.backward()
        del loss
        optimizer.step()
        for parameter in parameters:
            parameter.grad = None

    return step


def timed(step, steps):
    times = []
    for _ in range(steps):
        start = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - start) // 1000)
    return times


def record(stacks):
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python", context="all" if stacks else None)


def leave_off():
    torch.cuda.memory._record_memory_history(enabled=None)


def spread(times):
    times = sorted(times)
    tenth = times[min(int(len(times) * 0.9), len(times) - 1)]
    return {"median_us": statistics.median(times), "least_us": times[0], "tenth_above_us": tenth, "steps": len(times)}


def measure(scenario, tiny, seconds, rounds=3):
    step = stepper(scenario, tiny)
    warm_up = timed(step, 3)
    steps = max(1, min(20, int(seconds * 1e6 / (3 * rounds * warm_up[-1]))))
    times = {"off": [], "events": [], "stacks": []}
    for _ in range(rounds):
        for way, of_way in times.items():
            if way != "off":
                record(way == "stacks")
            of_way += timed(step, steps)
            leave_off()
    stats = torch.cuda.memory_stats()
    allowed = {"matmul": torch.backends.cuda.matmul.allow_tf32, "cudnn": torch.backends.cudnn.allow_tf32}
    # Its convolutions round their factors to 10 bits unless told not to; ours do not. What that takes is not its default.
    torch.backends.cudnn.allow_tf32 = False
    timed(step, 1)
    exact = timed(step, steps)
    return {
        "scenario": scenario,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "warm_up_us": warm_up,
        "step": {way: spread(of_way) for way, of_way in times.items()},
        "allow_tf32": allowed,
        "step_without_tf32": spread(exact),
        "max_requested_bytes": stats["requested_bytes.all.peak"],
        "max_allocated_bytes": stats["allocated_bytes.all.peak"],
        "max_reserved_bytes": stats["reserved_bytes.all.peak"],
    }


def snapshot(scenario, tiny, file):
    record(stacks=True)
    step = stepper(scenario, tiny)
    for _ in range(2):
        step()
    torch.cuda.memory._dump_snapshot(file)
    return {"scenario": scenario, "file": file, "max_allocated_bytes": torch.cuda.max_memory_allocated()}


def pairs(run, count=20_000, repeats=7):
    """Nanoseconds of one turn of `run(count)`: the median of several."""
    run(count // 10)
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        run(count)
        times.append((time.perf_counter_ns() - start) / count)
    return statistics.median(times)


def alloc():
    """The cases of engine/benches/alloc.rs, by the functions behind torch.cuda.caching_allocator_alloc and _delete. They
    are called from Python, so the cost of two calls that do next to nothing is given as well."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    malloc, free = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete
    nothing, stream = torch._C._cuda_getCurrentRawStream, torch.cuda.current_stream().cuda_stream

    def fragmented(holes):
        blocks = [malloc(512 * (1 + i // 2 * 7919 % 2000), stream) for i in range(2 * holes)]
        for block in blocks[1::2]:
            free(block)
        return blocks[::2]

    def of(size):
        def run(count):
            for _ in range(count):
                free(malloc(size, stream))

        return run

    def of_any_size(count):
        turn = 0
        for _ in range(count):
            turn = (turn + 7919) % 2000
            free(malloc(512 * (1 + turn), stream))

    def empty(count):
        for _ in range(count):
            nothing(0)
            nothing(0)

    found = {"two calls of nothing": pairs(empty)}
    if "expandable_segments" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        stay = malloc(64 << 10, stream)
        found["split and join, expandable"] = pairs(of(64 << 10))
        free(stay)
        return found
    stay = fragmented(8)
    found["exact fit among 8 holes"] = pairs(of(512))
    [free(block) for block in stay]
    torch.cuda.empty_cache()
    stay = malloc(64 << 10, stream)
    found["split and join"] = pairs(of(64 << 10))
    free(stay)
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] >= 32 << 30:
        stay = fragmented(20_000)
        found["any fit among 20,000 holes"] = pairs(of_any_size)
        [free(block) for block in stay]
    return found


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    step, snap = commands.add_parser("step"), commands.add_parser("snapshot")
    commands.add_parser("alloc")
    for command in [step, snap]:
        command.add_argument("scenario", choices=SCENARIOS)
        command.add_argument("--tiny", action="store_true")
    step.add_argument("--seconds", type=float, default=20)
    snap.add_argument("file")
    given = parser.parse_args()
    match given.command:
        case "step":
            print(json.dumps(measure(given.scenario, given.tiny, given.seconds)))
        case "snapshot":
            print(json.dumps(snapshot(given.scenario, given.tiny, given.file)))
        case "alloc":
            print(json.dumps(alloc()))


if __name__ == "__main__":
    main()
