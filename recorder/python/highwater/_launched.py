"""Records a PyTorch program as its environment tells, without a change to the program.

`highwater run` puts this package and a `sitecustomize.py` in front of the program's path, which imports this module
when the program imports PyTorch. Without it, `highwater.pth` does so in an environment in which the package is
installed, where HIGHWATER_RECORD or HIGHWATER_OOM_SNAPSHOT is set. The recording begins when the program first uses a
GPU; what it needs is imported then, since many programs import PyTorch and use none. Nothing here may stop the program.
"""

import contextlib
import os
import sys

from ._around_torch import AroundTorch


def start():
    """Records the program from its import of PyTorch on, unless `highwater run` does."""
    # Python may run `highwater.pth` twice.
    is_started = any(isinstance(one, AroundTorch) for one in sys.meta_path)
    if not is_started and not os.environ.get("HIGHWATER_RUN_FILE"):
        sys.meta_path.insert(0, finder())


def finder():
    """Returns the finder that begins with the import of PyTorch."""
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
