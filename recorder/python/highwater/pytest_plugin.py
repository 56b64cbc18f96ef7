"""Pytest plugin that limits the CUDA memory of tests, and names the modules that caused an exceeded limit.

    @pytest.mark.max_memory("4GiB", metric="allocated", device=0, record=True)
    @pytest.mark.limit_gpu_leaks("1MiB", warmups=0, device=0, record=True)

`max_memory` limits the peak during the test, including the memory of fixtures. It can be used once for each device and
metric. `limit_gpu_leaks` limits the memory that stays allocated after the test. `warmups=1` calls the test once before
measuring, because libraries allocate workspaces at their first call.

Tests with these markers are recorded. PyTorch has only one recorder, so a test that records memory itself needs
`record=False`. PyTorch has only one peak counter, so a test that resets it must use `cuda_memory.reset()`, which the
limits take into account.

`pytest --highwater-simulate h100` runs tests with these markers or with `cuda_memory` on a machine without a GPU.
"""

import gc
import json
import os
import shutil
import sys
from collections import Counter, namedtuple
from contextlib import suppress

import pytest

from . import _binary, _simulated
from ._test_memory import METRICS, CudaMemory, Peaks, TestRecording, allocated, format_size, parse_size, why_unavailable

_MARKERS = {
    "max_memory": 'max_memory(limit, *, metric="allocated", device=0, record=True): fail the test if its peak of CUDA '
    'memory exceeds the limit, such as "4GiB"; metric: allocated, reserved or requested',
    "limit_gpu_leaks": "limit_gpu_leaks(limit, *, warmups=0, device=0, record=True): fail the test if more CUDA memory "
    "than the limit stays allocated after it; warmups: number of calls of the test before",
}
# Property of a test with a baseline: one of the states and the file name.
_BASELINE = "highwater_baseline"
# Property of a test whose baseline was recorded otherwise, with a sentence about it.
_BASELINE_CAVEAT = "highwater_baseline_caveat"
_COMPARED, _WRITTEN, _MISSING = "compared", "written", "missing"

_PeakLimit = namedtuple("_PeakLimit", "limit text metric device record")
_LeakLimit = namedtuple("_LeakLimit", "limit text warmups device record")
_Limits = namedtuple("_Limits", "peaks leak devices is_recorded")

_wrapper = None
# Fails with pluggy before 1.2. Pytest loads the plugin wherever Highwater is installed, so it must not fail here.
with suppress(TypeError):
    _wrapper = pytest.hookimpl(wrapper=True, trylast=True)


# Options and markers.


def pytest_addoption(parser):
    group = parser.getgroup("highwater", "CUDA memory of tests")
    help = "Recording of tests with memory limits (default: on)"
    group.addoption("--highwater", choices=("on", "off"), default="on", help=help)
    group.addoption("--highwater-dir", metavar="DIR", help="Folder in which the recordings of failed tests are kept")
    help = "Folder of recordings that tests with memory limits are compared with; missing ones are written"
    group.addoption("--highwater-baseline", metavar="DIR", help=help)
    help = "Limit of the peak's growth over the baseline (default: 5%%)"
    group.addoption("--highwater-max-growth", metavar="PCT|SIZE", default="5%", help=help)
    help = "Run the tests with memory limits, and no others, on a simulated GPU: h100, a100:40GiB, …"
    group.addoption("--highwater-simulate", metavar="GPU[:MEMORY]", help=help)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    # Before a conftest.py imports PyTorch.
    _simulate(early_config, early_config.known_args_namespace.highwater_simulate)


def _simulate(config, wanted):
    if wanted:
        from . import _pytest_simulated

        _pytest_simulated.begin(config, wanted, _is_memory_test)


def _is_memory_test(item):
    has_marker = any(item.get_closest_marker(marker) for marker in _MARKERS)
    return has_marker or "cuda_memory" in getattr(item, "fixturenames", ())


