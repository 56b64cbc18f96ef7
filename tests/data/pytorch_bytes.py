"""Measures PyTorch's requested bytes, stage by stage, for the models of pytorch_bytes.json, at any size.

    python pytorch_bytes.py MODEL [--option value …]        one configuration, JSON to standard output

Needs PyTorch (the file was made with 2.15.0) and a CUDA device, or a CUDA runtime whose kernels do nothing: the bytes are
those of PyTorch's own allocator, and no number matters to them. On an sm_80 the choice of kernels is that of the file.

MODEL: vit, matmul-chain, rnn, falcon, llama, gpt2. Options are the keys of DEFAULTS[MODEL] with dashes.
Each step gives bytes at: after_forward (loss held), forward_peak, backward_peak, after_backward (loss held),
optimizer_peak, after_optimizer, after_zero_grad; all are `requested_bytes` of torch.cuda.memory_stats(). Peaks are reset
at the start of each stage. Modules return only the loss; zero_grad sets gradients to none.
"""

import argparse
import gc
import json
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

COMMON = {
    "steps": 3,
    "optimizer": "adamw",  # adam, adamw, sgd, sgd-momentum, none
    "weight_decay": None,  # the optimizer's own if none
    "form": "foreach",  # foreach, no-foreach, fused
    "in_backward": False,
    "checkpoint": False,  # each block, use_reentrant=False
    "lora": 0,
    "lora_on": "default",  # falcon: qkv; llama: qv or all; gpt2: qkv (c_attn)
    "lora_dtype": "weights",  # or f32
    "freeze": 0,  # embeddings and this many first blocks (-1: nothing but the embeddings)
}
DEFAULTS = {
    "vit": COMMON | {"optimizer": "adam", "dtype": "f32", "batch": 1, "image": 224, "patch": 16, "width": 1024, "layers": 24, "heads": 16, "mlp": 4096, "classes": 1000},
    "matmul-chain": {"steps": 2, "size": 1000, "length": 100, "grad_z0": False, "dtype": "f64"},
    "rnn": {"steps": 2, "steps_in_time": 100, "batch": 64, "width": 1000, "form": "Wx+Wh+b", "dtype": "f64"},
    "falcon": COMMON | {"dtype": "bf16", "batch": 1, "seq": 512, "width": 4544, "layers": 32, "heads": 71, "kv_heads": 1, "vocab": 65024},
    "llama": COMMON | {"dtype": "bf16", "batch": 1, "seq": 1024, "width": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "mlp": 14336, "vocab": 128256, "lora": 16, "lora_on": "qv", "norm": "fused", "logits": "f32"},
    "gpt2": COMMON | {"dtype": "f32", "batch": 8, "seq": 1024, "width": 768, "layers": 12, "heads": 12, "vocab": 50257, "positions": 1024, "logits": "weights"},
}


class Lora(nn.Module):
    """base(x) + scale · B(A(x)); the base is frozen. Adapters in f32 take their input in f32, as PEFT does."""

    def __init__(self, base, rank, dtype):
        super().__init__()
        self.base = base
        self.a = nn.Linear(base.in_features, rank, bias=False, dtype=dtype, device="cuda")
        self.b = nn.Linear(rank, base.out_features, bias=False, dtype=dtype, device="cuda")
        self.scale = 2.0

    def forward(self, x):
        result = self.base(x)
        adapted = self.b(self.a(x.to(self.a.weight.dtype))) * self.scale
        return (result + adapted).to(x.dtype) if adapted.dtype != result.dtype else result + adapted


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(x, cos, sin):
    return (x * cos) + (rotate_half(x) * sin)


def rope_tables(length, width, dtype):
    angles = torch.outer(torch.arange(length), 1.0 / 10000 ** (torch.arange(0, width, 2) / width))
    angles = torch.cat([angles, angles], -1)
    return angles.cos().to(dtype).cuda(), angles.sin().to(dtype).cuda()


def run_blocks(blocks, x, checkpointed, *rest):
    for block in blocks:
        x = checkpoint(block, x, *rest, use_reentrant=False) if checkpointed else block(x, *rest)
    return x


