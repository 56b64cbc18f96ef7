"""Records a loop of accelerate.

`accelerate launch accelerate_loop.py`, then `highwater peak loop.snap --by scope,phase`.
"""

import torch
from accelerate import Accelerator

import highwater

accelerator = Accelerator()
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))

with highwater.record_memory_history("loop.snap", model=accelerator.unwrap_model(model)):
    for _ in range(3):
        batch = torch.randn(64, 1024, device=accelerator.device)
        loss = torch.nn.functional.mse_loss(model(batch), batch)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
