"""What a simulated GPU cannot answer exactly, by line of the program, and what recordings say about it."""

import collections
import json
import linecache
import os
import sys

# As in the library's `notes.rs`.
MISSING, UNKNOWN_WORKSPACE, UNKNOWN_VALUE = 0, 1, 2

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Noted:
    """What is noted from the creation of this object on.

    `simulation` has all notes of the process in `notes`, as counts by kind, function and line of the program.
    """

    def __init__(self, simulation):
        self._simulation, self._before = simulation, collections.Counter(simulation.notes)

    def rows(self, kind):
        """Returns the notes of a kind as dicts: function, file, line, text of the line, and count."""
        rows = []
        for (of_kind, name, place), count in sorted((self._simulation.notes - self._before).items(), key=str):
            if of_kind == kind:
                file, line, function = place or (None, None, None)
                text = linecache.getline(file, line).strip() if file else ""
                row = {"name": name, "file": file, "line": line, "function": function, "text": text, "count": count}
                rows.append(row)
        return rows

    def describe(self):
        """Returns the facts for a recording, and the notes for every answer about it."""
        import torch

        simulation = self._simulation
        device = torch.cuda.get_device_properties(torch.cuda.current_device())
        name = f"{device.name} (compute capability {device.major}.{device.minor})"
        notes = [f"simulated: recorded on a simulated {name}; what lies outside of PyTorch's allocator is not included"]
        if simulation.rank is not None:
            of = "rank {} of {}".format(*simulation.rank)
            notes.append(f"simulated alone as {of}: the other ranks are taken to have the same values")
        found = {
            "gpu": device.name,
            "capability": f"{device.major}.{device.minor}",
            # Of the whole process, which may initialize its model before a recording begins.
            "skipped_bytes": simulation.skipped_bytes,
            "cudnn": torch.backends.cudnn.version(),
            "endless": simulation.endless,
            "missing": self.rows(MISSING),
            "unknown_workspaces": self.rows(UNKNOWN_WORKSPACE),
            "reads": self.rows(UNKNOWN_VALUE),
        }
        return {"simulated": name, "simulation": json.dumps(found)}, notes


def place():
    """Returns the innermost line of the program that is running: file, line and function."""
    # A thread of the autograd engine has no frame of the program.
    frame, fallback = sys._getframe(1), None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE) and not file.startswith("<") and f"{os.sep}torch{os.sep}" not in file:
            found = (file, frame.f_lineno, frame.f_code.co_name)
            if "site-packages" not in file and "dist-packages" not in file:
                return found
            fallback = fallback or found
        frame = frame.f_back
    return fallback
