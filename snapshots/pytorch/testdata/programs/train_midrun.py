"""Recording begins in the middle of a run: blocks of the first step are freed before the first alloc is seen."""

import torch

from net import small_net
from saved import save

model = small_net(500, 3000).cuda()
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.ones(96, 500, device="cuda")
kept = [torch.empty(n, device="cuda") for n in (700, 300_000, 3_000_000, 1_100_000, 5)]
model(batch).sum().backward()
optimizer.step()
loss = model(batch).square().mean()

torch.cuda.memory._record_memory_history(stacks="python")
torch.cuda.reset_peak_memory_stats()
optimizer.zero_grad()
del kept[2], kept[1]
loss.backward()
optimizer.step()
del loss, kept[0]
more = torch.empty(2_500_000, device="cuda")
save("train_midrun", counted_since="reset", packed=True)
