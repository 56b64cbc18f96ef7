"""A recording that a program makes itself while it is recorded from outside, as by `highwater simulate`."""

import contextlib

import torch


class Part:
    """The recording of the whole program, from now until `end`, with its settings and its numbers of steps."""

    def __init__(self, whole, path, models, options, on_path):
        self._whole, self._path, self._options, self._note_written = whole, path, options, on_path
        self._has_dumped_oom = False
        whole.module_names().give(models)
        self.since = whole.position()
        whole.parts.append(self)

    def end(self, error, gives_hints):
        """Ends the part, with the type of the exception that ends it, or None."""
        self.discard()
        is_oom = error is not None and issubclass(error, torch.cuda.OutOfMemoryError)
        if self._whole.is_recording() and not (is_oom and self._has_dumped_oom):
            with contextlib.suppress(*(() if error is None else (Warning,))):
                self._whole.dump_quietly("end" if error is None else "exception", self)

    def discard(self):
        """Ends the part without a file."""
        if self in self._whole.parts:
            self._whole.parts.remove(self)

    def observe_oom(self):
        """Writes the part, the first time that an allocation fails."""
        if self._options["on_oom"] and self._whole.is_recording() and not self._has_dumped_oom:
            self._has_dumped_oom = True
            self._whole.dump_quietly("oom", self)

    def dump(self, path):
        """Writes what was recorded so far to `path`, by default the part's; returns the path of the file."""
        if not self._whole.is_recording():
            raise RuntimeError("nothing is being recorded: the recording of the whole program has ended")
        return self._whole.write("dump", path or self._path, self)

    def step(self):
        """Ends a step."""
        self._whole.step()

    def step_number(self):
        """Returns the number of the current step."""
        return self._whole.step_number()
