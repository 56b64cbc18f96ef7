"""Net: a small model and one training step, for the programs beside."""

import torch
from torch import nn


def small_net(width=300, hidden=900):
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


def training_step(model, optimizer, batch):
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
