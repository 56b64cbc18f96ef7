"""Variables of the environment, files of a rotation, switches, and steps at calls of a function, without PyTorch."""

import asyncio
import importlib
import inspect
import os
import signal
import sys
import threading
import time

import pytest

from highwater import _launch, _launched, _variables
from highwater._main_thread import Watch
from highwater._marked import MarkedSteps
from highwater._rotation import Rotation, ring_events
from highwater._switch import Switch


@pytest.fixture
def variables(monkeypatch):
    """Sets the variables of the environment to these and no others."""

    def set_all(**values):
        for name in [name for name in os.environ if name.startswith("HIGHWATER_")]:
            monkeypatch.delenv(name)
        for name, value in values.items():
            monkeypatch.setenv(f"HIGHWATER_{name.upper()}", value)

    return set_all


def test_values_are_read_and_options_of_run_go_first(variables):
    variables(steps="10..13", ring=" 300000 ", level="state", step_at="a.b:C.d", switch="record.me")
    options = {"steps": range(10, 13), "max_entries": 300_000, "context": "state", "step_at": "a.b:C.d"}
    assert _variables.read() == (options, {"file": "record.me"})
    variables(signal="SIGUSR2", rotate="1GiB,16GB", every="10min")
    assert _variables.read()[1] == {"signal": signal.SIGUSR2, "sizes": (2**30, 16 * 10**9), "every_s": 600}
    variables(save="never")
    assert _variables.read()[1] == {"save_s": 0}
    of_run = {"run_file": "a.snap", "run_steps": "1..2", "run_level": "stacks", "run_ring": ""}
    variables(**of_run, steps="3..4", level="events", ring="7")
    assert _variables.read()[0] == {"steps": range(1, 2), "context": None, "max_entries": 7}
    variables(run_file="a.snap", run_level="events", level="state", rotate="1.5kB")
    assert _variables.read() == ({"context": None}, {"sizes": (1500, None)})


@pytest.mark.parametrize(
    "name, values",
    [
        ("STEPS", ["soon", "13..10", "7", "-3..5", "..", "1..1e400", "5..5", "9" * 5000 + "..1"]),
        ("RING", ["-1", "0", "many", "1.5", "1" + "0" * 30, "\udcff"]),
        ("LEVEL", ["loud", "STATE", "stacks,events"]),
        ("STEP_AT", ["Engine step", "a:", ":step", "1.step", "a:b:c", "Engine..step", "é\udcff"]),
        ("SIGNAL", ["KILLJOY", "9", "-1", "1000", "SIG", "KILL", "SEGV"]),
        ("ROTATE", ["much", "1MiB,much", ",", "1MiB,", "0", "1 furlong", "1e3B", "-1MiB", "1MiB,2,3"]),
        ("SAVE", ["soon", "0s", "Never"]),
        ("EVERY", ["soon", "0s", "10 years", "-1min", "nan", "inf", "0.01s", "9" * 400 + "h"]),
    ],
)
def test_a_value_that_makes_no_sense_is_one_warning(name, values, variables, tmp_path, capsys):
    for value in values:
        variables(**{name: value, "record": str(tmp_path / "run.snap")})
        _launch._process = None
        _launched._begin()
        output, errors = capsys.readouterr()
        beginning = f"highwater: cannot record this process: HIGHWATER_{name}={value!r}: expected "
        assert output == "" and errors.startswith(beginning) and errors.count("\n") == 1, errors
    assert os.listdir(tmp_path) == []


def test_paths_without_a_place_and_variables_without_a_file_are_one_warning(variables, tmp_path, capsys):
    missing = str(tmp_path / "missing" / "run.snap")
    for asked, what in (
        ({"record": missing}, f"HIGHWATER_RECORD={missing!r}: expected a path of a file or a folder"),
        ({"record": str(tmp_path / "run.txt")}, "expected one of .snap"),
        ({"oom_snapshot": "/dev/null"}, "HIGHWATER_OOM_SNAPSHOT='/dev/null': expected"),
        ({"oom_snapshot": str(tmp_path), "every": "1min"}, "_EVERY have no effect with HIGHWATER_OOM_SNAPSHOT alone"),
    ):
        variables(**asked)
        _launch._process = None
        _launched._begin()
        errors = capsys.readouterr().err
        assert errors.startswith("highwater: ") and what in errors and errors.count("\n") == 1, errors
    assert os.listdir(tmp_path) == []


