"""A ring of 90 events that has lost the beginning. What is lost shows only in that frees come without allocs."""

import torch

from net import small_net, training_step
from saved import save

torch.cuda.memory._record_memory_history(stacks="python", max_entries=90)
model = small_net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    training_step(model, optimizer, torch.ones(32 + 7 * step, 300, device="cuda"))
save("ring_wrapped", packed=True)
