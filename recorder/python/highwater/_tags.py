"""Tags all allocations of a thread with the step, the phase and the module.

A tag is a text such as `{"step":0,"phase":"backward","scope":"blocks.3.attn"}`. From PyTorch 2.10 on, the tag is the
allocator's metadata of the thread. From 2.6 to 2.9, it is the name of an open range of `record_function`, of which each
thread has at most one. In older versions, and on devices other than CUDA's, allocations cannot be tagged.
"""

import bisect
import json
import threading

import torch

from . import _device

_set_metadata = getattr(torch._C, "_cuda_setMemoryMetadata", None)
_enter_range = getattr(torch._C._autograd, "_record_function_with_args_enter", None)
_exit_range = getattr(torch._C._autograd, "_record_function_with_args_exit", None)


def kind():
    """Returns the way in which allocations are tagged: `metadata`, `annotations`, or None if they cannot be tagged."""
    if _device.name() != "cuda":
        return None
    if _set_metadata is not None:
        return "metadata"
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    return "annotations" if _enter_range is not None and release >= (2, 6) else None


class Thread:
    """The state of a thread, including its tag."""

    __slots__ = ("scope", "phase", "is_inside", "optimizers", "text", "range", "first_nodes", "node_scopes")

    def __init__(self):
        self.scope = ""
        self.phase = "other"
        # Whether a module is running.
        self.is_inside = False
        # The frames of the optimizers whose steps are running, each with the phase around it.
        self.optimizers = []
        self.text = None
        self.range = None
        # The module that made the nodes of the autograd graph, from which number on.
        self.first_nodes = [0]
        self.node_scopes = [""]

    def scope_of(self, node):
        """Returns the module that created the autograd node of this number."""
        return self.node_scopes[max(bisect.bisect_right(self.first_nodes, node) - 1, 0)]


class Threads(threading.local):
    """A thread-local variable with the state of the current thread."""

    def __init__(self):
        self.current = Thread()


class Tags:
    """The tags of one recording."""

    def __init__(self, kind):
        self.threads = Threads()
        self._escaped = {}
        self._prefixes = {}
        self.is_metadata, self.has_ranges = kind == "metadata", kind == "annotations"

    def begin_step(self, step):
        """Uses `step` in the tags of further allocations."""
        phases = ("forward", "backward", "recompute", "optimizer", "eval", "other")
        self._prefixes = {phase: '{"step":%d,"phase":"%s","scope":' % (step, phase) for phase in phases}
        thread = self.threads.current
        self.set(thread, thread.phase, thread.scope)

    def close(self):
        """Stops tagging, even if functions that are still running try to continue."""
        self.set = lambda thread, phase, scope: None

    def set(self, thread, phase, scope):
        """Tags further allocations of `thread`, which must be the current thread."""
        thread.phase, thread.scope = phase, scope
        escaped = self._escaped.get(scope)
        if escaped is None:
            escaped = self._escaped[scope] = json.dumps(scope) + "}"
        text = self._prefixes[phase] + escaped
        if text == thread.text:
            return
        thread.text = text
        if self.is_metadata:
            _set_metadata(text)
        elif self.has_ranges:
            if thread.range is not None:
                _exit_range(thread.range)
            thread.range = _enter_range(text)

    def clear(self):
        """Removes the tag of this thread."""
        thread = self.threads.current
        if thread.text is None:
            return
        if self.is_metadata:
            _set_metadata("")
        elif thread.range is not None:
            _exit_range(thread.range)
        thread.text = thread.range = None
