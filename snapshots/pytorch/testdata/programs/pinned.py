"""Pinned host memory beside the device's."""

import torch

from saved import save

torch.cuda.memory._record_memory_history(stacks="python", record_pinned_host_memory=True)
host = [torch.empty(n, pin_memory=True) for n in (100, 5_000, 300_000)]
device = [batch.to("cuda", non_blocking=True) for batch in host]
del host[0], host[1]
host.append(torch.empty(4_000, pin_memory=True))
del device[0]
save("pinned", counted_since="start")
