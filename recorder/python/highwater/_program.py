"""Records a whole program without its cooperation, from its first use of CUDA to the end of the process."""

import atexit
import contextlib
import functools
import os
import sys
import warnings

from ._main_thread import Watch
from ._replaced import replace

# How often a rotation looks at the file.
_LOOK_EVERY_S = 0.25


class ProgramRecording:
    """Records the process from `begin` until it ends, for any reason. `options` are those of `record_memory_history`.

    `on_over` is called after the last wanted step, `before_end` with whether a failed request ends the program.
    `on_begin` is called when the recording has begun, `on_path` with the path of each file, `on_end` when it has ended,
    and `on_terminated` when it is written because a signal ends the program. `name_file` returns the path of a file of
    this process, given the requested path, the rank and the number of ranks. `gives_hints` is whether the program gets
    warnings, `keeps_empty` whether a recording without allocations is written, `is_for_oom` whether it is written only
    at a failed request, and `is_within_step` whether it may begin within a training step.
    """

    def __init__(self, path, **options):
        self._path, self._options = path, options
        self._recording = None
        self.is_stopped = False
        self.on_over = self.before_end = self.name_file = self.on_path = self.on_begin = self.on_end = None
        self.on_terminated = None
        self.gives_hints = self.keeps_empty = True
        self.is_for_oom = self.is_within_step = False
        # When the recording so far is saved.
        self.saves = None
        self._rotation = self._watch = None
        self._allocations = 0

    def rotate(self, rotation):
        """Continues the recording in another file whenever `rotation` reports that the current file is full."""
        self._rotation, self._watch = rotation, Watch(self._look, _LOOK_EVERY_S)

    def begin(self):
        """Begins the recording. Returns whether recording began."""
        from ._history import allocations
        from ._recording import record_memory_history

        self._recording = record_memory_history(self._path, **self._options)
        self._recording._of_program = {
            "on_over": self.on_over,
            "on_terminated": self.on_terminated,
            "name_file": self.name_file,
            "is_for_oom": self.is_for_oom,
            "is_within_step": self.is_within_step,
            "saves": self.saves,
        }
        self._recording._gives_hints = self.gives_hints
        if self.on_path is not None:
            self._recording._note_path = self.on_path
        atexit.register(self.finish)
        self._finish_before_exit()
        try:
            with _warnings("always" if self.gives_hints else "ignore"):
                self._recording.__enter__()
            self._allocations = allocations()
        finally:
            if self._recording._session is None:
                self._recording = None
                self._undo()
        if self.is_active():
            if self.on_begin is not None:
                self.on_begin()
            if self._watch is not None:
                self._watch.start()
        return self.is_active()

    def _look(self):
        recording = self._recording
        session = recording and recording._session
        with contextlib.suppress(Exception):
            if session is not None and self._rotation.is_full(session.events()):
                return lambda: self._begin_file(session)
        return None

    def _begin_file(self, session):
        from ._history import allocations

        has_begun = True
        with contextlib.suppress(Exception):
            has_begun = session.begin_file()
            self._allocations = allocations() if has_begun else self._allocations
        if has_begun:
            self._rotation.begin()

    def is_active(self):
        """Returns whether the recording has begun but not ended."""
        return self._recording is not None

    def finish(self):
        """Ends the recording when the program ends, and undoes its changes."""
        recording, self._recording = self._recording, None
        if recording is None:
            return
        self._undo()
        if self._watch is not None:
            self._watch.stop()
        from ._history import allocations

        is_empty = False
        # A device that has failed does not answer.
        with contextlib.suppress(Exception):
            is_empty = not self.keeps_empty and allocations() == self._allocations
        if self.is_for_oom or is_empty:
            recording._discard()
        else:
            self._end(recording)
        if self.on_end is not None:
            self.on_end()

    def _end(self, recording):
        kind = None if self.is_stopped else getattr(sys, "last_type", None)
        from . import _device

        if self.before_end is not None:
            self.before_end(not self.is_stopped and _ends_out_of_memory(_device.OutOfMemoryError))
        with _warnings("always"):
            recording.__exit__(kind, None, None)

    def _finish_before_exit(self):
        """Makes `os._exit` and `os.exec…` write the recording first, since no Python code runs after these calls."""
        process, undo = os.getpid(), [lambda: atexit.unregister(self.finish)]

        def finish_before(name, ends_program):
            former = getattr(os, name)

            @functools.wraps(former)
            def ours(*args, **kwargs):
                with contextlib.suppress(Exception):
                    if os.getpid() == process and ends_program(*args, **kwargs):
                        self.finish()
                return former(*args, **kwargs)

            replace(os, name, former, ours, undo)

        finish_before("_exit", lambda status: True)
        # All others of the family end in these, also in those that find no program in a folder of the path.
        for name in ("execv", "execve"):
            finish_before(name, lambda path, *args, **kwargs: os.access(path, os.X_OK) and not os.path.isdir(path))

        def undo_all():
            while undo:
                undo.pop()()

        self._undo = undo_all


@contextlib.contextmanager
def _warnings(action):
    """Prevents warnings from being raised as errors."""
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        yield


def _ends_out_of_memory(kind):
    """Returns whether the exception that ends the program is a failed request or was caused by one."""
    error = getattr(sys, "last_value", None)
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None