def pytest_configure(config):
    # If a conftest.py has loaded this plugin.
    _simulate(config, config.getoption("highwater_simulate"))
    for marker in _MARKERS.values():
        config.addinivalue_line("markers", marker)
    if config.getoption("highwater_baseline"):
        if config.getoption("highwater") == "off":
            raise pytest.UsageError("--highwater-baseline needs recordings: remove --highwater=off")
        try:
            _binary.path()
        except _binary.HighwaterError as error:
            raise pytest.UsageError(f"--highwater-baseline: {error}") from None


def pytest_collection_modifyitems(items):
    for item in items:
        if _limits(item) is not None and _wrapper is None:
            raise pytest.UsageError("memory limits need pytest 7.4 or later with pluggy 1.2 or later: upgrade both")


def _count(name, value):
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"invalid {name} {value!r}: expected an integer from 0")
    return value


def _size(limit):
    size = parse_size(limit)
    return size, limit.strip() if isinstance(limit, str) else format_size(size)


# The parameters of the markers. Python's own errors name these functions, so they are called like the markers.


def max_memory(limit, *, metric="allocated", device=0, record=True):
    if metric not in METRICS:
        raise ValueError(f"invalid metric {metric!r}: expected one of {', '.join(METRICS)}")
    return _PeakLimit(*_size(limit), metric, _count("device", device), record)


def limit_gpu_leaks(limit, *, warmups=0, device=0, record=True):
    return _LeakLimit(*_size(limit), _count("warmups", warmups), _count("device", device), record)


def _parse(item, mark):
    try:
        return (max_memory if mark.name == "max_memory" else limit_gpu_leaks)(*mark.args, **mark.kwargs)
    except (TypeError, ValueError) as error:
        usage = _MARKERS[mark.name].split(":")[0]
        raise pytest.UsageError(f"{item.nodeid}: invalid marker {mark.name}: {error}; usage: {usage}") from None


def _limits(item):
    """Returns the limits of a test, or None. A function's markers override those of its class and module."""
    peaks = {}
    for mark in item.iter_markers("max_memory"):
        limit = _parse(item, mark)
        peaks.setdefault((limit.device, limit.metric), limit)
    mark = item.get_closest_marker("limit_gpu_leaks")
    leak = _parse(item, mark) if mark else None
    limits = [*peaks.values(), *([leak] if leak else [])]
    if not limits:
        return None
    is_recorded = item.config.getoption("highwater") == "on" and all(limit.record for limit in limits)
    return _Limits(list(peaks.values()), leak, sorted({limit.device for limit in limits}), is_recorded)


# The fixture.


@pytest.fixture
def cuda_memory():
    """The CUDA memory of the test: `peak` and `grown` in bytes, and `reset()`."""
    why = why_unavailable()
    if why is not None:
        pytest.skip(f"cuda_memory: {why}")
    import torch

    device = torch.cuda.current_device()
    with Peaks([device]) as peaks:
        yield CudaMemory(device, peaks)


# The test.


def _test_id(item):
    """The id of a test, from which its files are named. Ids in a baseline folder do not depend on pytest's root.

    `--highwater-baseline DIR` changes the root if DIR exists, since pytest treats it as a path of tests.
    """
    folder = item.config.getoption("highwater_baseline")
    if not folder:
        return item.nodeid
    relative = os.path.relpath(item.path, os.path.dirname(os.path.abspath(folder)))
    return "::".join([relative.replace(os.sep, "/"), item.nodeid.partition("::")[2]])


def pytest_runtest_setup(item):
    limits = _limits(item)
    why = why_unavailable(limits.devices) if limits else None
    if why is not None:
        pytest.skip(f"memory limit: {why}")


