"""Programs that `highwater run` records without a change to them."""

import os
import re
import signal
import subprocess
import sys

import pytest

from highwater import _files

TRAIN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    model(torch.zeros(32, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("peak", torch.cuda.max_memory_allocated())
"""

# Without an optimizer, with which PyTorch imports its compiler for seconds.
SHORT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)).cuda()
model(torch.zeros(32, 64, device="cuda")).sum().backward()
print("peak", torch.cuda.max_memory_allocated())
"""

# Without backward, after which PyTorch's own thread may abort a program without a recording as Python ends, about every
# sixth time on a busy machine: "terminate called without an active exception".
FORWARD = SHORT.replace(".sum().backward()", "")


def test_a_program_is_recorded_with_modules_phases_and_steps_and_the_verdict_is_one_line(launch):
    done = launch(TRAIN)
    assert (done.returncode, launch.files()) == (0, ["train.snap"])
    peak = launch.answer("info", "train.snap")["devices"][0]["peaks"]["allocated"]["bytes"]
    assert done.stdout == f"peak {peak}\n"
    verdict, following = done.stderr.splitlines()
    assert verdict.startswith("highwater: train.snap: peak ") and "% in " in verdict, verdict
    assert following.startswith("Next: highwater explain train.snap "), following
    rows = launch.answer("phases", "train.snap")["rows"]
    assert {row["step"] for row in rows} == {0, 1, 2}
    assert {"forward", "backward", "optimizer"} <= {row["phase"] for row in rows}
    scopes = {group["key"] for group in launch.answer("peak", "train.snap", "--by", "scope")["groups"]}
    assert "0" in scopes and "1" in scopes, scopes


def test_output_status_and_exceptions_are_the_programs_own(launch):
    plain = subprocess.run(launch.script(FORWARD + "raise ValueError('mine')"), cwd=launch.folder, capture_output=True)
    done = launch(FORWARD + "raise ValueError('mine')", "--quiet")
    assert (done.returncode, done.stdout) == (1, plain.stdout.decode())
    assert done.stderr == plain.stderr.decode() and "ValueError: mine" in done.stderr
    assert launch.files() == ["train.snap"]
    assert launch(FORWARD + "import sys; sys.exit(7)", "--quiet").returncode == 7
    assert launch("import os\n" + SHORT + "os._exit(5)", "--quiet").returncode == 5
    assert launch.answer("info", "train.snap")["devices"][0]["allocs"] > 4
    # Where warnings are errors, those of the recording are not.
    strict = [sys.executable, "-W", "error", "train.py"]
    quiet = "import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n"
    quiet_import = quiet + "    import torch\n"
    launch.script(quiet_import + FORWARD)
    assert launch.words(strict, "--quiet").returncode == 0


def test_a_program_without_pytorch_is_left_alone(launch):
    done = launch("import sys; print('highwater' in sys.modules)")
    assert (done.returncode, done.stdout, launch.files()) == (0, "False\n", [])
    assert done.stderr == "highwater: nothing was recorded: no use of CUDA was seen.\n"
    asked = launch("import importlib.util; print(importlib.util.find_spec('torch') is not None)\n" + SHORT)
    assert asked.stdout.startswith("True\npeak ") and launch.files() == ["train.snap"]


def test_modules_shells_and_the_programs_own_start_are_found(launch):
    package = launch.folder / "tool"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(SHORT)
    launch.words([sys.executable, "-m", "tool"], "--quiet")
    assert launch.files() == ["tool.snap"]
    words = " ".join(launch.script(SHORT))
    launch.words(["sh", "-c", f"true && {words}"], "--quiet")
    assert launch.files() == ["tool.snap", "train.snap"]
    own = launch.folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('started')")
    words = [sys.executable, "-c", SHORT]
    done = launch.words(words, "--quiet", "--out", "c.snap", environment={"PYTHONPATH": str(own)})
    assert done.stdout.startswith("started\npeak") and "c.snap" in launch.files()


def test_a_failed_request_is_the_verdict_and_its_recording_is_kept(launch):
    done = launch(SHORT + "torch.zeros(1 << 50, device='cuda')")
    assert done.returncode == 1 and "OutOfMemoryError" in done.stderr
    assert launch.files() == ["train.oom.snap"]
    verdict, following = done.stderr.splitlines()[-2:]
    assert verdict.startswith("highwater: train.oom.snap: out of memory: 4 PiB requested"), verdict
    assert following.startswith("Next: highwater oom train.oom.snap")


def test_each_process_that_uses_the_device_has_a_file(launch):
    several = """
import os, subprocess, sys
import torch, torch.multiprocessing
def work(rank):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    torch.zeros(1000, device="cuda")
if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (), 2)
    torch.zeros(1000, device="cuda")
    subprocess.run([sys.executable, "-c", "import torch; torch.zeros(7, device='cuda')"], check=True)
    subprocess.run([sys.executable, "-c", "import torch; torch.cuda.init()"], check=True)
"""
    done = launch(several)
    files = launch.files()
    assert done.returncode == 0, done.stderr
    assert len(files) == 4 and files[-3:] == ["train.rank0.snap", "train.rank1.snap", "train.snap"], files
    assert done.stderr.count("highwater: train.") == 4, done.stderr
    # The first to use the device has the name, whoever ends first; who only asks for properties has no file.
    info = launch.answer("info", "train.snap")
    assert f"pid{info['pid']}" not in "".join(files) and info["devices"][0]["allocs"] == 1


def test_ranks_of_a_launcher_have_files_of_their_own(launch):
    words = launch.script("import torch.distributed\ntorch.distributed.init_process_group('nccl')\n" + TRAIN)
    launcher = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = launch.words([*launcher, words[-1]], environment={"HIGHWATER_SIMULATE_DEVICES": "2"})
    assert done.returncode == 0, done.stderr
    assert launch.files() == ["train.rank0.snap", "train.rank1.snap"]
    assert [launch.answer("info", name)["rank"] for name in launch.files()] == [0, 1]


@pytest.fixture
def by_environment(launch, monkeypatch):
    """Runs a program in which the package is installed, as far as its environment notices."""
    start = launch.folder / "start"
    start.mkdir()
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    (start / "sitecustomize.py").write_text(f"import site; site.addsitedir({package!r})")

    def run(source, **environment):
        variables = {f"HIGHWATER_{name.upper()}": value for name, value in environment.items()}
        environment = {**os.environ, **variables, "PYTHONPATH": str(start)}
        words = launch.script(source)
        return subprocess.run(words, cwd=launch.folder, env=environment, capture_output=True, text=True)

    return run


def test_variables_of_the_environment_record_a_program(launch, by_environment):
    done = by_environment(TRAIN, record="all.snap", steps="1..3", level="events", ring="1000")
    assert (done.returncode, done.stderr, launch.files()) == (0, "", ["all.snap"])
    info = launch.answer("info", "all.snap")
    assert (info["level"], info["ring_capacity"], info["devices"][0]["steps"]) == ("events", 1000, 2)
    # Processes that it starts have files of their own.
    child = "[sys.executable, '-c', 'import torch; torch.zeros(1).cuda()']"
    child = f"import subprocess, sys; subprocess.run({child}, check=True)"
    assert by_environment(SHORT + child, record="runs/").returncode == 0
    files = sorted(path.name for path in (launch.folder / "runs").iterdir())
    assert len(files) == 2 and [name.partition(".")[0] for name in files] == ["python", "train"], files
    # Of two that run at once, the second does not take the name of the first.
    both = "import subprocess, sys; subprocess.Popen([sys.executable, 'train.py']).wait()\n"
    (launch.folder / "both").mkdir()
    launch.script(SHORT)
    twice = f"import os\nif 'SECOND' not in os.environ:\n    os.environ['SECOND'] = '1'\n    {both}"
    assert by_environment(SHORT + twice, record="both/run.snap").returncode == 0
    files = sorted(path.name for path in (launch.folder / "both").iterdir())
    assert len(files) == 2 and files[0].startswith("run.pid") and files[1] == "run.snap", files
    wrong = by_environment(FORWARD, record="all.snap", steps="soon")
    assert wrong.returncode == 0, wrong.stderr
    assert wrong.stderr.startswith("highwater: cannot record this process: HIGHWATER_STEPS='soon': expected the first")
    plain = by_environment(FORWARD)
    assert (plain.returncode, plain.stderr) == (0, "")


def test_an_interrupted_program_has_the_status_of_an_interrupt_and_imports_no_compiler_at_its_end(
    launch, by_environment
):
    # Called after the recording has been written.
    compiler = "import atexit, sys\natexit.register(lambda: print('sympy' in sys.modules))\n"
    done = by_environment(compiler + SHORT + "raise KeyboardInterrupt", record="all.snap")
    assert (done.returncode, launch.files()) == (-signal.SIGINT, ["all.snap"])
    assert done.stdout.endswith("\nFalse\n") and done.stderr.endswith("\nKeyboardInterrupt\n"), done
    peak = launch.answer("peak", "all.snap", "--by", "phase")
    assert "backward" in {group["key"] for group in peak["groups"]}, peak


def test_an_import_of_pytorch_that_fails_has_the_traceback_that_it_has_without(launch, by_environment):
    (launch.folder / "torch.py").write_text("raise OSError('no such library')")
    plain = by_environment("import torch")
    assert by_environment("import torch", record="all.snap").stderr == plain.stderr
    assert plain.stderr.endswith("OSError: no such library\n") and "importlib" not in plain.stderr, plain.stderr


def test_a_variable_keeps_what_failed_requests_need_and_nothing_else(launch, by_environment):
    assert by_environment(SHORT, oom_snapshot="dumps").returncode == 0
    assert list((launch.folder / "dumps").iterdir()) == []
    failed = by_environment(SHORT + "torch.zeros(1 << 50, device='cuda')", oom_snapshot="dumps")
    assert failed.returncode == 1
    (name,) = (path.name for path in (launch.folder / "dumps").iterdir())
    assert name.startswith("train.oom.") and name.endswith(".snap")
    assert launch.answer("oom", f"dumps/{name}")


SERVER = """
import highwater, os, signal, time, torch
class Engine:
    def __init__(self):
        self.model, self.kept = torch.nn.Linear(64, 64).cuda(), []
    def step(self):
        with torch.no_grad():
            self.model(torch.zeros(32, 64, device="cuda"))
        self.kept.append(torch.zeros(1 << 18, device="cuda"))
step, engine = Engine.step, Engine()
engine.step()
def until(condition):
    while not condition():
        time.sleep(0.01)
def switch(is_on):
    os.kill(os.getpid(), signal.SIGUSR1)
    until(lambda: torch._C._cuda_isHistoryEnabled() == is_on)
until(lambda: signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL)
for recording in 1, 2:
    switch(True)
    for _ in range(3):
        engine.step()
    until(lambda: recording == 2 or os.path.exists("run.0001.0001.snap"))
    engine.step()
    switch(False)
switch(True)
with highwater.record_memory_history("mine.snap") as run:
    engine.step()
    switch(False)
    engine.step()
print("as before", Engine.step is step, os.path.basename(run.path))
"""


def test_a_signal_makes_recordings_of_a_server_whose_steps_are_calls_and_whose_files_follow_each_other(
    launch, by_environment
):
    done = by_environment(SERVER, record="run.snap", signal="USR1", step_at="Engine.step", every="2s")
    assert (done.returncode, done.stdout, done.stderr) == (0, "as before True mine.snap\n", "")
    files = ["run.0001.0001.snap", "run.0001.0002.snap", "run.0002.0001.snap"]
    assert launch.files() == ["mine.snap", *files, "run.0003.0001.snap"]
    infos = [launch.answer("info", name)["devices"][0] for name in files]
    assert [info["steps"] for info in infos] == [3, 1, 4]
    # One of the program's own ends with the whole.
    assert launch.answer("info", "mine.snap")["devices"][0]["allocs"] == 3
    assert infos[1]["baseline_bytes"] == infos[0]["baseline_bytes"] + (3 << 20)
    groups = launch.answer("peak", "run.0001.0002.snap", "--where", "size>=1MiB", "--by", "frame")["groups"]
    assert [(group["blocks"], "train.py:9 step" in group["key"]) for group in groups] == [(4, True), (1, False)], groups


def test_steps_can_be_chosen_and_stacks_left_out(launch):
    launch(TRAIN, "--steps", "1..2", "--no-stacks")
    assert {row["step"] for row in launch.answer("phases", "train.snap")["rows"]} == {1}
    assert launch.answer("info", "train.snap")["level"] == "events"
    bad = launch(TRAIN, "--steps", "2..1")
    assert bad.returncode == 2 and "expected the first step and the step after the last, such as 10..13" in bad.stderr


def test_the_command_accepts_the_files_that_the_package_writes_and_no_others(launch):
    refused = launch.words(["true"], "--out", "run.txt")
    assert refused.returncode == 2
    assert refused.stderr.partition("expected ")[2].split() == ", ".join(_files._SUFFIXES).split(), refused.stderr
    for suffix in _files._SUFFIXES:
        assert launch.words(["true"], "--out", f"run{suffix}").returncode == 0


def test_calls_of_a_function_are_steps(launch):
    engine = SERVER.partition("step, engine")[0] + "engine = Engine()\nfor _ in range(3):\n    engine.step()\n"
    # As Lightning ends.
    engine += "del engine\ntorch.cuda.empty_cache()\n"
    assert launch(engine, "--step-at", "Engine.step").returncode == 0
    assert {row["step"] for row in launch.answer("phases", "train.snap")["rows"]} == {0, 1, 2}


def test_a_program_that_is_terminated_leaves_its_recording(launch):
    source = SHORT + "print('waiting', flush=True)\nimport time\ntime.sleep(60)\n"
    process = launch.started(launch.script(source))
    assert any("waiting" in line for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    assert process.wait(50) == 128 + signal.SIGTERM
    _, errors = process.communicate()
    assert launch.files() == ["train.snap"] and "lost" not in errors, errors
    assert launch.answer("info", "train.snap")["devices"][0]["allocs"] > 4


def test_a_program_that_records_itself_makes_both_recordings(launch):
    model, loop = TRAIN.split("for step")
    loop = ("for step" + loop).replace("\n", "\n    ")
    record = "with highwater.record_memory_history('mine.snap') as run:\n    "
    done = launch(f"import highwater{model}{record}{loop}\nprint(run.path)")
    assert done.returncode == 0, done.stderr
    assert launch.files() == ["mine.snap", "train.snap"] and str(launch.folder / "mine.snap") in done.stdout
    mine, whole = (launch.answer("info", name)["devices"][0] for name in ("mine.snap", "train.snap"))
    assert mine["steps"] == whole["steps"] == 3
    assert mine["baseline_bytes"] > 0 == whole["baseline_bytes"] and mine["events"] < whole["events"]
    assert mine["peaks"]["allocated"]["bytes"] == whole["peaks"]["allocated"]["bytes"]


def test_a_program_that_replaces_itself_leaves_its_recordings_and_may_fail_to_find_the_others_first(
    launch, by_environment
):
    again = """
import os, sys
if len(sys.argv) < 3:
    os.environ["PATH"] = f"{os.getcwd()}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    os.execvp(os.path.basename(sys.executable), [sys.executable, "-W", "ignore", *sys.argv, "again"])
"""
    done = launch(FORWARD + again)
    assert done.returncode == 0 and done.stdout.count("peak") == 3, done.stderr
    pids = [re.sub("pid[0-9]+", "pid1", name) for name in launch.files()]
    assert pids == ["train.pid1.2.snap", "train.pid1.snap", "train.snap"], pids
    assert done.stderr.count("highwater: train.") == 3 and "lost" not in done.stderr, done.stderr
    by_environment(FORWARD + again, record="own.snap")
    files = ["own.2.snap", "own.3.snap", "own.snap"]
    assert launch.files()[:3] == files, launch.files()
    # They are of the run before.
    by_environment(FORWARD, record="own.snap")
    assert launch.files()[:3] == files, launch.files()


def test_of_a_killed_program_the_lost_recording_is_reported(launch):
    killed = SHORT + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    done = launch(killed, environment={"HIGHWATER_SAVE": "never"})
    assert (done.returncode, launch.files()) == (128 + signal.SIGKILL, [])
    assert done.stderr.startswith("highwater: the recording of a process is lost: "), done.stderr


def test_of_a_killed_program_what_was_saved_is_reported(launch):
    loop = SHORT + "import time\nwhile True:\n    model(torch.zeros(32, 64, device='cuda'))\n    time.sleep(0.01)\n"
    kill = "    os.path.exists('train.snap') and os.kill(os.getpid(), signal.SIGKILL)\n"
    killed = "import os, signal\n" + loop + kill
    done = launch(killed, environment={"HIGHWATER_SAVE": "1s"})
    assert (done.returncode, launch.files()) == (128 + signal.SIGKILL, ["train.snap"])
    assert launch.answer("info", "train.snap")["devices"][0]["allocs"] > 4
    assert any("saved while the program was running" in note for note in launch.answer("info", "train.snap")["notes"])
    verdict, following, saved = done.stderr.splitlines()
    assert verdict.startswith("highwater: train.snap: peak "), verdict
    assert saved.startswith("highwater: train.snap contains the state saved ") and "SIGKILL" in saved, saved
    # What is complete, or the file of a failed request, takes its place.
    failing = loop + "    os.path.exists('train.snap') and torch.zeros(1 << 50, device='cuda')\n"
    (launch.folder / "train.snap").unlink()
    done = launch("import os\n" + failing, environment={"HIGHWATER_SAVE": "1s"})
    assert (done.returncode, launch.files()) == (1, ["train.oom.snap"])
    assert "saved" not in done.stderr, done.stderr


def test_of_a_program_that_is_killed_within_a_save_nothing_unfinished_is_left(launch):
    # Killed while its recording is converted, which goes on without it.
    killed = """
import os, signal, threading, time
def watch():
    while not any(name.endswith(".pickle") and "-other-" not in name for name in os.listdir()):
        time.sleep(0.001)
    time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
while True:
    model(torch.zeros(32, 64, device="cuda"))
    time.sleep(0.001)
"""
    # Of a process that does not run: no process has so large an id.
    other = launch.folder / ".highwater-run-other-4194999-2.pickle"
    other.write_text("of another run")
    done = launch(SHORT + killed, environment={"HIGHWATER_SAVE": "1s"})
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    assert [name for name in os.listdir(launch.folder) if name.startswith(".")] == [other.name]


def test_where_a_recording_is_gone_nothing_else_is_claimed(launch):
    loop = "\nimport os, shutil, signal, time\nwhile not os.path.exists('out/run.snap'):\n"
    loop += "    model(torch.zeros(32, 64, device='cuda'))\n    time.sleep(0.01)\nshutil.rmtree('out')\n"
    saved = ["--out", "out/run.snap"]
    (launch.folder / "out").mkdir()
    killed = launch(SHORT + loop + "os.kill(os.getpid(), signal.SIGKILL)", *saved, environment={"HIGHWATER_SAVE": "1s"})
    assert killed.returncode == 128 + signal.SIGKILL
    assert killed.stderr.startswith("highwater: the recording of a process is lost: "), killed.stderr
    (launch.folder / "out").mkdir()
    file = launch(SHORT + loop + "open('out', 'w').close()", *saved, environment={"HIGHWATER_SAVE": "1s"})
    assert file.returncode == 0
    cannot, nothing = file.stderr.splitlines()[-2:]
    assert cannot.startswith("highwater: cannot write ") and "File exists" in cannot, file.stderr
    assert nothing == "highwater: nothing was recorded: CUDA was used, but no recording was written."
    temporary = launch.folder / "temporary"
    temporary.mkdir()
    deletes = FORWARD + f"import shutil; shutil.rmtree({str(temporary)!r})"
    unknown = launch(deletes, "--out", "kept.snap", environment={"TMPDIR": str(temporary)})
    assert "which files were recorded is unknown: the program has deleted the folder" in unknown.stderr, unknown.stderr
    assert (unknown.returncode, launch.files()) == (0, ["kept.snap"])


def test_an_allocator_that_pytorch_cannot_record_is_named(launch, by_environment):
    own = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    why = "PyTorch uses cudaMallocAsync, and only its own allocator can be recorded"
    done = launch("import torch; torch.zeros(7, device='cuda')", environment=own)
    assert (done.returncode, done.stderr) == (0, f"highwater: nothing was recorded: {why}.\n")
    os_environment = "import os; os.environ.update(PYTORCH_CUDA_ALLOC_CONF='backend:cudaMallocAsync')\n"
    done = by_environment(os_environment + "import torch; torch.zeros(7, device='cuda')", record="all.snap")
    assert (done.returncode, done.stderr) == (0, f"highwater: cannot record this process: {why}\n")
    assert launch.files() == []
