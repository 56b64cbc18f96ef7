"""Records the memory of a PyTorch program."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import time
import warnings
from typing import Any

import torch

from . import _binary, _tags
from ._names import ModuleNames
from ._tags import Tags
from ._tensors import live_tensors, parameter_names
from ._tracker import Tracker
from .snapshot import Snapshot

# PyTorch has one recorder for the process.
_active = None
# An observer of out-of-memory errors cannot be removed again: there is one for all recordings.
_has_observer = False


class record_memory_history(contextlib.ContextDecorator):
    """Records every allocation of CUDA memory with its module, phase and step.

    >>> with record_memory_history("step.snap") as run:
    ...     for batch in batches:
    ...         train_step(batch)

    Also a decorator. Steps, phases, modules and optimizers are found without further help. A step ends where forward
    runs for the first time after an optimizer; with several optimizers, call `run.step()` at its end.

    Args:
        path: the recording. `{rank}` is replaced; otherwise each rank of several writes `step.rank3.snap`.
        model: the model, or a dict of models by name. By default the first module that is called is the model.
        stacks: "python", or "all" for C++ frames too, which is slow.
        context: "alloc" for stacks of allocations, "all" for those of frees too, None for no stacks.
        max_entries: number of events that PyTorch keeps; older ones are lost.
        depth: number of levels of modules that are distinguished. Fewer cost less.
        steps: the steps to record, as a range: `range(500, 503)`. Steps are counted from 0.
        references: whether references to tensors are followed in the first two recorded steps, so that `plan` and
            `whatif(checkpoint=…)` predict recomputed modules more exactly. Costs about 25 ms in each of these steps for
            12 blocks.
        on_oom: whether a failed allocation writes `step.oom.snap`, the first time.
        convert: whether the snapshot is converted to a `.snap` file, which is about 100 times smaller.
        keep_pickle: whether PyTorch's own file is kept as well.

    Attributes:
        path: the file written last; None before.

    Raises:
        RuntimeError: another recording is active.
        FileNotFoundError: the folder of `path` does not exist.
        ValueError: `steps` is not a range of successive steps.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "memory.snap",
        *,
        model: torch.nn.Module | dict[str, torch.nn.Module] | None = None,
        stacks: str = "python",
        context: str | None = "alloc",
        max_entries: int = 1_000_000,
        depth: int | None = None,
        steps: range | None = None,
        references: bool = True,
        on_oom: bool = True,
        convert: bool = True,
        keep_pickle: bool = False,
    ) -> None:
        if steps is not None and not (isinstance(steps, range) and steps.step == 1 and steps):
            raise ValueError(f"steps={steps!r}: expected a range of successive steps, such as range(500, 503)")
        self.path: str | None = None
        self._asked_path = os.fspath(path)
        self._model, self._depth, self._steps = model, depth, steps
        self._stacks, self._context, self._max_entries = stacks, context, max_entries
        self._follows_references = references
        self._on_oom, self._convert, self._keep_pickle = on_oom, convert, keep_pickle
        self._tracker: Tracker | None = None

    def __enter__(self) -> record_memory_history:
        global _active
        if _active is not None:
            raise RuntimeError("a recording is active: PyTorch has one recorder for each process; end the first one")
        folder = os.path.dirname(os.path.abspath(self._asked_path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"cannot record to {self._asked_path}: there is no folder {folder}")
        if not torch.cuda.is_available():
            warnings.warn("highwater: CUDA is not available; nothing is recorded", stacklevel=2)
            return self
        if torch.cuda.get_allocator_backend() != "native":
            warnings.warn("highwater: only PyTorch's own allocator records; nothing is recorded", stacklevel=2)
            return self
        # An observer attached before would crash PyTorch.
        torch.cuda.init()
        kind = _tags.kind()
        if kind is None:
            warnings.warn(
                f"highwater: PyTorch {torch.__version__} has no tags: modules are not recorded (2.6 or later)",
                stacklevel=2,
            )
        self._kind = kind
        self._names = ModuleNames(self._model, self._depth)
        self._early_tensors: list[list[Any]] = []
        self._listed_roots: set[str] = set()
        self._listed_names: dict[int, str] = {}
        self._tracker = tracker = Tracker(Tags(kind), self._names, self._begin_step, self._list_tensors)
        self._is_recording = False
        self._is_over = False
        self._last_step = -1
        self._has_dumped_oom = False
        _active = self
        try:
            if self._on_oom:
                _attach_observer()
            self._begin_step(0)
            if kind is not None:
                tracker.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._tracker is None:
            return
        try:
            is_oom = kind is not None and issubclass(kind, torch.cuda.OutOfMemoryError)
            if self._is_recording and not (is_oom and self._has_dumped_oom):
                self._dump_quietly("end" if kind is None else "exception")
            if self.path is None and kind is None and not self._is_over:
                warnings.warn(f"highwater: no file was written: no step was in {self._steps}", stacklevel=2)
        finally:
            self._end()

    def step(self) -> None:
        """Ends a step. Call it where the recording cannot tell: with several optimizers, or with none.

        Once it has been called, steps end only there.
        """
        if self._tracker is not None:
            self._tracker.step()

    def dump(self, path: str | os.PathLike[str] | None = None) -> str:
        """Writes what was recorded so far to `path`, by default the recording's; returns the path of the file."""
        if self._tracker is None:
            raise RuntimeError("no recording is active: call dump() within the `with` statement")
        if not self._is_recording:
            raise RuntimeError(f"nothing is being recorded: this step is not in {self._steps}")
        self.path = self._write(self._snapshot("dump"), os.fspath(path or self._asked_path))
        return self.path

    def _discard(self):
        """Ends the recording without a file, for the pytest plugin."""
        self._is_recording, self._is_over = False, True

    def _begin_step(self, number):
        if self._steps is not None and number <= self._last_step:
            # The program has ended its first step, which had been taken for several.
            self._is_recording = self._is_over = False
            torch.cuda.memory._record_memory_history(None)
        self._last_step = number
        is_wanted = self._steps is None or number in self._steps
        if is_wanted and not self._is_recording and not self._is_over:
            self._is_recording = True
            torch.cuda.memory._record_memory_history(
                "all", context=self._context, stacks=self._stacks, max_entries=self._max_entries
            )
        elif self._is_recording and not is_wanted:
            self._dump_quietly("end")
            self._is_recording, self._is_over = False, True
            torch.cuda.memory._record_memory_history(None)
        self._tracker.references.begin_step(self._is_recording and self._follows_references)

    def _list_tensors(self, optimizer):
        """Lists what an optimizer works on after its first step: the model may be gone at the end."""
        now = time.time_ns() // 1000
        roots = self._names.roots()
        if len(roots) != len(self._listed_roots):
            self._listed_names = parameter_names(roots)
        new = [row for row in roots if row[0] not in self._listed_roots]
        self._listed_roots.update(name for name, _ in new)
        for row in live_tensors(new, [optimizer], self._listed_names):
            # Gradients are freed too soon for a match by time.
            if row[2] != "gradient":
                self._early_tensors.append([*row, now])

    def _live_tensors(self):
        roots = self._names.roots()
        return live_tensors(roots, self._tracker.optimizers(), parameter_names(roots))

    def _end(self):
        global _active
        try:
            self._tracker.stop()
        finally:
            torch.cuda.memory._record_memory_history(None)
            self._tracker = None
            _active = None

    def _snapshot(self, reason):
        """Returns PyTorch's snapshot with facts about this program."""
        snapshot = torch.cuda.memory._snapshot()
        tracker = self._tracker
        rank, world_size = _rank()
        notes = list(self._notes())
        try:
            tensors = self._live_tensors()
        except Exception as error:  # noqa: BLE001
            # Of a module or an optimizer that overrides what lists its tensors.
            tensors = []
            notes.append(f"the tensors that were live at the end are not known: {error}")
        run = {
            "version": 1,
            "reason": reason,
            # A plain string: the type of `torch.__version__` would be pickled as a class.
            "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda),
            "tags": str(self._kind),
            "rank": rank,
            "world_size": world_size,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "program": " ".join(sys.argv),
            "max_entries": self._max_entries,
            "stacks": str(self._stacks),
            "extra_steps": tracker.extra_steps,
            "notes": "\n".join(notes),
            "tensors": self._early_tensors + tensors,
            "references": tracker.references.text(),
        }
        for device in tracker.references.devices():
            run[f"device.{device}.allocations"] = torch.cuda.memory_stats(device)["allocation.all.allocated"]
        for device in range(torch.cuda.device_count()):
            # Asking for the properties of a device that is not used would create a context on it.
            if torch.cuda.memory_reserved(device) or device == torch.cuda.current_device():
                run[f"device.{device}.name"] = torch.cuda.get_device_name(device)
                run[f"device.{device}.total_bytes"] = torch.cuda.get_device_properties(device).total_memory
        snapshot["highwater_run"] = run
        return snapshot

    def _notes(self):
        compiled = [name or "the model" for name in self._names.compiled_names()]
        if compiled:
            yield f"compiled by torch.compile, so that their submodules are not distinguished: {', '.join(compiled)}"
        yield from self._tracker.all_notes()

    def _write(self, snapshot, path):
        stem, suffix = os.path.splitext(path)
        rank, world_size = _rank()
        if "{rank}" in stem:
            stem = stem.replace("{rank}", str(rank))
        elif world_size > 1:
            stem += f".rank{rank}"
        out, pickled = stem + (suffix or ".snap"), stem + ".pickle"
        with open(pickled, "wb") as file:
            # The newest protocol that PyTorch's own page reads.
            pickle.dump(snapshot, file, protocol=4)
        if not self._convert or out == pickled:
            return pickled
        try:
            _binary.run(["convert", pickled, out])
        except (_binary.HighwaterError, OSError) as error:
            warnings.warn(f"highwater: cannot convert {pickled}, which is kept: {error}", stacklevel=2)
            return pickled
        if not self._keep_pickle:
            os.remove(pickled)
        return out

    def _dump_quietly(self, reason):
        """Writes the recording; an error is a warning, so that neither the program nor its own error is lost."""
        stem, suffix = os.path.splitext(self._asked_path)
        path = f"{stem}.oom{suffix}" if reason == "oom" else self._asked_path
        try:
            self.path = self._write(self._snapshot(reason), path)
        except Exception as error:  # noqa: BLE001
            warnings.warn(f"highwater: cannot write {path}: {error}", stacklevel=2)

    def _observe_oom(self):
        if self._on_oom and self._is_recording and not self._has_dumped_oom:
            self._has_dumped_oom = True
            self._dump_quietly("oom")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if self.path is None:
            return {"text/plain": "a recording that has not been written"}
        return Snapshot(self.path)._repr_mimebundle_(include, exclude)


def _attach_observer():
    global _has_observer
    if not _has_observer:
        _has_observer = True
        torch._C._cuda_attach_out_of_memory_observer(_observe_oom)


def _observe_oom(device, requested, total, free):
    # Raising here would hide the error of the program.
    with contextlib.suppress(Exception):
        if _active is not None:
            _active._observe_oom()


def _rank():
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    numbers = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return tuple(map(int, numbers)) if all(number.isdecimal() for number in numbers) else (0, 1)
