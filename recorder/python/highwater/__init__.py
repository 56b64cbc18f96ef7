"""Record where GPU memory goes in a PyTorch program, and look at recordings.

>>> import highwater
>>> with highwater.record_memory_history("step.snap"):
...     train_step(batch)
>>> highwater.Snapshot("step.snap").peak(by="scope,phase")

PyTorch is imported only when a recording starts.
"""

from ._binary import HighwaterError
from ._binary import version as _version
from ._recording import record_memory_history
from .snapshot import Snapshot

__all__ = ["HighwaterError", "Snapshot", "record_memory_history"]


def __dir__():
    return sorted([*globals(), "__version__"])


def __getattr__(name):
    if name == "__version__":
        return _version()
    raise AttributeError(f"module 'highwater' has no attribute {name!r}")
