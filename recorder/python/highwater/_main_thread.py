"""A thread that looks for something to do, and has the program's main thread do it.

What a recording changes in a program belongs to that thread, as its tags and the handlers of signals. The main thread
does what it is asked as soon as it runs Python again; where it waits in C for long, the thread that looks does it.
"""

import collections
import ctypes
import os
import threading
import time

# For how long the main thread may run no Python.
_PATIENCE_S = 2
_POLL_S = 0.05

_queue = collections.deque()


class Watch:
    """Calls `look` every `interval_s` seconds, and what that returns on the main thread, until `stop`."""

    def __init__(self, look, interval_s):
        self._look, self._interval_s = look, interval_s
        self._ends = threading.Event()
        self._process = os.getpid()
        # Nothing of it runs once the interpreter ends: whoever starts it stops it before.
        self._thread = threading.Thread(target=self._run, name="highwater", daemon=True)

    def start(self):
        """Starts to look."""
        self._thread.start()

    def stop(self):
        """Ends the thread, after what it may be doing."""
        self._ends.set()
        # In a process that was forked off there is no such thread.
        if self._thread is not threading.current_thread() and self._process == os.getpid():
            self._thread.join()

    def _run(self):
        while not self._ends.wait(self._interval_s):
            function = self._look()
            if function is not None:
                self._call(_Work(function))

    def _call(self, work):
        _queue.append(work)
        ctypes.pythonapi.Py_AddPendingCall(ctypes.pythonapi.PyObject_IsTrue, ctypes.py_object(_queued))
        deadline = time.monotonic() + _PATIENCE_S
        while not work.is_done.wait(_POLL_S):
            if self._ends.is_set():
                work.drop()
                return
            if time.monotonic() > deadline:
                work.run()


class _Work:
    """A function that is called once, by whoever is first."""

    def __init__(self, function):
        self._functions = [function]
        self.is_done = threading.Event()

    def run(self):
        try:
            function = self._functions.pop()
        except IndexError:
            return
        try:
            function()
        finally:
            self.is_done.set()

    def drop(self):
        self._functions.clear()


class _Queued:
    """What Python's `PyObject_IsTrue` calls: unlike a callback, it passes exceptions of signals' handlers to the program."""

    def __bool__(self):
        while _queue:
            _queue.popleft().run()
        return False


# Kept, as the main thread may call it at any time.
_queued = _Queued()
