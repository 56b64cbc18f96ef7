"""Recordings that a file or a signal starts and stops from outside the program."""

import atexit
import os
import signal
import sys
import threading

from ._main_thread import Watch

# Signals that arrive within one interval count as one.
_LOOK_EVERY_S = 0.05


class Switch:
    """Records while `file` exists, or from one signal `number` to the next.

    `make` returns a `ProgramRecording` for each recording, given its number, counted from 1.
    """

    def __init__(self, make, file=None, number=None):
        self._make, self._signal = make, number
        # The program may change its folder.
        self._file = file and os.path.abspath(file)
        self._recording = None
        self._recordings = 0
        self._arrivals = self._seen = 0
        self._is_on = self._was_on = False
        self._former = None
        self._must_install = file is None
        self._watch = Watch(self._look, _LOOK_EVERY_S)

    def start(self):
        """Begins to watch the file or the signal."""
        atexit.register(self.stop)
        if self._must_install:
            self._install()
        self._watch.start()

    def stop(self):
        """Ends the recording, and stops watching."""
        self._watch.stop()
        self._end()

    def _look(self):
        if self._must_install:
            self._must_install = False
            return self._install
        if self._file is not None:
            self._is_on = os.path.exists(self._file)
        elif self._arrivals != self._seen:
            self._seen, self._is_on = self._arrivals, not self._is_on
        if self._is_on == self._was_on:
            return None
        self._was_on = self._is_on
        return self._begin if self._is_on else self._end

    def _install(self):
        # Handlers belong to the main thread: it is asked again.
        self._must_install = threading.current_thread() is not threading.main_thread()
        if self._must_install:
            return
        try:
            self._former = signal.signal(self._signal, self._note)
        except (OSError, ValueError) as error:
            print(f"highwater: cannot handle signal {self._signal}: {error}; use USR1 or USR2", file=sys.stderr)

    def _note(self, number, frame):
        self._arrivals += 1
        if callable(self._former):
            self._former(number, frame)

    def _begin(self):
        self._recordings += 1
        try:
            recording = self._make(self._recordings)
            self._recording = recording if recording.begin() else None
        except Exception as error:  # noqa: BLE001
            print(f"highwater: cannot record this process: {error}", file=sys.stderr)

    def _end(self):
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.is_stopped = True
            try:
                recording.finish()
            except Exception as error:  # noqa: BLE001
                print(f"highwater: cannot end the recording: {error}", file=sys.stderr)
