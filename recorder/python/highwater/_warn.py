"""Warns the program."""

import os
import sys
import warnings

_FOLDER = os.path.dirname(sys._getframe().f_code.co_filename)


def warn(text):
    """Warns at the innermost line outside of this package and of the PyTorch functions that it wraps."""
    depth, frame = 1, sys._getframe()
    while frame is not None and _is_between(frame):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(f"highwater: {text}", stacklevel=depth)


def _is_between(frame):
    in_package = os.path.dirname(frame.f_code.co_filename) == _FOLDER
    return in_package or frame.f_globals.get("__name__") == "torch.cuda.memory"
