"""Measures what a recording costs a training step: host time of a 12-block transformer, settings interleaved.

Run it with a PyTorch that has CUDA, or with the simulated GPU of `tests/pytorch`, whose kernels do nothing. The last
column is what a setting costs beyond PyTorch's own recorder.

`cost.py run [PAIRS]` compares `highwater run`, with the `highwater` of the path, with two lines in the program, and the
import of PyTorch with and without it, in alternating pairs of processes.
"""

import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(here), os.path.join(os.path.dirname(here), "tests")]

from models import Gpt  # noqa: E402

import highwater  # noqa: E402
from highwater import _tags  # noqa: E402
from highwater._names import ModuleNames  # noqa: E402
from highwater._program import ProgramRecording  # noqa: E402
from highwater._references import MAX_STEPS  # noqa: E402
from highwater._tags import Tags  # noqa: E402
from highwater._tracker import Tracker  # noqa: E402

ROUNDS, STEPS = 12, 4
# Steps of a process that is compared with another one, after those whose references are followed.
WARMUP_STEPS, MEASURED_STEPS = 6, 40
IMPORT = "import time, torch; print(time.process_time())"
SETTINGS = {
    "not recorded": None,
    "PyTorch's recorder": "recorder",
    "with modules, phases and steps": {},
    "with depth=1": {"depth": 1},
    "the first two steps": {"follows": (True, True, False)},
    "other steps with shapes=True": {"follows": (True, False, True)},
    "two lines of Python": "lines",
    "as highwater run does": "run",
}


def make_step():
    """Returns a function that trains for a step, and the model."""
    model = Gpt(blocks=12, width=256, vocabulary=1000).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        model.loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step, model


def begin(setting):
    """Begins a recording as a program does, or as is done from outside of it; returns what ends it without a file."""
    if setting == "lines":
        recording = highwater.record_memory_history("cost.snap")
        recording.__enter__()
        return recording._discard
    recording = ProgramRecording("cost.snap")
    recording.gives_hints, recording.is_for_oom = False, True
    recording.begin()
    return recording.finish


def train():
    """Prints the least time of the process in a step."""
    step, _ = make_step()
    times = []
    for _ in range(WARMUP_STEPS + MEASURED_STEPS):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    print(min(times[WARMUP_STEPS:]))


def seconds(setting, step, model, steps=STEPS):
    """The least time of the process in a step."""
    tracker = None
    setting = dict(setting) if isinstance(setting, dict) else setting
    follows = isinstance(setting, dict) and setting.pop("follows", None)
    end = begin(setting) if setting in ("lines", "run") else None
    if setting == "recorder" or isinstance(setting, dict):
        torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=100_000)
    if isinstance(setting, dict):
        tracker = Tracker(Tags(_tags.kind()), ModuleNames([("", model)], **setting), lambda step: None)
        tracker.start()
    # Those of a recording whose references are followed, and one more.
    for _ in range(1 if end is None else MAX_STEPS + 1):
        step()
    least = float("inf")
    for _ in range(steps):
        if follows:
            # As in the first steps of a recording, or in others.
            tracker.references._steps = 0
            tracker.references.begin_step(*follows)
        start = time.process_time()
        step()
        least = min(least, time.process_time() - start)
    if tracker is not None:
        tracker.stop()
    if end is not None:
        end()
    torch.cuda.memory._record_memory_history(None)
    return least


def compare(name, pairs, first, second):
    """Calls two functions in turn, which return seconds; prints their medians and the differences."""
    times = [[], []]
    for pair in range(pairs):
        # Neither is always the first.
        for which in (0, 1) if pair % 2 else (1, 0):
            times[which].append((first, second)[which]() * 1e3)
    differences = sorted(after - before for before, after in zip(*times))
    middle = differences[pairs // 4], differences[-1 - pairs // 4]
    columns = [*map(statistics.median, times), statistics.median(differences), *middle]
    print(f"{name:40}" + "{:10.2f}{:10.2f}{:+10.2f}{:+10.2f} to{:+7.2f}".format(*columns), flush=True)


def main_of_run(pairs):
    def process(*words):
        def seconds_of_process():
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
            return float(done.stdout)

        return seconds_of_process

    here, python = os.path.abspath(__file__), [sys.executable, "-W", "ignore"]
    run = ["highwater", "run", "--quiet", "--", *python]
    print(f"PyTorch {torch.__version__}, processor time in milliseconds, medians of alternating pairs")
    print(f"{'':40}   without       run     difference and its middle half")
    step, model = make_step()
    step()
    lines, outside = (functools.partial(seconds, setting, step, model, 12) for setting in ("lines", "run"))
    compare(f"step; two lines; {4 * pairs} pairs in one process", 4 * pairs, lines, outside)
    alone, under_run = process(*python, "-c", IMPORT), process(*run, "-c", IMPORT)
    compare(f"start and import torch; {pairs} of processes", pairs, alone, under_run)
    lines, under_run = process(*python, here, "lines"), process(*run, here, "train")
    compare(f"step; two lines; {pairs} of processes", pairs, lines, under_run)


def main():
    step, model = make_step()
    for _ in range(5):
        step()
    times = {name: [] for name in SETTINGS}
    for _ in range(ROUNDS):
        for name, setting in SETTINGS.items():
            times[name].append(seconds(setting, step, model))
    base = min(times["PyTorch's recorder"])
    print(f"PyTorch {torch.__version__}, {len(list(model.modules()))} modules, milliseconds of a step")
    for name, measured in times.items():
        least = min(measured)
        print(f"{name:32}{least * 1e3:8.2f}{(least - base) * 1e3:+8.2f} over PyTorch's recorder")


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["run"]:
        main_of_run(int((words[1:] or ["10"])[0]))
    elif words == ["train"]:
        train()
    elif words == ["lines"]:
        with highwater.record_memory_history("lines.snap"):
            train()
    else:
        main()
