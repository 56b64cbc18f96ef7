"""The parts of run.sh: each on its own, with a time limit, so that none stops the others. Results are kept in a file after
each part; the page is made of whatever there is."""

import datetime
import glob
import json
import os
import re
import subprocess
import sys
import time

from page import page

HERE = os.path.dirname(os.path.abspath(__file__))
WORK = os.environ.get("HIGHWATER_GPU_WORK", os.path.join(HERE, "work"))
OUT = os.environ.get("OUT", os.getcwd())
TINY = os.environ.get("HIGHWATER_GPU_TINY") == "1"
DEADLINE = time.monotonic() + float(os.environ.get("HIGHWATER_GPU_SECONDS", "520"))
# Kept back for the page.
LAST_SECONDS = 5

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


class Failure(Exception):
    """Why a part has no result, in a line."""


def log(text):
    with open(os.path.join(OUT, "log.txt"), "a") as file:
        file.write(text.rstrip() + "\n")


def run(command, limit, may_fail=False, **variables):
    """Runs a command for so many seconds at most, and gives its status and both its outputs."""
    left = DEADLINE - time.monotonic() - LAST_SECONDS
    if left < 1:
        raise Failure("not run: no time was left")
    limit, start = min(limit, left), time.monotonic()
    words = " ".join(os.path.relpath(word, HERE) if word.startswith("/") else word for word in command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=os.environ | variables)
        status, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as why:
        texts = [text.decode(errors="replace") if isinstance(text, bytes) else text or "" for text in (why.stdout, why.stderr)]
        log(f"$ {words}\n" + "\n".join(texts) + f"\n[stopped after {limit:.0f} s]")
        raise Failure(f"stopped after {limit:.0f} s") from None
    except OSError as why:
        raise Failure(str(why)) from None
    log(f"$ {words}\n{out}\n{err}\n[status {status} after {time.monotonic() - start:.1f} s]")
    if status != 0 and not may_fail:
        lines = [line for line in (err or out).splitlines() if line.strip()]
        raise Failure(lines[-1][:300] if lines else f"status {status}")
    return status, out, err


def read_json(text):
    """The last line that is a JSON object."""
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return json.loads(text)


def program(name):
    return os.path.join(HERE, "bin", name)


def pytorch(*words, limit, **variables):
    # A Python of its own may hold PyTorch, where this one has none.
    python = os.environ.get("HIGHWATER_GPU_PYTORCH", sys.executable)
    return read_json(run([python, os.path.join(HERE, "pytorch.py"), *words], limit, **variables)[1])


def attempt(action):
    """What the action gives, or why it failed."""
    try:
        return action()
    except Failure as why:
        return {"failed": str(why)}
    except (KeyError, TypeError, ValueError, IndexError) as why:
        return {"failed": f"an answer that cannot be read: {why!r}"}


def about():
    facts = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "tiny": TINY}
    with open(os.path.join(HERE, "commit")) as file:
        facts["commit"] = file.read().strip()
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    facts["gpu"] = attempt(lambda: {"text": run(query, 30)[1].strip()})
    words = "import torch; print(torch.__version__, torch.version.cuda)"
    python = os.environ.get("HIGHWATER_GPU_PYTORCH", sys.executable)
    facts["pytorch"] = attempt(lambda: {"text": run([python, "-c", words], 60)[1].strip()})
    facts["libraries"] = os.environ.get("HIGHWATER_CUDA_PATH", "")
    return facts


def kernels():
    return {"text": run([program("compile")], 240)[1].strip().splitlines()[-1]}


def tests():
    found = {}
    for binary in sorted(glob.glob(os.path.join(HERE, "tests", "*"))):
        found[os.path.basename(binary)] = attempt(lambda binary=binary: test(binary))
    return found


