"""How much is recorded: no stacks, stacks of what is alive, stacks of allocs; and only what is alive."""

import torch

from saved import save

KINDS = {
    "context_none": {"context": None},
    "context_state": {"context": "state"},
    "context_alloc": {"context": "alloc"},
    "enabled_state": {"enabled": "state"},
}
for name, options in KINDS.items():
    torch.cuda.memory._record_memory_history(**{"enabled": "all", "stacks": "python", **options})
    blocks = [torch.empty(n, device="cuda") for n in (1000, 600_000, 30)]
    del blocks[0]
    blocks.append(torch.empty(800_000, device="cuda"))
    save(name, counted_since="start" if name != "enabled_state" else None)
    blocks.clear()
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
