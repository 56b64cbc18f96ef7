"""roundup_power2_divisions: sizes are rounded to parts of a power of two, others by size class."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "roundup_power2_divisions:[1:4,4:8,64:2,>:1]"

import torch  # noqa: E402

from saved import save  # noqa: E402

SIZES = (1, 513, 1200, 2049, 5000, 70_000, 900_001, 1_100_000, 3_000_000, 4_194_305, 9_000_000, 20_000_000, 70_000_001)
SIZES += (150_000_000, 300_000_000)

torch.cuda.memory._record_memory_history(stacks="python")
kept = []
for position, size in enumerate(SIZES):
    block = torch.empty(size, dtype=torch.uint8, device="cuda")
    if position % 3 == 0:
        kept.append(block)
del block, kept[1]
again = torch.empty(2_900_000, dtype=torch.uint8, device="cuda")
save("roundup", counted_since="start")
