"""Records a PyTorch program that `highwater run` has started, as the environment tells, without a change to the program.

`highwater run` puts this package and a `sitecustomize.py` in front of the program's path, which imports this module when
the program imports PyTorch. The recording begins when the program first uses CUDA. Nothing here may stop the program.
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
_LEVEL = "HIGHWATER_RUN_LEVEL"
_RING = "HIGHWATER_RUN_RING"
_STEPS = "HIGHWATER_RUN_STEPS"
_DRIVER = "HIGHWATER_RUN_DRIVER"

# The process that is being recorded.
_process = None


def finder():
    """Returns the finder that has PyTorch be recorded when it is imported."""
    return AroundTorch(lambda spec: None, _after_torch)


def _after_torch(torch):
    if os.environ.get(_FILE):
        # A process that was forked off begins on its own.
        torch.cuda._lazy_call(_begin)


def _begin():
    global _process
    if _process == os.getpid():
        return
    _process = os.getpid()
    try:
        _leave_driver()
        steps, ring = os.environ.get(_STEPS), os.environ.get(_RING)
        options = {"steps": range(*map(int, steps.split("..")))} if steps else {}
        if ring:
            options["max_entries"] = int(ring)
        if os.environ.get(_LEVEL) == "events":
            options["context"] = None
        recording = ProgramRecording(_path(), **options)
        recording.gives_hints = False
        recording.name_file = _Claims(os.environ.get(_CLAIMS, "")).name
        # Without a recording, this tells that CUDA was used.
        with contextlib.suppress(OSError), open(os.path.join(os.environ.get(_CLAIMS, ""), f".{_process}.begun"), "x"):
            pass
        recording.begin()
    except Exception as error:  # noqa: BLE001
        print(f"highwater: cannot record this process: {error}", file=sys.stderr)


def _leave_driver():
    """Has the preloaded library leave the recording of this process to PyTorch's, or name its own differently."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).highwater_inject_beside(int(bool(os.environ.get(_DRIVER))))


def _path():
    """Returns the path of the recording; in a folder, it is named after the script or the module."""
    path = os.environ[_FILE]
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
