"""The files of a rotated recording, which continues in another file after some time or when a file is full."""

import contextlib
import os
import re
import time

from . import _files

# Bytes of an event in a file, until one has been written.
_EVENT_BYTES = 20
# A file begins when the ring is as full as this.
_FULL = 0.8


class Rotation:
    """Numbers the files, decides when one is full, and removes the oldest beyond `disk_bytes`.

    A file is full after `every_s` seconds, at about `file_bytes` bytes, or before PyTorch's ring drops events.
    """

    def __init__(self, max_entries, every_s=None, file_bytes=None, disk_bytes=None):
        self._every_s, self._file_bytes, self._disk_bytes = every_s, file_bytes, disk_bytes
        self._max_events = _FULL * max_entries
        self._event_bytes = _EVENT_BYTES
        self._began_s = time.monotonic()
        self._events = 0
        self._files = self._named = None
        self._last = 0

    def is_full(self, events):
        """Returns whether a file with these numbers of events, one for each device, is full."""
        self._events = sum(events)
        if self._events == 0:
            return False
        is_over = self._every_s is not None and time.monotonic() - self._began_s >= self._every_s
        is_large = self._file_bytes is not None and self._events * self._event_bytes >= self._file_bytes
        return is_over or is_large or max(events) >= self._max_events

    def begin(self):
        """Begins another file."""
        self._began_s = time.monotonic()
        self._named = None

    def name(self, path):
        """Returns the path of the current file, such as `run.0001.snap`. Does not change until `begin`."""
        if self._named is not None:
            # Written already, before a signal that the program has handled.
            return self._named
        if self._files is None:
            self._files = _earlier(path)
            self._last = max((number for number, _ in self._files), default=0)
        self._last += 1
        while os.path.lexists(numbered(path, self._last)):
            self._last += 1
        self._named = numbered(path, self._last)
        return self._named

    def note(self, path):
        """Stores the path of a written file, and removes the oldest files while all together exceed `disk_bytes`."""
        with contextlib.suppress(OSError):
            if self._events:
                self._event_bytes = max(os.path.getsize(path) / self._events, 1)
        # Where it cannot be converted, it is a pickle of the same name.
        if self._named is None or _files.split(path)[0] != _files.split(self._named)[0]:
            # Of a failed request.
            return
        if path not in (known for _, known in self._files):
            self._files.append((self._last, path))
        while self._disk_bytes is not None and len(self._files) > 1 and self._total() > self._disk_bytes:
            with contextlib.suppress(OSError):
                os.remove(self._files.pop(0)[1])

    def _total(self):
        total = 0
        for _, path in self._files:
            with contextlib.suppress(OSError):
                total += os.path.getsize(path)
        return total


def ring_events(stats):
    """Returns the number of events that PyTorch's ring has received, computed from PyTorch's counters of a device; 0
    without counters."""
    if "allocation" not in stats:
        return 0
    blocks, segments = stats["allocation"]["all"], stats["segment"]["all"]
    # Calls of the driver, which map parts of expandable segments too; older versions count segments alone.
    begun = max(segments["allocated"], stats.get("num_device_alloc", 0))
    ended = max(segments["freed"], stats.get("num_device_free", 0))
    # A free is requested, and then completed.
    return blocks["allocated"] + 2 * blocks["freed"] + begun + ended


def numbered(path, number):
    """Returns the path of file `number` of a recording, in the same form as the Rust recorder."""
    return _files.beside(path, f"{number:04}")


def _number(path):
    digits = re.search(r"\.([0-9]{4,})$", _files.split(path)[0])
    return int(digits[1]) if digits else None


def _earlier(path):
    """Returns the files of earlier programs, oldest first, as pairs of number and path."""
    folder = os.path.dirname(path)
    paths = (os.path.join(folder, name) for name in os.listdir(folder or "."))
    files = ((_number(one), one) for one in paths)
    found = sorted((number, one) for number, one in files if number is not None and numbered(path, number) == one)
    return [(number, one) for number, one in found if _files.is_recording(one)]
