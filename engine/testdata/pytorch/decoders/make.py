"""Writes what PyTorch computes for decoders and their operations, as text that ours are tested against.

    python make.py      writes operations.txt, gpt2.txt, falcon.txt, llama.txt and llama_lora.txt

The files beside this script were made with PyTorch 2.15.0, on the processor.

operations.txt: blocks of `case NAME`, `input` (one or more), `result`, and a `grad` for each input, where the result's
gradient is ((7 i) mod 5 - 2) / 2 at element i: each a shape in brackets and its numbers.
The others: `losses adamw-decay ...`: the loss of each step; `grad PATH SUM WEIGHTED`: the gradient of the first step, its
sum and the sum of each number times the cosine of its position; frozen parameters have none. Numbers are not drawn but
computed from their position: parameter number i, counted through the model in order, is 0.3 sin(0.7 i + 1); token number
i of the input is (5 i + i²) mod the vocabulary, and its label is (3 i + 1) mod that.
"""

import math
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_dtype(torch.float64)


def lines_to(name, lines):
    pathlib.Path(__file__).with_name(name).write_text("".join(line + "\n" for line in lines))


def numbers(values):
    return " ".join(repr(float(value)) for value in values)


def fill(model):
    first = 0
    for parameter in model.parameters():
        values = [0.3 * math.sin(0.7 * i + 1) for i in range(first, first + parameter.numel())]
        parameter.data = torch.tensor(values).reshape(parameter.shape)
        first += parameter.numel()
    return model


def turned(x, base, first=0):
    """Rotary embedding of [batch, heads, length, width], written out with a matrix for each pair."""
    length, width = x.shape[-2:]
    angles = torch.arange(first, first + length)[:, None] * base ** (-torch.arange(0, width, 2) / width)
    a, b = x[..., : width // 2], x[..., width // 2 :]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Lora(nn.Module):
    def __init__(self, inputs, outputs, rank, scale):
        super().__init__()
        self.base_layer = nn.Linear(inputs, outputs, bias=False)
        self.lora_A = nn.Linear(inputs, rank, bias=False)
        self.lora_B = nn.Linear(rank, outputs, bias=False)
        self.scale = scale

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scale


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).split(width, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.attn["c_proj"](mixed)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class Gpt2(nn.Module):
    def __init__(self, vocabulary, positions, width, heads, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList(Gpt2Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


class FalconBlock(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.input_layernorm = nn.LayerNorm(width)
        packed = width // heads * (heads + 2)
        self.self_attention = nn.ModuleDict({"query_key_value": linear(width, packed), "dense": linear(width, width)})
        self.mlp = nn.ModuleDict({"dense_h_to_4h": linear(width, hidden), "dense_4h_to_h": linear(hidden, width)})
        self.heads = heads

    def forward(self, x):
        batch, length, _ = x.shape
        normed = self.input_layernorm(x)
        packed = self.self_attention["query_key_value"](normed).view(batch, length, self.heads + 2, -1).transpose(1, 2)
        q, k, v = packed.split([self.heads, 1, 1], 1)
        q, k = turned(q, 10000.0), turned(k, 10000.0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).reshape(x.shape)
        bent = self.mlp["dense_4h_to_h"](F.gelu(self.mlp["dense_h_to_4h"](normed)))
        return x + (bent + self.self_attention["dense"](mixed))


class Falcon(nn.Module):
    def __init__(self, vocabulary, width, heads, hidden, layers):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width)
        self.h = nn.ModuleList(FalconBlock(width, heads, hidden) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.word_embeddings(tokens)
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.word_embeddings.weight.T


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, key_heads, hidden, base, lora):
        super().__init__()
        keys = width // heads * key_heads

        def linear(name, inputs, outputs):
            return Lora(inputs, outputs, 2, 1.5) if name in lora else nn.Linear(inputs, outputs, bias=False)

        self.input_layernorm = nn.RMSNorm(width, eps=1e-5)
        sizes = {"q_proj": [width, width], "k_proj": [width, keys], "v_proj": [width, keys], "o_proj": [width, width]}
        self.self_attn = nn.ModuleDict({name: linear(name, *size) for name, size in sizes.items()})
        self.post_attention_layernorm = nn.RMSNorm(width, eps=1e-5)
        sizes = {"gate_proj": [width, hidden], "up_proj": [width, hidden], "down_proj": [hidden, width]}
        self.mlp = nn.ModuleDict({name: linear(name, *size) for name, size in sizes.items()})
        self.head_width, self.base = width // heads, base

    def forward(self, x):
        batch, length, _ = x.shape
        normed = self.input_layernorm(x)
        by_head = lambda name: self.self_attn[name](normed).view(batch, length, -1, self.head_width).transpose(1, 2)
        q, k, v = turned(by_head("q_proj"), self.base), turned(by_head("k_proj"), self.base), by_head("v_proj")
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).reshape(x.shape)
        x = x + self.self_attn["o_proj"](mixed)
        normed = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](normed)) * self.mlp["up_proj"](normed))


