"""The parts of run.sh, in the order of what matters most: each on its own, with time limits, so that none stops the others.
Results are kept in a file after each part; the page is made of whatever there is."""

import contextlib
import datetime
import glob
import gzip
import io
import json
import os
import re
import shutil
import sys
import tarfile
import time

import checks
from page import page
from programs import HERE, OUT, PYTORCH, Budget, attempt, fails, Failure, log, ours, program, pytorch, read_json, run, together

WORK = os.environ.get("HIGHWATER_GPU_WORK", os.path.join(HERE, "work"))
TINY = os.environ.get("HIGHWATER_GPU_TINY") == "1"
# Device memory of a program beside what its allocator reserves: the context and its kernels.
CONTEXT_BYTES = 1 << 30
# How much of the recordings is kept beside the page.
MAX_KEPT_BYTES = 15 << 20

# Ours beside PyTorch: the words after `highwater record`, in full and tiny.
BESIDE = {
    "vit-l-16": ("vit-l-16", "vit-l-16 --image 32 --width 64 --layers 2 --heads 4 --hidden 128 --classes 10"),
    "gpt2": ("gpt2", "gpt2 --batch 2 --seq 32 --width 64 --layers 2 --heads 4 --vocab 100 --positions 32"),
    "tiny-nerf": ("tiny-nerf", "tiny-nerf --width 16 --image 8 --samples 8 --chunk 256"),
    "fcn": ("fcn", "fcn --padding 1 --batch 1 --image 32 --width 1"),
}
# What else has its events compared: in full, and tiny or not at all.
EVENTS = [
    ("mlp", "mlp --batch 8 --width 16"),
    ("vit-small", "vit-small --batch 1"),
    ("frozen-branch", "frozen-branch --batch 8 --width 16"),
    ("matmul-chain", "matmul-chain --width 16 --layers 4"),
    ("rnn", "rnn --seq 4 --batch 4 --width 16"),
    ("vit-l-16 --fused --optimizer-in-backward", None),
    ("vit-l-16 --checkpoint", None),
    ("gpt2 --dtype bf16", None),
    ("gpt2 --autocast bf16", None),
    ("tiny-nerf --checkpoint", None),
    ("fcn --variant fcn32s", None),
    ("llama-3-8b --lora 16", None),
    ("falcon-7b --lora 16", None),
    ("falcon-7b --fused", None),
]
# What is small enough for the processor: losses there and on the GPU.
LOSSES = [
    "mlp --batch 32 --width 64",
    "vit-small --batch 4",
    "frozen-branch --batch 16 --width 64",
    "matmul-chain --width 32 --layers 8",
    "rnn --seq 8 --batch 8 --width 32",
    BESIDE["vit-l-16"][1],
    BESIDE["gpt2"][1] + " --optimizer adamw",
    BESIDE["tiny-nerf"][1],
    BESIDE["fcn"][1] + " --variant no-dropout",
    "gpt2 --batch 2 --seq 32 --width 64 --layers 2 --heads 4 --vocab 100 --positions 32 --dtype bf16",
    "llama-3-8b --batch 1 --seq 16 --width 64 --layers 2 --heads 4 --key-heads 2 --hidden 96 --vocab 100 --dtype f32",
    "falcon-7b --batch 1 --seq 16 --width 64 --layers 2 --heads 4 --vocab 100 --dtype f32",
]


def about():
    facts = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "tiny": TINY}
    with open(os.path.join(HERE, "commit")) as file:
        facts["commit"] = file.read().strip()
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    words = "import sys, torch; print(torch.__version__, torch.version.cuda, 'Python', sys.version.split()[0])"
    facts |= together(
        {
            "gpu": lambda: {"text": run(query, 30)[1].strip()},
            "pytorch": lambda: {"text": run([PYTORCH, "-c", words], 90)[1].strip()},
        }
    )
    # For the log alone: what else uses the GPU, and where libraries may come from.
    attempt(lambda: run(["nvidia-smi"], 30))
    facts["libraries"] = os.environ.get("HIGHWATER_CUDA_PATH", "")
    log("\n".join(f"{name}={value}" for name, value in sorted(os.environ.items()) if re.search("CUDA|HIGHWATER|LD_|NVIDIA", name)))
    return facts


def kernels():
    there = len(glob.glob(os.path.join(os.environ.get("HIGHWATER_KERNEL_CACHE", ""), "*.cubin")))
    text = ours("compile", limit=150)[1].strip().splitlines()[-1].split(", kept in")[0]
    made = len(glob.glob(os.path.join(os.environ.get("HIGHWATER_KERNEL_CACHE", ""), "*.cubin"))) - there
    return {"text": f"{text}, {made} of them compiled here"}


