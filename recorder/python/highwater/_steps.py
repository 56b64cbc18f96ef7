"""Tells where a training step begins, without help from the program.

A step ends where forward runs for the first time after an optimizer. If the program drops gradients or evaluates before
that, this belongs to the step before, unless it did so at the same place before its very first forward: then each step
begins there.
"""

import sys

# Places before the first forward that are kept.
_MOST_PLACES = 1000


class Steps:
    """What has happened in the step, and where the first one began."""

    def __init__(self):
        # Number of calls of backward.
        self.backwards = 0
        self._has_run_forward = False
        self._first_places = set()
        # Whether an optimizer has made a step in this step. Of a compiled one nothing else is known.
        self.is_stepped = False
        # The optimizers of this step, of the last one that had any, and of all.
        self._optimizers, self._last, self._seen = set(), frozenset(), set()
        self._takes_turns = False
        self._count = 1

    def note_optimizer(self, optimizer):
        """Notes that an optimizer has made a step."""
        self._optimizers.add(id(optimizer))

    def begins_with(self, phase):
        """Whether a step begins with this call, of the phase forward, eval or zero_grad."""
        if phase == "forward":
            self._has_run_forward = True
            return self.is_stepped
        if not self._has_run_forward:
            if len(self._first_places) < _MOST_PLACES:
                self._first_places.add(_place())
            return False
        return self.is_stepped and bool(self._first_places) and _place() in self._first_places

    def end(self):
        """Ends the step."""
        self.is_stepped = False
        self._count += 1
        now = frozenset(self._optimizers)
        if now:
            self._takes_turns |= now in self._seen and not now & self._last
            self._last = now
            if len(self._seen) < _MOST_PLACES:
                self._seen.add(now)
            self._optimizers.clear()

    def hints(self):
        """Yields why the number of steps may not be the program's, as a sentence."""
        if self._takes_turns:
            yield (
                f"several optimizers take turns, and each turn is counted as a step, {self._count} in all: call "
                "run.step() at the end of each training step"
            )
        elif not (self._seen or self.is_stepped) and self._count == 1 and self.backwards > 1:
            yield (
                f"no optimizer of torch.optim has run, so that all {self.backwards} backward passes are in one step: "
                "call run.step() at the end of each training step"
            )


def _place():
    """The lines of the program that are running, outermost last."""
    frame, lines = sys._getframe(3), []
    while frame is not None:
        lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)
