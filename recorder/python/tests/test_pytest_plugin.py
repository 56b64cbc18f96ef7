"""Tests of the pytest plugin with a fake PyTorch and a fake recording."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import highwater
from highwater import _binary

pytest_plugins = ["pytester"]

FAKE_TORCH = """
    \"\"\"A device that counts the bytes of `Tensor` objects.\"\"\"
    import os
    from types import SimpleNamespace

    live = peak = 0

    class Tensor:
        def __init__(self, size):
            global live, peak
            self.size = size
            live += size
            peak = max(peak, live)

        def __del__(self):
            global live
            live -= self.size

    class OutOfMemoryError(RuntimeError):
        pass

    def reset(device=None):
        global peak
        peak = live

    def stats(device=None):
        return {
            "allocated_bytes.all.peak": peak,
            "reserved_bytes.all.peak": 2 * peak,
            "requested_bytes.all.peak": peak - peak // 8,
        }

    cuda = SimpleNamespace(
        is_available=lambda: os.environ.get("FAKE_CUDA", "1") == "1",
        device_count=lambda: 1,
        current_device=lambda: 0,
        synchronize=lambda device=None: None,
        reset_peak_memory_stats=reset,
        max_memory_allocated=lambda device=None: peak,
        memory_allocated=lambda device=None: live,
        memory_stats=stats,
        OutOfMemoryError=OutOfMemoryError,
    )
"""


class FakeRecording:
    """Writes an empty file; keeps a list of what was called."""

    active = None
    calls = []

    def __init__(self, path, **options):
        self.asked_path, self.options, self.path = path, options, None
        self.is_discarded = False

    def _discard(self):
        self.is_discarded = True

    def __enter__(self):
        if FakeRecording.active is not None:
            raise RuntimeError("a recording is active: end the first one")
        FakeRecording.active = self
        FakeRecording.calls.append(("enter", self.options))
        return self

    def __exit__(self, kind, error, trace):
        FakeRecording.active = None
        FakeRecording.calls.append(("exit", kind and kind.__name__))
        if not self.is_discarded:
            with open(self.asked_path, "w"):
                self.path = self.asked_path


class FakeProgram:
    """Answers in place of the `highwater` program."""

    def __init__(self):
        self.commands = []
        self.passes = True
        self.scope = "encoder.layers.3.attn"

    def __call__(self, arguments, **_):
        self.commands.append(arguments)
        command, path = arguments[:2]
        assert os.path.exists(path)
        if command == "peak":
            by = arguments[arguments.index("--by") + 1].split(",")
            values = {"scope": self.scope, "phase": "forward", "frame": "test_it.py:4 test"}
            group = {"keys": {key: values[key] for key in by}, "bytes": 3 * 2**20, "blocks": 2}
            return json.dumps({"bytes": 2**22, "groups": [group]})
        if command == "check":
            return json.dumps({"passed": self.passes}) if "--json" in arguments else f"Failed: 1 budget, {path}\n"
        assert command == "oom"
        return "The device was full of activations.\n"


@pytest.fixture
def program(monkeypatch):
    fake = FakeProgram()
    monkeypatch.setattr(_binary, "run", fake)
    monkeypatch.setattr(_binary, "path", lambda: "highwater")
    return fake


@pytest.fixture
def run(pytester, monkeypatch, program):
    """Runs pytest on the text of a test module."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(FakeRecording, "active", None)
    monkeypatch.setattr(FakeRecording, "calls", [])
    # Not `setattr`, which would look for the real one, and import PyTorch.
    monkeypatch.setitem(vars(highwater), "record_memory_history", FakeRecording)
    # An earlier test may have imported the real one.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    temporary = pytester.mkdir("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    pytester.makepyfile(torch=textwrap.dedent(FAKE_TORCH))
    pytester.syspathinsert()

    def files(*arguments):
        options = "-p", "highwater.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers"
        result = pytester.runpytest_inprocess(*options, *arguments)
        assert list(temporary.iterdir()) == [], "temporary recordings are removed"
        assert FakeRecording.active is None
        return result

    def run(text, *arguments):
        pytester.makepyfile(test_it=textwrap.dedent(text))
        return files(*arguments)

    run.files = files
    return run


LIMITED = """
    import pytest
    import torch

    @pytest.mark.max_memory({limit})
    def test():
        torch.Tensor({size})
"""


