"""Tests of recordings need CUDA: a GPU, or PyTorch over the simulated GPU, as `tests/pytorch` installs it."""

import os
import pickle
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
pytest_plugins = ["pytester"]


@pytest.fixture
def torch():
    """PyTorch with a clean allocator; the test is skipped without CUDA."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("CUDA is not available")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield torch
    torch.autograd.set_detect_anomaly(False)


@pytest.fixture
def record(torch, tmp_path):
    """Records what a function does and returns the snapshot: `record(function, **options)`."""
    import highwater

    def record(function, **options):
        options.setdefault("convert", False)
        with highwater.record_memory_history(tmp_path / "step.snap", **options) as run:
            function(run)
        with open(run.path, "rb") as file:
            return pickle.load(file)

    return record