def test_files_of_a_rotation_are_numbered_on_and_the_oldest_recordings_go(tmp_path, monkeypatch):
    magic = b"\x89HWS\r\n\x1a\n"
    # One of a program before, another recording's, and what is no recording.
    for name in ("run.0002.snap", "other.0001.snap"):
        (tmp_path / name).write_bytes(magic + bytes(100))
    (tmp_path / "run.0003.snap").write_bytes(b"mine")
    rotation = Rotation(1000, every_s=60, file_bytes=10_000, disk_bytes=250)
    assert not rotation.is_full([0, 0]) and not rotation.is_full([100, 3])
    assert rotation.is_full([0, 800]), "before the ring drops events"
    for _ in range(3):
        path = rotation.name(str(tmp_path / "run.snap"))
        with open(path, "wb") as file:
            file.write(magic + bytes(100))
        rotation.note(path)
        assert rotation.name(str(tmp_path / "run.snap")) == path, "until another file begins"
        rotation.note(path)
        rotation.begin()
    names = ["other.0001.snap", "run.0003.snap", "run.0005.snap", "run.0006.snap"]
    assert sorted(os.listdir(tmp_path)) == names
    rotation = Rotation(10**6, file_bytes=10_000)
    assert not rotation.is_full([400]) and rotation.is_full([600])
    rotation.note(path)
    assert not rotation.is_full([9_000]), "as small as events turn out to be"
    # What cannot be converted stays a pickle, which the next does not replace.
    rotation = Rotation(1000, every_s=60, disk_bytes=1)
    for number in (7, 8):
        assert rotation.name(str(tmp_path / "run.snap")) == str(tmp_path / f"run.{number:04}.snap")
        (tmp_path / f"run.{number:04}.pickle").write_bytes(bytes(100))
        rotation.note(str(tmp_path / f"run.{number:04}.pickle"))
        rotation.begin()
    assert sorted(os.listdir(tmp_path)) == ["other.0001.snap", "run.0003.snap", "run.0008.pickle"]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    late = Rotation(1000, every_s=60)
    assert not late.is_full([1])
    monkeypatch.setattr(time, "monotonic", lambda: now + 122)
    assert late.is_full([1]) and not late.is_full([0]), "nothing has happened"


def test_the_ring_has_two_events_of_a_free_and_those_of_segments():
    stats = {name: {"all": {"allocated": 0, "freed": 0}} for name in ("allocation", "segment")}
    assert ring_events(stats) == 0
    stats["allocation"]["all"] = {"allocated": 300, "freed": 299}
    stats["segment"]["all"] = {"allocated": 17, "freed": 15}
    assert ring_events(stats) == 300 + 2 * 299 + 17 + 15
    # Expandable segments grow in parts.
    assert ring_events({**stats, "num_device_alloc": 18, "num_device_free": 5}) == 300 + 2 * 299 + 18 + 15


class Recording:
    """What a switch begins and ends."""

    def __init__(self, number, log):
        self._number, self._log = number, log
        self.is_stopped = False

    def begin(self):
        self._log.append(("begin", self._number, threading.current_thread() is threading.main_thread()))
        return True

    def finish(self):
        self._log.append(("end", self._number, self.is_stopped))


def until(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_a_file_and_a_signal_start_and_stop_recordings_on_the_main_thread(tmp_path, monkeypatch):
    log, file = [], tmp_path / "record.me"
    switch = Switch(lambda number: Recording(number, log), file=str(file), number=signal.SIGUSR2)
    switch.start()
    for number in (1, 2):
        file.touch()
        until(lambda: log[-1:] == [("begin", number, True)])
        if number == 1:
            file.unlink()
            until(lambda: log[-1] == ("end", 1, True))
    switch.stop()
    assert log == [("begin", 1, True), ("end", 1, True), ("begin", 2, True), ("end", 2, True)]
    log.clear()
    before, own = signal.getsignal(signal.SIGUSR1), []
    try:
        # The program's own handler still runs.
        signal.signal(signal.SIGUSR1, lambda number, frame: own.append(number))
        former = signal.getsignal(signal.SIGUSR1)
        switch = Switch(lambda number: Recording(number, log), number=signal.SIGUSR1)
        # CUDA may start on another thread while the main thread waits in C.
        monkeypatch.setattr("highwater._main_thread._PATIENCE_S", 0)
        threading.Thread(target=switch.start).start()
        time.sleep(0.5)
        monkeypatch.undo()
        until(lambda: signal.getsignal(signal.SIGUSR1) is not former)
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGUSR1)
            until(lambda: len(log) == count)
        switch.stop()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert log == [("begin", 1, True), ("end", 1, True)] and own == [signal.SIGUSR1] * 2


