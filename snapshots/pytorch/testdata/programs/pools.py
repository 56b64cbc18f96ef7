"""Private pools: a MemPool of the program's own, and the pool of a captured graph."""

import torch

from saved import save

torch.cuda.memory._record_memory_history(stacks="python")
outside = torch.empty(400_000, device="cuda")
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = [torch.empty(n, device="cuda") for n in (10, 700_000, 3_000_000)]
    del inside[1]
del inside[0]
static = torch.ones(250_000, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    middle = static * 2
    result = middle + static
    del middle
later = torch.empty(600_000, device="cuda")
graph.replay()
save("pools", counted_since="start")