def _run_test(item):
    limits = _limits(item)
    if limits is None:
        return (yield)
    for _ in range(limits.leak.warmups if limits.leak else 0):
        item.runtest()
    # The traceback of an earlier failure keeps that test's tensors. Pytest removes it too, but only after this.
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    recording = TestRecording(_test_id(item))
    _simulated.before_end.append(recording.remove)
    if limits.is_recorded:
        recording.start()
    else:
        recording.problem = "switched off by --highwater=off or record=False"
    try:
        before = {device: allocated(device) for device in limits.devices}
        with Peaks(limits.devices) as peaks:
            try:
                result = yield
            except BaseException as error:
                recording.stop(type(error), error, error.__traceback__)
                if isinstance(error, (Exception, pytest.fail.Exception)):
                    item.add_report_section("call", "highwater", _explain_error(item, recording, error))
                raise
            measured = peaks.read()
        if limits.leak:
            # Garbage would be live at the end of the recording.
            gc.collect()
        grown = allocated(limits.leak.device) - before[limits.leak.device] if limits.leak else 0
        is_over = any(measured[limit.device, limit.metric] > limit.limit for limit in limits.peaks)
        is_over |= limits.leak is not None and grown > limits.leak.limit
        if is_over or item.config.getoption("highwater_baseline"):
            recording.stop()
        else:
            recording.discard()
        # unittest does not raise the exceptions of its tests.
        is_failed = getattr(item, "_excinfo", None)
        failure = None if is_failed else _check(item, limits, recording, before, measured, grown)
    finally:
        recording.stop()
        recording.remove()
        _simulated.before_end.remove(recording.remove)
    if failure is not None:
        pytest.fail(failure, pytrace=False)
    return result


if _wrapper is not None:
    # Not `pytest_pyfunc_call`, which is not called for methods of `unittest.TestCase`.
    pytest_runtest_call = _wrapper(_run_test)


def _check(item, limits, recording, before, measured, grown):
    """Returns the exceeded limit as text, or None. Adds a section about it to the report of the test."""
    failures, section = [], []
    for limit in limits.peaks:
        peak = measured[limit.device, limit.metric]
        if peak > limit.limit:
            over, size = format_size(peak - limit.limit), format_size(peak)
            text = f"max_memory({limit.text}) exceeded by {over}: the peak of {limit.metric} memory is {size}"
            text += f" on {_device(limit.device)}"
            if before[limit.device]:
                text += f", with {format_size(before[limit.device])} allocated before the test"
            heading = f"Largest at the peak of {limit.metric} memory"
            failures.append(text + _largest(recording, section, heading, metric=limit.metric, device=limit.device))
    if limits.leak:
        limit = limits.leak
        if grown > limit.limit:
            text = f"limit_gpu_leaks({limit.text}) exceeded by {format_size(grown - limit.limit)}: the test leaves "
            text += f"{format_size(grown)} allocated on {_device(limit.device)}"
            question = {"at": "end", "where": "lifetime=kept", "metric": "allocated", "device": limit.device}
            failures.append(text + _largest(recording, section, "Largest that the test leaves", **question))
    if limits.is_recorded and item.config.getoption("highwater_baseline"):
        difference = _compare(item, recording, is_passed=not failures)
        failures += [difference] if difference else []
    if not failures:
        return None
    recorded = recording.path
    item.add_report_section("call", "highwater", "\n".join([*section, _keep(item, recording)]))
    text = "\n".join(failures)
    # The program's text names the file, which `_keep` has moved.
    return recording.without_removed(text.replace(recorded, recording.path)) if recorded else text


def _device(device):
    gpu = _simulated.gpu()
    return f"device {device}" if gpu is None else f"device {device}, a simulated {gpu[0]}"


def _largest(recording, section, heading, **question):
    """Adds the modules with the most memory to the section. Returns the end of a sentence that names the largest."""
    if recording.path is None:
        return ""
    try:
        rows = recording.largest(**question)
    except (_binary.HighwaterError, OSError, ValueError) as error:
        section.append(f"{heading}: not available: {error}")
        return ""
    section.append(f"{heading}:")
    section.extend(f"{format_size(size):>12}  {name}" for size, name in rows)
    return f"; largest: {rows[0][1]}, {format_size(rows[0][0])}" if rows else ""


