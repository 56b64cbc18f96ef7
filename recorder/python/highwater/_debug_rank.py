"""The part of `highwater.debug` that runs on each rank: reports totals, records steps, and sends recordings."""

import base64
import ctypes
import functools
import json
import os
import re
import socket

from torch._C._distributed_c10d import _register_handler

from . import _attached, _binary, _device, _files, _main_thread, _session
from ._recording import record_memory_history
from .snapshot import Snapshot

# Recordings that the page names.
_MAX_FILES = 10
_NAME = re.compile(r"[\w-]+")

# Those of `Memory`: the folder of recordings, and options of `record_memory_history`.
_folder = ""
_options: dict = {}
# The recordings, newest last.
_paths: list = []


def serve(folder, options):
    """Starts answering the requests of the page in this process.

    Raises:
        TypeError, ValueError: the options are not those of `record_memory_history`.
    """
    record_memory_history(**options)
    global _folder, _options
    _folder, _options = os.path.abspath(os.path.expanduser(folder)), options


def _totals(request):
    """Returns the memory in use by the process, and its recordings."""
    session = _session.active()
    rows, step = [], None
    if session is not None:
        # The program changes the modules and the optimizers that are listed.
        rows, step = _main_thread.call(lambda: (session.live_tensors(), session.step_number()))
    categories = {}
    for _, size, category, _ in rows:
        categories[category] = categories.get(category, 0) + size
    files = [
        {"row": row, "path": path, "bytes": os.path.getsize(path), "peak": _peak(path)}
        for row, path in enumerate(_paths)
        if os.path.exists(path)
    ]
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "step": step,
        "is_recording": _attached.is_active(),
        "devices": [_counts(device) for device in _device.in_use()] if _device.is_used() else [],
        "categories": categories,
        "files": files[-_MAX_FILES:],
    }


def _counts(device):
    stats = _device.stats(device)
    counts = {"device": device}
    for name in ("allocated", "reserved"):
        bytes_of = stats[f"{name}_bytes"]["all"]
        counts.update({name: bytes_of["current"], f"{name}_peak": bytes_of["peak"]})
    return counts


@functools.lru_cache(maxsize=_MAX_FILES)
def _peak(path):
    """Returns the bytes of each category at the peak of a recording; None if it cannot be read."""
    try:
        peak = Snapshot(path).peak(by="category")
    except (_binary.HighwaterError, OSError):
        return None
    return {"bytes": peak["bytes"], "groups": {group["key"]: group["bytes"] for group in peak["groups"]}}


def _record(request):
    """Records the next steps. If the program is being recorded, writes that recording instead."""
    count, name = int(request.get_param("steps")), request.get_param("name")
    if count < 1 or _NAME.fullmatch(name) is None:
        raise ValueError(f"steps={count}, name={name!r}: expected a number from 1, and a word")
    _main_thread.call(lambda: _begin(count, name))
    return {}


def _begin(count, name):
    session = _session.active()
    os.makedirs(_folder, exist_ok=True)
    path = _files.resolve(os.path.join(_folder, name))
    if session is not None and not _attached.is_active():
        _paths.append(session.dump(path))
    else:
        # The step that is running is not whole.
        _attached.begin(path, {**_options, "steps": range(1, count + 1)}, _note)


def _note(line):
    event, _, path = line.partition(" ")
    if event == "written":
        _paths.append(path)


def _file(request):
    """Returns a recording of this rank as base64. Responds to requests for other ranks with an empty text."""
    rank, row = int(request.get_param("rank")), int(request.get_param("row"))
    if rank != int(os.environ["RANK"]):
        return {}
    with open(_paths[row], "rb") as file:
        return {"name": os.path.basename(_paths[row]), "base64": base64.b64encode(file.read()).decode()}


def _answer(function):
    def handle(request, response):
        try:
            text, status = json.dumps(function(request)), 200
        except Exception as error:  # noqa: BLE001
            # PyTorch's server is on a thread without Python, where an exception would end the process.
            text, status = f"{type(error).__name__}: {error}", 500
        response.set_content(text, "application/json")
        response.set_status(status)

    return handle


for _name, _function in {"memory": _totals, "record": _record, "file": _file}.items():
    _handler = _answer(_function)
    # PyTorch drops its references after Python has ended: dropping the last one there would abort the process.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_handler))
    _register_handler(f"highwater_{_name}", _handler)
