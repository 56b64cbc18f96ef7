"""Writes a recording before SIGTERM ends the program, as schedulers send it."""

import os
import signal
import threading


class Termination:
    """Calls `write` when SIGTERM arrives, which then does what it did before. `write` returns whether it could."""

    def __init__(self, write):
        self._write = write
        self._handler = self._former = None
        self._is_due = self._is_passed_on = False

    def start(self):
        """Installs the handler, if Python handles the signal and this is the main thread."""
        former = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is not threading.main_thread() or former in (None, signal.SIG_IGN):
            return
        self._former, self._handler = former, self._handle
        signal.signal(signal.SIGTERM, self._handler)

    def stop(self):
        """Restores the former handler, unless the program has replaced ours since."""
        if self._handler is None or signal.getsignal(signal.SIGTERM) is not self._handler:
            return
        try:
            signal.signal(signal.SIGTERM, self._former)
        except ValueError:
            # On another thread; the handler then only calls the former one.
            return

    def deliver(self):
        """Handles a signal that arrived while the recording was being written."""
        if not self._is_due:
            return
        self._is_due = False
        if threading.current_thread() is threading.main_thread():
            self._go_on(signal.SIGTERM, None)
        else:
            # Handlers belong to the main thread, which gets it again.
            self._is_passed_on = True
            os.kill(os.getpid(), signal.SIGTERM)

    def _handle(self, number, frame):
        is_passed_on, self._is_passed_on = self._is_passed_on, False
        if is_passed_on or self._write():
            self._go_on(number, frame)
        else:
            self._is_due = True

    def _go_on(self, number, frame):
        if callable(self._former):
            self._former(number, frame)
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), number)
