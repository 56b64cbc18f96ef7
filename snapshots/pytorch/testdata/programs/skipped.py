"""skip_actions: kinds of events that are not kept."""

import torch

from saved import save


def program():
    blocks = [torch.empty(n * 90_000, device="cuda") for n in (1, 7, 20, 2)]
    del blocks[1]
    blocks.append(torch.empty(500_000, device="cuda"))
    blocks.append(torch.empty(7_000_000, device="cuda"))
    del blocks[-1]
    torch.cuda.empty_cache()


torch.cuda.memory._record_memory_history(stacks="python", skip_actions=["free_completed", "snapshot"])
program()
save("skipped_completions", counted_since="start")
torch.cuda.memory._record_memory_history(None)
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
torch.cuda.memory._record_memory_history(
    stacks="python", skip_actions=["segment_alloc", "segment_free", "segment_map", "segment_unmap"]
)
program()
save("skipped_segments")
