"""Records the GPU memory of PyTorch programs, and answers questions about recordings.

>>> import highwater
>>> with highwater.record_memory_history("step.snap"):
...     train_step(batch)
>>> highwater.Snapshot("step.snap").peak(by="scope,phase")

PyTorch is imported only when a recording starts, and the modules of this package when they are first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._binary import HighwaterError
    from ._recording import record_memory_history
    from .snapshot import Snapshot

__all__ = ["HighwaterError", "Snapshot", "record_memory_history"]

_MODULES = {"HighwaterError": "_binary", "Snapshot": "snapshot", "record_memory_history": "_recording"}


def __dir__():
    return sorted({*globals(), *_MODULES, "__version__"})


def __getattr__(name):
    if name == "__version__":
        return importlib.import_module("._binary", __name__).version()
    if name in _MODULES:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module 'highwater' has no attribute {name!r}")