def test_a_test_at_its_limit_passes(run):
    run(LIMITED.format(limit='"4MiB"', size=4 * 2**20)).assert_outcomes(passed=1)
    assert FakeRecording.calls == [("enter", {"stacks": "python", "context": "alloc"}), ("exit", None)]


def test_a_test_over_its_limit_fails_with_the_limit_the_peak_and_the_modules(run, program):
    result = run(LIMITED.format(limit='"4MiB"', size=5 * 2**20))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "max_memory(4MiB) exceeded by 1 MiB: the peak of allocated memory is 5 MiB on device 0; largest: *",
            "*Captured highwater call*",
            "Largest at the peak of allocated memory:",
            "       3 MiB  encoder.layers.3.attn (forward)",
            "The recording was removed: use --highwater-dir DIR to keep it",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    question = "--json --by scope,phase --top 5 --device 0 --metric allocated"
    assert program.commands[0][2:] == question.split()


@pytest.mark.parametrize("scope", ["(none)", "(free in segments)", ""])
def test_lines_of_code_are_named_where_no_module_is_known(run, program, scope):
    program.scope = scope
    result = run(LIMITED.format(limit="1000", size=2000))
    result.stdout.fnmatch_lines(["max_memory(1000 B) exceeded by 1000 B*; largest: test_it.py:4 test, 3 MiB"])


def test_the_limit_is_checked_although_the_program_fails(run, monkeypatch):
    def fail(arguments, **_):
        raise _binary.HighwaterError("the program 'highwater' is not installed")

    monkeypatch.setattr(_binary, "run", fail)
    result = run(LIMITED.format(limit="1000", size=2000))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["Largest at the peak of allocated memory: not available: the program 'highwater' is not installed"]
    )


@pytest.mark.parametrize("metric, peak", [("reserved", "4 KiB"), ("requested", "1.75 KiB")])
def test_other_metrics_can_be_limited(run, metric, peak):
    result = run(LIMITED.format(limit=f'"1KiB", metric="{metric}"', size=2048))
    result.stdout.fnmatch_lines([f"*the peak of {metric} memory is {peak} on device 0*"])


def test_a_limit_of_the_function_overrides_that_of_the_module(run):
    text = "import pytest\npytestmark = pytest.mark.max_memory(1)\n" + textwrap.dedent(LIMITED)
    run(text.format(limit='"1MiB"', size=2000)).assert_outcomes(passed=1)


def test_each_metric_has_its_own_limit(run):
    text = LIMITED.replace("def test", '@pytest.mark.max_memory("1KiB", metric="reserved")\n    def test')
    result = run(text.format(limit='"1KiB"', size=600))
    result.stdout.fnmatch_lines(["max_memory(1KiB) exceeded by 176 B: the peak of reserved memory*"])


