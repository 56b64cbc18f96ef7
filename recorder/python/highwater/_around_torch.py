"""Calls functions before and after PyTorch is imported."""

import importlib.abc
import importlib.util
import sys


class AroundTorch(importlib.abc.MetaPathFinder):
    """Calls `before` with PyTorch's module spec, and `after` with the module."""

    def __init__(self, before, after):
        self._before, self._after = before, after
        self._is_searching = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_searching = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        # Whoever only asks whether PyTorch is installed does not import it.
        def exec_module(module):
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            self._before(spec)
            execute(module)
            self._after(module)

        # Python leaves frames of this file out of tracebacks, such as that of a PyTorch that cannot be imported.
        code = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")
        exec_module.__code__ = code
        spec.loader.exec_module = exec_module
        return spec
