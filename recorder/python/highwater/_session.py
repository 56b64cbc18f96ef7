"""An active recording."""

import contextlib
import gc
import json
import os
import socket
import sys
import time

import torch

from . import _device, _files, _simulated, _tags
from ._history import History
from ._holders import holders
from ._marked import MarkedSteps
from ._names import ModuleNames
from ._part import Part
from ._rank import rank_and_size
from ._shapes import live_shapes
from ._signals import Termination
from ._tags import Tags
from ._tensors import live_tensors, model_tensors, parameter_names
from ._tracker import Tracker
from ._warn import warn

# PyTorch has one recorder for the process.
_active = None
# An observer of out-of-memory errors cannot be removed again: there is one for all recordings.
_has_observer = False
_FOLDER = os.path.dirname(Tracker.start.__code__.co_filename)


class Session:
    """The recording of a process from `begin` to `end`; `on_path` is called with the path of each file.

    `models` are pairs of name and module, `options` those of `record_memory_history`.
    """

    @classmethod
    def begin(cls, path, models, options, on_path):
        """Begins a recording. Returns None, with a warning, if nothing can be recorded.

        If the whole program is recorded from outside, returns a part of that recording.

        Raises:
            RuntimeError: another recording is active.
        """
        if _active is not None and _active.is_of_program():
            return Part(_active, path, models, options, on_path)
        if _active is not None:
            raise RuntimeError("a recording is active: PyTorch has one recorder per process; end it first")
        reason = _device.why_unavailable()
        if reason is not None:
            warn(f"{reason}; nothing is recorded")
            return None
        # An observer attached before would crash PyTorch.
        _device.module().init()
        return cls(path, models, options, on_path)

    def __init__(self, path, models, options, on_path):
        global _active
        self._path, self._options, self._on_path = path, options, on_path
        # Wrappers such as a compiled module may have no other owner.
        self._models = models
        self._kind, self._untagged = _tags.kind(), None
        kind = self._kind
        # Steps, models and optimizers are known there all the same.
        has_steps = kind is not None or _device.name() != "cuda"
        if kind is None:
            of = "" if _device.name() == "cuda" else f"'s allocator of {_device.name()!r}"
            what = "has no tags: modules are not recorded (on CUDA, from PyTorch 2.6 on)"
            self._untagged = f"PyTorch {torch.__version__}{of} {what}"
            warn(self._untagged)
        self._names = ModuleNames(models, options["depth"])
        self._early_tensors = []
        self._listed_roots = set()
        self._listed_names = {}
        self._marked = MarkedSteps(options["step_at"]) if options["step_at"] else None
        self._tags = Tags(kind)
        self._tracker = Tracker(self._tags, self._names, self._begin_step, self._list_tensors, self._marked)
        self._saves = (options["of_program"] or {}).get("saves")
        if self._saves is not None:
            self._tracker.before_forward = lambda: self._saves.look(self)
        self._termination = Termination(self._write_before_exit)
        self._is_recording = self._is_over = self._is_writing = False
        self._failed_requests = 0
        self._files_written = 0
        self._last_step = -1
        # Recordings of the program's own.
        self.parts = []
        # The calls that a simulated GPU cannot answer exactly; None on a real GPU.
        self._noted = _simulated.observe()
        # A program that knows nothing of the recording is not warned.
        self._warnings = []
        settings = {name: options[name] for name in ("context", "stacks", "max_entries")}
        self._history = History(settings, self._warnings.append if self.is_of_program() else warn)
        _active = self
        try:
            if options["on_oom"]:
                _attach_observer()
            self._termination.start()
            self._begin_step(0)
            if self._marked is not None:
                # Other threads find the function as soon as the tracker starts.
                self._marked.on_step = lambda: self._tracker.step(is_of_part=True)
            if has_steps:
                self._tracker.start()
            if self._marked is not None:
                self._marked.find()
        except BaseException:
            self._close()
            raise

    def end(self, error, gives_hints):
        """Ends the recording. `error` is the type of the exception that ends it, or None."""
        if _active is not self:
            # In a process that was forked off: the recording is its parent's.
            return
        if self._saves is not None:
            self._saves.stop()
        written_before = self._files_written
        # The file of the first failed request has all, unless the program has handled it, and a later one ends it.
        is_oom = error is not None and issubclass(error, _device.OutOfMemoryError) and self._failed_requests == 1
        try:
            if self._is_recording and not is_oom:
                # Where warnings are errors, none replaces the program's own error.
                with contextlib.suppress(*(() if error is None else (Warning,))):
                    self.dump_quietly("end" if error is None else "exception")
            for part in [*self.parts]:
                # The program ends it later, when nothing is recorded.
                part.end(error, gives_hints)
            if error is None:
                for hint in self._hints() if gives_hints else ():
                    warn(hint)
                if self.is_of_program() and self._marked is not None:
                    for hint in self._marked.hints():
                        print(f"highwater: {hint}", file=sys.stderr)
                if not (self._files_written or self._is_recording or self._is_over):
                    warn(f"no file was written: no step was in {self._options['steps']}")
        finally:
            if self._saves is not None and (is_oom or self._files_written > written_before):
                self._saves.remove()
            self._close()

    def discard(self):
        """Ends the recording without writing a file."""
        if _active is self:
            self._close()

    def leave(self):
        """Stops recording in a forked child process, and leaves the file to its parent."""
        self._undo_marks()
        self._tracker.leave()
        self._history.leave()
        self._termination.stop()

    def is_of_program(self):
        """Returns whether this recording was started from outside the program, which may then record parts of it
        itself."""
        return self._options["of_program"] is not None

    def is_recording(self):
        """Returns whether the current step is being recorded, in this process."""
        return _active is self and self._is_recording

    def position(self):
        """Returns the position of the recording."""
        return self._history.position()

    def step_number(self):
        """Returns the number of the current step."""
        return self._last_step

    def module_names(self):
        """Returns the names of the modules."""
        return self._names

    def is_active(self):
        """Returns whether this is the active recording of this process."""
        return _active is self

    def step(self):
        """Ends a step."""
        if _active is self:
            self._tracker.step()

    def step_of_part(self):
        """Ends a step. Until `end_part`, only calls of this function end steps."""
        if _active is self:
            self._tracker.step(is_of_part=True)

    def end_part(self, part):
        """Removes a part that has ended."""
        if part in self.parts:
            self.parts.remove(part)
            self._tracker.count_steps()

    def events(self):
        """Returns the number of events of each device in the current file; empty while nothing is recorded."""
        return self._history.events() if self.is_recording() and not self._is_writing else []

    def begin_file(self):
        """Writes the recording so far, and continues in another file. Returns whether it did so.

        Waits for a recording that the program itself makes to end.
        """
        if not self.is_recording() or self._is_writing or self.parts:
            return False
        self.dump_quietly("rotation")
        if not self.is_recording():
            # It was ended meanwhile.
            return False
        self._early_tensors.clear()
        self._history.restart()
        return True

    def save(self):
        """Writes the recording so far, to be replaced at its end. Returns the path of the file."""
        return self.write("save", self._path)

    def dump(self, path):
        """Writes the recording so far to `path`, by default the path of the recording. Returns the path of the file."""
        if _active is not self:
            raise RuntimeError("no recording is active in this process: it is active in the parent process")
        if not self._is_recording:
            raise RuntimeError(f"nothing is being recorded: this step is not in {self._options['steps']}")
        return self.write("dump", path or self._path)

    def _close(self):
        global _active
        self._undo_marks()
        try:
            self._tracker.stop()
        finally:
            self._termination.stop()
            self._history.close()
            self._models = _active = None

    def _undo_marks(self):
        if self._marked is not None:
            self._marked.undo()

    def _begin_step(self, number):
        steps = self._options["steps"]
        if steps is not None and number <= self._last_step:
            # The program has ended its first step, which had been taken for several.
            self._is_recording = self._is_over = False
            self._history.stop()
        self._last_step = number
        is_within_step = (self._options["of_program"] or {}).get("is_within_step")
        # A step may be marked within forward.
        if number == 1 and is_within_step and not self._tags.threads.current.is_inside:
            # The first model that is called in a whole step is the model, as it is from the program's start on.
            self._names.restart()
            self._listed_roots.clear()
        # The program may end its process group before the recording.
        rank_and_size()
        is_wanted = steps is None or number in steps
        if is_wanted and not self._is_recording and not self._is_over:
            self._is_recording = True
            self._history.start()
        elif self._is_recording and not is_wanted:
            self._dump_all("end")
            self._is_recording, self._is_over = False, True
            self._history.stop()
            on_over = (self._options["of_program"] or {}).get("on_over")
            if on_over is not None:
                # May end this recording.
                on_over()
        for part in [*self.parts]:
            part.begin_step(number)
        self._tracker.references.begin_step(self._is_recording, self._options["references"], self._options["shapes"])

    def _list_tensors(self, optimizer):
        """Lists the tensors of an optimizer after its first step, since the model may no longer exist at the end."""
        now = time.time_ns() // 1000
        new = []
        if len(self._names.roots()) != len(self._listed_roots):
            trees = self._names.trees()
            self._listed_names = parameter_names(trees.values())
            new = [tree for name, tree in trees.items() if name not in self._listed_roots]
            self._listed_roots.update(trees)
        for row in live_tensors(new, [optimizer], self._listed_names):
            # Gradients are freed too soon for a match by time.
            if row[2] != "gradient":
                self._early_tensors.append([*row, now])

    def _snapshot(self, reason, since):
        """Returns PyTorch's snapshot from the position `since`, with facts about this program."""
        tracker = self._tracker
        last_step = tracker.step_number if reason == "oom" else tracker.last_step()
        rank, world_size = rank_and_size()
        facts, notes = ({}, []) if self._noted is None else self._noted.describe()
        held = "[]"
        notes += self._notes()
        if reason == "save":
            notes.append("saved while the program was running: later events are missing")
        try:
            tensors = self.live_tensors()
            with contextlib.suppress(Exception):
                is_asked = self._options["holders"] and reason != "save"
                held = json.dumps(holders({row[0] for row in tensors}) if is_asked else [])
        except Exception as error:  # noqa: BLE001
            # Of a module or an optimizer that overrides what lists its tensors.
            tensors = []
            notes.append(f"the tensors live at the end are unknown: {error}")
        shapes = self._shape_lines()
        snapshot, missing = self._history.snapshot(since)
        for device, (trace, events) in enumerate(zip(snapshot["device_traces"], missing)):
            if events and not any(event["action"] == "alloc" for event in trace):
                text = "the program's own memory history has no allocations, only the last state"
                notes.append(f"device {device}: {text}")
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
            "package": _FOLDER,
            "extra_steps": tracker.extra_steps,
            "last_step": last_step,
            "notes": "\n".join(notes),
            # A later row counts: a model may have changed since.
            "tensors": self._early_tensors + tensors,
            "references": tracker.references.text(),
            "holders": held,
            "shapes": "\n".join(shapes),
            **facts,
        }
        settings = self._history.settings()
        if settings:
            run["max_entries"], run["stacks"] = settings["max_entries"], str(settings["stacks"])
        for device in tracker.references.devices():
            run[f"device.{device}.allocations"] = _device.allocations(device)
        for device, (trace, events) in enumerate(zip(snapshot["device_traces"], missing)):
            if events and trace:
                run[f"device.{device}.events_missing"] = events
        module = _device.module()
        for device in {*_device.in_use(), module.current_device()}:
            run[f"device.{device}.name"] = module.get_device_name(device)
            run[f"device.{device}.total_bytes"] = module.get_device_properties(device).total_memory
        snapshot[_files.RUN_KEY] = run
        return snapshot

    def live_tensors(self):
        """Returns the rows of tensors of models and optimizers on devices, in the format of `_tensors.live_tensors`."""
        trees = self._names.trees().values()
        return live_tensors(trees, self._tracker.optimizers(), parameter_names(trees))

    def _shape_lines(self):
        lines = self._tracker.references.shapes()
        with contextlib.suppress(Exception):
            trees = self._names.trees().values()
            of_models = model_tensors(trees, self._tracker.optimizers(), parameter_names(trees))
            lines += live_shapes(tensor for tensor, _, _ in of_models)
        return lines

    def _notes(self):
        compiled = [name or "the model" for name in self._names.compiled_names()]
        if compiled:
            yield f"compiled by torch.compile, so that their submodules are not distinguished: {', '.join(compiled)}"
        if self._untagged:
            yield self._untagged
        yield from self._warnings
        yield from self._tracker.all_notes()
        yield from self._hints()

    def _hints(self):
        # A program that knows nothing of the recording has no object to call.
        advice = "call run.step() at the end of each training step"
        if self.is_of_program():
            advice = "name a function that is called once per step, with --step-at or HIGHWATER_STEP_AT"
        return self._tracker.hints(advice)

    def write(self, reason, path, part=None):
        """Writes the recording, or `part` of it. Returns the path of the file."""
        options, was_collecting, is_whole = (part or self)._options, gc.isenabled(), False
        self._is_writing = True
        # A snapshot has millions of objects, none of which is garbage.
        gc.disable()
        try:
            name_file = None if part else (options["of_program"] or {}).get("name_file")
            ranked = (name_file or _files.of_rank)(path, *rank_and_size())
            is_asked = reason != "oom" and ("{rank}" in path or ranked == path)
            how = {"convert": options["convert"], "keep_pickle": options["keep_pickle"], "is_asked": is_asked}
            snapshot = self._snapshot(reason, part and part.since)
            written = _files.write(snapshot, ranked, (part or self).note_written, **how)
            is_whole = part is None and reason not in ("dump", "oom", "save")
            return written
        finally:
            self._is_writing = False
            if was_collecting:
                gc.enable()
            if self._termination.is_due():
                # Either everything was just written, or the rest is written too.
                is_all = is_whole or reason == "signal"
                (self._note_terminated if is_all else self._write_before_exit)()
            self._termination.deliver()

    def note_written(self, path):
        """Stores the path of a written file."""
        self._files_written += 1
        if self._saves is not None and path == self._saves.path:
            self._saves.path = None
        self._on_path(path)

    def dump_quietly(self, reason, part=None):
        """Writes the recording. Reports an error as a warning, so that the program continues or raises its own
        error."""
        path = (part or self)._path
        path = _files.beside(path, "oom") if reason == "oom" else path
        # A program that knows nothing of the recording gets no warning, which may be an error there.
        is_hidden = part is None and self.is_of_program()
        try:
            self.write(reason, path, part)
        except Warning as warned:
            # Of a program in which warnings are errors: the file is written.
            if not is_hidden:
                raise
            print(warned, file=sys.stderr)
        except Exception as error:  # noqa: BLE001
            text = f"cannot write {path}: {error}"
            if not is_hidden:
                warn(text)
            else:
                print(f"highwater: {text}", file=sys.stderr)

    def _dump_all(self, reason):
        is_for_oom = (self._options["of_program"] or {}).get("is_for_oom")
        for part in [*([] if is_for_oom else [None]), *self.parts]:
            if part is not None:
                # After a signal, the program may go on.
                part.is_written = reason == "end"
            self.dump_quietly(reason, part)

    def _write_before_exit(self):
        """Writes the recording before the process is terminated. Returns False if it is already being written."""
        if self._is_writing:
            return False
        if _active is self and self._is_recording:
            with contextlib.suppress(Warning):
                self._dump_all("signal")
        self._note_terminated()
        return True

    def _note_terminated(self):
        on_terminated = (self._options["of_program"] or {}).get("on_terminated")
        if on_terminated is not None:
            on_terminated()

    def observe_oom(self):
        """Writes the recording the first time that an allocation fails."""
        if self._options["on_oom"] and self._is_recording:
            self._failed_requests += 1
            if self._failed_requests == 1:
                self.dump_quietly("oom")
        for part in self.parts:
            part.observe_oom()


def active():
    """Returns the active recording; None if there is none."""
    return _active


def module_names():
    """Returns the names of the modules of the active recording; None without one."""
    return None if _active is None else _active.module_names()


def _attach_observer():
    global _has_observer
    if not _has_observer:
        _has_observer = True
        _device.attach_oom_observer(_observe_oom)


def _observe_oom(device, requested, total, free):
    # Raising here would hide the error of the program.
    with contextlib.suppress(Exception):
        if _active is not None:
            _active.observe_oom()


def _leave_in_child():
    global _active
    session, _active = _active, None
    if session is not None:
        with contextlib.suppress(Exception):
            session.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_in_child)
