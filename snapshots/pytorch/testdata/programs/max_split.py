"""max_split_size_mb: blocks above it are never split, and are given back one by one when memory is short."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:32"

import torch  # noqa: E402

from saved import save  # noqa: E402

MIB = 1 << 20


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


torch.cuda.memory._record_memory_history(stacks="python")
torch.cuda.set_per_process_memory_fraction(400 * MIB / torch.cuda.get_device_properties(0).total_memory)
blocks = [empty(n * MIB + 5) for n in (100, 60, 20, 33)]
del blocks[0]
blocks.append(empty(90 * MIB))  # takes the whole block of 100 MiB and more: rounding loss is 12 MiB
del blocks[0]
blocks.append(empty(8 * MIB))  # not from the free 62 MiB: too large a block for so little
blocks.append(empty(31 * MIB))
del blocks[2]
blocks.append(empty(190 * MIB))  # gives oversize blocks back first
del blocks[0], blocks[-1]
blocks.append(empty(175 * MIB))
save("max_split", counted_since="start")
