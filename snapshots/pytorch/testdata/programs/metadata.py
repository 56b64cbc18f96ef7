"""What programs say of single blocks and events: metadata and annotated tensors."""

import torch

from saved import save

torch.cuda.memory._record_memory_history(stacks="python")
torch.cuda.memory._set_memory_metadata("loading")
weights = torch.empty(500_000, device="cuda")
torch.cuda.memory._set_memory_metadata({"layer": 3, "owner": "rotary \"cache\" ☂"})
cache = torch.empty(10_000, device="cuda")
torch.cuda.memory._set_memory_metadata("")
torch.cuda.memory._annotate_tensor(weights, "the weights, at last")
later = torch.empty(70_000, device="cuda")
del cache
torch.cuda.memory._annotate_tensor(later, "")
del later
save("metadata", counted_since="start")