@pytest.mark.parametrize(
    "marker, problem",
    [
        ('max_memory("4 apples")', "invalid size '4 apples': expected a number and a unit*"),
        ('max_memory("4GiB", metrics="reserved")', "max_memory() got an unexpected keyword argument 'metrics'*"),
        ('max_memory("4GiB", metric="used")', "invalid metric 'used': expected one of allocated, reserved, requested*"),
        ('max_memory("4GiB", device="cuda:0")', "invalid device 'cuda:0': expected an integer from 0*"),
        ("max_memory", "max_memory() missing 1 required positional argument: 'limit'*"),
        ('limit_gpu_leaks("1MiB", warmups=-1)', "invalid warmups -1: expected an integer from 0*"),
    ],
)
def test_an_invalid_marker_is_a_usage_error_that_names_the_test(run, marker, problem):
    result = run(f"import pytest\n@pytest.mark.{marker}\ndef test_a(): pass\ndef test_b(): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    name = marker.split("(")[0]
    text = result.stdout.str() + result.stderr.str()
    assert f"test_it.py::test_a: invalid marker {name}: " in text
    result.stderr.fnmatch_lines([f"*test_a: invalid marker {name}: {problem}usage: {name}(limit, *"])


def test_tests_without_cuda_are_skipped(run, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA", "0")
    text = LIMITED + "\n    def test_fixture(cuda_memory): pass\n    def test_plain(): pass\n"
    result = run(text.format(limit="1", size=10), "-rs")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*memory limit: CUDA is not available", "SKIPPED*cuda_memory: CUDA is not*"])
    assert FakeRecording.calls == []


def test_tests_without_pytorch_are_skipped(run, pytester):
    pytester.makepyfile(torch="raise ImportError('no libcudart')")
    result = run("import pytest\n@pytest.mark.max_memory(1)\ndef test(): pass\n", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*memory limit: PyTorch cannot be imported: no libcudart"])


def test_tests_for_a_missing_device_are_skipped(run):
    result = run(LIMITED.format(limit="1, device=3", size=10), "-rs")
    result.stdout.fnmatch_lines(["SKIPPED*memory limit: CUDA device 3 is not available"])


def test_unmarked_tests_do_not_import_pytorch(run):
    run("import sys\ndef test(): assert 'torch' not in sys.modules\n").assert_outcomes(passed=1)
    assert FakeRecording.calls == []


def test_a_leak_over_the_limit_fails(run, program):
    text = """
        import pytest, torch
        kept = []

        @pytest.mark.limit_gpu_leaks("1KiB")
        def test():
            kept.append(torch.Tensor(3000))
    """
    result = run(text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "limit_gpu_leaks(1KiB) exceeded by 1.93 KiB: the test leaves 2.93 KiB allocated on device 0; largest: *",
            "Largest that the test leaves:",
        ]
    )
    command = program.commands[0]
    assert command[command.index("--at") + 1] == "end" and command[command.index("--where") + 1] == "lifetime=kept"


def test_memory_that_the_garbage_collector_frees_is_no_leak(run):
    text = """
        import pytest, torch

        @pytest.mark.limit_gpu_leaks(0)
        def test():
            tensor = torch.Tensor(3000)
            tensor.cycle = tensor
    """
    run(text).assert_outcomes(passed=1)


def test_warmups_call_the_test_before(run):
    text = """
        import pytest, torch
        workspace = []

        @pytest.mark.limit_gpu_leaks(0, warmups=2)
        def test(tmp_path):
            workspace.append(torch.Tensor(3000 if len(workspace) < 2 else 0))
    """
    run(text).assert_outcomes(passed=1)
    run(text.replace("warmups=2", "warmups=1")).assert_outcomes(failed=1)
    assert [call for call, _ in FakeRecording.calls] == ["enter", "exit"] * 2, "warmups are not recorded"


def test_an_error_of_the_test_is_kept(run):
    result = run(LIMITED.format(limit=1, size=10) + "        assert 1 == 2, 'own error'\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*AssertionError: own error", "The recording was removed*"])
    result.stdout.no_fnmatch_line("*max_memory(1 B) exceeded*")
    assert FakeRecording.calls[1] == ("exit", "AssertionError")


def test_an_out_of_memory_error_is_explained(run):
    result = run(LIMITED.format(limit=1, size=10) + "        raise torch.cuda.OutOfMemoryError('CUDA out of memory')\n")
    result.stdout.fnmatch_lines(["E*CUDA out of memory", "The device was full of activations."])


def test_a_test_that_skips_itself_stays_skipped(run):
    run(LIMITED.format(limit=1, size=10) + "        pytest.skip('no')\n").assert_outcomes(skipped=1)


def test_an_expected_failure_stays_expected(run):
    text = LIMITED.replace("def test", "@pytest.mark.xfail\n    def test")
    run(text.format(limit=1, size=10)).assert_outcomes(xfailed=1)


def test_recordings_of_failed_tests_are_kept_in_the_folder(run, pytester):
    text = LIMITED.format(limit='"1KiB"', size=2000)
    text += "\n    @pytest.mark.max_memory(10)\n    def test_small(): pass\n"
    text += "\n    @pytest.mark.max_memory(9)\n    @pytest.mark.parametrize('a', ['/'])\n    def test_error(a): 1 / 0\n"
    result = run(text, "--highwater-dir", "kept/here")
    result.assert_outcomes(failed=2, passed=1)
    names = sorted(path.name for path in (pytester.path / "kept" / "here").iterdir())
    assert [name[:-14] for name in names] == ["test_it.py-test", "test_it.py-test_error"]
    result.stdout.fnmatch_lines([f"Recording: kept/here/{names[0]}", f"Recording: kept/here/{names[1]}"])


@pytest.mark.parametrize("marker, option", [("10, record=False", "--highwater=on"), ("10", "--highwater=off")])
def test_recording_can_be_switched_off(run, marker, option):
    result = run(LIMITED.format(limit=marker, size=20), option)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["No recording: switched off by --highwater=off or record=False"])
    assert FakeRecording.calls == []


def test_a_test_that_records_memory_itself_gets_instructions(run):
    own = "        import highwater\n        with highwater.record_memory_history('own.snap'): pass\n"
    text = LIMITED + own
    result = run(text.format(limit=1000, size=10))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a test that records memory itself needs record=False."])
    run(text.format(limit="1000, record=False", size=10)).assert_outcomes(passed=1)


def test_the_recording_of_a_fixture_leaves_the_limit_in_force(run):
    text = """
        import highwater, pytest, torch

        @pytest.fixture
        def recording():
            with highwater.record_memory_history("own.snap"):
                yield

        @pytest.mark.max_memory(10)
        def test(recording):
            torch.Tensor(20)
    """
    result = run(text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["max_memory(10 B) exceeded*", "No recording: a recording is active: *"])


def test_a_missing_baseline_is_written_and_reported(run, pytester, program):
    result = run(LIMITED.format(limit=100, size=20), "--highwater-baseline", "base")
    result.assert_outcomes(passed=1)
    (path,) = (pytester.path / "base").iterdir()
    result.stdout.fnmatch_lines([f"highwater: baseline written: base/{path.name}"])
    assert program.commands == []
    result = run(LIMITED.format(limit=100, size=20), "--highwater-baseline", "base")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*baseline written*")
    (command,) = program.commands
    assert command[2:] == ["--baseline", f"base/{path.name}", "--max-growth", "5%", "--json"]


def test_a_test_over_its_baseline_fails_with_the_text_of_the_check(run, pytester, program):
    run(LIMITED.format(limit=100, size=20), "--highwater-baseline", "base")
    program.passes = False
    options = "--highwater-baseline", "base", "--highwater-max-growth", "1MiB", "--highwater-dir", "kept"
    result = run(LIMITED.format(limit=100, size=20), *options)
    result.assert_outcomes(failed=1)
    (kept,) = (pytester.path / "kept").iterdir()
    result.stdout.fnmatch_lines(
        [
            f"more memory than the baseline base/{kept.name} (remove that file to accept it)",
            f"Failed: 1 budget, kept/{kept.name}",
            f"Recording: kept/{kept.name}",
        ]
    )
    assert program.commands[-1][-1] == "1MiB"


def test_a_failed_test_writes_no_baseline(run, pytester):
    run(LIMITED.format(limit=1, size=20), "--highwater-baseline", "base").assert_outcomes(failed=1)
    assert not (pytester.path / "base").exists()


def test_a_baseline_folder_that_exists_changes_no_name_although_it_moves_the_root(run, pytester, program):
    tests = pytester.mkdir("project") / "tests"
    tests.mkdir()
    text = textwrap.dedent(LIMITED.format(limit=100, size=20))
    (tests / "test_it.py").write_text(text)
    for number in range(2):
        result = run.files("project/tests", "--highwater-baseline", "elsewhere/base")
        result.assert_outcomes(passed=1)
        assert len(list((pytester.path / "elsewhere" / "base").iterdir())) == 1
        assert len(program.commands) == number, "the second one compares"
    result.stdout.no_fnmatch_line("highwater: *")


def test_tests_of_one_name_in_two_folders_have_baselines_of_their_own(pytester, run, program):
    for folder in ("a", "b"):
        (pytester.mkdir(folder) / f"test_{folder}.py").write_text(textwrap.dedent(LIMITED.format(limit=100, size=20)))
        (pytester.path / folder / "__init__.py").touch()
    run.files("a", "b", "--highwater-baseline=base").assert_outcomes(passed=2)
    assert len(list((pytester.path / "base").iterdir())) == 2


def test_tests_outside_the_folder_of_the_baselines_have_names_of_their_own(pytester, run, program):
    text = textwrap.dedent(LIMITED.format(limit=100, size=20))
    for folder in ("a", "ci/a"):
        os.makedirs(pytester.path / folder)
        (pytester.path / folder / "test_same.py").write_text(text)
    result = run.files("a", "ci/a", "--import-mode=importlib", "--highwater-baseline=ci/base")
    result.assert_outcomes(passed=2)
    names = [path.name for path in (pytester.path / "ci" / "base").iterdir()]
    assert len(names) == 2 and not any(name.startswith(".") for name in names)


def test_baselines_without_a_test_and_tests_without_a_baseline_are_counted(run, pytester, program):
    (pytester.mkdir("base") / "test_gone-12345678.snap").touch()
    result = run(LIMITED.format(limit=100, size=20), "--highwater-baseline", "base")
    result.stdout.fnmatch_lines(
        [
            "highwater: 1 test has no baseline in base, and no comparison",
            "highwater: 1 baseline belongs to no test of this run: base",
        ]
    )
    result = run(LIMITED.format(limit=1, size=20), "--highwater-baseline", "base")
    result.stdout.no_fnmatch_line("*has no baseline*")
    result = run(LIMITED.format(limit=100, size=20), "--highwater-baseline", "new")
    result.stdout.fnmatch_lines(["highwater: 1 test has no baseline in new, and no comparison"])


@pytest.mark.parametrize("options", [(), ("--highwater-dir", "kept")])
def test_what_to_run_next_names_a_file_that_is_still_there(run, pytester, program, options, monkeypatch):
    def answer(arguments, **_):
        return f"The device was full.\n\nNext: highwater peak {arguments[1]}   for what uses it\n"

    monkeypatch.setattr(_binary, "run", answer)
    text = """
        import pytest, torch

        @pytest.mark.max_memory(10)
        def test_it():
            raise torch.cuda.OutOfMemoryError("full")
    """
    result = run(text, *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["The device was full."])
    if options:
        (kept,) = (pytester.path / "kept").iterdir()
        result.stdout.fnmatch_lines([f"Next: highwater peak kept/{kept.name} *"])
    else:
        result.stdout.no_fnmatch_line("*Next:*")


def test_a_baseline_needs_recordings(run):
    result = run(LIMITED.format(limit=1, size=1), "--highwater-baseline", "base", "--highwater=off")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--highwater-baseline needs recordings: remove --highwater=off"])


def test_the_fixture_measures_since_its_setup_and_since_a_reset(run):
    text = """
        import pytest, torch

        @pytest.fixture
        def model():
            return torch.Tensor(100)

        def test(model, cuda_memory):
            assert (cuda_memory.peak, cuda_memory.grown) == (100, 0)
            torch.Tensor(50)
            assert (cuda_memory.peak, cuda_memory.grown) == (150, 0)
            cuda_memory.reset()
            kept = torch.Tensor(10)
            assert (cuda_memory.peak, cuda_memory.grown) == (110, 10)
    """
    run(text).assert_outcomes(passed=1)
    assert FakeRecording.calls == []


def test_a_reset_of_the_fixture_does_not_hide_a_peak_from_the_limit(run):
    text = LIMITED.replace("def test()", "def test(cuda_memory)")
    run(text.format(limit=100, size=200) + "        cuda_memory.reset()\n").assert_outcomes(failed=1)


def test_a_limit_does_not_hide_a_peak_from_the_fixture(run):
    text = """
        import pytest, torch

        @pytest.fixture
        def load(cuda_memory):
            torch.Tensor(200)

        @pytest.mark.max_memory(100)
        def test(cuda_memory, load):
            assert cuda_memory.peak == 200
    """
    run(text).assert_outcomes(passed=1)


def test_tensors_of_an_earlier_failure_do_not_count(run, pytester, monkeypatch):
    text = """
        import pytest, torch

        def test_fails():
            tensor = torch.Tensor(1000)
            assert 0

        @pytest.mark.max_memory(100)
        def test_small():
            torch.Tensor(50)
    """
    # In a separate process: `pytester` keeps all errors of its own process.
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(highwater.__file__)), prepend=os.pathsep)
    pytester.makepyfile(test_it=textwrap.dedent(text))
    result = pytester.runpytest_subprocess("-p", "highwater.pytest_plugin", "--highwater=off")
    result.assert_outcomes(failed=1, passed=1)


def test_methods_of_unittest_are_limited_and_keep_their_errors(run):
    text = """
        import pytest, torch, unittest

        @pytest.mark.max_memory(100)
        class Test(unittest.TestCase):
            def test_small(self):
                torch.Tensor(50)

            def test_large(self):
                torch.Tensor(500)

            def test_error(self):
                torch.Tensor(500)
                self.assertEqual(1, 2)
    """
    result = run(text)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*AssertionError: 1 != 2", "max_memory(100 B) exceeded by 400 B*"])
    # Once as an error; where `CI` is set, pytest's summary repeats it.
    assert sum(line.startswith("max_memory(100 B) exceeded by 400 B") for line in result.outlines) == 1


def test_the_markers_are_documented(run):
    result = run("", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.max_memory(limit, *", "@pytest.mark.limit_gpu_leaks(limit, *"])


def test_importing_highwater_imports_no_framework():
    code = (
        "import sys, highwater; "
        "print([name for name in ('torch', 'lightning', 'transformers', 'pytest') if name in sys.modules])"
    )
    root = os.path.dirname(os.path.dirname(highwater.__file__))
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"
