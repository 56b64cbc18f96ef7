"""The recordings of a process that are requested by environment variables, from its first use of a GPU."""

import contextlib
import ctypes
import os
import socket
import sys
import time

from . import _device, _files, _variables
from ._program import ProgramRecording
from ._rank import rank_and_size
from ._rotation import Rotation, numbered
from ._switch import Switch

# Set by `highwater run`: the folder in which processes claim their files, and whether the driver is recorded too.
_CLAIMS = "HIGHWATER_RUN_CLAIMS"
_DRIVER = "HIGHWATER_RUN_DRIVER"

# The process that is being recorded.
_process = None


def begin():
    """Starts the recording requested by environment variables, once per process."""
    global _process
    if _process == os.getpid() or not _asked()[1]:
        return
    _process = os.getpid()
    try:
        options, others = _variables.read()
        launch = _Launch(options, others)
    except Exception:
        _note_unrecorded()
        raise
    if "file" in others or "signal" in others:
        _note_unrecorded()
        Switch(launch.recording, others.get("file"), others.get("signal")).start()
    elif not launch.begin():
        # Where the preloaded library records the calls of the driver, this is no failure.
        why = _device.why_unavailable()
        if why is not None and not _variables.is_run():
            raise RuntimeError(why)
        _note_unrecorded(why or "")
        return
    if _variables.is_run():
        _leave_driver()


def _asked():
    """Returns the variable that requests the recording, and its value."""
    names = [_variables.RUN_FILE, _variables.RECORD, _variables.OOM_SNAPSHOT]
    return next(((name, os.environ[name]) for name in names if os.environ.get(name)), (None, None))


def _note_unrecorded(why=""):
    """Marks this process, for `highwater run`, as one that uses CUDA and has no recording yet."""
    claims = os.environ.get(_CLAIMS)
    if claims:
        with contextlib.suppress(OSError):
            with open(os.path.join(claims, f".{os.getpid()}.used"), "x") as file:
                file.write(why)


