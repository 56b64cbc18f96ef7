"""Blocks of one stream used on another: freed, but active until the other stream is known to be done."""

import torch

from saved import save

torch.cuda.memory._record_memory_history(stacks="python")
side = torch.cuda.Stream()
batches = [torch.empty(n * 100_000, device="cuda") for n in (3, 5, 8, 13)]
for batch in batches:
    batch.record_stream(side)
with torch.cuda.stream(side):
    results = [batch * 2 for batch in batches]
del batch, batches  # waits for the side stream: active, no longer allocated
waiting = torch.cuda.memory_stats()
assert waiting["active_bytes.all.current"] > waiting["allocated_bytes.all.current"]
torch.cuda.memory._snapshot()  # an event of its own, between the request and the completion
first = torch.empty(900_000, device="cuda")  # completes them
del results[1]
with torch.cuda.stream(side):
    last = torch.empty(20_000, device="cuda")
last.record_stream(torch.cuda.default_stream())
first.record_stream(side)
del first, last  # still waiting when the snapshot is taken
save("two_streams", counted_since="start")