def step(name):
    """The times and peaks of a training step, ours and PyTorch's, one after the other and nothing beside them."""
    command, seconds = BESIDE[name][1 if TINY else 0], "2" if TINY else "15"
    # Many short rounds: what recording costs is less than what a clock drifts by.
    measure = ["--rounds", "6", "--seconds", seconds, *command.split()]
    return {
        "ours": attempt(lambda: read_json(ours("step_time", *measure, limit=60)[1])),
        "pytorch": attempt(lambda: pytorch("step", name, "--seconds", seconds, *tiny(), limit=75)),
    }


def tiny():
    return ["--tiny"] if TINY else []


def snap(name):
    return os.path.join(WORK, re.sub(r"\W+", "-", name) + ".snap")


def record(command, device, file, steps=2, limit=45):
    # What an earlier run left there is not to be taken for this one's.
    with contextlib.suppress(FileNotFoundError):
        os.remove(file)
    words = [*command.split(), "--device", device, "--steps", str(steps), "--out", file, "--json"]
    return read_json(ours("highwater", "record", *words, limit=limit)[1])


def events():
    commands = [command[1 if TINY else 0] for command in [*BESIDE.values(), *EVENTS]]
    memory_bytes, is_exclusive = gpu_facts()
    budget = Budget(memory_bytes)
    actions = {command: lambda command=command: same_events(command, budget) for command in commands if command}
    return together(actions, workers=1 if is_exclusive else 4)


def gpu_facts():
    """Bytes of the GPU's memory, and whether only one process may use it. Without nvidia-smi, as much as there may be."""
    query = ["nvidia-smi", "--query-gpu=memory.total,compute_mode", "--format=csv,noheader,nounits"]
    answer = attempt(lambda: run(query, 30)[1].strip().splitlines()[0].split(", "))
    if fails(answer) or not answer[0].isdigit():
        return 1 << 50, False
    return int(answer[0]) << 20, answer[1] == "Exclusive_Process"


def same_events(command, budget):
    """Records on the device that counts for a GPU, which also says how much memory it needs, and on the GPU; compares."""
    files = {device: snap(f"{command} {device}") for device in ["cuda", "meta:cuda"]}
    counted = record(command, "meta:cuda", files["meta:cuda"])
    with budget.reserved(counted["peaks"]["reserved"]["bytes"] + CONTEXT_BYTES):
        record(command, "cuda", files["cuda"])
    return read_json(run([program("same_events"), *files.values()], 60, may_fail=True)[1])


def peaks():
    """Who holds memory at the peak, as recorded by us and as PyTorch's own snapshot of the same steps has it."""
    return together({name: lambda name=name: peaks_of(name) for name in BESIDE})


def peaks_of(name):
    command = BESIDE[name][1 if TINY else 0]
    ours, theirs = snap(f"{command} cuda"), os.path.join(WORK, f"{name}.pickle")
    found = {"snapshot": attempt(lambda: pytorch("snapshot", name, theirs, *tiny(), limit=60))}
    if not os.path.exists(ours):
        attempt(lambda: record(command, "cuda", ours))
    return found | {who: attempt(lambda file=file: peak(file)) for who, file in [("ours", ours), ("pytorch", theirs)]}


def peak(recording):
    """What is held at the peak of a recording, ours or PyTorch's, by category."""
    words = ["peak", recording, "--metric", "allocated", "--by", "category", "--json"]
    found = read_json(run([program("highwater"), *words], 60)[1])
    groups = {str(group["key"]): group["bytes"] for group in found["groups"]}
    return {"bytes": found["bytes"], "phase": found["phase"], "groups": groups, "rest_bytes": found["rest_bytes"]}


def losses():
    return together({command: lambda command=command: compare_losses(command) for command in LOSSES})


def compare_losses(command):
    there, here = (record(command, device, snap(f"losses {command} {device}"), steps=3)["losses"] for device in ["cpu", "cuda"])
    largest = max(abs(a - b) / max(abs(a), 1e-30) for a, b in zip(there, here, strict=True))
    return {"cpu": there, "cuda": here, "largest_relative_difference": largest}


