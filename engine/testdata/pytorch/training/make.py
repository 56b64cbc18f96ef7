"""Trains small networks with PyTorch on a processor and writes the loss of every step: losses.json.

    python make.py

Made with PyTorch 2.15.0. `engine/tests/beside_pytorch/training.rs` trains the same networks from the same numbers:
parameter number i, counted through the model in order, is 0.15 c(i), or 1 + 0.1 c(i) in a norm's weight; a number of an
input image is c(i) and half the image's label, with i counted from 1,000,000 on through the three batches that take
turns. c(i) is below, in `chance`.

losses.json: by network and type, the loss of each step before its update.
"""

import json
import math
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
TEXT = (HERE / "text.txt").read_bytes()

torch.set_num_threads(1)


def chance(i):
    """A number from -1 up to but not including 1, the same wherever whole numbers are."""
    mixed = i * 2654435761 % 2**32
    mixed ^= mixed >> 15
    mixed = mixed * 2246822519 % 2**32
    mixed ^= mixed >> 13
    return mixed / 2**31 - 1


def fill(model, dtype):
    first = 0
    for name, parameter in model.named_parameters():
        numbers = [chance(i) for i in range(first, first + parameter.numel())]
        numbers = [1 + 0.1 * x if "norm" in name and name.endswith("weight") else 0.15 * x for x in numbers]
        parameter.data = torch.tensor(numbers, dtype=torch.float64).reshape(parameter.shape).to(dtype)
        first += parameter.numel()
    return model


LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY, BATCH = 24, 32, 4, 2, 128, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def gpt(dtype):
    model = fill(Gpt(), dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for step in range(30):
        starts = [(step * BATCH + row) * 37 % (len(TEXT) - LENGTH - 1) for row in range(BATCH)]
        windows = torch.tensor([list(TEXT[start : start + LENGTH + 1]) for start in starts])
        loss = F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def convolutions(dtype):
    model = fill(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)), dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    shape = (10, 3, 7, 8)
    for step in range(30):
        first = 1_000_000 + step % 3 * math.prod(shape)
        images = torch.tensor([chance(i) for i in range(first, first + math.prod(shape))], dtype=torch.float64).reshape(shape)
        labels = torch.arange(10) % 5
        loss = F.cross_entropy(model((images + labels.reshape(10, 1, 1, 1) / 2).to(dtype)), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


networks = {"gpt": gpt, "convolutions": convolutions}
losses = {name: {"f64": list(train(torch.float64)), "f32": list(train(torch.float32))} for name, train in networks.items()}
(HERE / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")
