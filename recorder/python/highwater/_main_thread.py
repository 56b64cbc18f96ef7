"""A thread that looks for tasks and has the program's main thread perform them.

Some changes that a recording makes to a program, such as tags and signal handlers, must be made on its main thread. The
main thread performs a task as soon as it runs Python code again. If it stays in C code for too long, the background
thread performs the task. Only one task runs at a time.
"""

import collections
import ctypes
import os
import threading
import time

# For how long the main thread may run no Python.
_PATIENCE_S = 2
_POLL_S = 0.05

_queue: collections.deque = collections.deque()
# Of whoever does something.
_turn = threading.Lock()


class Watch:
    """Calls `look` every `interval_s` seconds until `stop`, and runs the function that it returns on the main
    thread."""

    def __init__(self, look, interval_s):
        self._look, self._interval_s = look, interval_s
        self._ends = threading.Event()
        self._process = os.getpid()
        # Nothing of it runs once the interpreter ends: whoever starts it stops it before.
        self._thread = threading.Thread(target=self._run, name="highwater", daemon=True)

    def start(self):
        """Starts the background thread."""
        self._thread.start()

    def stop(self):
        """Ends the thread after its current task."""
        # In a process that was forked off there is no such thread, which may have been using the event.
        if self._process != os.getpid():
            return
        self._ends.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self):
        while not self._ends.wait(self._interval_s):
            function = self._look()
            if function is not None:
                _have_done(_Work(function), self._ends.is_set)


def call(function):
    """Makes the main thread call a function, for another thread. Returns its result, or raises its exception."""
    results = []

    def run():
        try:
            results.append((function(), None))
        except Exception as error:  # noqa: BLE001
            results.append((None, error))

    _have_done(_Work(run), lambda: False)
    result, error = results[0]
    if error is not None:
        raise error
    return result


def _have_done(work, is_over):
    """Waits until the task is done, or until `is_over` returns true."""
    _queue.append(work)
    _ask_main_thread()
    deadline = time.monotonic() + _PATIENCE_S
    while not work.is_done.wait(_POLL_S):
        if is_over():
            work.drop()
            return
        if time.monotonic() > deadline and work.run() and _queue:
            # It may have been asked meanwhile, and left it.
            _ask_main_thread()


def _ask_main_thread():
    ctypes.pythonapi.Py_AddPendingCall(ctypes.pythonapi.PyObject_IsTrue, ctypes.py_object(_queued))


class _Work:
    """A function that is called once, by the first thread that tries."""

    def __init__(self, function):
        self._functions = [function]
        self.is_done = threading.Event()

    def run(self):
        """Calls the function if no thread has called it. Returns False while another function runs."""
        if not _turn.acquire(blocking=False):
            return False
        try:
            self._run()
        finally:
            _turn.release()
        return True

    def _run(self):
        try:
            function = self._functions.pop()
        except IndexError:
            return
        try:
            function()
        finally:
            self.is_done.set()
            while _queue and _queue[0].is_done.is_set():
                _queue.popleft()

    def drop(self):
        self._functions.clear()
        self.is_done.set()


class _Queued:
    """Called by `PyObject_IsTrue`, which, unlike a callback, passes exceptions of signal handlers to the program."""

    def __bool__(self):
        # A later request calls the main thread again.
        for work in list(_queue):
            if not work.run():
                break
        return False


def _forget_in_child():
    global _turn
    _turn = threading.Lock()
    _queue.clear()


# Kept, as the main thread may call it at any time.
_queued = _Queued()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
