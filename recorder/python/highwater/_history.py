"""PyTorch's recorder, of which a process has one: the program may use it as well."""

import functools
import sys
import types

import torch

from ._warn import warn

_is_enabled = getattr(torch._C, "_cuda_isHistoryEnabled", lambda: False)


class History:
    """Switches PyTorch's recorder on and off.

    A history that the program records itself is kept: it has the program's settings, and goes on after the recording.
    """

    def __init__(self, settings):
        self._settings = settings
        self._is_programs = _is_enabled()
        self._is_on = False
        # The last events of the program's history, by device, before the recording.
        self._last_before = []
        self._original = torch.cuda.memory._record_memory_history
        self._replacement = self._around(self._original)
        torch.cuda.memory._record_memory_history = self._replacement
        if self._is_programs:
            warn(
                "PyTorch's memory history is being recorded by the program already: it keeps the program's settings, "
                "and goes on after the recording"
            )

    def start(self):
        """Starts to record."""
        self._is_on = True
        if self._is_programs:
            traces = take_snapshot()["device_traces"]
            self._last_before = [trace[-1] if trace else None for trace in traces]
        else:
            self._original("all", **self._settings)

    def stop(self):
        """Ends and forgets what was recorded."""
        self._is_on = False
        self._last_before = []
        if not self._is_programs:
            self._original(None)

    def cut(self, taken):
        """Removes what the program recorded before the recording began."""
        for trace, last in zip(taken["device_traces"], self._last_before):
            if last is None:
                continue
            after = next((row for row in range(len(trace), 0, -1) if _is_same(trace[row - 1], last)), 0)
            del trace[:after]

    def close(self):
        """Leaves the recorder to the program."""
        self.stop()
        self.leave()

    def leave(self):
        """Undoes what changes the program."""
        if torch.cuda.memory._record_memory_history is self._replacement:
            torch.cuda.memory._record_memory_history = self._original

    def _around(self, original):
        @functools.wraps(original)
        def record(enabled="all", *args, **kwargs):
            was_programs, self._is_programs = self._is_programs, enabled is not None
            if not self._is_on or (was_programs and self._is_programs):
                return original(enabled, *args, **kwargs)
            if self._is_programs:
                warn(
                    "PyTorch's memory history is started by the program during a recording: it has the recording's "
                    "settings, and goes on after the recording"
                )
            # What the program ends is recorded until the end of the recording.
            return None

        return record


def take_snapshot():
    """Returns PyTorch's snapshot.

    For the lines of compiled code PyTorch looks at its compiler, which it imports for that, taking seconds: a program that
    has not imported it has no such code.
    """
    if "torch._inductor" in sys.modules:
        return torch.cuda.memory._snapshot()
    # The attribute whose absence has it imported.
    absent = types.ModuleType("torch._inductor")
    vars(torch).setdefault("_inductor", absent)
    try:
        return torch.cuda.memory._snapshot()
    finally:
        if vars(torch).get("_inductor") is absent:
            del torch._inductor


def _is_same(event, other):
    return all(event.get(key) == other.get(key) for key in ("time_us", "action", "addr", "size"))
