"""Record where GPU memory goes in a PyTorch program, and look at recordings.

>>> import highwater
>>> with highwater.record_memory_history("step.snap"):
...     train_step(batch)
>>> highwater.Snapshot("step.snap").peak(by="scope,phase")

PyTorch is imported only when a recording starts.
"""

from typing import TYPE_CHECKING

from ._binary import HighwaterError
from ._binary import version as _version
from .snapshot import Snapshot

if TYPE_CHECKING:
    from ._recording import record_memory_history

__all__ = ["HighwaterError", "Snapshot", "record_memory_history"]


def __getattr__(name):
    if name == "record_memory_history":
        from ._recording import record_memory_history

        return record_memory_history
    if name == "__version__":
        return _version()
    raise AttributeError(f"module 'highwater' has no attribute {name!r}")
