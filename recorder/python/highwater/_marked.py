"""Steps marked by calls of a function, for programs without an optimizer such as servers.

The function is wrapped from its first use during a recording until the end of the recording. This works in all versions
of Python, needs none of the few monitoring slots that debuggers and coverage tools share in newer versions, and costs
one Python call per step. Without a name, nothing is wrapped.
"""

import contextlib
import functools
import inspect
import re
import sys

from ._replaced import replace
from ._steps import Steps

_NAME = re.compile(r"(?:([^\W\d]\w*(?:\.[^\W\d]\w*)*):)?([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


def check_name(name):
    """Returns `name` if it is the name of a function, such as `Engine.step` or `package.module:Engine.step`.

    Raises:
        ValueError: `name` is not a function name.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        expected = "the name of a function, such as Engine.step or package.module:Engine.step"
        raise ValueError(f"step_at={name!r}: expected {expected}")
    return name


class MarkedSteps(Steps):
    """Steps that begin with each call of the function `name`. The first step also contains everything before the first
    call.

    `on_step` is called at the end of each step.
    """

    def __init__(self, name):
        super().__init__()
        self._module, self._path = _NAME.fullmatch(name).groups()
        self._name, self.on_step = name, None
        self._is_found = self._is_called = False
        # The modules that have been looked through, and those of them that were still being imported.
        self._seen, self._unfinished = set(), set()
        self._undo = []

    def begins_with(self, phase, has_gradients=True):
        """Returns False, since only the function begins steps. Looks for the function, which the program may define
        late."""
        if not self._is_found:
            self.find()
        return False

    def ends_with_optimizer(self):
        """Returns False, since no step ends with an optimizer."""
        return False

    def hints(self, _advice=None):
        """Yields a sentence if the function was not called."""
        if not self._is_called:
            what = "no function of this name was called, so everything counts as one step"
            yield f"step_at={self._name!r} (HIGHWATER_STEP_AT): {what}; expected a qualified name such as Engine.step"

    def find(self):
        """Wraps the function if it is already defined."""
        # The program's script may define it at any time.
        new = {"__main__"} | self._unfinished
        if len(sys.modules) != len(self._seen):
            new |= sys.modules.keys() - self._seen
            self._seen = set(sys.modules)
        self._unfinished = {name for name in new if _is_being_imported(sys.modules.get(name))}
        for name in [self._module] if self._module else new:
            # A module may be anything.
            with contextlib.suppress(Exception):
                self._is_found = self._is_found or self._wrap(sys.modules.get(name), name)

    def undo(self):
        """Unwraps the function."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        # Whoever keeps the wrapper calls it on.
        self.on_step = lambda: None

    def _wrap(self, module, module_name):
        *owners, name = self._path.split(".")
        owner = module
        for part in owners:
            owner = vars(owner).get(part) if hasattr(owner, "__dict__") else None
        kept = vars(owner).get(name) if hasattr(owner, "__dict__") else None
        function = kept.__func__ if isinstance(kept, (staticmethod, classmethod)) else kept
        if not inspect.isfunction(inspect.unwrap(function) if callable(function) else None):
            return False
        # What a module has imported is found where it is defined, but for what its `__init__` gives another place.
        if self._module is None and getattr(function, "__module__", module_name) != module_name:
            return False
        wrapped = self._around(function)
        if owners:
            replacement = type(kept)(wrapped) if function is not kept else wrapped
            replace(owner, name, kept, replacement, self._undo)
        else:
            for other in list(sys.modules.values()):
                for known, value in list(getattr(other, "__dict__", {}).items()):
                    if value is function:
                        replace(other, known, function, wrapped, self._undo)
        # Its first call may be running.
        self._is_called = _is_running(inspect.unwrap(function).__code__)
        return True

    def _around(self, function):
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args, **kwargs):
                self._note()
                return await function(*args, **kwargs)

            return call

        @functools.wraps(function)
        def call_at_once(*args, **kwargs):
            self._note()
            return function(*args, **kwargs)

        return call_at_once

    def _note(self):
        if self._is_called:
            self.on_step()
        self._is_called = True


def _is_being_imported(module):
    # A module may be anything.
    with contextlib.suppress(Exception):
        return bool(vars(module)["__spec__"]._initializing)
    return False


def _is_running(code):
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
