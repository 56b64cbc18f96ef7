"""Callback for the `Trainer` of transformers.

>>> from highwater.transformers import MemoryHistory
>>> Trainer(model, callbacks=[MemoryHistory("memory.snap")]).train()
"""

import atexit

from transformers import TrainerCallback

from . import record_memory_history


class MemoryHistory(TrainerCallback):
    """Records the memory of `Trainer.train`. Each optimizer step is a step, which includes any evaluation that follows.

    `path` and `options` are those of `highwater.record_memory_history`; `model` defaults to the trained model. After
    the training, `path` is the written file. The Trainer has no callback for exceptions. After an exception, the
    recording continues, and is written when the next training begins or the program ends. A failed allocation writes
    its file at once.
    """

    def __init__(self, path="memory.snap", **options):
        self.path, self._options = path, options
        self._asked_path, self._run, self._has_begun = path, None, False

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        # An earlier training has failed: `auto_find_batch_size` starts again after an out-of-memory error.
        self._end()
        run = record_memory_history(self._asked_path, **{"model": model, **self._options})
        run.__enter__()
        self._run, self._has_begun = run, False
        atexit.register(self._end)

    def on_step_begin(self, args, state, control, **kwargs):
        # Work after a step, such as an evaluation, belongs to it.
        if self._run is not None and self._has_begun:
            self._run.step()
        self._has_begun = True

    def on_train_end(self, args, state, control, **kwargs):
        self._end()

    def _end(self):
        run, self._run = self._run, None
        if run is not None:
            atexit.unregister(self._end)
            run.__exit__(None, None, None)
            self.path = run.path