class FalconBlock(nn.Module):
    def __init__(self, c, dtype):
        super().__init__()
        kw = {"dtype": dtype, "device": "cuda", "bias": False}
        self.heads, self.kv_heads, self.head = c["heads"], c["kv_heads"], c["width"] // c["heads"]
        w = c["width"]
        self.norm = nn.LayerNorm(w, dtype=dtype, device="cuda")
        self.qkv = nn.Linear(w, (self.heads + 2 * self.kv_heads) * self.head, **kw)
        self.out = nn.Linear(w, w, **kw)
        self.up = nn.Linear(w, 4 * w, **kw)
        self.down = nn.Linear(4 * w, w, **kw)

    def forward(self, x, cos, sin):
        n = self.norm(x)
        b, t, _ = n.shape
        qkv = self.qkv(n).view(b, t, self.heads + 2 * self.kv_heads, self.head)
        q = qkv[:, :, : self.heads].transpose(1, 2)
        k = qkv[:, :, self.heads : self.heads + self.kv_heads].transpose(1, 2)
        v = qkv[:, :, self.heads + self.kv_heads :].transpose(1, 2)
        q, k = rotary(q, cos, sin), rotary(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        a = self.out(a.transpose(1, 2).reshape(b, t, -1))
        m = self.down(F.gelu(self.up(n)))
        return x + a + m


class Falcon(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, dtype = c, DTYPES[c["dtype"]]
        self.tokens = nn.Embedding(c["vocab"], c["width"], dtype=dtype, device="cuda")
        self.blocks = nn.ModuleList(FalconBlock(c, dtype) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(c["width"], dtype=dtype, device="cuda")
        self.cos, self.sin = rope_tables(c["seq"], c["width"] // c["heads"], dtype)
        self.ids = torch.zeros(c["batch"], c["seq"], dtype=torch.int64, device="cuda")
        self.labels = torch.zeros(c["batch"], c["seq"], dtype=torch.int64, device="cuda")

    def forward(self):
        x = run_blocks(self.blocks, self.tokens(self.ids), self.c["checkpoint"], self.cos, self.sin)
        logits = F.linear(self.norm(x), self.tokens.weight)
        logits = logits[:, :-1].contiguous()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), self.labels[:, 1:].contiguous().view(-1))


class HfRmsNorm(nn.Module):
    def __init__(self, width, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=dtype, device="cuda"))

    def forward(self, x):
        wide = x.to(torch.float32)
        variance = wide.pow(2).mean(-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(variance + 1e-5)).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, c, dtype):
        super().__init__()
        kw = {"dtype": dtype, "device": "cuda", "bias": False}
        self.heads, self.kv_heads, self.head = c["heads"], c["kv_heads"], c["width"] // c["heads"]
        w, kv = c["width"], c["kv_heads"] * self.head
        norm = (lambda: nn.RMSNorm(w, eps=1e-5, dtype=dtype, device="cuda")) if c["norm"] == "fused" else (lambda: HfRmsNorm(w, dtype))
        self.norm1, self.norm2 = norm(), norm()
        self.q, self.k, self.v, self.o = nn.Linear(w, w, **kw), nn.Linear(w, kv, **kw), nn.Linear(w, kv, **kw), nn.Linear(w, w, **kw)
        self.gate, self.up, self.down = nn.Linear(w, c["mlp"], **kw), nn.Linear(w, c["mlp"], **kw), nn.Linear(c["mlp"], w, **kw)

    def forward(self, x, cos, sin):
        n = self.norm1(x)
        b, t, _ = n.shape
        q = self.q(n).view(b, t, self.heads, self.head).transpose(1, 2)
        k = self.k(n).view(b, t, self.kv_heads, self.head).transpose(1, 2)
        v = self.v(n).view(b, t, self.kv_heads, self.head).transpose(1, 2)
        q, k = rotary(q, cos, sin), rotary(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, -1))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, dtype = c, DTYPES[c["dtype"]]
        self.tokens = nn.Embedding(c["vocab"], c["width"], dtype=dtype, device="cuda")
        self.blocks = nn.ModuleList(LlamaBlock(c, dtype) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["width"], eps=1e-5, dtype=dtype, device="cuda") if c["norm"] == "fused" else HfRmsNorm(c["width"], dtype)
        self.head = nn.Linear(c["width"], c["vocab"], bias=False, dtype=dtype, device="cuda")
        self.cos, self.sin = rope_tables(c["seq"], c["width"] // c["heads"], dtype)
        self.ids = torch.zeros(c["batch"], c["seq"], dtype=torch.int64, device="cuda")
        self.labels = torch.zeros(c["batch"], c["seq"], dtype=torch.int64, device="cuda")

    def forward(self):
        x = run_blocks(self.blocks, self.tokens(self.ids), self.c["checkpoint"], self.cos, self.sin)
        logits = self.head(self.norm(x))
        if self.c["logits"] == "f32":
            logits = logits.float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), self.labels.view(-1))


