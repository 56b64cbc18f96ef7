"""Programs whose memory is recorded under several settings of PyTorch's allocator: python programs.py NAME SEED OUT."""

import gzip
import pickle
import random
import sys

import torch

MIB = 1 << 20


def size(dice):
    """Bytes of a request: small, shared, and with a segment of its own."""
    kind = dice.random()
    if kind < 0.4:
        return dice.randrange(1, 1 << 16)
    if kind < 0.6:
        return dice.randrange(1 << 16, MIB)
    if kind < 0.8:
        return dice.randrange(MIB, 10 * MIB)
    if kind < 0.97:
        return dice.randrange(10 * MIB, 60 * MIB)
    return dice.randrange(60 * MIB, 400 * MIB)


def churn(dice, steps, with_streams=False):
    """Blocks that come and go at random, on one stream or three."""
    live = []
    side = [torch.cuda.Stream() for _ in range(2)] if with_streams else []
    for step in range(steps):
        if live and dice.random() < 0.48:
            live.pop(dice.randrange(len(live)))
        elif side and dice.random() < 0.3:
            with torch.cuda.stream(dice.choice(side)):
                live.append(torch.empty(size(dice), dtype=torch.uint8, device="cuda"))
        else:
            block = torch.empty(size(dice), dtype=torch.uint8, device="cuda")
            if side and dice.random() < 0.2:
                block.record_stream(dice.choice(side))
            live.append(block)
        if len(live) > 60:
            del live[:30]
        # All of it, so that the cache has something to give back whatever the settings are: a call that gives nothing
        # back leaves no event, and nobody could know of it.
        if step % 120 == 119:
            live.clear()
            torch.cuda.empty_cache()


def train(dice, steps):
    """A small net with AdamW and batches of random length."""
    from torch import nn

    width = 256

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    model = nn.Sequential(nn.Linear(64, width), *[Block() for _ in range(3)], nn.Linear(width, 1000)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        batch = torch.randn(8, dice.randrange(200, 3000), 64, device="cuda")
        output = model(batch)
        loss = output.float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == steps // 2:
            torch.cuda.empty_cache()


def main(name, seed, out):
    torch.cuda.init()
    # Without stacks, which would name the folders of whoever recorded it.
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
    dice = random.Random(seed)
    if name == "train":
        train(dice, 8)
    else:
        churn(dice, 400, with_streams=name == "streams")
    torch.cuda.synchronize()
    with gzip.GzipFile(out + ".pickle.gz", "w", mtime=0) as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    stats = torch.cuda.memory_stats()
    peaks = {metric: stats[f"{metric}_bytes.all.peak"] for metric in ("requested", "allocated", "active", "reserved")}
    print(out, peaks)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
