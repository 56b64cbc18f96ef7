"""Saved: writes a recording into the folder named on the command line, with what PyTorch itself counted beside it."""

import ctypes
import gzip
import json
import os
import pathlib
import pickle
import sys

import torch

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
PROTOCOL = 4
COUNTED = ("requested", "allocated", "active", "reserved")


def save(name, counted_since=None, snapshot=None, packed=False):
    """Writes NAME.pickle, or NAME.pickle.gz if packed.

    counted_since: "start" if the recording begins before the first allocation, "reset" if PyTorch's peaks were reset
    when it began, None if PyTorch's peaks tell of another span than the recording.
    """
    if snapshot is None:
        snapshot = torch.cuda.memory._snapshot()
    write(name, pickle.dumps(snapshot, protocol=PROTOCOL), counted_since, packed)


def write(name, data, counted_since=None, packed=False):
    path = FOLDER / f"{name}.pickle{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(data, 9, mtime=0) if packed else data)
    counted = {}
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        counted[device] = {
            when: {kind: stats.get(f"{kind}_bytes.all.{when}", 0) for kind in COUNTED} for when in ("peak", "current")
        }
    told = {"torch": torch.__version__, "counted_since": counted_since, "memory_stats": counted}
    (FOLDER / f"{path.name}.told").write_text(json.dumps(told))


def cpp_pickled():
    """The snapshot as the C++ side pickles it for on-demand tools: torch::cuda::_memory_snapshot_pickled(), which has
    no Python binding and is called by its symbol. Its std::string comes back through a hidden pointer (x86-64 Linux)."""
    folder = pathlib.Path(torch.__file__).parent / "lib"
    call = ctypes.PyDLL(os.fspath(folder / "libtorch_cuda.so"))._ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev
    call.restype, call.argtypes = None, [ctypes.c_void_p]
    text = (ctypes.c_uint64 * 4)()
    call(ctypes.addressof(text))
    return ctypes.string_at(text[0], text[1])
