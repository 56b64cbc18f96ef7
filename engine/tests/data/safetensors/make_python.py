"""Writes python.safetensors with Python's safetensors: a tensor of each type that the engine has.

    python make_python.py        needs PyTorch and safetensors; made with PyTorch 2.15.0 and safetensors 0.8.0
"""

import os

import torch
from safetensors.torch import save_file

TENSORS = {
    "double": torch.tensor([[1.5, -2.0, 1e300], [0.0, 0.1, 3.0]], dtype=torch.float64),
    "layer.single": torch.tensor([0.5, -1.25, 3e38, 0.1]),
    "layer.half": torch.tensor([[0.5], [65504.0]], dtype=torch.float16),
    "layer.brain": torch.tensor([1.0, -2.0, 3e38], dtype=torch.bfloat16),
    "whole": torch.tensor(-(2**53) - 1),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "truths": torch.tensor([True, False, True]),
    "empty": torch.zeros(0, 7),
}
save_file(TENSORS, os.path.join(os.path.dirname(os.path.abspath(__file__)), "python.safetensors"), {"made": "by Python"})
