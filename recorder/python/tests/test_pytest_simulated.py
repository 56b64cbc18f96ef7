"""`pytest --highwater-simulate`: memory limits of a suite on a machine without a GPU, as users run them."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))

TRAINING = """
    import subprocess, sys
    import pytest, torch

    def train(size=1000):
        model = torch.nn.Sequential(torch.nn.Linear(size, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 10)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(2):
            model(torch.randn(64, size, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""
GROWS = """
    import pytest, torch

    @pytest.mark.max_memory("64MiB")
    def test_grows():
        kept = torch.zeros(1 << 20, device="cuda")
        kept + 1
"""


@pytest.fixture
def run(tmp_path):
    """Runs pytest as users do: `run(source, *options)` writes test_it.py and returns the process."""
    if shutil.which("highwater") is None or "HIGHWATER_SIMULATE_CUDNN" not in os.environ:
        pytest.skip("needs the binary, and PyTorch as tests/pytorch installs it")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    project = tmp_path / "project"
    project.mkdir()

    def run(source, *options, on_gpu=False):
        # The option brings its own library; that of the tests is taken for a GPU.
        brought = ("LD_PRELOAD", "LD_LIBRARY_PATH", "CUBLAS", "HIGHWATER_SIMULATE")
        left_out = ("PYTEST_",) if on_gpu else ("PYTEST_", *brought)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        paths = [os.path.join(ROOT, "recorder", "python"), str(project)]
        # An installed plugin is found by its entry point.
        environment.update(TMPDIR=str(temporary), PYTHONPATH=os.pathsep.join(paths))
        environment.update(PYTEST_PLUGINS="highwater.pytest_plugin")
        if not on_gpu:
            # Selects devices of this machine, of which none is used.
            environment["CUDA_VISIBLE_DEVICES"] = ""
        (project / "test_it.py").write_text(textwrap.dedent(source))
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        left = [name for name in os.listdir(temporary) if name.startswith("highwater")]
        assert left == [], "nothing is left behind"
        return done

    run.project = project
    return run


def test_limits_are_measured_on_a_simulated_gpu_which_the_header_and_failures_name(run):
    source = TRAINING + """
    @pytest.mark.max_memory("64MiB")
    def test_fits():
        train()
        assert torch.nn.Linear(2000, 2000).weight.std() > 0, "tensors of the host are initialized"

    @pytest.mark.max_memory("10MiB")
    def test_does_not_fit():
        train()

    @pytest.mark.limit_gpu_leaks("64MiB")
    def test_started_programs_have_the_gpu_too():
        program = "import torch; print(torch.cuda.get_device_name(), torch.zeros(3, device='cuda').sum().item())"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stdout.split() == ["NVIDIA", "H100", "80GB", "HBM3", "0.0"], done.stderr

    def test_of_the_fixture(cuda_memory):
        if torch.zeros(1 << 20, device="cuda").sum() > 0:
            raise AssertionError
        assert cuda_memory.peak > 4 << 20
        torch.linalg.qr(torch.randn(64, 64, device="cuda"))

    def test_of_values():
        raise AssertionError("is not run, as values computed on the device are zeros")
    """
    done = run(source, "--highwater-simulate", "h100")
    assert "highwater: simulated NVIDIA H100 80GB HBM3 (79.19 GiB); kernels do nothing, values are zeros" in done.stdout
    assert "1 failed, 3 passed, 1 deselected" in done.stdout, done.stdout + done.stderr
    assert re.search(
        r"^max_memory\(10MiB\) exceeded by 37.92 MiB: the peak of allocated memory is 47.92 MiB on device 0, "
        r"a simulated NVIDIA H100 80GB HBM3; largest: 0 \(backward\), ",
        done.stdout,
        re.MULTILINE,
    ), done.stdout
    assert "the memory of 1 test is a lower bound, since the workspaces of these functions are not" in done.stdout
    assert re.search(r"^  test_it.py:\d+  cusolverDnXgeqrf  \(1 time\)$", done.stdout, re.MULTILINE)
    assert re.search(r"^  test_it.py:\d+  if torch.zeros\(1 << 20, .* > 0:  \(1 time\)$", done.stdout, re.MULTILINE)


def test_a_function_that_is_not_simulated_ends_pytest_with_the_name_of_the_test(run):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    (run.project / "planted.c").write_text("void cusparsePlanted(void);\nvoid call(void) { cusparsePlanted(); }\n")
    command = ["cc", "-shared", "-fPIC", "-Wl,--unresolved-symbols=ignore-all", "-o", "planted.so", "planted.c"]
    subprocess.run(command, cwd=run.project, check=True)
    source = """
    import ctypes, pytest, torch

    @pytest.mark.max_memory("64MiB")
    def test_planted():
        print("captured")
        torch.zeros(1, device="cuda")
        ctypes.CDLL("./planted.so").call()
    """
    done = run(source, "--highwater-simulate=a100")
    assert done.returncode == 3, done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("highwater: ")]
    assert re.match(
        r"highwater: test_it.py::test_planted: cusparsePlanted is not simulated \(called at \S+/test_it.py:8\): "
        r".*; pytest ends here, and --deselect test_it.py::test_planted leaves the test out$",
        line,
    ), line


def test_recordings_of_a_smaller_memory_say_that_they_were_simulated_and_are_baselines(run):
    import highwater

    options = "--highwater-simulate=h100:8GiB", "--highwater-baseline=baselines"
    done = run(GROWS, *options)
    assert "(8 GiB); kernels do nothing" in done.stdout and "1 passed" in done.stdout, done.stdout + done.stderr
    (path,) = (run.project / "baselines").iterdir()
    notes = highwater.Snapshot(path).info()["notes"]
    assert any(note.startswith("simulated: ") and "H100" in note for note in notes)
    more = GROWS.replace("kept + 1", "kept + 1 + torch.zeros_like(kept)")
    done = run(more, *options)
    assert "1 failed" in done.stdout and "more memory than the baseline baselines/" in done.stdout, done.stdout


def test_a_baseline_of_a_gpu_is_compared_and_stated(run):
    done = run(GROWS, "--highwater-baseline=baselines", on_gpu=True)
    assert "1 passed" in done.stdout and "highwater: baseline written: " in done.stdout, done.stdout + done.stderr
    done = run(GROWS, "--highwater-simulate=h100", "--highwater-baseline=baselines")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    stated = "highwater: 1 test: The baseline was recorded on a real device, this recording on a simulated NVIDIA H100"
    assert stated in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_workers_of_xdist_use_the_gpu_and_their_notes_reach_the_summary(run):
    source = """
    import pytest, torch

    @pytest.mark.max_memory("1KiB")
    @pytest.mark.parametrize("number", range(4))
    def test_reads(number):
        torch.zeros(1, device="cuda").sum().item()
        torch.zeros(1 << 10, device="cuda")
    """
    done = run(source, "--highwater-simulate=h100", "-n", "2")
    assert "4 failed" in done.stdout, done.stdout + done.stderr
    assert "on device 0, a simulated NVIDIA H100 80GB HBM3" in done.stdout
    assert 'torch.zeros(1, device="cuda").sum().item()  (4 times)' in done.stdout


@pytest.mark.parametrize(
    "gpu, modules, plugin, problem",
    [
        ("h101", {}, None, "invalid value 'h101' for '--gpu <NAME>': unknown GPU 'h101': expected one of h100, *"),
        ("h100:4 apples", {}, None, "invalid value '4 apples' for '--memory <SIZE>': *"),
        (
            "h100",
            {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.15.0+cpu'\ncuda = None\n"},
            None,
            "this PyTorch (2.15.0+cpu) is built without CUDA; install the CUDA wheel of the same version, *",
        ),
        (
            "h100",
            {"torch/__init__.py": "", "early.py": "import torch\n"},
            "early",
            "PyTorch is already imported, too early for the simulated GPU; disable the plugin that imports it *",
        ),
    ],
)
def test_what_cannot_be_simulated_is_a_usage_error(run, gpu, modules, plugin, problem):
    for name, source in modules.items():
        (run.project / name).parent.mkdir(exist_ok=True)
        (run.project / name).write_text(source)
    done = run("def test(): pass", f"--highwater-simulate={gpu}", *(["-p", plugin] if plugin else []))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    pattern = re.escape(f"ERROR: --highwater-simulate: {problem}").replace(r"\*", ".*")
    assert re.match(pattern + r"\s*$", done.stderr, re.DOTALL), done.stderr


def test_notes_count_from_the_start_of_a_recording():
    from collections import Counter
    from types import SimpleNamespace

    from highwater._noted import UNKNOWN_VALUE, Noted

    line = ("train.py", 3, "train")
    notes = Counter({(UNKNOWN_VALUE, "8 bytes", line): 5})
    simulation = SimpleNamespace(notes=notes, reads=[], allocations=lambda: 0)
    noted = Noted(simulation)
    assert noted.rows(UNKNOWN_VALUE) == []
    simulation.notes[UNKNOWN_VALUE, "8 bytes", line] += 2
    assert [(row["line"], row["count"]) for row in noted.rows(UNKNOWN_VALUE)] == [(3, 2)]


def test_the_workflow_of_the_documentation_checks_a_project(run):
    with open(os.path.join(ROOT, "docs", "simulate.md"), encoding="utf-8") as page:
        (workflow,) = re.findall(r"^```yaml\n(.*?)^```$", page.read(), re.MULTILINE | re.DOTALL)
    (options,) = re.findall(r"^ +pytest: (.*)$", workflow, re.MULTILINE)
    options += " --highwater-baseline=baselines"
    source = TRAINING + """
    @pytest.mark.max_memory("64MiB")
    def test_step_fits():
        train()
    """
    done = run(source, *shlex.split(options))
    assert "1 passed" in done.stdout and "baseline written: " in done.stdout, done.stdout + done.stderr
    done = run(source.replace("train()\n    ", "train(2000)\n    "), *shlex.split(options))
    assert done.returncode == 1 and "more memory than the baseline" in done.stdout, done.stdout + done.stderr