class GptBlock(nn.Module):
    def __init__(self, c, dtype):
        super().__init__()
        kw, w = {"dtype": dtype, "device": "cuda"}, c["width"]
        self.heads = c["heads"]
        self.norm1, self.norm2 = nn.LayerNorm(w, **kw), nn.LayerNorm(w, **kw)
        self.qkv, self.out = nn.Linear(w, 3 * w, **kw), nn.Linear(w, w, **kw)
        self.up, self.down = nn.Linear(w, 4 * w, **kw), nn.Linear(4 * w, w, **kw)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(w, dim=2)
        q, k, v = (part.view(b, t, self.heads, w // self.heads).transpose(1, 2) for part in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, dtype = c, DTYPES[c["dtype"]]
        kw = {"dtype": dtype, "device": "cuda"}
        self.tokens = nn.Embedding(c["vocab"], c["width"], **kw)
        self.positions = nn.Embedding(c["positions"], c["width"], **kw)
        self.blocks = nn.ModuleList(GptBlock(c, dtype) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(c["width"], **kw)
        self.ids = torch.zeros(c["batch"], c["seq"], dtype=torch.int64, device="cuda")
        self.labels = torch.zeros(c["batch"], c["seq"], dtype=torch.int64, device="cuda")

    def forward(self):
        x = self.tokens(self.ids) + self.positions(torch.arange(self.c["seq"], device="cuda"))
        x = run_blocks(self.blocks, x, self.c["checkpoint"])
        logits = F.linear(self.norm(x), self.tokens.weight)
        if self.c["logits"] == "f32":
            logits = logits.float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), self.labels.view(-1))


class Vit(nn.Module):
    def __init__(self, c):
        super().__init__()
        from torchvision.models.vision_transformer import VisionTransformer

        self.vit = VisionTransformer(c["image"], c["patch"], c["layers"], c["heads"], c["width"], c["mlp"], num_classes=c["classes"])
        self.vit = self.vit.to(DTYPES[c["dtype"]]).cuda().train()
        self.images = torch.zeros(c["batch"], 3, c["image"], c["image"], dtype=DTYPES[c["dtype"]], device="cuda")
        self.blocks = self.vit.encoder.layers
        if c["checkpoint"]:
            for block in self.blocks:
                block.forward = lambda x, forward=block.forward: checkpoint(forward, x, use_reentrant=False)

    def forward(self):
        return self.vit(self.images).sum()


class Chain:
    def __init__(self, c):
        kw = {"dtype": DTYPES[c["dtype"]], "device": "cuda"}
        self.c = c
        self.x = torch.zeros(c["size"], c["size"], **kw).requires_grad_()
        self.z0 = torch.zeros(c["size"], c["size"], **kw).requires_grad_(c["grad_z0"])

    def parameters(self):
        return [self.x, self.z0]

    def __call__(self):
        z = self.z0
        for _ in range(self.c["length"]):
            z = z @ self.x
        return z.sum()


class Rnn:
    def __init__(self, c):
        kw = {"dtype": DTYPES[c["dtype"]], "device": "cuda"}
        t, b, w = c["steps_in_time"], c["batch"], c["width"]
        self.c = c
        self.inputs = torch.zeros(t, b, w, **kw)
        self.h0 = torch.zeros(b, w, **kw)
        self.wh = torch.zeros(w, w, **kw).requires_grad_()
        self.b = torch.zeros(w, **kw).requires_grad_()
        self.own = [self.wh, self.b]
        if c["form"] == "Wx+Wh+b":
            self.wx = torch.zeros(w, w, **kw).requires_grad_()
            self.own.append(self.wx)

    def parameters(self):
        return self.own

    def __call__(self):
        h = self.h0
        for x in self.inputs:
            h = torch.tanh(x @ self.wx + h @ self.wh + self.b) if self.c["form"] == "Wx+Wh+b" else torch.tanh(x + h @ self.wh + self.b)
        return h.sum()


MODELS = {"vit": Vit, "matmul-chain": Chain, "rnn": Rnn, "falcon": Falcon, "llama": Llama, "gpt2": Gpt2}
LORA_TARGETS = {("falcon", "default"): ["qkv"], ("gpt2", "default"): ["qkv"], ("llama", "qv"): ["q", "v"], ("llama", "default"): ["q", "v"], ("llama", "all"): ["q", "k", "v", "o", "gate", "up", "down"]}


def build(name, c):
    model = MODELS[name](c)
    if not isinstance(model, nn.Module):
        return model
    if c["lora"]:
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        dtype = torch.float32 if c["lora_dtype"] == "f32" else DTYPES[c["dtype"]]
        for block in model.blocks:
            for target in LORA_TARGETS[name, c["lora_on"]]:
                setattr(block, target, Lora(getattr(block, target), c["lora"], dtype))
    if c["freeze"]:
        blocks = list(model.blocks)[: max(c["freeze"], 0)]
        if name == "vit":
            frozen = [*model.vit.conv_proj.parameters(), model.vit.class_token, model.vit.encoder.pos_embedding]
        else:
            frozen = [*model.tokens.parameters(), *(model.positions.parameters() if name == "gpt2" else [])]
        for parameter in frozen + [p for block in blocks for p in block.parameters()]:
            parameter.requires_grad_(False)
    return model


def rule(c, parameters, **own):
    form = {"foreach": {"foreach": True}, "no-foreach": {"foreach": False}, "fused": {"fused": True}}[c["form"]] | own
    decay = {} if c["weight_decay"] is None else {"weight_decay": c["weight_decay"]}
    match c["optimizer"]:
        case "adam":
            return torch.optim.Adam(parameters, **form, **decay)
        case "adamw":
            return torch.optim.AdamW(parameters, **form, **decay)
        case "sgd":
            return torch.optim.SGD(parameters, lr=1e-3, **form, **decay)
        case "sgd-momentum":
            return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **form, **decay)


