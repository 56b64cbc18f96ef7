"""Detects where a training step begins, without help from the program.

A step ends when forward first runs after an optimizer. Dropping gradients or evaluating before that belongs to the
earlier step, unless this code precedes the call of forward in the program's source; then each step begins with this
code. In a program without modules, forward cannot be detected, so a step ends with its optimizer.
"""

import os
import sys

_FOLDER = os.path.dirname(sys._getframe().f_code.co_filename)
# Sets of optimizers that are kept.
_MAX_SETS = 1000


class Steps:
    """The events of the current step, and the code location at which forward ran last."""

    def __init__(self):
        # Whether an optimizer has made a step on a device; the allocations there before the last one on the host.
        self._is_on_device, self._allocations_before, self._allocations = False, 0, lambda: 0
        # Number of calls of backward, and those of the steps before.
        self.backwards, self._earlier_backwards = 0, 0
        # The functions that were running in the last forward with gradients, and how far each was.
        self._forward = {}
        # Whether gradients were dropped before the first one.
        self._begins_with_zero_grad = False
        # Whether an optimizer has made a step in this step. Of a compiled one nothing else is known.
        self.is_stepped = False
        # Steps of optimizers since the last backward, and how many followed the one before.
        self._updates, self._expected = 0, 1
        # The optimizers of this step, of the last one that had any, and of all.
        self._optimizers, self._last, self._seen = set(), frozenset(), set()
        self._takes_turns = False
        self._count = 1

    def begin(self, allocations):
        """Begins to detect steps. `allocations` returns the number of allocations on devices."""
        self._allocations, self._allocations_before = allocations, allocations()

    def note_optimizer(self, optimizer, is_on_device):
        """Records that an optimizer has made a step. `is_on_device` is whether it has parameters on a device. Returns
        whether it counts."""
        self._is_on_device |= is_on_device
        if not is_on_device:
            before, self._allocations_before = self._allocations_before, self._allocations()
            if self._is_on_device or self._allocations_before == before:
                return False
        self.is_stepped = True
        self._optimizers.add(id(optimizer))
        self._updates += 1
        return True

    def note_backward(self):
        """Records a call of backward."""
        self.backwards += 1
        if self._updates:
            self._expected, self._updates = self._updates, 0

    def begins_with(self, phase, has_gradients=True):
        """Returns whether a step begins with this call. `phase` is forward, eval or zero_grad."""
        if phase == "forward" and has_gradients:
            # Of a function that calls itself, the innermost call.
            self._forward = dict(reversed(list(_running())))
            return self.is_stepped
        if not self._forward:
            self._begins_with_zero_grad |= phase == "zero_grad"
            return phase == "forward" and self.is_stepped
        return self.is_stepped and self._is_before_forward(phase)

    def _is_before_forward(self, phase):
        for code, position in _running():
            last = self._forward.get(code, position)
            if last != position:
                return position < last
        # Code that forward did not run in, such as another cell of a notebook.
        return phase == "zero_grad" and self._begins_with_zero_grad

    def ends_with_optimizer(self):
        """Returns whether the step ends with the step of an optimizer, because no module has run.

        Of several optimizers, the last one ends the step. In the first step, whose number of optimizers is unknown, the
        first one does.
        """
        is_last = self._updates >= self._expected
        return not self._forward and self.backwards > self._earlier_backwards and is_last

    def end(self):
        """Ends the step."""
        self.is_stepped = False
        self._earlier_backwards = self.backwards
        self._count += 1
        now = frozenset(self._optimizers)
        if now:
            self._takes_turns |= now in self._seen and not now & self._last
            self._last = now
            if len(self._seen) < _MAX_SETS:
                self._seen.add(now)
            self._optimizers.clear()

    def hints(self, advice):
        """Yields the reason that the number of steps may be wrong, and the advice, as a sentence."""
        if self._takes_turns:
            yield (
                f"several optimizers take turns, and each turn is counted as a step, {self._count} in all: {advice}"
            )
        elif not (self._seen or self.is_stepped) and self._count == 1 and self.backwards > 1:
            yield (
                f"no optimizer of torch.optim has run, so all {self.backwards} backward passes count as one step: "
                f"{advice}"
            )


def _running():
    """Yields the running functions of the program, innermost first, each with its current instruction."""
    frame = sys._getframe(1)
    while frame is not None:
        if os.path.dirname(frame.f_code.co_filename) != _FOLDER:
            yield frame.f_code, frame.f_lasti
        frame = frame.f_back
