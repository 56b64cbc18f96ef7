"""What a recording leaves of its program, and what it takes from it: nothing."""

import asyncio
import functools
import gc
import inspect
import os
import pickle
import shutil
import subprocess
import sys
import traceback
import warnings
import weakref

import pytest
from tags import tagged_allocations

import highwater


def step(torch, model, optimizer=None):
    model(torch.zeros(4, 8, device="cuda")).sum().backward()
    if optimizer is not None:
        optimizer.step()


def test_nothing_of_the_program_is_kept_after_the_end(torch, tmp_path):
    # What another test has left.
    before = torch.cuda.memory_allocated()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    with highwater.record_memory_history(tmp_path / "step.snap", model=model, convert=False) as run:
        step(torch, model, optimizer)
    kept = weakref.ref(model), weakref.ref(optimizer)
    del model, optimizer
    gc.collect()
    assert [reference() for reference in kept] == [None, None]
    assert torch.cuda.memory_allocated() <= before and run.path


def test_a_decorator_keeps_no_model_and_names_it_in_every_call(torch, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda()

    @highwater.record_memory_history(tmp_path / "step.snap", model={"net": model}, convert=False)
    def train(model):
        step(torch, model)

    for _ in range(2):
        train(model)
        with open(tmp_path / "step.pickle", "rb") as file:
            assert "net.0" in {tag.get("scope") for _, tag in tagged_allocations(pickle.load(file))}
    kept = weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None


def scopes_of(path):
    with open(path, "rb") as file:
        return {tag.get("scope") for _, tag in tagged_allocations(pickle.load(file))}


def test_generators_and_coroutines_are_recorded_from_their_first_line_to_their_last(torch, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda()
    record = highwater.record_memory_history(tmp_path / "step.snap", convert=False)

    @record
    def losses(count):
        for _ in range(count):
            sent = yield model(torch.zeros(4, 8, device="cuda")).sum().item()
            assert sent is None
        return "end"

    @record
    async def train():
        await asyncio.sleep(0)
        step(torch, model)
        return 7

    assert inspect.isgeneratorfunction(losses) and inspect.iscoroutinefunction(train)
    assert len(list(losses(3))) == 3
    assert "0" in scopes_of(tmp_path / "step.pickle")
    (tmp_path / "step.pickle").unlink()
    assert asyncio.run(train()) == 7
    assert "0" in scopes_of(tmp_path / "step.pickle")
    # One that is left early.
    (tmp_path / "step.pickle").unlink()
    for _ in losses(3):
        break
    gc.collect()
    assert (tmp_path / "step.pickle").exists()


def test_what_cannot_be_decorated_is_refused():
    record = highwater.record_memory_history()

    async def batches():
        yield 1

    for what, name in [(batches, "an asynchronous generator"), (type("Net", (), {}), "a class")]:
        with pytest.raises(TypeError, match=f"cannot decorate {name}"):
            record(what)


@pytest.mark.parametrize(
    "name, value",
    [
        ("depth", -1), ("depth", "x"), ("depth", 1.5), ("depth", True),
        ("max_entries", -1), ("max_entries", 0), ("max_entries", None), ("max_entries", 1e6),
        ("context", "bogus"), ("stacks", None), ("stacks", "cpp"),
        ("steps", 3), ("steps", range(0, 4, 2)), ("steps", range(0)), ("steps", range(-2, 2)),
        ("references", "no"), ("on_oom", None), ("convert", "yes"), ("keep_pickle", 2),
        ("model", ["net"]), ("model", dict), ("model", {}), ("model", {1: None}),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_at_the_start_by_its_name(name, value):
    with pytest.raises((ValueError, TypeError), match=f"{name}="):
        highwater.record_memory_history(**{name: value})


def test_expected_values_are_listed_with_or():
    with pytest.raises(ValueError, match="expected 'python' or 'all'$"):
        highwater.record_memory_history(stacks="cpp")


def test_a_list_of_modules_and_a_class_are_no_model(torch):
    for model in ([torch.nn.Linear(2, 2)], torch.nn.Linear, {"a": torch.nn.Linear}):
        with pytest.raises(TypeError, match="model="):
            highwater.record_memory_history(model=model)


def test_the_package_shows_what_it_has_without_torch():
    text = (
        "import sys; sys.modules['torch'] = None; import highwater, pydoc\n"
        "assert {'record_memory_history', 'Snapshot', '__version__'} <= set(dir(highwater))\n"
        "assert 'max_entries' in pydoc.render_doc(highwater.record_memory_history)\n"
        "with highwater.record_memory_history('step.snap'): pass\n"
    )
    environment = {"PYTHONPATH": os.path.dirname(os.path.dirname(highwater.__file__))}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment)
    assert done.stderr.splitlines()[-1].endswith("recording needs PyTorch; run `pip install torch`"), done.stderr


def test_a_history_that_the_program_records_itself_is_kept_with_its_settings(torch, tmp_path):
    torch.cuda.memory._record_memory_history("all", context="all", max_entries=7000)
    try:
        before = torch.ones(1000, device="cuda")
        with pytest.warns(UserWarning, match="the program already records PyTorch's memory history"):
            with highwater.record_memory_history(tmp_path / "step.snap", convert=False):
                within = torch.ones(2000, device="cuda")
        after = torch.ones(3000, device="cuda")
        sizes = [event["size"] for event in torch.cuda.memory._snapshot()["device_traces"][0]]
        assert {4000, 8000, 12000} <= set(sizes)
    finally:
        torch.cuda.memory._record_memory_history(None)
    del before, within, after
    with open(tmp_path / "step.pickle", "rb") as file:
        recorded = [event["size"] for event in pickle.load(file)["device_traces"][0] if event["action"] == "alloc"]
    assert recorded == [8000], "what was before the recording is not part of it"


def test_a_history_that_the_program_starts_or_ends_within_a_recording_loses_nothing_of_either(torch, tmp_path):
    record = torch.cuda.memory._record_memory_history
    with highwater.record_memory_history(tmp_path / "step.snap", convert=False):
        first = torch.ones(1000, device="cuda")
        with pytest.warns(UserWarning, match="the program started PyTorch's memory history during a recording"):
            torch.cuda.memory._record_memory_history(max_entries=100)
        second = torch.ones(2000, device="cuda")
        torch.cuda.memory._record_memory_history(None)
        third = torch.ones(3000, device="cuda")
    assert torch.cuda.memory._record_memory_history is record
    assert not torch._C._cuda_isHistoryEnabled()
    with open(tmp_path / "step.pickle", "rb") as file:
        sizes = [event["size"] for event in pickle.load(file)["device_traces"][0]]
    assert {4000, 8000, 12000} <= set(sizes)
    with highwater.record_memory_history(tmp_path / "step.snap", convert=False):
        with pytest.warns(UserWarning, match="the program started PyTorch's memory history"):
            torch.cuda.memory._record_memory_history()
    assert torch._C._cuda_isHistoryEnabled(), "the program's own goes on"
    torch.cuda.memory._record_memory_history(None)
    del first, second, third


def test_a_history_that_the_program_ends_with_false_is_ended(torch, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with highwater.record_memory_history(tmp_path / "step.snap", convert=False):
            torch.cuda.memory._record_memory_history(False)
            kept = torch.ones(1000, device="cuda")
    assert not torch._C._cuda_isHistoryEnabled()
    with open(tmp_path / "step.pickle", "rb") as file:
        assert 4000 in [event["size"] for event in pickle.load(file)["device_traces"][0]]
    del kept


def test_functions_of_the_history_that_were_imported_by_name_lose_nothing_either(torch, tmp_path):
    from torch.cuda.memory import _record_memory_history as imported

    with highwater.record_memory_history(tmp_path / "step.snap", convert=False):
        first = torch.ones(1000, device="cuda")
        with pytest.warns(UserWarning, match="the program started PyTorch's memory history") as caught:
            imported("all")
        assert caught[0].filename == __file__
        second = torch.ones(2000, device="cuda")
        imported(None)
        third = torch.ones(3000, device="cuda")
        imported(True, trace_alloc_max_entries=10)
    assert torch._C._cuda_isHistoryEnabled(), "the program's own goes on"
    imported(None)
    with open(tmp_path / "step.pickle", "rb") as file:
        snapshot = pickle.load(file)
    assert {4000, 8000, 12000} <= {event["size"] for event in snapshot["device_traces"][0]}
    assert "device.0.events_missing" not in snapshot["highwater_run"]
    assert type(torch._C._cuda_record_memory_history).__name__ != "function", "undone"
    del first, second, third


@pytest.mark.parametrize("settings", [{"max_entries": 20}, {"enabled": "state"}])
def test_what_the_programs_own_history_does_not_keep_is_stated(torch, tmp_path, settings):
    torch.cuda.memory._record_memory_history(**settings)
    try:
        with pytest.warns(UserWarning, match="the program already records"):
            with highwater.record_memory_history(tmp_path / "step.snap") as run:
                for _ in range(100):
                    torch.ones(1000, device="cuda")
    finally:
        torch.cuda.memory._record_memory_history(None)
    info = highwater.Snapshot(run.path).info()
    assert info["ring_capacity"] is None and "stacks" not in info["facts"]
    has_note = any("own memory history has no allocations" in note for note in info["notes"])
    assert has_note == ("enabled" in settings), info["notes"]
    # Each has an event of the allocation and one of the free, which are counted, and one of the free's completion.
    lost = highwater.Snapshot(run.path).peak()["trust"]["events_lost"]
    assert lost == (200 if "enabled" in settings else 187)
    assert not highwater.Snapshot(run.path).check(max_peak="1GiB")["passed"]


def test_events_that_a_full_ring_has_dropped_are_stated(torch, tmp_path):
    model = torch.nn.Linear(64, 64).cuda()
    for max_entries in (100_000, 50):
        path = tmp_path / f"{max_entries}.snap"
        with highwater.record_memory_history(path, max_entries=max_entries):
            torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
            for _ in range(20):
                model(torch.zeros(8, 64, device="cuda"))
        assert highwater.Snapshot(path).check(max_peak="101MiB")["passed"] == (max_entries > 50)


@pytest.mark.parametrize("is_programs", [False, True])
def test_nothing_of_a_recording_remains_where_warnings_are_errors(torch, tmp_path, is_programs):
    record = torch._C._cuda_record_memory_history
    if is_programs:
        torch.cuda.memory._record_memory_history()
    (tmp_path / "step.oom.snap").write_bytes(b"the user's own")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning if is_programs else torch.cuda.OutOfMemoryError):
            with highwater.record_memory_history(tmp_path / "step.snap"):
                torch.empty(1 << 42, device="cuda")
    assert torch._C._cuda_record_memory_history is record
    torch.cuda.memory._record_memory_history(None)
    assert (tmp_path / "step.oom.snap").read_bytes() == b"the user's own"
    assert (tmp_path / "step.oom-2.snap").exists() != is_programs


def test_a_decorated_function_whose_work_is_done_after_it_returns_gives_a_warning(torch, tmp_path):
    async def work():
        pass

    class Callable:
        async def __call__(self):
            pass

    functions = [lambda: work(), lambda: (row for row in range(3)), Callable()]
    for function in functions:
        with pytest.warns(UserWarning, match="whose body was not recorded: put the `with` statement inside"):
            result = highwater.record_memory_history(tmp_path / "step.snap", convert=False)(function)()
        result.close()


def test_a_traceback_through_modules_has_no_more_frames_than_without_a_recording(torch, tmp_path):
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise KeyError("the program's own")

    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Sequential(Fails()))).cuda()

    def depth():
        try:
            model(torch.zeros(4, device="cuda"))
        except KeyError as error:
            return len(traceback.extract_tb(error.__traceback__))

    without = depth()
    with highwater.record_memory_history(tmp_path / "step.snap", convert=False):
        assert depth() == without


ELSEWHERE = """
import sys, torch, highwater
assert highwater.__file__.startswith(sys.argv[1]), highwater.__file__
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).cuda()
with highwater.record_memory_history("step.snap", context="all") as run:
    for _ in range(2):
        model(torch.zeros(4, 64, device="cuda")).sum().backward()
"""


@pytest.mark.parametrize("is_zipped", [False, True])
def test_frames_of_the_package_never_appear_wherever_it_lies(torch, tmp_path, is_zipped):
    package = os.path.dirname(highwater.__file__)
    target = tmp_path / "target"
    shutil.copytree(package, target / "highwater", ignore=shutil.ignore_patterns("__pycache__"))
    if is_zipped:
        target = shutil.make_archive(str(target), "zip", target)
    environment = {**os.environ, "PYTHONPATH": str(target)}
    command = [sys.executable, "-W", "ignore", "-c", ELSEWHERE, str(target)]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True)
    events = highwater.Snapshot(tmp_path / "step.snap").events()["events"]
    frames = {frame for event in events for frame in event["stack"]}
    assert any("torch/nn/modules/linear.py" in frame for frame in frames)
    assert not any("_tracker.py" in frame or "highwater/" in frame for frame in frames)


