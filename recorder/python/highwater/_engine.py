"""Waits for the threads of the autograd engine.

A thread of the engine frees the tensors of a graph after backward has returned, and needs the interpreter for tensors
with Python objects. If the interpreter is already shutting down, Python ends the thread, which ends the process:
"terminate called without an active exception".
"""

import contextlib
import os
import time

# As PyTorch names them.
_NAME = b"pt_autograd"
_POLL_S = 0.001
_MAX_S = 0.5


def wait_until_idle():
    """Waits until all threads of the engine sleep. If the system does not report this, waits briefly."""
    deadline = time.monotonic() + _MAX_S
    idle = 0
    # One that waits for the interpreter sleeps too, but gets it while this thread does.
    while idle < 3 and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        idle = idle + 1 if _are_asleep() else 0


def _are_asleep():
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return True
    for thread in threads:
        # It may have ended.
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/stat", "rb") as file:
            name, _, state = file.read().partition(b"(")[2].rpartition(b")")
            if name.startswith(_NAME) and not state.startswith(b" S"):
                return False
    return True
