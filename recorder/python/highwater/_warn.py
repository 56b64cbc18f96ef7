"""Warns the program."""

import os
import sys
import warnings

_FOLDER = os.path.dirname(sys._getframe().f_code.co_filename)


def warn(text):
    """Warns at the innermost line outside of this package."""
    depth, frame = 1, sys._getframe()
    while frame is not None and os.path.dirname(frame.f_code.co_filename) == _FOLDER:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(f"highwater: {text}", stacklevel=depth)
