"""Controls PyTorch's own recorder. A process has only one, which the program may use as well."""

import functools
import sys
import types

import torch

from . import _device
from ._replaced import replace
from ._rotation import ring_events

# The events that PyTorch's counters of allocations and frees count.
_COUNTED = ("alloc", "free_requested")
# Of a kind of device that does not count them: then nothing is known to be missing.
_NOT_COUNTED = {"all": {"allocated": 0, "freed": 0}}


class _Position:
    """The last event of each device, and PyTorch's counters, at one moment."""

    def __init__(self, last_events=(), counts=()):
        self.last_events, self.counts = last_events, counts


class History:
    """Switches PyTorch's recorder on and off.

    If the program records the history itself, its settings remain, and its recording continues afterwards. `warn` is
    called with a text if this affects the recording.
    """

    def __init__(self, settings, warn):
        self._settings, self._warn = settings, warn
        self._is_programs = _device.is_history_enabled()
        if self._is_programs:
            self._warn(
                "the program already records PyTorch's memory history: it keeps the program's settings, and "
                "continues after the recording"
            )
        self._is_on = self._is_own_call = self._has_own_settings = False
        self._began = _Position()
        # At the last snapshot.
        self._counts = []
        self._undo = []
        for owner, name in _device.recorders():
            original = getattr(owner, name)
            replace(owner, name, original, self._around(original), self._undo)

    def start(self):
        """Starts recording."""
        self._is_on, self._has_own_settings = True, not self._is_programs
        if self._is_programs:
            self._began = self.position()
        else:
            self._record("all", **self._settings)
            self._began = _Position([], _counts())

    def stop(self):
        """Ends the recording and discards its events."""
        self._is_on = False
        self._began = _Position()
        if not self._is_programs:
            self._record(None)

    def restart(self):
        """Discards the events of the last snapshot, and continues recording."""
        if self._is_programs:
            self._began = self.position()
            return
        counts = self._counts
        self._record(None)
        self._record("all", **self._settings)
        # What other threads have done meanwhile is missing.
        self._began = _Position([], counts)

    def events(self):
        """Returns the number of events added to each device's ring since the recording began or was restarted."""
        return [max(now - before, 0) for (_, now), (_, before) in zip(_counts(), self._began.counts)]

    def settings(self):
        """Returns the settings with which this recording started the recorder; empty if the program started it."""
        return self._settings if self._has_own_settings else {}

    def position(self):
        """Returns the current position of PyTorch's recorder."""
        traces = take_snapshot()["device_traces"]
        return _Position([trace[-1] if trace else None for trace in traces], _counts())

    def snapshot(self, since=None):
        """Returns PyTorch's snapshot without the events before the recording or before the position `since`. Also
        returns the number of missing events by device."""
        counts, since = _counts(), since or self._began
        self._counts = counts
        taken = take_snapshot()
        traces = taken["device_traces"]
        for trace, last in zip(traces, since.last_events):
            if last is not None:
                after = next((row for row in range(len(trace), 0, -1) if _is_same(trace[row - 1], last)), 0)
                del trace[:after]
        recorded = [sum(event["action"] in _COUNTED for event in trace) for trace in traces]
        # The program may have reset the counters.
        rows = zip(counts, since.counts, recorded)
        return taken, [max(now - before - known, 0) for (now, _), (before, _), known in rows]

    def close(self):
        """Stops recording, and leaves the recorder to the program."""
        self.stop()
        self.leave()

    def leave(self):
        """Undoes the changes to the program."""
        for undo in self._undo:
            undo()

    def _record(self, *args, **kwargs):
        self._is_own_call = True
        try:
            _device.memory()._record_memory_history(*args, **kwargs)
        finally:
            self._is_own_call = False

    def _around(self, original):
        @functools.wraps(original)
        def record(enabled="all", *args, **kwargs):
            if self._is_own_call:
                return original(enabled, *args, **kwargs)
            # None, and False of the former signature, end it.
            was_programs, self._is_programs = self._is_programs, bool(enabled)
            if not self._is_on or (was_programs and self._is_programs):
                return original(enabled, *args, **kwargs)
            if self._is_programs:
                self._warn(
                    "the program started PyTorch's memory history during a recording: it has the recording's "
                    "settings, and continues after the recording"
                )
            # If the program ends PyTorch's recording, it continues until the end of this one.
            return None

        return record


def take_snapshot():
    """Returns PyTorch's snapshot.

    To look up the lines of compiled code, PyTorch would import its compiler, which takes seconds. This function
    prevents the import: a program that has not imported the compiler has no such code.
    """
    if "torch._inductor" in sys.modules:
        return _device.memory()._snapshot()
    # The attribute whose absence has it imported.
    absent = types.ModuleType("torch._inductor")
    vars(torch).setdefault("_inductor", absent)
    try:
        return _device.memory()._snapshot()
    finally:
        if vars(torch).get("_inductor") is absent:
            del torch._inductor


def allocations():
    """Returns the number of allocations on all devices since the program began."""
    # At the end, a device may have no memory left.
    return sum(map(_device.allocations, range(_device.module().device_count())))


def _counts():
    """Returns, for each device, the number of allocations and frees, and the number of events in the ring, since the
    program began."""
    counters = [_device.stats(device) for device in range(_device.module().device_count())]
    blocks = [counter.get("allocation", _NOT_COUNTED)["all"] for counter in counters]
    return [(block["allocated"] + block["freed"], ring_events(counter)) for block, counter in zip(blocks, counters)]


def _is_same(event, other):
    return all(event.get(key) == other.get(key) for key in ("time_us", "action", "addr", "size"))
