"""The simulated GPU of `pytest --highwater-simulate`, for tests with memory limits on a machine without a GPU."""

import collections
import contextlib
import importlib.machinery
import json
import os
import runpy
import shutil
import sys
import tempfile

import pytest

from . import _binary, _simulated
from ._noted import UNKNOWN_VALUE, UNKNOWN_WORKSPACE
from ._test_memory import format_size

_OPTION = "--highwater-simulate"
# The plugin with the hooks below.
_PLUGIN = "highwater_simulated"
# The value of the option for which the variables of this process were set, for workers of pytest-xdist.
_WANTED = "HIGHWATER_SIMULATE_PYTEST"
# Property of a test that the simulation could not answer exactly, with the lines.
_PROPERTY = "highwater_simulated"
_NOTED: pytest.StashKey = pytest.StashKey()
# Lines that the summary lists.
_MAX_LINES = 8


def begin(config, wanted, is_memory_test):
    """Provides the simulated GPU to this process and its child processes.

    `wanted` is the value of the option; `is_memory_test` returns whether a test is to be run.

    Raises:
        pytest.UsageError: no simulated GPU can be provided to this process.
    """
    if config.pluginmanager.has_plugin(_PLUGIN):
        return
    if _simulated.is_recording_program():
        raise _error("`highwater simulate` runs pytest already, and records it as a whole; use one of the two")
    # A worker of pytest-xdist has the variables of the process that started it.
    if not (_simulated.is_started() and os.environ.get(_WANTED) == wanted):
        if "torch" in sys.modules:
            raise _error(
                "PyTorch is already imported, too early for the simulated GPU; disable the plugin that imports it "
                "(-p no:NAME), or import PyTorch in conftest.py"
            )
        _provide(config, wanted)
    simulation = _Simulation(config, is_memory_test)
    config.pluginmanager.register(simulation, _PLUGIN)
    _before_end(config, simulation.show_output)


def _before_end(config, function):
    """Registers a function that is called before the simulation ends the process."""
    _simulated.before_end.append(function)
    config.add_cleanup(lambda: _simulated.before_end.remove(function))


def _error(text):
    return pytest.UsageError(f"{_OPTION}: {text}")


def _check_pytorch():
    # Without the variables that would load an earlier simulated GPU.
    spec = importlib.machinery.PathFinder.find_spec("torch")
    if spec is None or not spec.origin:
        raise _error("PyTorch is not installed in this environment; run `pip install torch`")
    file = os.path.join(os.path.dirname(spec.origin), "version.py")
    # Without importing PyTorch.
    version = runpy.run_path(file) if os.path.isfile(file) else {}
    if version.get("cuda", "") is None:
        raise _error(
            f"this PyTorch ({version.get('__version__')}) is built without CUDA; install the CUDA wheel of the same "
            "version, which needs no GPU"
        )


def _provide(config, wanted):
    """Writes the simulated GPU to a temporary folder, and sets the environment variables until pytest ends."""
    name, _, memory = wanted.partition(":")
    folder = tempfile.mkdtemp(prefix="highwater-")
    variables, before = {}, dict(os.environ)

    def undo():
        _set_variables({name: before.get(name) for name in variables})
        _simulated.stop()
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(undo)
    _before_end(config, undo)
    command = ["simulate", "--gpu", name, *(["--memory", memory] if memory else []), "--keep-init"]
    try:
        variables.update(json.loads(_binary.run([*command, "--provide", folder])), **{_WANTED: wanted})
        del variables["schema_version"]
    except (_binary.HighwaterError, OSError, ValueError) as error:
        raise _error(str(error).removeprefix("error: ").partition("\nTry `")[0]) from None
    _check_pytorch()
    _set_variables(variables)
    _simulated.start()


def _set_variables(variables):
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class _Simulation:
    """The pytest hooks while a GPU is simulated."""

    def __init__(self, config, is_memory_test):
        self._config, self._is_memory_test = config, is_memory_test
        # Counts by file, line, and function or text of the line.
        self._workspaces, self._reads = collections.Counter(), collections.Counter()
        self._inexact_tests = set()

    def show_output(self):
        """Sends further output of the process to the terminal."""
        self._config.pluginmanager.getplugin("capturemanager").suspend_global_capture(in_=True)

    def pytest_report_header(self):
        name, memory = _simulated.gpu()
        return f"highwater: simulated {name} ({format_size(memory)}); kernels do nothing, values are zeros"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        others = [item for item in items if not self._is_memory_test(item)]
        if others:
            items[:] = [item for item in items if self._is_memory_test(item)]
            config.hook.pytest_deselected(items=others)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        item.stash[_NOTED] = _simulated.observe()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item):
        noted = item.stash.get(_NOTED, None)
        if noted is None:
            return
        found = [
            [[row["file"], row["line"], row[key], row["count"]] for row in noted.rows(kind)]
            for kind, key in ((UNKNOWN_WORKSPACE, "name"), (UNKNOWN_VALUE, "text"))
        ]
        if any(found):
            # A property of the test, so that it gets from the workers of pytest-xdist to the process with the terminal.
            item.user_properties.append((_PROPERTY, json.dumps(found)))

    def pytest_runtest_logreport(self, report):
        properties = dict(report.user_properties) if report.when == "teardown" else {}
        workspaces, reads = json.loads(properties.get(_PROPERTY, "[[], []]"))
        for counts, rows in ((self._workspaces, workspaces), (self._reads, reads)):
            for file, line, text, count in rows:
                counts[file, line, text] += count
        if workspaces:
            self._inexact_tests.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter):
        if self._workspaces:
            count = len(self._inexact_tests)
            tests = "1 test" if count == 1 else f"{count} tests"
            what = f"the memory of {tests} is a lower bound, since the workspaces of these functions are not known"
            self._list(terminalreporter, what, self._workspaces)
        if self._reads:
            what = "values computed on the device are zeros; allocations may depend on them through these lines"
            self._list(terminalreporter, what, self._reads)

    def _list(self, terminalreporter, what, counts):
        terminalreporter.write_line(f"highwater: {what}:")
        for (file, line, text), count in sorted(counts.items(), key=str)[:_MAX_LINES]:
            place = "within backward"
            if file is not None:
                # On Windows, a file may be on another drive.
                with contextlib.suppress(ValueError):
                    file = os.path.relpath(file, self._config.invocation_params.dir)
                place = f"{file}:{line}"
            terminalreporter.write_line(f"  {place}  {text}  ({count} {'time' if count == 1 else 'times'})")
        if len(counts) > _MAX_LINES:
            terminalreporter.write_line(f"  … and {len(counts) - _MAX_LINES} more")