def test(binary):
    start = time.monotonic()
    _, out, err = run([binary, "--test-threads=1", "--show-output"], 180, may_fail=True)
    counts = re.findall(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", out)
    if not counts:
        raise Failure("it ended before its tests: " + (err.strip().splitlines() or ["no words"])[-1][:200])
    failed = re.findall(r"^test (\S+) \.\.\. FAILED", out, re.M)
    passed, broken, ignored = (int(count) for count in counts[-1])
    skipped = len(re.findall(r"^skipped: ", out + err, re.M))
    seconds = round(time.monotonic() - start, 1)
    return {"passed": passed, "failed": broken, "ignored": ignored, "skipped": skipped, "names": failed, "seconds": seconds}


def snap(name):
    os.makedirs(WORK, exist_ok=True)
    return os.path.join(WORK, re.sub(r"\W+", "-", name) + ".snap")


def record(command, device, file, steps=2, limit=60):
    words = [*command.split(), "--device", device, "--steps", str(steps), "--out", file, "--json"]
    return read_json(run([program("highwater"), "record", *words], limit)[1])


def same_events(command):
    """Records on the GPU and on the device that counts for one, and compares."""
    files = {device: snap(f"{command} {device}") for device in ["cuda", "meta:cuda"]}
    for device, file in files.items():
        if record(command, device, file)["oom"]:
            raise Failure(f"out of memory on {device}")
    return read_json(run([program("same_events"), *files.values()], 60, may_fail=True)[1])


def beside(name):
    command = BESIDE[name][1 if TINY else 0]
    seconds = "2" if TINY else "15"
    recordings = {"ours": snap(f"{command} cuda"), "pytorch": os.path.join(WORK, f"{name}.pickle")}
    tiny = ["--tiny"] if TINY else []
    found = {"events": attempt(lambda: same_events(command))}
    ours = [program("step_time"), "--seconds", seconds, *command.split()]
    found["ours"] = attempt(lambda: read_json(run(ours, 90)[1]))
    found["pytorch"] = attempt(lambda: pytorch("step", name, "--seconds", seconds, *tiny, limit=90))
    found["snapshot"] = attempt(lambda: pytorch("snapshot", name, recordings["pytorch"], *tiny, limit=60))
    found["peaks"] = {of: attempt(lambda recording=recording: peak(recording)) for of, recording in recordings.items()}
    return found


def peak(recording):
    """What is held at the peak of a recording, ours or PyTorch's, by category."""
    words = ["peak", recording, "--metric", "allocated", "--by", "category", "--json"]
    found = read_json(run([program("highwater"), *words], 60)[1])
    groups = {str(group["key"]): group["bytes"] for group in found["groups"]}
    return {"bytes": found["bytes"], "phase": found["phase"], "groups": groups, "rest_bytes": found["rest_bytes"]}


def events():
    commands = [command[1 if TINY else 0] for command in EVENTS]
    return {command: attempt(lambda command=command: same_events(command)) for command in commands if command}


def losses():
    return {command: attempt(lambda command=command: compare_losses(command)) for command in LOSSES}


def compare_losses(command):
    there, here = (record(command, device, snap("losses"), steps=3)["losses"] for device in ["cpu", "cuda"])
    largest = max(abs(a - b) / max(abs(a), 1e-30) for a, b in zip(there, here, strict=True))
    return {"cpu": there, "cuda": here, "largest_relative_difference": largest}


def alloc():
    home = os.path.join(WORK, "criterion")
    times = ["--bench", "--noplot", "--warm-up-time", "0.5", "--measurement-time", "1"]
    found = {"run": attempt(lambda: {"seconds": run([program("alloc"), *times], 90, CRITERION_HOME=home)[0]})}
    found["ours"] = {}
    for path in sorted(glob.glob(os.path.join(home, "*", "*", "new", "benchmark.json"))):
        with open(path) as file, open(os.path.join(os.path.dirname(path), "estimates.json")) as estimates:
            name, figures = json.load(file), json.load(estimates)
        group = found["ours"].setdefault(name["group_id"], {})
        group[name["function_id"]] = figures["median"]["point_estimate"]
    found["pytorch"] = attempt(lambda: pytorch("alloc", limit=90))
    expandable = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    found["pytorch_expandable"] = attempt(lambda: pytorch("alloc", limit=60, **expandable))
    return found


def unchanged():
    """Programs recorded by `highwater run`: what they obtained of the driver, beside what their own allocators say."""
    step = ["mlp", "--device", "cuda", "--steps", "2", "--out", snap("mlp own"), "--json"]
    found = {"ours": attempt(lambda: recorded_unchanged("ours", [program("highwater"), "record", *step]))}
    found["ours"]["reserved"] = found["ours"].pop("answer", {}).get("peaks", {}).get("reserved", {}).get("bytes")
    python = os.environ.get("HIGHWATER_GPU_PYTORCH", sys.executable)
    tiny = ["--tiny"] if TINY else []
    step = [python, os.path.join(HERE, "pytorch.py"), "step", "gpt2", "--seconds", "2", *tiny]
    for conf in ["expandable_segments:False", "expandable_segments:True"]:
        name = f"pytorch, {conf}"
        found[name] = attempt(lambda: recorded_unchanged(name, step, PYTORCH_CUDA_ALLOC_CONF=conf))
        found[name]["reserved"] = found[name].pop("answer", {}).get("max_reserved_bytes")
    return found


def recorded_unchanged(name, command, **variables):
    file = snap(f"run {name}")
    answer = read_json(run([program("highwater"), "run", "--out", file, "--", *command], 90, **variables)[1])
    devices = read_json(run([program("highwater"), "info", file, "--json"], 30)[1])["devices"]
    device = next(device for device in devices if device["device"] == 0)
    calls = device["allocs"] + device["frees"]
    return {"answer": answer, "calls": calls, "held": device["peaks"]["reserved"]["bytes"]}


PARTS = {
    "about": about,
    "kernels": kernels,
    "tests": tests,
    **{name: (lambda name=name: beside(name)) for name in BESIDE},
    "losses": losses,
    "unchanged": unchanged,
    "alloc": alloc,
    "events": events,
}


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
        print(f"{name}: {results[name]['part_seconds']} s", file=sys.stderr, flush=True)
        with open(kept, "w") as file:
            json.dump(results, file, indent=1)
    text = page(results)
    with open(os.path.join(OUT, "gpu.md"), "w") as file:
        file.write(text)
    print(text)


if __name__ == "__main__":
    main()