def test_the_types_of_answers_have_all_keys(torch, tmp_path):
    from highwater import _results

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    path = tmp_path / "step.snap"
    with highwater.record_memory_history(path):
        for _ in range(3):
            step(torch, model, optimizer)
    snapshot = highwater.Snapshot(path)
    answers = {
        "Info": snapshot.info(), "Peak": snapshot.peak(by="scope"), "Phases": snapshot.phases(),
        "Explanation": snapshot.explain(), "Difference": snapshot.diff(path), "Events": snapshot.events(),
        "WhatIf": snapshot.whatif(), "Plan": snapshot.plan("1GiB"), "Check": snapshot.check(max_peak="1GiB"),
    }  # fmt: skip
    rows = {"Group": answers["Peak"]["groups"], "PhaseRow": answers["Phases"]["rows"]}
    rows["PlanPeaks"] = [answers["Plan"]["after"]]
    answers |= {name: found[0] for name, found in {**rows, "Event": answers["Events"]["events"]}.items()}
    for name, answer in answers.items():
        assert set(answer) <= set(getattr(_results, name).__annotations__), name


def test_a_step_that_the_program_ends_last_is_followed_by_no_other(torch, tmp_path):
    model = torch.nn.Linear(8, 8).cuda()

    def train(run):
        kept = None
        for _ in range(3):
            kept = model(torch.zeros(4, 8, device="cuda")).sum()
            kept.backward()
            run.step()

    with highwater.record_memory_history(tmp_path / "step.snap") as run:
        train(run)
    assert highwater.Snapshot(run.path).info()["devices"][0]["steps"] == 3


