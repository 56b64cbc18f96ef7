"""Records a PyTorch program as its environment tells, without a change to the program.

`highwater run` puts this package and a `sitecustomize.py` in front of the program's path, which imports this module when
the program imports PyTorch. Without it, `highwater.pth` does so in an environment in which the package is installed,
where HIGHWATER_RECORD or HIGHWATER_OOM_SNAPSHOT is set. The recording begins when the program first uses CUDA. Nothing
here may stop the program.
"""

import contextlib
import ctypes
import os
import sys

from . import _files
from ._around_torch import AroundTorch
from ._program import ProgramRecording

# Set by `highwater run`: the recording, or the folder for it; the folder in which processes claim their files; settings.
_FILE = "HIGHWATER_RUN_FILE"
_CLAIMS = "HIGHWATER_RUN_CLAIMS"
_DRIVER = "HIGHWATER_RUN_DRIVER"
# Set by the user: the recording, or the folder for it; or the folder for recordings of failed requests alone.
_RECORD = "HIGHWATER_RECORD"
_OOM_SNAPSHOT = "HIGHWATER_OOM_SNAPSHOT"
# The process that records to the file that the user has named, for those that it starts.
_RECORDER = "HIGHWATER_RECORDER"

# The process that is being recorded.
_process = None


def start():
    """Has PyTorch be recorded when it is imported, unless `highwater run` sees to that."""
    if not os.environ.get(_FILE):
        sys.meta_path.insert(0, finder())


def finder():
    """Returns the finder that has PyTorch be recorded when it is imported."""
    return AroundTorch(lambda spec: None, _after_torch)


def _after_torch(torch):
    if any(os.environ.get(name) for name in (_FILE, _RECORD, _OOM_SNAPSHOT)):
        # A process that was forked off begins on its own.
        torch.cuda._lazy_call(_begin)


def _begin():
    global _process
    if _process == os.getpid():
        return
    _process = os.getpid()
    try:
        is_run = bool(os.environ.get(_FILE))
        if is_run:
            _leave_driver()
        path = os.environ.get(_FILE) or os.environ.get(_RECORD)
        # At the end of the program, nothing is written of what is kept for a failed request.
        is_for_oom = not path
        recording = ProgramRecording(_path(path or os.path.join(os.environ[_OOM_SNAPSHOT], "")), **_options(is_run))
        recording.gives_hints = False
        if is_run:
            claims = os.environ.get(_CLAIMS, "")
            recording.name_file = _Claims(claims).name
            # Without a recording, this tells that CUDA was used.
            with contextlib.suppress(OSError), open(os.path.join(claims, f".{_process}.begun"), "x"):
                pass
        elif is_for_oom or os.environ.setdefault(_RECORDER, str(_process)) != str(_process):
            recording.name_file = _name_by_process
        recording.is_for_oom = is_for_oom
        recording.begin()
    except Exception as error:  # noqa: BLE001
        print(f"highwater: cannot record this process: {error}", file=sys.stderr)


def _options(is_run):
    """Returns the options of the recording: from variables of `highwater run`, or of the same words without it."""
    prefix = "HIGHWATER_RUN_" if is_run else "HIGHWATER_"
    options = {}
    for name, (option, read, expected) in _VARIABLES.items():
        text = os.environ.get(prefix + name)
        try:
            options.update({option: read(text)} if text else {})
        except (KeyError, ValueError):
            raise ValueError(f"{prefix}{name}={text!r}: expected {expected}") from None
    return options


def _steps(text):
    first, _, end = text.partition("..")
    return range(int(first), int(end))


# What the variables set, how they are read, and what they may be.
_VARIABLES = {
    "STEPS": ("steps", _steps, "the first step and the one after the last, as 10..13"),
    "RING": ("max_entries", int, "a number of events"),
    "LEVEL": ("context", {"stacks": "alloc", "events": None, "state": "state"}.__getitem__, "stacks, events or state"),
}


def _name_by_process(path, rank, world_size):
    return _beside(path, f"rank{rank}" if world_size > 1 else f"pid{os.getpid()}")


def _leave_driver():
    """Has the preloaded library leave the recording of this process to PyTorch's, or name its own differently."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).highwater_inject_beside(int(bool(os.environ.get(_DRIVER))))


def _path(path):
    """Returns the path of the recording; in a folder, it is named after the script or the module."""
    if path.endswith(os.sep):
        os.makedirs(path, exist_ok=True)
    if not os.path.isdir(path):
        return path
    script = sys.argv[0] if sys.argv else ""
    name = os.path.splitext(os.path.basename(script))[0]
    if name == "__main__":
        name = os.path.basename(os.path.dirname(script))
    return os.path.join(path, (name if name not in ("", "-", "-c") else "python") + ".snap")


class _Claims:
    """The names of this process's files: the first process of a run has the asked name, ranks and others have more."""

    def __init__(self, folder):
        self._folder = folder
        self._word = None

    def name(self, path, rank, world_size):
        """Returns the path of the file for `path`, and notes it for `highwater run`."""
        if self._word is None:
            word = f"rank{rank}" if world_size > 1 else ""
            self._word = word if self._claim(_beside(path, word)) else f"pid{os.getpid()}"
        named = _beside(path, self._word)
        self._claim(named)
        return named

    def _claim(self, path):
        """Notes a file; returns whether no other process has."""
        with contextlib.suppress(OSError), open(os.path.join(self._folder, os.path.basename(path)), "x") as claim:
            claim.write(path)
            return True
        return False


def _beside(path, word):
    return _files.beside(path, word) if word else path
