"""Tests of recordings need CUDA: a GPU, or PyTorch over the simulated GPU, as `tests/pytorch` installs it."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, PACKAGE)
pytest_plugins = ["pytester"]


@pytest.fixture
def torch():
    """PyTorch with a clean allocator; the test is skipped without CUDA."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("CUDA is not available")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield torch
    torch.autograd.set_detect_anomaly(False)
    # What one test compiled is not in use in the next, whatever their order.
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


@pytest.fixture
def record(torch, tmp_path):
    """Records what a function does and returns the snapshot: `record(function, **options)`."""
    import highwater

    def record(function, **options):
        options.setdefault("convert", False)
        with highwater.record_memory_history(tmp_path / "step.snap", **options) as run:
            function(run)
        with open(run.path, "rb") as file:
            return pickle.load(file)

    return record


@pytest.fixture(scope="session")
def run_with():
    """Runs Python with packages and variables, and returns its output: `run_with(packages, *arguments, cwd=…)`.

    `.ci/run` installs the packages beside DataFusion, not beside PyTorch, which is tested without NumPy. Where one is
    missing, the test is skipped.
    """
    extra = os.environ.get("HIGHWATER_DATAFUSION")
    folders = [os.path.abspath(extra)] if extra else []

    def run(packages, *arguments, cwd, **environment):
        for name in packages:
            if PathFinder.find_spec(name, [*sys.path, *folders]) is None:
                pytest.skip(f"{name} is not installed")
        environment["PYTHONPATH"] = os.pathsep.join([PACKAGE, *folders])
        environment = {**os.environ, **environment}
        done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


class Simulate:
    """Runs programs with `highwater simulate`, in a folder of the test's own."""

    def __init__(self, highwater, folder):
        self._highwater, self._folder = highwater, folder
        # The command brings its own library.
        left_out = ("LD_PRELOAD", "LD_LIBRARY_PATH", "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE")
        others = {name: value for name, value in os.environ.items() if name not in left_out}
        self._environment = {name: value for name, value in others.items() if not name.startswith("HIGHWATER_SIMULATE")}
        self._temporary = folder / "temporary"
        self._temporary.mkdir()
        self._environment["TMPDIR"] = str(self._temporary)

    def __call__(self, source, *options, arguments=(), command="simulate", is_json=True):
        """Runs a program to its end and returns the process, with the JSON object as `answer`."""
        process = self.started(source, *options, arguments=arguments, command=command, is_json=is_json)
        output, errors = process.communicate()
        left = [name for name in os.listdir(self._temporary) if name.startswith("highwater")]
        assert left == [], "nothing is left behind"
        done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
        done.answer = json.loads(output) if output and is_json else None
        return done

    def started(self, source, *options, arguments=(), command="simulate", is_json=True):
        """Starts a program."""
        script = self._folder / "train.py"
        script.write_text(source)
        program = [sys.executable, "-W", "ignore", script, *arguments]
        words = [self._highwater, command, *options, *(["--json"] if is_json else []), "--", *program]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, cwd=self._folder, env=self._environment, **pipes)


@pytest.fixture
def simulate(tmp_path):
    """Runs a program: `simulate(source, *options, arguments=…)`; see `Simulate`."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    highwater = shutil.which("highwater")
    if highwater is None or "HIGHWATER_SIMULATE_CUDNN" not in os.environ:
        pytest.skip("needs the binary, and PyTorch as tests/pytorch installs it")
    return Simulate(highwater, tmp_path)


class Launch:
    """Runs programs with `highwater run`, in a folder of the test's own."""

    def __init__(self, highwater, folder):
        self._highwater, self.folder = highwater, folder

    def __call__(self, source, *options, arguments=(), environment=()):
        """Runs a Python program to its end."""
        return self.words(self.script(source, arguments), *options, environment=environment)

    def script(self, source, arguments=(), name="train.py"):
        (self.folder / name).write_text(source)
        return [sys.executable, "-W", "ignore", name, *arguments]

    def words(self, words, *options, environment=()):
        process = self.started(words, *options, environment=environment)
        output, errors = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def started(self, words, *options, environment=()):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {**os.environ, **dict(environment)}
        return subprocess.Popen(
            [self._highwater, "run", *options, "--", *words], cwd=self.folder, env=environment, **pipes
        )

    def files(self):
        return sorted(path.name for path in self.folder.iterdir() if path.suffix not in (".py", ""))

    def answer(self, *words):
        done = subprocess.run([self._highwater, *words, "--json"], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def launch(torch, tmp_path):
    highwater = shutil.which("highwater")
    if highwater is None:
        pytest.skip("needs the binary")
    if not sys.platform.startswith("linux"):
        pytest.skip("`highwater run` works on Linux")
    return Launch(highwater, tmp_path)