def alloc():
    home = os.path.join(WORK, "criterion")
    shutil.rmtree(home, ignore_errors=True)
    times = ["--bench", "--noplot", "--warm-up-time", "0.5", "--measurement-time", "1"]
    found = {"run": attempt(lambda: {"status": ours("alloc", *times, limit=60, CRITERION_HOME=home)[0]}), "ours": {}}
    for path in sorted(glob.glob(os.path.join(home, "*", "*", "new", "benchmark.json"))):
        with open(path) as file, open(os.path.join(os.path.dirname(path), "estimates.json")) as estimates:
            name, figures = json.load(file), json.load(estimates)
        group = found["ours"].setdefault(name["group_id"], {})
        group[name["function_id"]] = figures["median"]["point_estimate"]
    found["pytorch"] = attempt(lambda: pytorch("alloc", limit=60))
    expandable = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    found["pytorch_expandable"] = attempt(lambda: pytorch("alloc", limit=45, **expandable))
    return found


def unchanged():
    """Programs recorded by `highwater run`: what they obtained of the driver, beside what their own allocators say."""
    mlp = ["mlp", "--device", "cuda", "--steps", "2", "--out", snap("mlp own"), "--json"]
    gpt2 = [PYTORCH, os.path.join(HERE, "pytorch.py"), "step", "gpt2", "--seconds", "2", *tiny()]
    actions = {"ours": lambda: recorded_unchanged("ours", [program("highwater"), "record", *mlp])}
    for conf in ["expandable_segments:False", "expandable_segments:True"]:
        name = f"pytorch, {conf}"
        actions[name] = lambda name=name, conf=conf: recorded_unchanged(name, gpt2, PYTORCH_CUDA_ALLOC_CONF=conf)
    return together(actions)


def recorded_unchanged(name, command, **variables):
    out = snap(f"run {name}")
    answer = read_json(ours("highwater", "run", "--driver", "--out", out, "--", *command, limit=60, **variables)[1])
    # Of PyTorch, beside the recording of its own allocator.
    beside = f"{os.path.splitext(out)[0]}.driver.snap"
    file = beside if os.path.exists(beside) else out
    if not os.path.exists(file):
        raise Failure("it called the driver for no memory that could be recorded")
    devices = read_json(run([program("highwater"), "info", file, "--json"], 30)[1])["devices"]
    device = next(device for device in devices if device["device"] == 0)
    said = answer["max_reserved_bytes"] if "max_reserved_bytes" in answer else answer["peaks"]["reserved"]["bytes"]
    calls = device["allocs"] + device["frees"]
    return {"calls": calls, "held": device["peaks"]["reserved"]["bytes"], "reserved": said}


# What is judged first comes first, and what takes what is left of the time last.
PARTS = {
    "about": about,
    "kernels": kernels,
    **{name: (lambda name=name: step(name)) for name in BESIDE},
    "tests": checks.tests,
    "events": events,
    "peaks": peaks,
    "alloc": alloc,
    "unchanged": unchanged,
    "losses": losses,
    "sanitizer": checks.sanitizer,
}


def keep_recordings():
    """Puts the recordings of the steps that stand beside PyTorch's into one archive, the smallest first, as many as fit."""
    names = [snap(f"{commands[1 if TINY else 0]} cuda") for commands in BESIDE.values()]
    names = [name for name in [*names, *glob.glob(os.path.join(WORK, "*.pickle"))] if os.path.exists(name)]
    kept = 0
    with tarfile.open(os.path.join(OUT, "recordings.tar"), "w") as archive:
        for name in sorted(names, key=os.path.getsize):
            with open(name, "rb") as file:
                packed = gzip.compress(file.read(), 6)
            kept += len(packed) + 1024
            if kept > MAX_KEPT_BYTES:
                return
            entry = tarfile.TarInfo(os.path.basename(name) + ".gz")
            entry.size = len(packed)
            archive.addfile(entry, io.BytesIO(packed))


def main():
    wanted = sys.argv[1:] or list(PARTS)
    if wanted == ["list"]:
        print("\n".join(PARTS))
        return
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        sys.exit(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    os.makedirs(WORK, exist_ok=True)
    os.makedirs(OUT, exist_ok=True)
    kept, results = os.path.join(OUT, "results.json"), {}
    if os.path.exists(kept):
        with open(kept) as file:
            results = json.load(file)
    for name in wanted:
        start = time.monotonic()
        log(f"== {name}")
        result = attempt(PARTS[name])
        results[name] = result | {"part_seconds": round(time.monotonic() - start, 1)}
        told = f"failed: {result['failed']}" if fails(result) else f"{results[name]['part_seconds']} s"
        print(f"{name}: {told}", file=sys.stderr, flush=True)
        with open(kept, "w") as file:
            json.dump(results, file, indent=1)
    text = page(results)
    with open(os.path.join(OUT, "gpu.md"), "w") as file:
        file.write(text)
    attempt(keep_recordings)
    print(text)


if __name__ == "__main__":
    main()
