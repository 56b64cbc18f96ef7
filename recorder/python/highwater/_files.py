"""Names, writes and converts the files of recordings.

A file is written under a temporary name, and moved when it is complete. An existing file at the path that the program
passed is replaced. At other paths, such as `step.oom.snap`, only an earlier recording is replaced.
"""

import contextlib
import os
import pickle
import secrets
import stat
import tempfile

from . import _binary
from ._warn import warn

_SUFFIXES = (".snap", ".pickle", ".pkl", ".json", ".folded", ".html", ".parquet")
_PICKLES = (".pickle", ".pkl")
_SNAP_MAGIC = b"\x89HWS\r\n\x1a\n"
_PAGE_TITLE = b"<title>Highwater</title>"
# Part of each pickle that is written here.
RUN_KEY = "highwater_run"


def split(path):
    """Returns a path without its suffix, and the suffix. `.gz` and the suffix before it count as one suffix."""
    stem, suffix = os.path.splitext(path)
    if suffix == ".gz":
        stem, inner = os.path.splitext(stem)
        suffix = inner + suffix
    return stem, suffix


def resolve(path):
    """Returns the absolute path of a recording, with `~` expanded. Adds `.snap` to a path without a suffix.

    Raises:
        TypeError, ValueError: not a path of a recording.
        OSError: no file can be written to this path.
    """
    try:
        asked = os.fspath(path)
    except TypeError:
        use = "; a decorator needs parentheses: @record_memory_history()" if callable(path) else ""
        raise TypeError(f"path={path!r}: expected the path of a file{use}") from None
    if not isinstance(asked, str):
        asked = os.fsdecode(asked)
    if not asked:
        raise ValueError("path='': expected the path of a file")
    if "\0" in asked:
        raise ValueError(f"path={asked!r}: a path cannot contain a null character")
    whole = os.path.abspath(os.path.expanduser(asked))
    if asked.endswith(("/", os.sep)) or os.path.isdir(whole):
        raise IsADirectoryError(f"cannot record to {asked}: it is a folder; name a file in it")
    stem, suffix = split(whole)
    if suffix and suffix.removesuffix(".gz") not in _SUFFIXES:
        raise ValueError(f"path={asked!r}: unknown suffix {suffix!r}: expected one of {', '.join(_SUFFIXES)}")
    named, whole = whole, stem + (suffix or ".snap")
    for path in {named, whole}:
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError(f"cannot record to {asked}: {path} exists but is not a regular file")
    if whole != named and os.path.exists(whole) and not is_recording(os.path.realpath(whole)):
        raise FileExistsError(f"cannot record to {asked}: {whole} exists and is not a recording; name another file")
    folder, name = os.path.split(whole)
    if "{rank}" in folder:
        # Folders of ranks are made when the file is written: the rank may not be known yet.
        folder = os.path.dirname(folder.partition("{rank}")[0])
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot record to {asked}: there is no folder {folder}")
    try:
        tempfile.TemporaryFile(dir=folder).close()
        with contextlib.suppress(FileNotFoundError):
            # About the longest name that follows from this one.
            os.lstat(os.path.join(folder, beside(name, "rank9999.oom-9")))
    except OSError as error:
        raise type(error)(f"cannot record to {asked}: {error.strerror}") from None
    return whole


def of_rank(path, rank, world_size):
    """Returns the path of a rank's file."""
    if "{rank}" in path:
        return path.replace("{rank}", str(rank))
    return beside(path, f"rank{rank}") if world_size > 1 else path


def beside(path, word):
    """Returns the path of a further file of a recording, such as `step.oom.snap`."""
    stem, suffix = split(path)
    return f"{stem}.{word}{suffix}"


def write(snapshot, path, on_path, *, is_asked, convert, keep_pickle):
    """Writes PyTorch's snapshot to `path`, in the format of its suffix. Returns the path of the file.

    Without conversion, or if it fails, the file is the pickle beside `path`. `is_asked` is whether the program passed
    `path` itself. `on_path` is called with the path of the file before any warning, which may be an error.

    Raises:
        OSError: the file cannot be written. Incomplete files are removed.
    """
    stem, suffix = split(path)
    folder = os.path.dirname(path)
    # `highwater run` removes what a process that was killed meanwhile has left: it knows its own folder's name.
    run = os.path.basename(os.environ.get("HIGHWATER_RUN_CLAIMS", "")) or "highwater"
    hidden = os.path.join(folder, f".{run}-{os.getpid()}-{secrets.token_hex(4)}")
    pickled, converted = hidden + ".pickle", hidden + suffix
    beside_it = path if suffix in _PICKLES else stem + ".pickle"
    warnings = []

    def place(temporary, path, is_asked):
        """Moves a complete file to `path`, or to the next free name. Returns the final path."""
        # A link keeps leading to the file.
        placed = os.path.realpath(path) if is_asked else derived(path, warnings.append)
        os.replace(temporary, placed)
        return placed

    os.makedirs(folder, exist_ok=True)
    try:
        with open(pickled, "xb") as file:
            # The newest protocol that PyTorch's own page reads.
            pickle.dump(snapshot, file, protocol=4)
        if not convert or suffix in _PICKLES:
            written = place(pickled, beside_it, is_asked and beside_it == path)
        else:
            try:
                _binary.run(["convert", pickled, converted])
            except (_binary.HighwaterError, OSError) as error:
                written = place(pickled, beside_it, False)
                reason = str(error).replace(pickled, written)
                warnings.append(f"cannot convert {written}, which is kept: {reason}")
            else:
                if keep_pickle:
                    place(pickled, beside_it, False)
                written = place(converted, path, is_asked)
        on_path(written)
    finally:
        for left in (pickled, converted):
            with contextlib.suppress(OSError):
                os.remove(left)
    for text in warnings:
        warn(text)
    return written


def derived(path, warn=warn):
    """Returns a path that the program did not choose, or the next numbered one if the file there is not a recording."""
    stem, suffix = split(path)
    taken, number = path, 1
    while os.path.lexists(path) and not is_recording(path):
        number += 1
        path = f"{stem}-{number}{suffix}"
    if number > 1:
        warn(f"{taken} is not a recording and is left unchanged: writing {path} instead")
    return path


def is_recording(path):
    """Returns whether a file is a recording of this package, or a page that contains one."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if os.path.islink(path) or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return False
        first = file.read(len(_SNAP_MAGIC))
        if first == _SNAP_MAGIC:
            return True
        if first[:1] == b"\x80":
            return _holds(file, RUN_KEY.encode())
        if first[:1] == b"<":
            return _PAGE_TITLE in file.read(1000)
    return False


def _holds(file, text):
    last = b""
    while part := file.read(1 << 20):
        if text in last + part:
            return True
        last = part[-len(text) :]
    return False
