"""Blocks of all sizes come and go at random, on two streams, in and out of a pool, under several allocator settings."""

import os
import random
import subprocess
import sys

SETTINGS = {
    "default": "",
    "expandable": "expandable_segments:True",
    "limits": "max_split_size_mb:24,roundup_power2_divisions:8",
}
if len(sys.argv) < 3:
    for name in SETTINGS:
        subprocess.run([sys.executable, __file__, *sys.argv[1:2], name], check=True)
    sys.exit()
NAME = sys.argv[2]
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[NAME]

import torch  # noqa: E402

from saved import save  # noqa: E402

numbers = random.Random(NAME)


def empty():
    size = int(2 ** numbers.uniform(4, 26))
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def walk(steps):
    side = torch.cuda.Stream()
    pool = torch.cuda.MemPool()
    alive = []
    for _ in range(steps):
        kind = numbers.random()
        if kind < 0.48 or not alive:
            alive.append(empty())
        elif kind < 0.56:
            with torch.cuda.stream(side):
                alive.append(empty())
        elif kind < 0.62:
            with torch.cuda.use_mem_pool(pool):
                alive.append(empty())
        elif kind < 0.70:
            numbers.choice(alive).record_stream(side)
        elif kind < 0.97:
            del alive[numbers.randrange(len(alive))]
        else:
            torch.cuda.empty_cache()
    return alive, pool


torch.cuda.memory._record_memory_history(stacks="python")
kept = walk(300)
save(f"random_{NAME}", counted_since="start", packed=True)
