"""Measures what a recording costs a training step: host time of a 12-block transformer, settings interleaved.

Run it with a PyTorch that has CUDA, or with the simulated GPU of `tests/pytorch`, whose kernels do nothing. The last column
is what a setting costs beyond PyTorch's own recorder.
"""

import os
import sys
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
SETTINGS = {
    "not recorded": None,
    "PyTorch's recorder": "recorder",
    "with modules, phases and steps": {},
    "with depth=1": {"depth": 1},
    "the first two steps": {"follows": True},
}


def main():
    model = Gpt(blocks=12, width=256, vocabulary=1000).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        model.loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

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
    main()
