"""Records a PyTorch program as configured by environment variables, without changes to the program.

`highwater run` prepends this package and a `sitecustomize.py` to the program's module path. `sitecustomize.py` imports
this module when the program imports PyTorch. Without `highwater run`, `highwater.pth` does so if the package is
installed and HIGHWATER_RECORD or HIGHWATER_OOM_SNAPSHOT is set. The recording begins when the program first uses a GPU.
Its modules are imported only then, since many programs import PyTorch but use no GPU. No error here may stop the
program.
"""

import contextlib
import os
import sys

from ._around_torch import AroundTorch


def start():
    """Records the program from its import of PyTorch, unless `highwater run` does."""
    # Python may run `highwater.pth` twice.
    is_started = any(isinstance(one, AroundTorch) for one in sys.meta_path)
    if not is_started and not os.environ.get("HIGHWATER_RUN_FILE"):
        sys.meta_path.insert(0, finder())


def finder():
    """Returns the import finder that starts this module when PyTorch is imported."""
    return AroundTorch(lambda spec: None, _after_torch)


def _after_torch(torch):
    # Whatever has this name may be another module.
    with contextlib.suppress(Exception):
        from ._device import call_at_first_use

        # A process that was forked off begins on its own.
        call_at_first_use(_begin)


def _begin():
    try:
        from . import _launch

        _launch.begin()
    except Exception as error:  # noqa: BLE001
        print(f"highwater: cannot record this process: {error}", file=sys.stderr)
