"""Periodic saves of the recording so far, to limit the loss if the process is killed or crashes."""

import contextlib
import os
import sys
import threading
import time

from . import _device

# A save stops the program: it is followed by the next one after the first of these intervals of which it takes at most
# this share.
_INTERVALS_S = (60, 300, 900, 3600)
_SHARE = 0.01
# What an event costs, until one save has been measured.
_SECONDS_PER_EVENT = 7e-6


class Saves:
    """Decides when to save a recording, before a model is called. `on_saved` is called with the path.

    Ranks save when the clock passes a multiple of the interval. They thus save at the same time, instead of waiting for
    each other in turn.
    """

    def __init__(self, every_s=None, on_saved=lambda path: None):
        self._intervals_s = _INTERVALS_S if every_s is None else (every_s,)
        self._on_saved = on_saved
        self._seconds_per_event = _SECONDS_PER_EVENT
        # The clock may be set while the program runs.
        self._clock = time.time() - time.monotonic()
        self._saved_s = self._now()
        # Short programs save nothing.
        self._look_s = self._next_look(self._saved_s + self._intervals_s[0])
        # A handler of a signal may end the program, and with it the recording, within a save.
        self._turn = threading.RLock()
        # The file of the last save, unless the recording has been written there since.
        self.path = None

    def _now(self):
        return self._clock + time.monotonic()

    def _next_look(self, now):
        first = self._intervals_s[0]
        return (now // first + 1) * first

    def is_due(self, now, events):
        """Returns whether a recording with this number of events is due to be saved."""
        seconds = events * self._seconds_per_event
        fitting = (one for one in self._intervals_s if seconds <= one * _SHARE)
        interval = next(fitting, self._intervals_s[-1])
        return events > 0 and now // interval != self._saved_s // interval

    def look(self, session):
        """Saves the recording if a save is due."""
        now = self._now()
        if now < self._look_s or not self._turn.acquire(blocking=False):
            return
        try:
            events = sum(session.events())
            if self.is_due(now, events) and not _device.is_capturing():
                self._save(session, events)
            if self._look_s < float("inf"):
                self._look_s = self._next_look(now)
        except Exception as error:  # noqa: BLE001
            self._look_s = float("inf")
            print(f"highwater: cannot save the recording so far: {error}", file=sys.stderr)
        finally:
            self._turn.release()

    def _save(self, session, events):
        began = time.monotonic()
        path = None
        with contextlib.suppress(Warning):
            path = session.save()
        # Of a rank that has learned its number since.
        self._remove_unless(path)
        self.path, self._saved_s = path, self._now()
        self._seconds_per_event = (time.monotonic() - began) / events
        if path is not None:
            self._on_saved(path)

    def stop(self):
        """Stops saving, after waiting for a save on another thread."""
        with self._turn:
            self._look_s = float("inf")

    def remove(self):
        """Removes the last save if the recording has been written to another file since."""
        self._remove_unless(None)

    def _remove_unless(self, path):
        if self.path not in (None, path):
            with contextlib.suppress(OSError):
                os.remove(self.path)