def test_steps_that_are_asked_for_from_outside_end_also_where_the_whole_program_is_recorded(torch, tmp_path):
    from highwater import _attached
    from highwater._program import ProgramRecording

    model, notes = torch.nn.Linear(8, 8).cuda(), []
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    whole = ProgramRecording(str(tmp_path / "whole.snap"), convert=False)
    assert whole.begin()
    try:
        step(torch, model, optimizer)
        _attached.begin(str(tmp_path / "part.snap"), {"steps": range(1, 3), "convert": False}, notes.append)
        for _ in range(4):
            assert notes == ["recording"]
            step(torch, model, optimizer)
            if notes[-1] == "ended":
                break
    finally:
        whole.finish()
    assert notes == ["recording", f"written {tmp_path / 'part.pickle'}", "ended"]
    steps = {}
    for name in ("whole", "part"):
        with open(tmp_path / f"{name}.pickle", "rb") as file:
            steps[name] = {tag.get("step") for _, tag in tagged_allocations(pickle.load(file))}
    assert len(steps["part"]) == 2 and steps["part"] < steps["whole"] and max(steps["part"]) > 1, steps


class Pair:
    """Two models that are trained together."""

    def train(self, between=lambda: None):
        encoded = self.encoder(self.data)
        between()
        self.head(encoded).sum().backward()
        self.optimizer.step()


@pytest.mark.parametrize("step_at", [None, "Pair.train"])
def test_a_recording_that_begins_between_two_models_names_them_as_one_from_the_start(torch, tmp_path, step_at):
    from highwater import _attached

    pair = Pair()
    pair.data = torch.zeros(4, 8, device="cuda")
    pair.encoder = torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda()
    pair.head = type("Head", (torch.nn.Sequential,), {})(torch.nn.Linear(8, 8)).cuda()
    pair.optimizer = torch.optim.SGD([*pair.encoder.parameters(), *pair.head.parameters()], momentum=0.9)

    scopes = []
    for name in ("start", "between"):
        options = {"steps": range(1, 3), "step_at": step_at, "convert": False}
        attach = functools.partial(_attached.begin, str(tmp_path / f"{name}.snap"), options, lambda _: None)
        if name == "start":
            attach()
        pair.train(*([attach] if name == "between" else []))
        for _ in range(3):
            pair.train()
        scopes.append(scopes_of(tmp_path / f"{name}.pickle"))
    assert scopes[0] == scopes[1] and {"0", "Head.0"} <= scopes[0], scopes
