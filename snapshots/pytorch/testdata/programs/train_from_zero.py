"""Two training steps, recorded from before the first allocation."""

import torch

from net import small_net, training_step
from saved import save

torch.cuda.memory._record_memory_history(stacks="python")
model = small_net().cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    training_step(model, optimizer, torch.ones(64, 300, device="cuda"))
save("train_from_zero", counted_since="start", packed=True)
