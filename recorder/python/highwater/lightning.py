"""Callback for Lightning: `lightning.pytorch`, or the older `pytorch_lightning`.

>>> from highwater.lightning import MemoryHistory
>>> Trainer(callbacks=[MemoryHistory("memory.snap")]).fit(model)
"""

import importlib
import sys
from typing import Any

from . import record_memory_history


def _callback_class():
    # A callback must come from the package that the program uses, which is imported already.
    packages = sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules)
    for package in packages:
        try:
            return importlib.import_module(package + ".callbacks").Callback
        except ModuleNotFoundError as error:
            if error.name not in (package, package.split(".")[0]):
                raise
    raise ImportError("highwater.lightning: Lightning is not installed; run `pip install lightning`")


_Callback: Any = _callback_class()


class MemoryHistory(_Callback):
    """Records the memory of `Trainer.fit`. Each batch is a step, which includes any validation that follows.

    `path` and `options` are those of `highwater.record_memory_history`; `model` defaults to the trained module. After
    the fit, `path` is the written file.
    """

    def __init__(self, path="memory.snap", **options):
        super().__init__()
        self.path, self._options = path, options
        self._asked_path, self._run, self._has_begun = path, None, False

    def on_fit_start(self, trainer, pl_module):
        self._has_begun = False
        self._run = record_memory_history(self._asked_path, **{"model": pl_module, **self._options})
        self._run.__enter__()

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        # Work after a batch, such as a validation, belongs to it.
        if self._run is not None and self._has_begun:
            self._run.step()
        self._has_begun = True

    def on_exception(self, trainer, pl_module, exception):
        self._end(type(exception), exception, exception.__traceback__)

    def on_fit_end(self, trainer, pl_module):
        self._end(None, None, None)

    def _end(self, kind, error, trace):
        run, self._run = self._run, None
        if run is not None:
            run.__exit__(kind, error, trace)
            self.path = run.path