def test_the_main_thread_does_what_a_watch_finds_and_gets_its_exceptions(monkeypatch):
    def leave():
        sys.exit(3)

    work = [leave]
    watch = Watch(lambda: work.pop() if work else None, 0.01)
    with pytest.raises(SystemExit) as left:
        watch.start()
        until(lambda: False)
    watch.stop()
    assert left.value.code == 3
    # Where the main thread waits in C, the watch's own thread does it.
    monkeypatch.setattr("highwater._main_thread._PATIENCE_S", 0)
    done = threading.Event()
    work = [lambda: (ran.append(threading.current_thread().name), done.set())]
    ran = []
    watch = Watch(lambda: work.pop() if work else None, 0.01)
    lock = threading.Lock()
    lock.acquire()
    watch.start()
    lock.acquire(timeout=0.5)
    watch.stop()
    assert done.is_set() and ran == ["highwater"]


def test_one_thing_is_done_at_a_time_where_it_takes_long(monkeypatch):
    monkeypatch.setattr("highwater._main_thread._PATIENCE_S", 0)
    log = []

    def watch(name):
        def do():
            log.append(name)
            time.sleep(0.3)
            log.append(name)

        work = [do]
        return Watch(lambda: work.pop() if work else None, 0.01)

    watches = [watch(name) for name in "abc"]
    for one in watches:
        one.start()
    until(lambda: len(log) == 6)
    for one in watches:
        one.stop()
    assert log[::2] == log[1::2] and sorted(log[::2]) == ["a", "b", "c"]


class Engine:
    def step(self):
        return "stepped"

    @staticmethod
    def alone():
        return "alone"

    async def later(self):
        return "later"


def free():
    return "free"


def test_calls_of_a_function_are_steps_but_for_the_first():
    imported = Engine.step, Engine.__dict__["alone"], Engine.later, free
    for name, call in (
        ("Engine.step", lambda: Engine().step()),
        (f"{__name__}:Engine.alone", lambda: Engine.alone()),
        ("Engine.later", lambda: asyncio.run(Engine().later())),
        ("free", lambda: free()),
    ):
        ended = []
        steps = MarkedSteps(name)
        steps.on_step = lambda: ended.append(1)
        assert not steps.begins_with("forward") and not steps.ends_with_optimizer()
        assert any("no function of this name was called" in hint for hint in steps.hints())
        for count in range(3):
            assert call() == name.rpartition(".")[2].replace("step", "stepped"), name
            assert len(ended) == count, name
        assert list(steps.hints()) == []
        assert inspect.iscoroutinefunction(Engine.later)
        steps.undo()
        call()
        assert len(ended) == 2
    assert (Engine.step, Engine.__dict__["alone"], Engine.later, free) == imported


def test_a_function_may_be_defined_late_and_be_running_already():
    steps, ended = MarkedSteps("late_module:Late.step"), []
    steps.on_step = lambda: ended.append(1)
    steps.begins_with("forward")

    class Late:
        def step(self):
            steps.begins_with("forward")

    module = type(sys)("late_module")
    module.Late = Late
    sys.modules["late_module"] = module
    try:
        Late().step()
        assert ended == []
        Late().step()
        assert ended == [1], "the first call was found from within"
    finally:
        del sys.modules["late_module"]
        steps.undo()


def test_a_function_is_found_in_a_module_whose_import_starts_the_recording(tmp_path, monkeypatch):
    source = "import sys\nsys.steps.find()\nclass Started:\n    def step(self): pass\n"
    (tmp_path / "starting_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    steps, ended = MarkedSteps("Started.step"), []
    steps.on_step = lambda: ended.append(1)
    monkeypatch.setattr(sys, "steps", steps, raising=False)
    try:
        started = importlib.import_module("starting_module").Started()
        steps.begins_with("forward")
        started.step()
        started.step()
        assert ended == [1]
    finally:
        sys.modules.pop("starting_module", None)
        steps.undo()


def test_saves_take_a_bounded_share_of_the_time_and_happen_at_the_same_time_in_all_ranks():
    _saves = pytest.importorskip("highwater._saves", reason="PyTorch is not installed")
    saves = _saves.Saves()
    saves._saved_s, saves._seconds_per_event = 3600 * 1000 + 10, 1e-5
    # An event takes 10 us, so that 60,000 take 1% of a minute.
    for events, due_s in ((59_000, 60), (61_000, 300), (301_000, 900), (10_000_000, 3600)):
        assert not saves.is_due(3600 * 1000 + due_s - 0.1, events)
        assert saves.is_due(3600 * 1000 + due_s, events)
    assert not saves.is_due(3600 * 1001, 0)
