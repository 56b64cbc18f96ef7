"""empty_cache gives whole free segments back; those with a block in use stay."""

import torch

from saved import save

torch.cuda.memory._record_memory_history(stacks="python")
blocks = [torch.empty(n * 1000, device="cuda") for n in (1, 200, 600, 3000, 4000, 9000, 30)]
del blocks[2:6]
torch.cuda.empty_cache()
blocks.append(torch.empty(7_000_000, device="cuda"))
blocks.append(torch.empty(100_000, device="cuda"))
del blocks[0], blocks[0]
torch.cuda.empty_cache()
save("empty_cache", counted_since="start")
