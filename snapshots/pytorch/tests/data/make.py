"""Makes `tagged-VERSION.pickle.gz` here: two steps of a small transformer, recorded by the Python package.

Run it with PyTorch 2.15 (tags as metadata) and 2.6 (tags as annotations), on a GPU or with `tests/pytorch`.
"""

import gzip
import os
import pickle
import sys
import tempfile

import torch

here = os.path.dirname(os.path.abspath(__file__))
package = os.path.join(here, "../../../../recorder/python")
sys.path[:0] = [package, os.path.join(package, "tests")]

import highwater  # noqa: E402
from models import Gpt  # noqa: E402

with tempfile.TemporaryDirectory() as folder:
    with highwater.record_memory_history(os.path.join(folder, "step.snap"), convert=False) as run:
        model = Gpt(blocks=1, width=256, vocabulary=2000, reentrant=False).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model.loss().backward()
            optimizer.step()
            optimizer.zero_grad()
    with open(run.path, "rb") as source:
        snapshot = pickle.load(source)

# Where the machine keeps its files is of no interest.
root = os.path.abspath(os.path.join(package, "../.."))


def without_folders(path):
    return os.path.abspath(path).replace(root, "/highwater").replace(sys.prefix, "/venv") if "/" in path else path


for events in snapshot["device_traces"]:
    for event in events:
        for frame in event.get("frames", []):
            frame["filename"] = without_folders(frame["filename"])
for segment in snapshot["segments"]:
    for frame in segment.get("frames", []) + [frame for block in segment["blocks"] for frame in block.get("frames", [])]:
        frame["filename"] = without_folders(frame["filename"])
snapshot["highwater_run"].update(host="host", pid=1, program="make.py")

release = ".".join(torch.__version__.split(".")[:2])
with gzip.GzipFile(os.path.join(here, f"tagged-{release}.pickle.gz"), "wb", mtime=0) as out:
    pickle.dump(snapshot, out, protocol=4)
print(release, "peak", torch.cuda.max_memory_allocated(), "end", torch.cuda.memory_allocated())
