"""A recording made by the program itself during a recording from outside, such as that of `highwater simulate`."""

import contextlib

from . import _device
from ._warn import warn


class Part:
    """A recording of the whole program from now until `end`, with the settings and step numbers of the whole
    recording."""

    def __init__(self, whole, path, models, options, on_path):
        self._whole, self._path, self._options, self._on_path = whole, path, options, on_path
        self._failed_requests = 0
        # Whether the whole has ended before this part, and has written it; where it was written last.
        self.is_written, self._written = False, None
        # Wrappers such as a compiled module may have no other owner.
        self._models = models
        whole.module_names().give(models)
        # Before the first step that the whole records there is nothing to leave out.
        self.since = whole.position() if whole.is_recording() else None
        self._first_step = whole.step_number()
        whole.parts.append(self)

    def begin_step(self, number):
        """Called at the start of each step of the whole recording. Steps of this part are counted from the part's
        beginning."""
        on_over, steps = (self._options["of_program"] or {}).get("on_over"), self._options["steps"]
        if on_over is None or steps is None:
            return
        if number - self._first_step == steps.start and self._whole.is_recording():
            self.since = self._whole.position()
        if number - self._first_step == steps.stop:
            on_over()

    def end(self, error, gives_hints):
        """Ends the part. `error` is the type of the exception that ends it, or None."""
        is_active = self._whole.is_active()
        self.discard()
        is_oom = error is not None and issubclass(error, _device.OutOfMemoryError)
        if not is_active or self.is_written or (is_oom and self._failed_requests == 1):
            return
        self.is_written = True
        with contextlib.suppress(*(() if error is None else (Warning,))):
            if not self._whole.is_recording():
                warn("the recording of the whole program covers other steps: this one contains only the last state")
            self._whole.dump_quietly("end" if error is None else "exception", self)

    def discard(self):
        """Ends the part without a file."""
        self._whole.end_part(self)
        self._models = None

    def observe_oom(self):
        """Writes the part the first time that an allocation fails."""
        if self._options["on_oom"] and self._whole.is_recording():
            self._failed_requests += 1
            if self._failed_requests == 1:
                self._whole.dump_quietly("oom", self)

    def dump(self, path):
        """Writes the part so far to `path`, by default the path of the part. Returns the path of the file."""
        if not self._whole.is_active() and self._written:
            warn(f"the recording of the whole program has ended, and with it this one: {self._written} has it")
            return self._written
        if not self._whole.is_active():
            raise RuntimeError("no recording is active in this process: it is active in the parent process")
        return self._whole.write("dump", path or self._path, self)

    def note_written(self, path):
        """Stores the path of a written file."""
        self._written = path
        self._on_path(path)

    def step(self):
        """Ends a step."""
        self._whole.step_of_part()

    def step_number(self):
        """Returns the number of the current step."""
        return self._whole.step_number()
