"""Out of memory: caches are given back, the request fails, the program goes on; and a snapshot taken as it fails."""

import torch

from saved import save

MIB = 1 << 20


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def snapshot_at_failure(device, size, total, free):
    save("oom_observed", counted_since="start")


torch.cuda.memory._record_memory_history(stacks="python")
torch.cuda.set_per_process_memory_fraction(110 * MIB / torch.cuda.get_device_properties(0).total_memory)
kept = [empty(30 * MIB), empty(2 * MIB), empty(700)]
cached = empty(25 * MIB)
del cached
kept.append(empty(50 * MIB))  # fits once the cache is given back
torch._C._cuda_attach_out_of_memory_observer(snapshot_at_failure)
try:
    kept.append(empty(40 * MIB))
except torch.OutOfMemoryError:
    del kept[0]
kept.append(empty(12 * MIB))
save("oom", counted_since="start")
