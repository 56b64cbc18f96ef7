"""A training loop that keeps the validation loss of every step, and with it the activations of its graph."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(1024, 4096)
        self.out = nn.Linear(4096, 1024)

    def forward(self, x):
        return self.out(self.hidden(x).relu())


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for _ in range(8):
    batch = torch.randn(2048, 1024, device="cuda")
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

    held_out = torch.randn(2048, 1024, device="cuda")
    losses.append((model(held_out) - held_out).square().mean())
