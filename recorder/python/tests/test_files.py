"""Where recordings are written: nothing else is touched, and nothing is lost."""

import os
import pickle
import signal
import subprocess
import sys
import threading

import pytest

import highwater
from highwater import _files
from highwater._signals import Termination

PRECIOUS = b"the user's own"


@pytest.fixture
def convert(monkeypatch):
    """A program that converts whatever it gets."""

    def run(arguments, **options):
        assert arguments[0] == "convert"
        with open(arguments[2], "wb") as file:
            file.write(b"\x89HWS\r\n\x1a\n of " + os.path.basename(arguments[1]).encode())

    monkeypatch.setattr(highwater._binary, "run", run)


def allocate(torch):
    return torch.ones(1 << 20, device="cuda").sum()


def run_program(text, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "always", "-c", text, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


@pytest.mark.parametrize("keep_pickle", [False, True])
def test_files_with_derived_names_that_are_no_recordings_stay_as_they_are(torch, tmp_path, convert, keep_pickle):
    names = ["mine.pickle", "mine.oom.snap", "mine.oom.pickle", "mine.json", "mine", ".mine.snap"]
    for name in names:
        (tmp_path / name).write_bytes(PRECIOUS)
    with highwater.record_memory_history(tmp_path / "mine.snap", keep_pickle=keep_pickle) as run:
        allocate(torch)
        run._session.observe_oom()
    assert all((tmp_path / name).read_bytes() == PRECIOUS for name in names)
    made = {path.name for path in tmp_path.iterdir()} - set(names)
    assert made == {"mine.snap", "mine.oom-2.snap"} | ({"mine-2.pickle", "mine.oom-2.pickle"} if keep_pickle else set())


@pytest.mark.parametrize("asked, oom", [("mine.rank{rank}.snap", "mine.rank1.oom"), ("mine.snap", "mine.oom.rank1")])
def test_the_name_for_an_out_of_memory_error_is_derived_for_ranks_too(
    torch, tmp_path, monkeypatch, convert, asked, oom
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    (tmp_path / f"{oom}.snap").write_bytes(PRECIOUS)
    with highwater.record_memory_history(tmp_path / asked) as run:
        run._session.observe_oom()
    assert (tmp_path / f"{oom}.snap").read_bytes() == PRECIOUS
    names = [f"{oom}.snap", f"{oom}-2.snap", "mine.rank1.snap"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_folders_of_ranks_are_made(torch, tmp_path, convert, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with highwater.record_memory_history(tmp_path / "run{rank}" / "step.snap") as run:
        allocate(torch)
    assert run.path == str(tmp_path / "run1" / "step.snap") and os.path.exists(run.path)


def test_a_name_without_a_suffix_replaces_recordings_only(torch, tmp_path, convert):
    for _ in range(2):
        with highwater.record_memory_history(tmp_path / "mine"):
            allocate(torch)
    (tmp_path / "mine.snap").write_bytes(PRECIOUS)
    with pytest.raises(FileExistsError, match="mine.snap exists and is not a recording"):
        with highwater.record_memory_history(tmp_path / "mine"):
            raise AssertionError("not reached")


@pytest.mark.parametrize("length", [200, 225])
def test_long_names_are_written_as_they_are(torch, tmp_path, convert, length):
    name = "n" * length + ".snap"
    with highwater.record_memory_history(tmp_path / name) as run:
        run._session.observe_oom()
    assert sorted(os.listdir(tmp_path)) == ["n" * length + ".oom.snap", name]


def test_a_pickle_of_the_program_itself_is_not_replaced_by_a_recording_without_conversion(torch, tmp_path):
    precious = pickle.dumps({"model": "weights"})
    (tmp_path / "mine.pickle").write_bytes(precious)
    with highwater.record_memory_history(tmp_path / "mine.snap", convert=False) as run:
        allocate(torch)
    assert (tmp_path / "mine.pickle").read_bytes() == precious
    assert os.path.basename(run.path) == "mine-2.pickle" and os.path.exists(run.path)


def test_an_earlier_recording_is_replaced_under_every_name(torch, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    for _ in range(2):
        with highwater.record_memory_history(tmp_path / "step.snap", convert=False) as run:
            allocate(torch)
            run._session.observe_oom()
    assert sorted(os.listdir(tmp_path)) == ["step.oom.rank1.pickle", "step.rank1.pickle"]


def test_a_failed_conversion_leaves_other_files_alone_and_names_the_pickle(torch, tmp_path, monkeypatch):
    def fail(arguments, **options):
        raise highwater.HighwaterError(f"{arguments[1]}: no space")

    monkeypatch.setattr(highwater._binary, "run", fail)
    (tmp_path / "mine.pickle").write_bytes(PRECIOUS)
    with pytest.warns(UserWarning, match="mine-2.pickle, which is kept: .*mine-2.pickle: no space"):
        with highwater.record_memory_history(tmp_path / "mine.snap") as run:
            allocate(torch)
    assert sorted(os.listdir(tmp_path)) == ["mine-2.pickle", "mine.pickle"]
    assert run.path == str(tmp_path / "mine-2.pickle")


def test_a_link_leads_to_the_recording_as_before(torch, tmp_path, convert):
    (tmp_path / "real").mkdir()
    (tmp_path / "latest.snap").symlink_to(tmp_path / "real" / "step.snap")
    with highwater.record_memory_history(tmp_path / "latest.snap"):
        allocate(torch)
    assert (tmp_path / "latest.snap").is_symlink() and (tmp_path / "real" / "step.snap").is_file()


def test_a_page_beside_a_recording_replaces_pages_only(tmp_path, monkeypatch):
    def run(arguments, **options):
        with open(arguments[2], "wb") as file:
            file.write(b"<!DOCTYPE html><title>Highwater</title>")

    monkeypatch.setattr(highwater._binary, "run", run)
    snapshot = highwater.Snapshot(tmp_path / "step.snap")
    assert snapshot.to_html() == snapshot.to_html() == str(tmp_path / "step.html")
    (tmp_path / "step.html").write_bytes(PRECIOUS)
    assert snapshot.to_html() == str(tmp_path / "step-2.html")
    assert (tmp_path / "step.html").read_bytes() == PRECIOUS


FULL_DISK = """
import resource, sys, torch, highwater
x = torch.ones(8, device="cuda")
with highwater.record_memory_history(sys.argv[1]) as run:
    for _ in range(2000):
        x = x + 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
assert run.path is None
"""


def test_a_full_disk_is_one_warning_and_leaves_nothing(torch, tmp_path):
    done = run_program(FULL_DISK, tmp_path / "step.snap")
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == []
    warnings = [line for line in done.stderr.splitlines() if "highwater:" in line]
    assert len(warnings) == 1 and f"cannot write {tmp_path / 'step.snap'}" in warnings[0], done.stderr


def test_a_relative_path_and_the_home_folder_are_resolved_at_the_start(torch, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for asked in ("here.snap", "~/home.snap"):
        with highwater.record_memory_history(asked, convert=False) as run:
            allocate(torch)
            monkeypatch.chdir(tmp_path / "elsewhere")
        assert os.path.dirname(run.path) == str(tmp_path)
        monkeypatch.chdir(tmp_path)
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    "path, kind, text",
    [
        ("", ValueError, "expected the path of a file"),
        ("folder", IsADirectoryError, "it is a folder"),
        ("folder/", IsADirectoryError, "it is a folder"),
        ("new/", IsADirectoryError, "it is a folder"),
        ("step.txt", ValueError, "unknown suffix '.txt'"),
        ("step.snap.gzip", ValueError, "unknown suffix '.gzip'"),
        ("step.gz", ValueError, "unknown suffix '.gz'"),
        ("no/step.snap", FileNotFoundError, "there is no folder"),
        ("pipe", ValueError, "not a regular file"),
        ("n" * 245 + ".snap", OSError, "name too long"),
        ("a\0b.snap", ValueError, "null character"),
        ("/proc/step.snap", OSError, "cannot record to /proc/step.snap"),
        ("no/run{rank}/step.snap", FileNotFoundError, "there is no folder"),
        ("/dev/null", ValueError, "/dev/null exists but is not a regular file"),
        (7, TypeError, "expected the path"),
        (test_a_full_disk_is_one_warning_and_leaves_nothing, TypeError, "needs parentheses"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_the_program_runs(tmp_path, monkeypatch, path, kind, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.snap")
    with pytest.raises(kind, match=text):
        _files.resolve(path)


@pytest.mark.parametrize("name", ["step", "step.snap", "step.snap.gz", "step.pkl", "a.b.json.gz", "step.parquet"])
def test_each_suffix_of_a_recording_is_accepted(tmp_path, name):
    assert _files.resolve(tmp_path / name) == str(tmp_path / (name if "." in name else name + ".snap"))


TERMINATED = """
import os, signal, sys, torch, highwater
how, path = sys.argv[1:]
number = signal.SIGHUP if how == "hangs up" else signal.SIGTERM
signal.signal(number, signal.SIG_DFL)
if how == "handled":
    signal.signal(signal.SIGTERM, lambda number, frame: (print("handled", flush=True), sys.exit(3)))
if how == "ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with highwater.record_memory_history(path, convert=False):
    torch.ones(1 << 20, device="cuda")
    os.kill(os.getpid(), number)
    assert how == "ignored"
assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
"""


@pytest.mark.parametrize(
    "how, status, said",
    [
        ("default", -signal.SIGTERM, ""),
        ("handled", 3, "handled\n"),
        ("ignored", 0, ""),
        ("hangs up", -signal.SIGHUP, ""),
    ],
)
def test_a_signal_to_end_writes_the_recording_and_then_does_what_it_did(torch, tmp_path, how, status, said):
    done = run_program(TERMINATED, how, tmp_path / "step.snap")
    assert (done.returncode, done.stdout) == (status, said), done.stderr
    with open(tmp_path / "step.pickle", "rb") as file:
        snapshot = pickle.load(file)
    assert any(event["size"] == 4 << 20 for event in snapshot["device_traces"][0])


def test_sigterm_while_the_recording_is_written_waits_for_it(torch, tmp_path):
    text = TERMINATED.replace("    os.kill", "    import pickle\n    dump = pickle.dump\n").replace(
        '(os.getpid(), number)\n    assert how == "ignored"',
        "    def slow(*args, **kwargs):\n        os.kill(os.getpid(), signal.SIGTERM)\n        dump(*args, **kwargs)\n"
        "    pickle.dump = slow",
    )
    done = run_program(text, "default", tmp_path / "step.snap")
    assert done.returncode == -signal.SIGTERM, done.stderr
    with open(tmp_path / "step.pickle", "rb") as file:
        assert pickle.load(file)["highwater_run"]["reason"] == "end"


def test_sigterm_while_another_thread_writes_the_recording_is_the_main_threads_afterwards(monkeypatch):
    before, writing, handled, written = signal.getsignal(signal.SIGTERM), [True], [], []

    def write():
        written.append(not writing)
        return not writing

    try:
        signal.signal(signal.SIGTERM, lambda number, frame: handled.append(threading.current_thread().name))
        termination = Termination(write)
        termination.start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert (handled, written) == ([], [False])
        writing.clear()
        thread = threading.Thread(target=termination.deliver)
        thread.start()
        thread.join()
        assert (handled, written) == (["MainThread"], [False])
        os.kill(os.getpid(), signal.SIGTERM)
        assert (handled, written) == (["MainThread"] * 2, [False, True]), "a further one writes again"
        termination.stop()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_programs_handler_of_sigterm_is_back_after_a_recording(torch, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with highwater.record_memory_history(tmp_path / "step.snap", convert=False):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


FORKED = """
import os, sys, torch, highwater
with highwater.record_memory_history(sys.argv[1], convert=False) as run:
    torch.ones(1 << 20, device="cuda")
    child = os.fork()
    if child == 0:
        torch.nn.Linear(2, 2)(torch.ones(2, 2))
        run.step()
        sys.exit(int(sys.argv[2]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == int(sys.argv[2])
    assert os.listdir(os.path.dirname(sys.argv[1])) == [], "the child has written"
# PyTorch's own threads may abort the end of a process that has forked.
os._exit(0)
"""


@pytest.mark.parametrize("status", [0, 5])
def test_a_forked_child_leaves_the_recording_to_its_parent(torch, tmp_path, status):
    done = run_program(FORKED, tmp_path / "step.snap", status)
    assert done.returncode == 0, done.stderr
    assert "highwater" not in done.stderr
    with open(tmp_path / "step.pickle", "rb") as file:
        assert pickle.load(file)["highwater_run"]["reason"] == "end"
