"""Running programs that `highwater attach` records."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time

import pytest

# A simulated GPU computes nothing: the same model on the host has the values.
LOOP = """
import os, sys, time, torch
torch.manual_seed(0)
def make(device):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 64), torch.nn.Dropout()).to(device)
    return model, torch.optim.Adam(model.parameters())
model, optimizer = make("cuda")
twin, optimizer_of_twin = make("cpu")
step, last, values, state, loss = 0, int(os.environ.get("LAST_STEP", -1)), open("values.txt", "w"), None, None
call, leave, names = torch.nn.Module.__call__, os._exit, {*globals(), "call", "leave", "names"}
while step != last and not os.path.exists("stop"):
    model(torch.zeros(32, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    loss = twin(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer_of_twin.step()
    optimizer_of_twin.zero_grad()
    state = torch.cuda.memory_stats()
    print(step, loss.item().hex(), state["allocation.all.allocated"], state["reserved_bytes.all.current"], file=values)
    time.sleep(0.01 if last < 0 else 0)
    print("step", flush=True)
    step += 1
values.close()
others = {name for name in globals() if name[:2] != "__"} - names
print("as before", torch.nn.Module.__call__ is call, os._exit is leave, "highwater" in "".join(sys.path), others)
"""

NO_REGISTERS = "this version of gdb does not know all registers of this processor"


@pytest.fixture
def attach(launch, monkeypatch):
    """Runs `highwater attach` on a process."""
    if not (hasattr(sys, "remote_exec") or shutil.which("gdb") or shutil.which("lldb")):
        pytest.skip("attaching to this Python needs gdb or lldb")
    monkeypatch.setenv("XDG_CACHE_HOME", str(launch.folder / "cache"))

    def attach(pid, *options):
        words = [shutil.which("highwater"), "attach", str(pid), *options]
        done = subprocess.run(words, cwd=launch.folder, capture_output=True, text=True, timeout=200)
        if "permission denied: run it as root" in done.stderr or NO_REGISTERS in done.stderr:
            pytest.skip(done.stderr)
        return done

    return attach


def test_a_running_program_is_recorded_twice_and_is_as_before_afterwards(launch, attach):
    program = subprocess.Popen(launch.script(LOOP), cwd=launch.folder, stdout=subprocess.PIPE, text=True)
    try:
        assert "step" in program.stdout.readline()
        first = attach(program.pid, "--steps", "2")
        assert first.returncode == 0, first.stderr
        name = f"pid{program.pid}.snap"
        assert first.stdout.startswith(f"{name}: peak "), first.stdout
        assert {row["step"] for row in launch.answer("phases", name)["rows"]} == {1, 2}
        assert launch.answer("info", name)["devices"][0]["baseline_bytes"] > 0
        scopes = {group["key"] for group in launch.answer("peak", name, "--by", "scope")["groups"]}
        assert {"0", "1"} <= scopes, scopes
        second = attach(program.pid, "--duration", "500ms", "--no-stacks", "--out", "again.snap")
        assert second.returncode == 0, second.stderr
        assert launch.answer("info", "again.snap")["level"] == "events"
        assert launch.answer("info", "again.snap")["devices"][0]["steps"] > 2
    finally:
        (launch.folder / "stop").write_text("")
        output, _ = program.communicate(timeout=60)
    assert output.splitlines()[-1] == "as before True True False set()"


def values_of(launch, last_step=None):
    """Returns what the program computed and allocated in each step; `last_step` runs it up to there on its own."""
    if last_step is not None:
        (launch.folder / "stop").unlink()
        environment = {**os.environ, "LAST_STEP": str(last_step)}
        subprocess.run(launch.script(LOOP), cwd=launch.folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return (launch.folder / "values.txt").read_text().splitlines()


def test_a_recording_ends_with_the_command_that_waits_for_it_or_from_another_one(launch, attach):
    program = subprocess.Popen(launch.script(LOOP), cwd=launch.folder, stdout=subprocess.PIPE, text=True)

    def begin(name):
        words = [shutil.which("highwater"), "attach", str(program.pid), "--duration", "1h", "--out", name]
        begun = subprocess.Popen(words, cwd=launch.folder, stderr=subprocess.PIPE, text=True)
        while (line := begun.stderr.readline()) and "recording" not in line:
            if NO_REGISTERS in line:
                pytest.skip(line)
        assert line, begun.wait()
        return begun

    try:
        assert "step" in program.stdout.readline()
        nothing = attach(program.pid, "--detach")
        assert nothing.returncode == 2 and "nothing is being recorded" in nothing.stderr, nothing.stderr
        killed = begin("killed.snap")
        killed.kill()
        killed.communicate()
        deadline = time.monotonic() + 60
        while not (launch.folder / "killed.snap").exists():
            assert time.monotonic() < deadline, "the recording goes on"
            time.sleep(0.05)
        other = begin("other.snap")
        ended = attach(program.pid, "--detach")
        assert ended.returncode == 0, ended.stderr
        other.communicate(timeout=60)
        assert other.returncode == 0
        assert launch.answer("info", "other.snap")["devices"][0]["events"] > 0
    finally:
        (launch.folder / "stop").write_text("")
        output, _ = program.communicate(timeout=60)
    assert output.splitlines()[-1] == "as before True True False set()"
    values = values_of(launch)
    assert len(values) > 20 and values == values_of(launch, last_step=len(values))


@pytest.mark.skipif(hasattr(sys, "remote_exec"), reason="this Python needs no debugger")
@pytest.mark.skipif(shutil.which("lldb") is None, reason="needs lldb")
def test_where_gdb_is_missing_lldb_makes_the_program_record_itself(launch, attach, monkeypatch):
    program = subprocess.Popen(launch.script(LOOP), cwd=launch.folder, stdout=subprocess.PIPE, text=True)
    tools = launch.folder / "tools"
    tools.mkdir()
    for name in ("lldb", "highwater"):
        (tools / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tools))
    try:
        assert "step" in program.stdout.readline()
        done = attach(program.pid, "--steps", "2")
        assert done.returncode == 0, done.stderr
        assert {row["step"] for row in launch.answer("phases", f"pid{program.pid}.snap")["rows"]} == {1, 2}
    finally:
        (launch.folder / "stop").write_text("")
        output, _ = program.communicate(timeout=60)
    assert output.splitlines()[-1] == "as before True True False set()"


@pytest.mark.skipif(hasattr(sys, "remote_exec"), reason="this Python needs no debugger")
def test_a_debugger_that_cannot_write_the_registers_of_the_processor_leaves_the_program_alone(launch):
    tools = launch.folder / "tools"
    tools.mkdir()
    (tools / "highwater").symlink_to(shutil.which("highwater"))
    # As version 13 on a processor with AMX, of which it is asked before it calls a function of the program.
    answers = "Couldn't write extended state status: Bad address."
    keeps = 'while read -r line; do echo "$line"; done < "${@: -1}" > asked.txt'
    (tools / "gdb").write_text(f'#!/bin/bash\n{keeps}\necho "{answers}" >&2\n')
    (tools / "gdb").chmod(0o755)
    program = subprocess.Popen(launch.script("import time; time.sleep(60)"), cwd=launch.folder)
    try:
        words = [shutil.which("highwater"), "attach", str(program.pid)]
        environment = {**os.environ, "PATH": str(tools)}
        done = subprocess.run(words, env=environment, cwd=launch.folder, capture_output=True, text=True)
    finally:
        program.kill()
        program.communicate()
    assert done.returncode == 2 and NO_REGISTERS in done.stderr, done.stderr
    asked = (launch.folder / "asked.txt").read_text()
    if platform.machine() == "x86_64":
        assert 0 < asked.index("set $xmm0") < asked.index("mmap"), asked


def test_an_interrupt_before_the_main_thread_runs_python_leaves_the_program_alone(launch, attach, monkeypatch):
    temporary = launch.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    waits = "import sys, time\nprint('step', flush=True)\ntime.sleep(8)\nprint('highwater' in sys.modules)"
    pipes = {"cwd": launch.folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = subprocess.Popen(launch.script(waits), **pipes)
    assert "step" in program.stdout.readline()
    attaching = subprocess.Popen([shutil.which("highwater"), "attach", str(program.pid)], **pipes)
    while attaching.poll() is None and not list(temporary.glob("highwater-attach-*/begin")):
        time.sleep(0.05)
    attaching.send_signal(signal.SIGINT)
    _, errors = attaching.communicate(timeout=60)
    if "permission denied: run it as root" in errors or NO_REGISTERS in errors:
        program.kill()
        pytest.skip(errors)
    assert attaching.returncode == 2 and "did not run Python in that time" in errors, errors
    assert list(temporary.glob("highwater-attach-*")), "the program removes it"
    output, errors = program.communicate(timeout=60)
    assert (program.returncode, output, errors) == (0, "False\n", "")
    assert list(temporary.iterdir()) == []


def test_what_cannot_be_attached_to_is_explained(launch, attach):
    assert "there is no process 999999999" in attach(999999999).stderr
    without_cuda = "print('step', flush=True); import time\nwhile True: time.sleep(0.01)"
    for source, why in (
        (without_cuda, "it has not used CUDA through PyTorch yet"),
        (None, "it does not run Python"),
    ):
        words = ["sleep", "100"] if source is None else launch.script(source)
        program = subprocess.Popen(words, cwd=launch.folder, stdout=subprocess.PIPE, text=True)
        try:
            if source is not None:
                program.stdout.readline()
            done = attach(program.pid)
        finally:
            program.kill()
            program.communicate()
        assert done.returncode == 2 and why in done.stderr, done.stderr
    assert launch.files() == []
