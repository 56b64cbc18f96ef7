"""Applies the lines of a plan to a simulated program without editing the program.

The lines use the names `model` and `optimizer`. They run here when a model is first called, with an object for its
modules as `model`, and when an optimizer first steps, with this optimizer as `optimizer`.
"""

import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from . import _session


class Applied:
    """Applies the lines of a file to each model and each optimizer of the process."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self._lines = compile(file.read(), "<plan>", "exec")
        self._count, self._optimizers, self._paths = 0, weakref.WeakSet(), set()
        # Called within the recorder's wrapper of calls, which has named the modules.
        torch.nn.modules.module.register_module_forward_pre_hook(self._before_forward)
        register_optimizer_step_pre_hook(self._before_step)

    def get_submodule(self, path):
        """Returns the module that the recording calls `path`, at the first request; later, an unused module."""
        names = _session.module_names()
        for rows in () if names is None else names.trees().values():
            for module, name in rows:
                if name == path and path not in self._paths:
                    self._paths.add(path)
                    return module
        return torch.nn.Identity()

    def modules(self):
        """Returns all modules of the models."""
        names = _session.module_names()
        return [module for rows in (() if names is None else names.trees().values()) for module, _name in rows]

    def _before_forward(self, module, inputs):
        names = _session.module_names()
        count = 0 if names is None else len(names.roots())
        if count != self._count:
            self._count = count
            self._run(self, _NoOptimizer)

    def _before_step(self, optimizer, args, kwargs):
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            self._run(self, optimizer)

    def _run(self, model, optimizer):
        exec(self._lines, {"model": model, "optimizer": optimizer})


class _NoOptimizer:
    """Stands for the optimizer before the first optimizer has stepped."""

    param_groups = ()
    state: dict[object, object] = {}
