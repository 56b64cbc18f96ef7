"""Runs the `highwater` program: `python -m highwater peak step.snap`."""

import sys

from ._binary import HighwaterError, replace_process

if __name__ == "__main__":
    try:
        replace_process(sys.argv[1:])
    except HighwaterError as error:
        sys.exit(f"error: {error}")
