"""Records a running program, for `highwater attach` and for PyTorch's debug server. `highwater attach` has the
program's main thread call this module.
"""

import contextlib
import os
import sys

from ._main_thread import Watch
from ._program import ProgramRecording

_UNUSED = "it has not used CUDA through PyTorch yet; use `highwater run` to record a program from its start"
# How often it is looked whether the command that waits for the recording still runs.
_LOOK_EVERY_S = 1
_attached = None
# Where the events of the recording are noted, also for a command that ends it without having begun it.
_notes: list = []


def attach(path, notes, options, awaited_by=None):
    """Begins a recording for `highwater attach`, which reads the events from the file `notes`, one per line.

    The events are those of `begin`, and `error TEXT`. The recording ends when the process `awaited_by` ends.
    """
    note = _note_to(notes)
    try:
        begin(path, options, note, awaited_by)
    except Exception as error:  # noqa: BLE001
        note(f"error {' '.join(str(error).split())}")


def end(notes):
    """Ends a recording for another `highwater attach`, which reads the events from the file `notes`, as for
    `attach`."""
    note = _note_to(notes)
    if not is_active():
        note("error nothing is being recorded by `highwater attach`")
        return
    _notes.append(note)
    detach()


def _note_to(path):
    def note(line):
        # Whoever attached may be gone.
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    return note


def begin(path, options, note, awaited_by=None):
    """Begins a recording. It ends after the steps in `options`, at `detach`, or when the process `awaited_by` or the
    program ends.

    `note` is called with a line for each event: `recording`, `written PATH`, `ended`.

    Raises:
        RuntimeError: the process cannot be recorded, or is already being recorded by `attach`.
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
    recording.gives_hints, recording.is_within_step = False, True
    recording.on_over = detach
    watches = []

    def note_all(line):
        for one in _notes:
            one(line)

    def end():
        global _attached
        _attached = None
        note_all("ended")
        while watches:
            watches.pop().stop()

    recording.on_path = lambda written: note_all(f"written {written}")
    recording.on_end = end
    _notes[:] = [note]
    # Before it begins and until its file is written: the main thread may be asked for more at any line.
    _attached, has_begun = recording, False
    try:
        has_begun = recording.begin()
    finally:
        _attached = recording if has_begun else None
    if not has_begun:
        raise RuntimeError(_device.why_unavailable())
    note("recording")
    if awaited_by is not None and is_active():
        watches.append(Watch(lambda: None if _runs(awaited_by) else detach, _LOOK_EVERY_S))
        watches[0].start()


def _runs(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # Of another user.
        pass
    return True


def is_active():
    """Returns whether a recording by `attach` is active, or is being started or ended."""
    return _attached is not None


def detach():
    """Ends the recording, and undoes all its changes to the program."""
    if _attached is not None:
        _attached.finish()
