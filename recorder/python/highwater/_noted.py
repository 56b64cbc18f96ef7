"""Counts the calls that a simulated GPU cannot answer exactly, by line of the program, and describes them in
recordings."""

import collections
import json
import linecache
import os
import sys

# As in the library's `notes.rs`.
MISSING, UNKNOWN_WORKSPACE, UNKNOWN_VALUE, TIME, MISSING_DEVICE = range(5)

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


class Noted:
    """The notes made since the creation of this object.

    `simulation.notes` has all notes of the process, as counts by kind, function and line of the program.
    """

    def __init__(self, simulation):
        self._simulation, self._before = simulation, collections.Counter(simulation.notes)
        self._reads_before, self._allocations_before = len(simulation.reads), simulation.allocations()

    def rows(self, kind):
        """Returns the notes of a kind as dicts: function, file, line, text of the line, and count."""
        rows = []
        for (_, name, place), count in self._noted(kind):
            file, line, function = place or (None, None, None)
            text = linecache.getline(file, line).strip() if file else ""
            rows.append({"name": name, "file": file, "line": line, "function": function, "text": text, "count": count})
        return rows

    def read_order(self):
        """Returns the reads in order, each as the number of earlier allocations and the index of its row among those of
        `UNKNOWN_VALUE`."""
        rows = {note: row for row, (note, _) in enumerate(self._noted(UNKNOWN_VALUE))}
        reads = self._simulation.reads[self._reads_before :]
        return [[allocations - self._allocations_before, rows[note]] for allocations, note in reads]

    def _noted(self, kind):
        notes = self._simulation.notes - self._before
        return sorted(((note, count) for note, count in notes.items() if note[0] == kind), key=str)

    def describe(self):
        """Returns the facts for a recording, and the notes to show with its figures."""
        import torch

        simulation = self._simulation
        device = torch.cuda.get_device_properties(torch.cuda.current_device())
        name = f"{device.name} (compute capability {device.major}.{device.minor})"
        notes = [f"simulated: recorded on a simulated {name}; memory outside of PyTorch's allocator is not included"]
        if simulation.rank is not None:
            of = "rank {} of {}".format(*simulation.rank)
            notes.append(f"simulated alone as {of}: the other ranks are assumed to have the same values")
        found = {
            "gpu": device.name,
            "capability": f"{device.major}.{device.minor}",
            # Of the whole process, which may initialize its model before a recording begins.
            "skipped_bytes": simulation.skipped_bytes,
            "cudnn": _cudnn_version(torch),
            "endless": simulation.endless,
            "is_stopped": simulation.is_over(),
            "outlives_failures": simulation.outlives_failures,
            "waiting_optimizers": simulation.waiting_optimizers(),
            "missing": self.rows(MISSING),
            "missing_devices": self.rows(MISSING_DEVICE),
            "autotuned": self.rows(TIME),
            "unknown_workspaces": self.rows(UNKNOWN_WORKSPACE),
            "reads": self.rows(UNKNOWN_VALUE),
            "read_order": self.read_order(),
        }
        return {"simulated": name, "simulation": json.dumps(found)}, notes


def _cudnn_version(torch):
    try:
        return torch.backends.cudnn.version()
    except RuntimeError:
        # Of a version that does not support the device.
        return None


def place():
    """Returns the innermost running line of the program: file, line and function."""
    # Code that Inductor has generated is none of the program's, like a file without a name.
    others = (_PACKAGE, "<", os.environ.get("TORCHINDUCTOR_CACHE_DIR") or "<")
    # A thread of the autograd engine has no frame of the program.
    frame, fallback = sys._getframe(1), None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(others) and f"{os.sep}torch{os.sep}" not in file:
            found = (file, frame.f_lineno, frame.f_code.co_name)
            is_installed = "site-packages" in file or "dist-packages" in file
            if not is_installed and not file.startswith(_STANDARD_LIBRARY):
                return found
            if is_installed:
                fallback = fallback or found
        frame = frame.f_back
    return fallback


def is_autotuning():
    """Returns whether PyTorch or Triton is reading a time to choose a kernel by measurement."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    file = frame.f_code.co_filename if frame else ""
    if frame and frame.f_code.co_name == "elapsed_time":
        # Of `torch.cuda.Event`, by which programs log times, too.
        file = frame.f_back.f_code.co_filename
        return any(f"{os.sep}{name}{os.sep}" in file for name in ("_inductor", "triton"))
    # The rest is measured in C++, for kernels of cuDNN, and for the statistics of DDP.
    return not file.endswith(os.path.join("nn", "parallel", "distributed.py"))