class Llama(nn.Module):
    def __init__(self, vocabulary, width, heads, key_heads, hidden, base, layers, lora=()):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, key_heads, hidden, base, lora) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        if lora:
            for path, parameter in self.named_parameters():
                parameter.requires_grad_("lora_" in path)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for block in self.layers:
            x = block(x)
        return self.lm_head(self.norm(x))


VOCABULARY = 11


def training(name, make):
    batch, length = 2, 5
    place = torch.arange(batch * length)
    tokens = ((5 * place + place * place) % VOCABULARY).reshape(batch, length)
    labels = (3 * place + 1) % VOCABULARY
    lines, model = [], fill(make())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, losses = torch.optim.AdamW(trained, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2), []
    for step in range(5):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels)
        loss.backward()
        if step == 0:
            for path, parameter in model.named_parameters():
                if parameter.requires_grad:
                    grad = parameter.grad.flatten()
                    weights = torch.cos(torch.arange(grad.numel(), dtype=torch.float64))
                    lines.append(f"grad {path} {numbers([grad.sum(), (grad * weights).sum()])}")
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    lines.append(f"losses adamw-decay {numbers(losses)}")
    lines_to(name, lines)


def operations():
    generator = torch.Generator().manual_seed(0)
    lines = []

    def some(*shape):
        return torch.rand(shape, generator=generator) * 4 - 2

    def line(what, tensor):
        return f"{what} [{' '.join(map(str, tensor.shape))}] {numbers(tensor.detach().flatten())}".rstrip()

    def case(name, function, *inputs):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = function(*leaves)
        weights = ((7 * torch.arange(out.numel())) % 5 - 2) / 2
        out.backward(weights.reshape(out.shape))
        lines.extend([f"case {name}", *(line("input", x) for x in inputs), line("result", out)])
        lines.extend(line("grad", x.grad) for x in leaves)

    def packed(x):
        q, k, v = x.view(2, 4, 4, 6).transpose(1, 2).split([2, 1, 1], 1)
        whole = torch.cat([turned(q, 100.0, 3), turned(k, 100.0, 3), v], 1)
        return whole.transpose(1, 2).reshape(x.shape)

    case("rotary_packed", packed, some(2, 4, 24))
    case("lora", lambda y, x, a, b: y + (x @ a.T @ b.T) * 0.75, some(2, 3, 5), some(2, 3, 4), some(2, 4), some(5, 2))
    lines_to("operations.txt", lines)


if __name__ == "__main__":
    operations()
    training("gpt2.txt", lambda: Gpt2(VOCABULARY, 7, width=8, heads=2, layers=2))
    training("falcon.txt", lambda: Falcon(VOCABULARY, width=12, heads=3, hidden=20, layers=2))
    llama = {"width": 16, "heads": 4, "key_heads": 2, "hidden": 24, "base": 500000.0, "layers": 2}
    training("llama.txt", lambda: Llama(VOCABULARY, **llama))
    training("llama_lora.txt", lambda: Llama(VOCABULARY, **llama, lora=["q_proj", "v_proj", "down_proj"]))