class _Launch:
    """The recordings of this process: a single one, or those started by a switch."""

    def __init__(self, options, others):
        self._options, self._others = options, others
        self._variable, value = _asked()
        self._is_for_oom = self._variable == _variables.OOM_SNAPSHOT
        if self._is_for_oom and others.keys() - {"save_s"}:
            names = ", ".join(_variables.OF_FILES)
            raise ValueError(f"{names} have no effect with {self._variable} alone: set {_variables.RECORD}=<path>")
        try:
            path, is_in_folder = _path(os.path.join(value, "") if self._is_for_oom else value)
            # The program may change its folder.
            self._path = _files.resolve(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{self._variable}={value!r}: expected a path of a file or a folder: {error}") from None
        is_run = _variables.is_run()
        claims = os.environ.get(_CLAIMS, "") if is_run else ""
        self._names = _Names(self._path, claims, is_alone=is_in_folder and not is_run)

    def begin(self):
        """Begins the recording of the whole process. Returns whether recording began."""
        recording = self.recording()
        recording.keeps_empty = False
        # At the end of the program, nothing is written of what is kept for a failed request.
        recording.is_for_oom = self._is_for_oom
        return recording.begin()

    def recording(self, number=None):
        """Returns a new recording. `number` is its number among the recordings of a switch."""
        names = self._names
        recording = ProgramRecording(self._path, **self._options)
        recording.gives_hints, recording.is_within_step = False, number is not None
        rotation = self._rotation()
        if rotation is not None:
            recording.rotate(rotation)

        def name_file(path, rank, size):
            is_whole = path == self._path
            path = names.name(path, rank, size)
            path = path if number is None else numbered(path, number)
            return path if rotation is None or not is_whole else rotation.name(path)

        def note(path):
            if rotation is not None:
                rotation.note(path)
            names.note(path)

        recording.name_file, recording.on_path = name_file, note
        recording.on_begin, recording.on_end, recording.on_terminated = names.begin, names.end, names.end
        save_s = self._others.get("save_s")
        # A switch may end its recording within a save, which would replace the whole.
        if number is None and not (self._is_for_oom or save_s == 0 or "every_s" in self._others):
            from ._saves import Saves

            recording.saves = Saves(save_s, names.note_saved)
        return recording

    def _rotation(self):
        file, disk = self._others.get("sizes", (None, None))
        every_s = self._others.get("every_s")
        if file is None and every_s is None:
            return None
        return Rotation(self._options.get("max_entries", 1_000_000), every_s, file, disk)


def _leave_driver():
    """Makes the preloaded library leave the recording of this process to PyTorch's recorder, or use another file
    name."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).highwater_inject_leave_to_framework(int(bool(os.environ.get(_DRIVER))))


def _path(path):
    """Returns the path of the recording, and whether it is in a folder and named after the script or the module."""
    if path.endswith(os.sep):
        os.makedirs(path, exist_ok=True)
    if not os.path.isdir(path):
        return path, False
    script = sys.argv[0] if sys.argv else ""
    name = os.path.splitext(os.path.basename(script))[0]
    if name == "__main__":
        name = os.path.basename(os.path.dirname(script))
    return os.path.join(path, (name if name not in ("", "-", "-c") else "python") + ".snap"), True


def _process_age_s():
    """Returns the age of this process in seconds, including the time as another program; None if the system does not
    report it."""
    with contextlib.suppress(AttributeError, IndexError, OSError, ValueError):
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    return None


class _Names:
    """The names of this process's files.

    The first process to use CUDA gets the requested name. Ranks get a name with the rank, and other processes a name
    with the process id. In a folder chosen by the user, every process gets a distinct name. A program that replaces
    another in the same process keeps the earlier files.
    """

    def __init__(self, path, claims, is_alone):
        self._path, self._claims = path, claims
        self._locks = []
        # The last file that was written, which a save may have been, and which may be gone.
        self._noted = None
        rank, size = rank_and_size()
        word = f"rank{rank}" if size > 1 else ""
        own = f"{int(time.time())}.pid{os.getpid()}" if is_alone else f"pid{os.getpid()}"
        is_free = not is_alone and self._claim(word)
        self._word = self._not_written(word if is_free else f"{word}.{own}".lstrip("."))
        self._begun = os.path.join(claims, f".{os.getpid()}.begun") if claims else None

    def name(self, path, rank, size):
        """Returns the path of the file for `path`. A process whose rank has become known gets the name of its rank."""
        word = f"rank{rank}"
        if size > 1 and not self._word.startswith("rank") and self._claim(word):
            self._word = self._not_written(word)
        return _files.beside(path, self._word) if self._word else path

    def _not_written(self, word):
        """Returns a suffix for file names that this process did not use before `os.exec…`: `word` or `word.2`."""
        age_s, unnumbered, number = _process_age_s(), word, 1

        def is_written(path):
            # Where it could not be converted, it is a pickle of the same name.
            for one in (path, _files.split(path)[0] + ".pickle"):
                with contextlib.suppress(OSError):
                    if age_s is not None and time.time() - os.stat(one).st_mtime < age_s:
                        return True
            return False

        while True:
            path = _files.beside(self._path, word) if word else self._path
            if not any(map(is_written, (path, _files.beside(path, "oom"), numbered(path, 1)))):
                return word
            number += 1
            word = f"{unnumbered}.{number}".lstrip(".")

    def _claim(self, word):
        """Claims a name for as long as this process runs. Returns whether the name was free."""
        path = os.path.abspath(_files.beside(self._path, word) if word else self._path)
        with contextlib.suppress(OSError):
            if self._claims:
                open(os.path.join(self._claims, os.path.basename(path)), "x").close()
            else:
                # A socket without a file, whose name is free again when the process has ended.
                lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                lock.bind(b"\0highwater" + os.fsencode(path)[-90:])
                self._locks.append(lock)
            return True
        return False

    def begin(self):
        """Reports to `highwater run` that a recording has begun, so that it can report the loss if the process is
        killed."""
        if self._begun:
            with contextlib.suppress(OSError):
                open(self._begun, "x").close()

    def note(self, path):
        """Notes a file for `highwater run`."""
        self._noted = path
        if self._claims:
            claim = os.path.join(self._claims, f".{os.path.basename(path)}")
            with contextlib.suppress(OSError), open(claim, "w") as file:
                file.write(path)

    def note_saved(self, path):
        """Reports to `highwater run` the file that remains if the process is killed."""
        if self._begun:
            with contextlib.suppress(OSError), open(self._begun, "w") as file:
                file.write(path)

    def end(self):
        """Notes that nothing is missing."""
        if self._noted is None or not os.path.exists(self._noted):
            _note_unrecorded()
        if self._begun:
            with contextlib.suppress(OSError):
                os.remove(self._begun)
