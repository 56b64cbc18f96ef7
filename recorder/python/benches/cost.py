"""Measures what a recording costs a training step: host time of a 12-block transformer, settings interleaved.

Run it with a PyTorch that has CUDA, or with the simulated GPU of `tests/pytorch`, whose kernels do nothing. The last
column is what a setting costs beyond PyTorch's own recorder.

`cost.py run [PAIRS]` compares `highwater run`, with the `highwater` of the path, with two lines in the program, and the
import of PyTorch with and without it, in alternating pairs of processes.
"""

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

from highwater import _tags  # noqa: E402
from highwater._names import ModuleNames  # noqa: E402
from highwater._tags import Tags  # noqa: E402
from highwater._tracker import Tracker  # noqa: E402

ROUNDS, STEPS = 12, 4
# Steps of a process that is compared with another one, after those whose references are followed.
WARMUP_STEPS, MEASURED_STEPS = 6, 24
IMPORT = "import time, torch; print(time.process_time())"
SETTINGS = {
    "not recorded": None,
    "PyTorch's recorder": "recorder",
    "with modules, phases and steps": {},
    "with depth=1": {"depth": 1},
    "the first two steps": {"follows": True},
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


def train():
    """Prints the median time of the process in a step."""
    step, _ = make_step()
    times = []
    for _ in range(WARMUP_STEPS + MEASURED_STEPS):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    print(statistics.median(times[WARMUP_STEPS:]))


def compare(name, pairs, plain, other):
    """Runs two commands in turn, each of which prints a time, and prints the medians, and by how much the second differs."""
    times = [[], []]
    for pair in range(pairs):
        # Neither is always first.
        for which in (0, 1) if pair % 2 else (1, 0):
            words = (plain, other)[which]
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
            times[which].append(float(done.stdout) * 1e3)
    differences = sorted(second - first for first, second in zip(*times))
    middle = differences[pairs // 4], differences[-1 - pairs // 4]
    columns = [statistics.median(each) for each in times] + [statistics.median(differences), *middle]
    columns += [min(times[1]) - min(times[0])]
    print(f"{name:32}" + "{:10.2f}{:10.2f}{:+10.2f}{:+10.2f} to{:+7.2f}{:+10.2f}".format(*columns), flush=True)


def main_of_run(pairs):
    here, python = os.path.abspath(__file__), [sys.executable, "-W", "ignore"]
    run = ["highwater", "run", "--quiet", "--", *python]
    print(f"PyTorch {torch.__version__}, processor time in milliseconds, {pairs} alternating pairs of processes")
    print(f"{'':32}   without       run differences within pairs       of the least")
    compare("start and import torch", pairs, [*python, "-c", IMPORT], [*run, "-c", IMPORT])
    compare("step, without: two lines", pairs, [*python, here, "lines"], [*run, here, "train"])


def main():
    step, model = make_step()

    def seconds(setting):
        """The least time of the process in a step."""
        tracker = None
        setting = dict(setting) if isinstance(setting, dict) else setting
        follows = isinstance(setting, dict) and setting.pop("follows", False)
        if setting is not None:
            torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=100_000)
        if isinstance(setting, dict):
            tracker = Tracker(Tags(_tags.kind()), ModuleNames(model, **setting), lambda step: None)
            tracker.start()
        step()
        least = float("inf")
        for _ in range(STEPS):
            if follows:
                # As in the first steps of a recording.
                tracker.references._steps = 0
                tracker.references.begin_step(True)
            start = time.process_time()
            step()
            least = min(least, time.process_time() - start)
        if tracker is not None:
            tracker.stop()
        torch.cuda.memory._record_memory_history(None)
        return least

    for _ in range(5):
        step()
    times = {name: [] for name in SETTINGS}
    for _ in range(ROUNDS):
        for name, setting in SETTINGS.items():
            times[name].append(seconds(setting))
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
        import highwater

        with highwater.record_memory_history("lines.snap"):
            train()
    else:
        main()
