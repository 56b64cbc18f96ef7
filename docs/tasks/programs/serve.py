"""The memory of an inference engine: weights, a profiling run, a KV cache in what is free, and CUDA graphs."""

import torch
from torch import nn

WIDTH, BLOCKS = 4096, 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attention(x)[..., :WIDTH]
        return x + self.down(self.up(x).relu())


def load_model():
    return nn.Sequential(*(Block() for _ in range(BLOCKS))).eval()


def profile_run(model):
    model(torch.zeros(8192, WIDTH))


def allocate_kv_cache(utilization=0.9):
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    bytes_per_block = int(free - (1 - utilization) * total) // BLOCKS
    cache = []
    for _ in range(BLOCKS):
        cache.append(torch.empty(bytes_per_block, dtype=torch.uint8))
    return cache


def capture_model(model):
    graphs, pool = [], torch.cuda.graph_pool_handle()
    for size in (512, 256, 128, 64, 32, 16, 8, 4, 2, 1):
        inputs, graph = torch.zeros(size, WIDTH), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outputs = model(inputs)
        graphs.append((graph, inputs, outputs))
    return graphs


with torch.device("cuda"), torch.no_grad():
    torch.set_default_dtype(torch.bfloat16)
    model = load_model()
    profile_run(model)
    kv_cache = allocate_kv_cache()
    graphs = capture_model(model)
