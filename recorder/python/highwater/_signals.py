"""Writes a recording before a signal ends the program: SIGTERM, which schedulers send, or SIGHUP, which terminals
send."""

import contextlib
import os
import signal
import threading


class Termination:
    """Calls `write` before a signal that ends the program takes effect. `write` returns whether it could write."""

    def __init__(self, write):
        self._write, self._handler = write, self._handle
        self._formers = {}
        self._due, self._is_passed_on = None, False

    def start(self):
        """Installs the handler if this is the main thread. Leaves signals alone that the program ignores or does not
        handle in Python."""
        if threading.current_thread() is not threading.main_thread():
            return
        former = signal.getsignal(signal.SIGTERM)
        if former not in (None, signal.SIG_IGN):
            self._formers[signal.SIGTERM] = former
        # A program that handles a hang-up goes on.
        hang_up = getattr(signal, "SIGHUP", None)
        if hang_up is not None and signal.getsignal(hang_up) == signal.SIG_DFL:
            self._formers[hang_up] = signal.SIG_DFL
        for number in self._formers:
            signal.signal(number, self._handler)

    def stop(self):
        """Restores the former handlers, unless the program has replaced ours in the meantime."""
        for number, former in self._formers.items():
            if signal.getsignal(number) is self._handler:
                # On another thread, the handler then only calls the former one.
                with contextlib.suppress(ValueError):
                    signal.signal(number, former)

    def is_due(self):
        """Returns whether a signal arrived while the recording was being written."""
        return self._due is not None

    def deliver(self):
        """Handles a signal that arrived while the recording was being written."""
        number, self._due = self._due, None
        if number is None:
            return
        if threading.current_thread() is threading.main_thread():
            self._go_on(number, None)
        else:
            # Handlers belong to the main thread, which gets it again.
            self._is_passed_on = True
            os.kill(os.getpid(), number)

    def _handle(self, number, frame):
        is_passed_on, self._is_passed_on = self._is_passed_on, False
        if is_passed_on or self._write():
            self._go_on(number, frame)
        else:
            self._due = number

    def _go_on(self, number, frame):
        former = self._formers[number]
        if callable(former):
            former(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