def _keep(item, recording):
    """Moves the recording to `--highwater-dir`. Returns a line about the recording."""
    folder = item.config.getoption("highwater_dir")
    if recording.path is None:
        return f"No recording: {recording.problem}"
    if not folder:
        return "The recording was removed: use --highwater-dir DIR to keep it"
    try:
        recording.keep(folder)
    except OSError as error:
        return f"The recording was not kept: {error}"
    return f"Recording: {recording.path}"


def _explain_error(item, recording, error):
    """Returns the section of a test that failed for another reason than a limit."""
    import torch

    lines, kept = [], _keep(item, recording)
    if isinstance(error, torch.cuda.OutOfMemoryError) and recording.path is not None:
        try:
            lines.append(recording.explain_oom())
        except (_binary.HighwaterError, OSError) as failure:
            lines.append(f"Out of memory, not explained: {failure}")
    elif isinstance(error, RuntimeError) and "recording is active" in str(error):
        lines.append("Tests with memory limits are recorded: a test that records memory itself needs record=False.")
    return "\n".join([*lines, kept])


def _compare(item, recording, is_passed):
    """Returns by how much the recording exceeds its baseline, or None. Writes a missing baseline if the test passed."""
    config = item.config
    if recording.path is None:
        return f"the comparison with the baseline failed: no recording: {recording.problem}"
    base = os.path.join(config.getoption("highwater_baseline"), os.path.basename(recording.path))
    state = _COMPARED if os.path.exists(base) else _WRITTEN if is_passed else _MISSING
    # A property of the test, so that it gets from the workers of pytest-xdist to the process with the terminal.
    item.user_properties.append((_BASELINE, f"{state} {os.path.basename(base)}"))
    if state == _WRITTEN:
        os.makedirs(os.path.dirname(base), exist_ok=True)
        shutil.copyfile(recording.path, base)
    if state != _COMPARED:
        return None
    command = ["check", recording.path, "--baseline", base, "--max-growth", config.getoption("highwater_max_growth")]
    try:
        figures = json.loads(_binary.run([*command, "--json"]))
        if figures.get("baseline_caveat"):
            item.user_properties.append((_BASELINE_CAVEAT, figures["baseline_caveat"]))
        # The recording of a test that allocates nothing has no events, which leaves budgets unconfirmed: it is whole.
        is_whole = figures.get("undecided") and not figures["broken"] and not figures["oom"]
        if figures["passed"] or is_whole:
            return None
        text = _binary.run(command).rstrip()
    except (_binary.HighwaterError, OSError, ValueError) as error:
        return f"the comparison with the baseline {base} failed: {error}"
    return f"more memory than the baseline {base} (remove that file to accept it)\n{text}"


def pytest_terminal_summary(terminalreporter, config):
    folder = config.getoption("highwater_baseline")
    if not folder:
        return
    reports = [report for word in ("passed", "failed") for report in terminalreporter.getreports(word)]
    properties = [row for report in reports if report.when == "call" for row in report.user_properties]
    states = [value.split(" ", 1) for name, value in properties if name == _BASELINE]
    say = terminalreporter.write_line
    for name in sorted(name for state, name in states if state == _WRITTEN):
        say(f"highwater: baseline written: {os.path.join(folder, name)}")
    caveats = Counter(value for name, value in properties if name == _BASELINE_CAVEAT)
    for caveat, count in sorted(caveats.items()):
        say(f"highwater: {_count_of(count, 'test', 'tests')}: {caveat}")
    missing = sum(state != _COMPARED for state, _ in states)
    if missing:
        say(f"highwater: {_count_of(missing, 'test has', 'tests have')} no baseline in {folder}, and no comparison")
    known = {name for _, name in states}
    files = os.listdir(folder) if os.path.isdir(folder) else []
    others = sum(name.endswith(".snap") and name not in known for name in files)
    if others:
        say(f"highwater: {_count_of(others, 'baseline belongs', 'baselines belong')} to no test of this run: {folder}")


def _count_of(count, one, several):
    return f"{count} {one if count == 1 else several}"
