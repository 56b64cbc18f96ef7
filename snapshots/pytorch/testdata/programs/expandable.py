"""Expandable segments: pages are mapped as blocks need them, and unmapped by empty_cache."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch  # noqa: E402

from saved import save  # noqa: E402

MIB = 1 << 20


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


torch.cuda.memory._record_memory_history(stacks="python")
small = [empty(n) for n in (100, 700 * 1024, MIB, 900 * 1024, 40_000)]
large = [empty(n) for n in (5 * MIB, 30 * MIB + 77, 64 * MIB, 3 * MIB, 25 * MIB)]
del small[1], large[2]
torch.cuda.empty_cache()  # unmaps whole pages inside the holes
large.append(empty(70 * MIB))
large.append(empty(2 * MIB + 1))
del large[0], large[0]
save("expandable_holes", counted_since="start")
large.clear()
torch.cuda.empty_cache()
large.append(empty(45 * MIB))
with torch.cuda.stream(torch.cuda.Stream()):
    side = empty(12 * MIB)
save("expandable", counted_since="start")
