"""Records a program that is running, for `highwater attach`, which has the main thread of the program call this module,
and for PyTorch's debug server.
"""

import contextlib
import sys

from ._program import ProgramRecording

_UNUSED = "it has not used CUDA through PyTorch yet; use `highwater run` to record a program from its start"
_attached = None


def attach(path, notes, options):
    """Begins a recording for `highwater attach`, which reads the file `notes`, a line for each event.

    The lines are those of `begin`, and `error TEXT`.
    """

    def note(line):
        # Whoever attached may be gone.
        with contextlib.suppress(OSError), open(notes, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    try:
        begin(path, options, note)
    except Exception as error:  # noqa: BLE001
        note(f"error {' '.join(str(error).split())}")


def begin(path, options, note):
    """Begins a recording, which ends after the steps in `options`, at `detach`, or with the program.

    `note` is called with a line for each event: `recording`, `written PATH`, `ended`.

    Raises:
        RuntimeError: the process cannot be recorded, or is being recorded this way already.
    """
    global _attached
    if "torch" not in sys.modules:
        raise RuntimeError(_UNUSED)
    from . import _device

    if not _device.is_used():
        raise RuntimeError(_UNUSED)
    if is_active():
        raise RuntimeError("it is already being recorded by `highwater attach` or PyTorch's debug server")
    recording = ProgramRecording(path, **options)
    recording.gives_hints = False
    recording.on_over = detach
    recording.on_path = lambda written: note(f"written {written}")

    def end():
        global _attached
        _attached = None
        note("ended")

    recording.on_end = end
    # Before it begins and until its file is written: the main thread may be asked for more at any line.
    _attached, has_begun = recording, False
    try:
        has_begun = recording.begin()
    finally:
        _attached = recording if has_begun else None
    if not has_begun:
        raise RuntimeError(_device.why_unavailable())
    note("recording")


def is_active():
    """Returns whether a recording by `attach` is active, or is being started or ended."""
    return _attached is not None


def detach():
    """Ends the recording, and undoes everything that it has changed in the program."""
    if _attached is not None:
        _attached.finish()
