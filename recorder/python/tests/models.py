"""Small models, and the truth about which module allocates."""

import types

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        query, key, value = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
        weights = self.drop((query @ key.transpose(-2, -1)).softmax(-1))
        return self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Gpt(nn.Module):
    """A transformer; `reentrant` selects activation checkpointing, None none."""

    def __init__(self, blocks=3, width=64, vocabulary=500, reentrant=None):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(blocks))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.reentrant = reentrant

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)

    def loss(self):
        tokens = torch.zeros(2, 32, dtype=torch.long, device="cuda")
        return F.cross_entropy(self(tokens).flatten(0, 1), tokens.flatten())


class Shared(nn.Module):
    """Modules under two names, called several times; a weight of two modules; an operation in place."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"first": nn.Linear(64, 64), "second": nn.Sequential(nn.Linear(64, 64), nn.GELU())})
        self.again = self.parts["second"]
        self.embedding = nn.Embedding(10, 64)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(64, 10)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.relu(self.parts["first"](self.embedding(tokens)))
        x = self.again(x) + self.parts["second"](x)
        return self.head(2 * (x + self.again[0](x).relu()))

    def loss(self):
        tokens = torch.zeros(16, dtype=torch.long, device="cuda")
        return F.cross_entropy(self(tokens), tokens)


def name_code(model, prefix=""):
    """Gives the forward of each module a code object with the path of the module as its name.

    Python's stacks then name the module in forward, and anomaly mode's forward stacks name it in backward.
    """
    for path, module in model.named_modules(prefix=prefix):
        forward = type(module).forward
        if forward.__name__ == "_forward_unimplemented":
            continue
        code = forward.__code__.replace(co_name=f"MODULE|{path or type(module).__name__}")
        named = types.FunctionType(
            code, forward.__globals__, forward.__name__, forward.__defaults__, forward.__closure__
        )
        named.__kwdefaults__ = forward.__kwdefaults__
        module.forward = types.MethodType(named, module)
