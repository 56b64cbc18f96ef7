"""The recording of a PyTorch program's memory, as a context manager and decorator. Imports PyTorch only when it
begins."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, Callable, Literal, TypeVar

from . import _files
from ._marked import check_name
from ._warn import warn
from .snapshot import Snapshot

if TYPE_CHECKING:
    import torch

    from ._session import Session

    Function = TypeVar("Function", bound=Callable[..., Any])

_STACKS = ("python", "all")
_CONTEXTS = ("alloc", "all", "state", None)


class record_memory_history(contextlib.AbstractContextManager):
    """Records every allocation of CUDA memory with its module, phase and step.

    >>> with record_memory_history("step.snap") as run:
    ...     for batch in batches:
    ...         train_step(batch)

    Can also be used as a decorator of functions, generators and coroutine functions. Steps, phases, modules and
    optimizers are detected. A step ends when forward first runs after an optimizer. With several optimizers, call
    `run.step()` at the end of each step.

    Args:
        path: the file to write. `{rank}` is replaced by the rank; without it, each of several ranks writes
            `step.rank3.snap`.
        model: the model, or a dict of models by name. By default, the first module called is the model.
        stacks: "python", or "all" for C++ frames too, which is slow.
        context: "alloc" for stacks of allocations, "all" for stacks of allocations and frees, "state" for stacks of
            blocks that are live at the end, None for no stacks.
        max_entries: number of events that PyTorch keeps; older ones are lost.
        depth: maximum depth of the module paths. Smaller values cost less time.
        steps: the steps to record, as a range: `range(500, 503)`. Steps are counted from 0.
        references: whether to follow references to tensors in the first two recorded steps, so that `plan` and
            `whatif(checkpoint=…)` predict recomputed modules more exactly. Costs about 25 ms in each of these steps for
            12 blocks.
        step_at: the name of a function whose calls are steps: "Engine.step", or "package.engine:Engine.step". For
            servers, which have no optimizer.
        holders: whether to record the variables, lists and closures outside of models and optimizers that refer to
            tensors at the end. Takes at most about two seconds of processor time.
        shapes: whether to record shape and dtype of gradients, and of tensors saved for backward, in every step, not
            only in steps with references. Costs about 8 ms per step for 12 blocks. Shapes of tensors that are live at
            the end are always recorded.
        on_oom: whether the first failed allocation writes `step.oom.snap`.
        convert: whether to convert the snapshot to a `.snap` file, which is about 100 times smaller.
        keep_pickle: whether to keep the pickle in PyTorch's format as well.

    Attributes:
        path: the last written file; None before the first.

    Raises:
        ImportError: PyTorch is not installed.
        RuntimeError: another recording is active.
        OSError: no file can be written to this path: its folder does not exist, or it is a folder itself.
        TypeError, ValueError: an argument has an unexpected type or value.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "memory.snap",
        *,
        model: torch.nn.Module | dict[str, torch.nn.Module] | None = None,
        stacks: Literal["python", "all"] = "python",
        context: Literal["alloc", "all", "state"] | None = "alloc",
        max_entries: int = 1_000_000,
        depth: int | None = None,
        steps: range | None = None,
        step_at: str | None = None,
        references: bool = True,
        holders: bool = True,
        shapes: bool = False,
        on_oom: bool = True,
        convert: bool = True,
        keep_pickle: bool = False,
    ) -> None:
        if callable(path) or not path:
            _files.resolve(path)
        _check_one_of("stacks", stacks, _STACKS)
        _check_one_of("context", context, _CONTEXTS)
        _check_count("max_entries", max_entries, 1)
        if depth is not None:
            _check_count("depth", depth, 0)
        if steps is not None and not (isinstance(steps, range) and steps.step == 1 and steps and steps.start >= 0):
            raise ValueError(f"steps={steps!r}: expected a range of successive steps, such as range(500, 503)")
        if step_at is not None:
            check_name(step_at)
        switches = {"references": references, "holders": holders, "shapes": shapes, "on_oom": on_oom}
        switches |= {"convert": convert, "keep_pickle": keep_pickle}
        for name, value in switches.items():
            _check_one_of(name, value, (True, False))
        self.path: str | None = None
        self._asked_path = path
        self._model = _checked_model(model)
        self._weak_model: Any = None
        self._options = {
            "stacks": stacks,
            "context": context,
            "max_entries": max_entries,
            "depth": depth,
            "steps": steps,
            "step_at": step_at,
            **switches,
        }
        self._session: Session | None = None
        # The pytest plugin records functions that are no training.
        self._gives_hints = True
        # For recordings of a whole program from outside: what happens after the last of `steps`, and names of files.
        self._of_program: dict[str, Any] | None = None

    def __enter__(self) -> record_memory_history:
        try:
            from ._session import Session
        except ImportError as error:
            if error.name != "torch":
                raise
            raise ImportError("highwater: recording needs PyTorch; run `pip install torch`", name="torch") from None
        path = _files.resolve(self._asked_path)
        models, self._model = self._models(), None
        self._weak_model = [(name, weakref.ref(model)) for name, model in models]
        options = {**self._options, "of_program": self._of_program}
        self._session = Session.begin(path, models, options, self._note_path)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # Nothing of the program is kept from here on.
        session, self._session = self._session, None
        if session is not None:
            session.end(kind, self._gives_hints)

    def __call__(self, function: Function) -> Function:
        if inspect.isasyncgenfunction(function) or inspect.isclass(function):
            what = "a class" if inspect.isclass(function) else "an asynchronous generator"
            raise TypeError(f"record_memory_history cannot decorate {what}: put the `with` statement inside it")
        run: Any
        if inspect.iscoroutinefunction(function):
            run = self._around_coroutine(function)
        elif inspect.isgeneratorfunction(function):
            run = self._around_generator(function)
        else:
            run = self._around_function(function)
        wrapped: Any = functools.wraps(function)(run)
        return wrapped

    def _around_function(self, function):
        def run(*args, **kwargs):
            with self:
                result = function(*args, **kwargs)
            if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
                name, kind = getattr(function, "__qualname__", function), type(result).__name__
                warn(f"{name} returned a {kind}, whose body was not recorded: put the `with` statement inside {name}")
            return result

        return run

    def _around_generator(self, function):
        def run(*args, **kwargs):
            with self:
                return (yield from function(*args, **kwargs))

        return run

    def _around_coroutine(self, function):
        async def run(*args, **kwargs):
            with self:
                return await function(*args, **kwargs)

        return run

    def step(self) -> None:
        """Ends a step. Needed if steps cannot be detected: with several optimizers, or without any. After the first
        call, only these calls end steps.

        Call it at the end of each step.
        """
        if self._session is not None:
            self._session.step()

    def dump(self, path: str | os.PathLike[str] | None = None) -> str:
        """Writes the recording so far to `path`, by default the path of the recording. Returns the path of the file."""
        if self._session is None:
            raise RuntimeError("no recording is active: call dump() within the `with` statement")
        return self._session.dump(None if path is None else _files.resolve(path))

    def _step_number(self):
        """Returns the number of the current step; None if no recording is active."""
        return None if self._session is None else self._session.step_number()

    def _discard(self):
        """Ends the recording without a file, for the pytest plugin."""
        session, self._session = self._session, None
        if session is not None:
            session.discard()

    def _note_path(self, path):
        self.path = path

    def _models(self):
        if self._model is not None or self._weak_model is None:
            return self._model or []
        alive = [(name, reference()) for name, reference in self._weak_model]
        return [(name, model) for name, model in alive if model is not None]

    def __repr__(self) -> str:
        return f"<recording {self.path}>" if self.path else "<a recording that has not been written>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if self.path is None:
            return {"text/plain": "a recording that has not been written"}
        return Snapshot(self.path)._repr_mimebundle_(include, exclude)


def _check_one_of(name, value, expected):
    if not any(value is one or (isinstance(value, str) and value == one) for one in expected):
        *others, last = map(repr, expected)
        raise ValueError(f"{name}={value!r}: expected {', '.join(others)} or {last}")


def _check_count(name, value, least):
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r}: expected an integer from {least}")


def _checked_model(model):
    """Returns the models as pairs of name and module; None without models."""
    if model is None:
        return None
    models = model if isinstance(model, dict) else {"": model}
    module = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", ())
    if not models or not all(isinstance(name, str) and isinstance(one, module) for name, one in models.items()):
        raise TypeError(f"model={model!r:.200}: expected a module, or a dict of modules by name")
    return list(models.items())
