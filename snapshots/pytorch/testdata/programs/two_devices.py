"""Two devices in one process, their events in turn; needs two GPUs."""

import torch

from net import small_net, training_step
from saved import save

torch.cuda.memory._record_memory_history(stacks="python")
models = [small_net(100, 400).to(f"cuda:{device}") for device in (0, 1)]
for model, batch in zip(models, (200, 3000)):
    device = next(model.parameters()).device
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training_step(model, optimizer, torch.ones(batch, 100, device=device))
torch.empty(5_000_000, device="cuda:0")
save("two_devices", counted_since="start", packed=True)
