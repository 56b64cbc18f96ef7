"""Sizes, peaks and recordings of single tests, for the pytest plugin."""

import gc
import hashlib
import os
import re
import shutil
import tempfile

from . import _binary
from .snapshot import Snapshot

METRICS = ("allocated", "reserved", "requested")
_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?|)b\s*", re.IGNORECASE)
# Number of modules that a report names.
_LARGEST = 5
# The file names of some test ids are longer than a file system accepts.
_LONGEST_NAME = 150


def parse_size(size):
    """Returns a size in bytes: `"4GiB"` is 4 * 2^30, `"4GB"` is 4 * 10^9, an integer is a number of bytes.

    Raises:
        ValueError: not a size.
    """
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise ValueError(f"invalid size {size!r}: expected a number and a unit, such as '4GiB' or '500MB', or bytes")
    number, unit = match.groups()
    scale = _SCALES[unit.lower()]
    return round(float(number) * scale) if "." in number else int(number) * scale


def format_size(size):
    """Formats bytes, such as `5.67 GiB`. Whole numbers have no decimals."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size // scale} {unit}" if size % scale == 0 else f"{size / scale:.2f} {unit}"
    return f"{size} B"


def why_unavailable(devices=()):
    """Returns the reason that the CUDA memory of `devices` cannot be measured; None if it can."""
    try:
        import torch
    except ImportError as error:
        return f"PyTorch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return "CUDA is not available"
    missing = [device for device in devices if device >= torch.cuda.device_count()]
    return f"CUDA device {missing[0]} is not available" if missing else None


def allocated(device):
    """Returns the bytes of live tensors, without tensors that only the garbage collector can free."""
    import torch

    gc.collect()
    torch.cuda.synchronize(device)
    return torch.cuda.memory_allocated(device)


# The objects of this class that are in use.
_active_peaks: list = []


class Peaks:
    """Measures the peaks of devices from `__enter__`, or the last `reset`, to `__exit__`.

    PyTorch has one counter for each device and metric. When one of these objects resets the counter, the others store
    its value first.
    """

    def __init__(self, devices):
        self._devices, self._kept = devices, {}

    def __enter__(self):
        self.reset()
        _active_peaks.append(self)
        return self

    def __exit__(self, *error):
        _active_peaks.remove(self)

    def reset(self):
        """Starts a new measurement."""
        import torch

        for peaks in _active_peaks:
            peaks._kept = peaks.read()
        for device in self._devices:
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
        self._kept = {}

    def read(self):
        """Returns the bytes by device and metric."""
        import torch

        read = {}
        for device in self._devices:
            torch.cuda.synchronize(device)
            stats = torch.cuda.memory_stats(device)
            for metric in METRICS:
                kept = self._kept.get((device, metric), 0)
                read[device, metric] = max(kept, stats.get(f"{metric}_bytes.all.peak", 0))
        return read


class CudaMemory:
    """The memory of the current CUDA device since the fixture was set up."""

    def __init__(self, device, peaks):
        self._device, self._peaks = device, peaks
        self._before = allocated(device)

    @property
    def peak(self):
        """Bytes allocated at the peak since the fixture was set up or `reset` was called."""
        return self._peaks.read()[self._device, "allocated"]

    @property
    def grown(self):
        """Currently allocated bytes, minus those at the setup of the fixture."""
        return allocated(self._device) - self._before

    def reset(self):
        """Starts a new measurement of the peak."""
        self._peaks.reset()


class TestRecording:
    """The recording of a test, in a temporary folder. A failure to record does not fail the test."""

    # Pytest collects classes that are named like this one.
    __test__ = False

    def __init__(self, test_id):
        # Test ids that differ only in characters that file names cannot have must not share a file.
        digest = hashlib.sha256(test_id.encode()).hexdigest()[:8]
        stem = re.sub("[^A-Za-z0-9_.]+", "-", test_id)[-_LONGEST_NAME:].strip("-.")
        self._name = f"{stem}-{digest}.snap"
        self._run = self._folder = None
        self._is_kept = False
        self.path = None
        # Why there is no file.
        self.problem = None

    def start(self):
        """Starts the recording."""
        try:
            from highwater import record_memory_history

            self._folder = tempfile.mkdtemp(prefix="highwater-")
            run = record_memory_history(os.path.join(self._folder, self._name), stacks="python", context="alloc")
            run._gives_hints = False
            run.__enter__()
            self._run = run
        except Exception as error:  # noqa: BLE001
            self.problem = str(error)

    def discard(self):
        """Ends the recording of a test without writing a file, which is much faster."""
        if self._run is not None:
            self._run._discard()
        self.stop()

    def stop(self, kind=None, error=None, trace=None):
        """Ends the recording. The exception of the test, if any, is passed to it."""
        run, self._run = self._run, None
        if run is None:
            return
        try:
            run.__exit__(kind, error, trace)
            self.path = run.path
        except Exception as failure:  # noqa: BLE001
            self.problem = str(failure)
        if self.path is None and self.problem is None:
            self.problem = "no file was written; see the warnings"

    def largest(self, **question):
        """Returns the largest groups as pairs of bytes and name: modules, or lines of code if no module is known.

        Raises:
            HighwaterError: the program failed.
        """
        for by in ("scope,phase", "frame"):
            groups = Snapshot(self.path).peak(by=by, top=_LARGEST, **question)["groups"]
            # Names in parentheses are not modules: "(none)", or "(free in segments)" of reserved memory.
            if any(not (group["keys"].get("scope") or "(").startswith("(") for group in groups):
                break
        return [(group["bytes"], _group_name(group["keys"])) for group in groups]

    def explain_oom(self):
        """Returns the text of `highwater oom`.

        Raises:
            HighwaterError: the program failed.
        """
        return self.without_removed(_binary.run(["oom", self.path]).rstrip())

    def without_removed(self, text):
        """Returns a text of the program without its `Next:` paragraph, which names the file, unless the file is
        kept."""
        return text if self._is_kept else re.sub(r"(?ms)^\s*Next: .*?(\n\s*\n|\Z)", "", text).rstrip()

    def keep(self, folder):
        """Moves the file to `folder`."""
        os.makedirs(folder, exist_ok=True)
        self.path = shutil.move(self.path, os.path.join(folder, os.path.basename(self.path)))
        self._is_kept = True

    def remove(self):
        """Removes the files that `keep` has not moved."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _is_known(value):
    # Groups that are not blocks may have only the first key.
    return value not in (None, "", "(none)")


def _group_name(keys):
    if "frame" in keys:
        return keys["frame"] if _is_known(keys["frame"]) else "no stack recorded"
    scope, phase = keys.get("scope"), keys.get("phase")
    scope = scope if _is_known(scope) else "outside of modules"
    return f"{scope} ({phase})" if _is_known(phase) else scope