def requested(which):
    return torch.cuda.memory_stats()[f"requested_bytes.all.{which}"]


def measure(name, given):
    c = DEFAULTS[name] | given
    unknown = set(given) - set(DEFAULTS[name])
    assert not unknown, f"{name} has no {unknown}"
    gc.collect()
    before = requested("current")
    assert before == 0, f"{before} bytes are left of the former run"
    torch.cuda.reset_peak_memory_stats()
    model = build(name, c)
    parameters = list(model.parameters())
    trained = [p for p in parameters if p.requires_grad]
    optimizer, hooks = None, []
    hooked = isinstance(model, nn.Module) and c["in_backward"]
    if hooked:
        own = {p: rule(c, [p], **({} if c["form"] == "fused" else {"foreach": False})) for p in trained}

        def update(p):
            own[p].step()
            own[p].zero_grad()

        for p in trained:
            hooks.append(p.register_post_accumulate_grad_hook(update))
    elif isinstance(model, nn.Module) and c["optimizer"] != "none":
        optimizer = rule(c, trained)
    numbers = sum(p.numel() for p in parameters)
    size = sum(p.numel() * p.element_size() for p in parameters)
    gc.collect()
    built = requested("current")
    steps = []
    for _ in range(c["steps"]):
        row = {}
        torch.cuda.reset_peak_memory_stats()
        loss = model()
        row["after_forward"], row["forward_peak"] = requested("current"), requested("peak")
        torch.cuda.reset_peak_memory_stats()
        loss.backward()
        row["backward_peak"], row["after_backward"] = requested("peak"), requested("current")
        torch.cuda.reset_peak_memory_stats()
        del loss
        if optimizer is not None:
            optimizer.step()
            row["optimizer_peak"], row["after_optimizer"] = requested("peak"), requested("current")
        for p in trained:
            p.grad = None
        row["after_zero_grad"] = requested("current")
        steps.append(row)
    for hook in hooks:
        hook.remove()
    return {"model": name, "parameters": c, "count": numbers, "trained": sum(p.numel() for p in trained), "parameter_bytes": size, "built": built, "steps": steps}


def main():
    torch.zeros(1, device="cuda")  # the statistics begin with the first block
    name = sys.argv[1]
    parser = argparse.ArgumentParser()
    for key, value in DEFAULTS[name].items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(flag, action="store_true", default=argparse.SUPPRESS)
        else:
            parser.add_argument(flag, type=float if value is None else type(value), default=argparse.SUPPRESS)
    print(json.dumps(measure(name, vars(parser.parse_args(sys.argv[2:])))))
    return None


if __name__ == "__main__":
    main()
