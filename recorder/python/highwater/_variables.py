"""Environment variables that configure the recording of a program.

Names and meanings are those of the Rust recorder. `highwater run` passes its options in variables of its own, which
take precedence.
"""

import os
import re
import signal

from ._marked import check_name

# Set by `highwater run`: the recording, or the folder for it.
RUN_FILE = "HIGHWATER_RUN_FILE"
# Set by the user: the recording, or the folder for it; or the folder for recordings of failed requests alone.
RECORD = "HIGHWATER_RECORD"
OOM_SNAPSHOT = "HIGHWATER_OOM_SNAPSHOT"

_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?(?=b)|[kmgt]|)b?", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|min|h|)")
_UNITS = {"": 1, "s": 1, "min": 60, "h": 3600}
_MAX = 2**63 - 1
# As many seconds as a thread can wait.
_MAX_S = 10**9


def is_run():
    """Returns whether `highwater run` records this program."""
    return bool(os.environ.get(RUN_FILE))


def read():
    """Returns the options of the recording, and the other settings, both by name.

    Raises:
        ValueError: a value is invalid. The message contains the variable, the value and the expected form.
    """
    options, others = {}, {}
    for name, (option, parse, expected) in _VARIABLES.items():
        variable, text = _value(name)
        if not text:
            continue
        try:
            value = parse(text.strip())
        except (KeyError, ValueError, OverflowError):
            raise ValueError(f"{variable}={text!r}: expected {expected}") from None
        (others if name in _OTHERS else options)[option] = value
    return options, others


def _value(name):
    """Returns the variable that sets `name`, and its value."""
    for prefix in ("HIGHWATER_RUN_", "HIGHWATER_") if is_run() else ("HIGHWATER_",):
        text = os.environ.get(prefix + name)
        # The level that `highwater run` has without an option.
        if text and (prefix + name, text) != ("HIGHWATER_RUN_LEVEL", "stacks"):
            return prefix + name, text
    return None, None


def _count(text):
    number = int(text)
    if not 1 <= number <= _MAX:
        raise ValueError
    return number


def _steps(text):
    first, _, end = text.partition("..")
    first, end = int(first), int(end)
    if not 0 <= first < end <= _MAX:
        raise ValueError
    return range(first, end)


def _sizes(text):
    file, _, disk = text.partition(",")
    return _size(file), _size(disk) if "," in text else None


def _size(text):
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError
    number, unit = match[1], match[2].lower()
    # As in Rust, a unit without "B" is binary.
    scale = _SCALES[unit if "b" in text.lower() or not unit else unit.rstrip("i") + "i"]
    size = round(float(number) * scale) if "." in number else int(number) * scale
    return _count(size)


def _duration(text):
    match = _DURATION.fullmatch(text)
    if match is None or not 1 <= float(match[1]) * _UNITS[match[2]] <= _MAX_S:
        raise ValueError
    return float(match[1]) * _UNITS[match[2]]


def _save(text):
    return 0 if text == "never" else _duration(text)


def _signal(text):
    name = text[3:] if text.startswith("SIG") else text
    number = getattr(signal, f"SIG{name}") if name in ("USR1", "USR2") and os.name == "posix" else int(name)
    # Those that cannot be handled, or whose handler must not return to the instruction that raised them.
    if number not in signal.valid_signals() - {9, 19, signal.SIGILL, signal.SIGFPE, signal.SIGSEGV}:
        raise ValueError
    return int(number)


# The options that the variables set, their parsers, and their expected values.
_VARIABLES = {
    "STEPS": ("steps", _steps, "the first step and the step after the last, such as 10..13"),
    "RING": ("max_entries", _count, "a number of events"),
    "LEVEL": ("context", {"stacks": "alloc", "events": None, "state": "state"}.__getitem__, "stacks, events or state"),
    "STEP_AT": ("step_at", check_name, "the name of a function, such as Engine.step or package.module:Engine.step"),
    "SWITCH": ("file", str, "the path of a file"),
    "SIGNAL": ("signal", _signal, "USR1, USR2 or a signal's number"),
    "ROTATE": ("sizes", _sizes, "sizes of a file and in total, such as 1GiB,16GiB"),
    "EVERY": ("every_s", _duration, "a time of at least one second, such as 10min"),
    "SAVE": ("save_s", _save, "never, or a time of at least one second, such as 10min"),
}
# Variables that need a recording to a file, and have no counterpart among the options of `record_memory_history`.
_OTHERS = ("SWITCH", "SIGNAL", "ROTATE", "EVERY", "SAVE")
OF_FILES = tuple(f"HIGHWATER_{name}" for name in _OTHERS if name != "SAVE")
