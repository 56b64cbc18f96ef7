"""Records a program that is running, for `highwater attach`, which has the main thread of the program call this module.

Events are written to a file that `highwater attach` reads, a line each: `recording`, `written PATH`, `ended`,
`error TEXT`.
"""

import contextlib
import sys

from ._program import ProgramRecording

_attached = None


def attach(path, notes, options):
    """Begins a recording, which ends after the steps in `options`, at `detach`, or with the program."""
    global _attached
    try:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            raise RuntimeError("it has not used CUDA through PyTorch yet: `highwater run` records a program from its start")
        if _attached is not None and _attached.is_active():
            raise RuntimeError("another `highwater attach` records it")
        recording = ProgramRecording(path, **options)
        recording.gives_hints = False
        recording.on_over = detach
        recording.on_path = lambda written: _note(notes, f"written {written}")
        recording.on_end = lambda: _note(notes, "ended")
        if not recording.begin():
            raise RuntimeError("only PyTorch's own allocator on CUDA records")
        _attached = recording
        _note(notes, "recording")
    except Exception as error:  # noqa: BLE001
        _note(notes, f"error {' '.join(str(error).split())}")


def detach():
    """Ends the recording, and undoes everything that it has changed in the program."""
    recording = _attached
    if recording is not None:
        recording.finish()


def _note(notes, line):
    # Whoever attached may be gone.
    with contextlib.suppress(OSError), open(notes, "a", encoding="utf-8") as file:
        file.write(line + "\n")
