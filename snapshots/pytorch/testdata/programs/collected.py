"""garbage_collection_threshold: old free segments are given back before the limit is reached."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "garbage_collection_threshold:0.5"

import torch  # noqa: E402

from saved import save  # noqa: E402

MIB = 1 << 20

torch.cuda.memory._record_memory_history(stacks="python")
torch.cuda.set_per_process_memory_fraction(200 * MIB / torch.cuda.get_device_properties(0).total_memory)
for size in (24, 30, 36, 42, 48, 54):
    block = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
    del block
block = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
save("collected", counted_since="start")
