"""What a recording does to its program: nothing that remains, and no error of its own."""

import contextlib
import json
import os
import pickle
import subprocess
import sys

import pytest
from tags import tagged_allocations

import highwater


def state(torch):
    """What a recording changes while it is active."""
    from torch.optim import optimizer

    return (
        torch.nn.Module.__call__,
        torch.autograd.Variable._execution_engine,
        torch.utils.checkpoint.CheckpointFunction,
        len(optimizer._global_optimizer_pre_hooks),
        len(optimizer._global_optimizer_post_hooks),
        len(torch.nn.modules.module._global_forward_hooks),
    )


def untagged(torch, function):
    """Whether what `function` allocates has no tag."""
    torch.cuda.memory._record_memory_history("all", context=None)
    function()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(None)
    return all(tag == {} for _, tag in tagged_allocations(snapshot))


def test_nothing_remains_after_a_recording(torch, record):
    import torch.utils.checkpoint
    from models import Gpt

    model = Gpt().cuda()
    before = state(torch)
    for _ in range(2):
        record(lambda run: model.loss().backward())
        assert state(torch) == before
        assert untagged(torch, lambda: model.loss().backward())


def test_nothing_remains_after_an_exception_in_backward(torch, record):
    import torch.utils.checkpoint

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            raise KeyError("the program's own")

    model = torch.nn.Linear(8, 8).cuda()
    before = state(torch)
    with pytest.raises(KeyError, match="the program's own"):
        record(lambda run: Fails.apply(model(torch.ones(4, 8, device="cuda"))).sum().backward())
    assert state(torch) == before
    assert untagged(torch, lambda: model(torch.ones(4, 8, device="cuda")).sum().backward())


def test_a_second_recording_at_the_same_time_is_an_error(torch, tmp_path):
    with highwater.record_memory_history(tmp_path / "a.snap", convert=False):
        with pytest.raises(RuntimeError, match="a recording is active"):
            with highwater.record_memory_history(tmp_path / "b.snap"):
                pass
    assert sorted(os.listdir(tmp_path)) == ["a.pickle"]


def test_a_folder_that_does_not_exist_is_reported_before_the_program_runs(torch, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        with highwater.record_memory_history(tmp_path / "no" / "step.snap"):
            raise AssertionError("not reached")


def test_steps_must_be_a_range():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(ValueError, match="expected a range"):
        highwater.record_memory_history(steps=[1, 2])
    with pytest.raises(ValueError, match="step_at='Engine step': expected the name of a function"):
        highwater.record_memory_history(step_at="Engine step")


def test_only_the_asked_steps_are_recorded(torch, record):
    from models import Gpt

    model = Gpt(blocks=1).cuda()
    optimizer = torch.optim.SGD(model.parameters())

    def train(_):
        for _ in range(6):
            model.loss().backward()
            optimizer.step()
            optimizer.zero_grad()

    tags = [tag for _, tag in tagged_allocations(record(train, steps=range(2, 4)))]
    assert {tag["step"] for tag in tags} == {2, 3}
    assert tags[0]["phase"] != "optimizer" and tags[-1]["step"] == 3


def test_a_decorator_records_each_call(torch, tmp_path):
    path = tmp_path / "step.snap"

    @highwater.record_memory_history(path, convert=False)
    def train():
        return torch.ones(1 << 20, device="cuda").sum()

    for _ in range(2):
        train()
        assert (tmp_path / "step.pickle").stat().st_size > 0
        os.remove(tmp_path / "step.pickle")


def test_each_rank_writes_a_file_of_its_own(torch, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    for path, name in [("step.snap", "step.rank3.pickle"), ("of_{rank}.snap", "of_3.pickle")]:
        with highwater.record_memory_history(tmp_path / path, convert=False) as run:
            torch.ones(8, device="cuda")
        assert os.path.basename(run.path) == name
    with open(run.path, "rb") as file:
        facts = pickle.load(file)["highwater_run"]
    assert (facts["rank"], facts["world_size"]) == (3, 4)


def test_without_cuda_the_body_runs_with_one_warning(torch, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ran = []
    with pytest.warns(UserWarning, match="CUDA is not available"):
        with highwater.record_memory_history(tmp_path / "step.snap") as run:
            ran.append(run)
            run.step()
    assert ran and run.path is None


def test_a_failed_conversion_keeps_the_pickle(torch, tmp_path, monkeypatch):
    def missing():
        raise highwater._binary.HighwaterError("the program 'highwater' is not installed")

    monkeypatch.setattr(highwater._binary, "path", missing)
    with pytest.warns(UserWarning, match="which is kept"):
        with highwater.record_memory_history(tmp_path / "step.snap") as run:
            torch.ones(8, device="cuda")
    assert os.path.basename(run.path) == "step.pickle" and os.path.exists(run.path)


def test_tensors_that_are_live_at_the_end_are_listed_once_with_their_names(torch, record):
    from models import Shared

    model = Shared().cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def train(_):
        model.loss().backward()
        optimizer.step()

    tensors = record(train)["highwater_run"]["tensors"]
    at_end = [row for row in tensors if len(row) == 4]
    assert len({row[0] for row in at_end}) == len(at_end)
    names = {(row[2], row[3]) for row in tensors}
    parameters = [name for name, _ in model.named_parameters()]
    assert {name for category, name in names if category == "gradient"} == set(parameters)
    assert ("optimizer_state", f"{parameters[0]}.exp_avg") in names


def test_a_model_that_is_gone_is_not_kept_alive(torch, record):
    from models import Gpt

    def train(_):
        model = Gpt().cuda()
        torch.optim.SGD(model.parameters()).step()
        del model
        assert torch.cuda.memory_allocated() == 0

    assert torch.cuda.memory_allocated() == 0
    record(train)


OUT_OF_MEMORY = """
import os
import sys
import torch
import highwater
from models import Gpt

torch.cuda.set_per_process_memory_fraction(2**30 / torch.cuda.get_device_properties(0).total_memory)
model = Gpt(blocks=4, width=256, vocabulary=64).cuda()
error = None
try:
    with highwater.record_memory_history(sys.argv[1], convert=False):
        try:
            kept = []
            while True:
                kept.append(model(torch.zeros(64, 256, dtype=torch.long, device="cuda")))
        except torch.cuda.OutOfMemoryError as caught:
            error = caught
        raise error
except torch.cuda.OutOfMemoryError as caught:
    assert caught is error
    print("caught", flush=True)
# Threads of PyTorch have been seen to abort the interpreter at its end, on a busy machine.
os._exit(0)
"""


def test_the_programs_own_error_arrives_and_one_file_is_written(torch, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    path = tmp_path / "step.snap"
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY, str(path)], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "caught\n"), done.stderr
    assert sorted(os.listdir(tmp_path)) == ["step.oom.pickle"]
    with open(tmp_path / "step.oom.pickle", "rb") as file:
        snapshot = pickle.load(file)
    (failed,) = [event for event in snapshot["device_traces"][0] if event["action"] == "oom"]
    if failed.get("user_metadata"):
        assert json.loads(failed["user_metadata"])["scope"].startswith("blocks.")
    assert snapshot["highwater_run"]["reason"] == "oom"


def test_a_failed_request_after_one_that_the_program_has_handled_is_recorded_too(torch, tmp_path):
    run = highwater.record_memory_history(tmp_path / "step.snap", convert=False)
    with pytest.raises(torch.cuda.OutOfMemoryError), run:
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            torch.zeros(1 << 50, device="cuda")
        kept = torch.zeros(1000, device="cuda")
        torch.zeros(1 << 51, device="cuda")
    del kept
    failed = {}
    for path in tmp_path.iterdir():
        with open(path, "rb") as file:
            events = pickle.load(file)["device_traces"][0]
        failed[path.name] = [event["size"] >> 50 for event in events if event["action"] == "oom"]
    assert failed == {"step.oom.pickle": [4], "step.pickle": [4, 8]}


def test_a_recording_without_backward_starts_no_threads(torch, tmp_path):
    # Those of the engine may not begin as the interpreter ends: it would abort.
    text = """
import os, sys, torch, highwater
with highwater.record_memory_history(sys.argv[1], convert=False):
    torch.nn.Linear(8, 8).cuda()(torch.ones(8, 8, device="cuda"))
    before = len(os.listdir("/proc/self/task"))
print(len(os.listdir("/proc/self/task")) - before)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", text, tmp_path / "step.snap"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_model_that_is_gone_at_the_end_was_listed_at_its_optimizers_first_step(torch, record):
    from models import Gpt

    def train(_):
        model = Gpt(blocks=1).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            model.loss().backward()
            optimizer.step()

    tensors = record(train)["highwater_run"]["tensors"]
    assert all(len(row) == 5 for row in tensors)
    listed = {(category, name) for _, _, category, name, _ in tensors}
    assert ("parameter", "head.weight") in listed and ("optimizer_state", "head.weight.exp_avg_sq") in listed


def test_arguments_of_the_program_may_have_any_name(torch, record):
    from torch.utils.checkpoint import checkpoint

    class Net(torch.nn.Module):
        def forward(self, x, module=None, run=None, scope=None):
            return x + 1

    x = torch.zeros(4, device="cuda", requires_grad=True)
    net = Net()
    record(lambda _: checkpoint(net, net(x, module=1, run=2, scope=3), use_reentrant=False, run=4).sum().backward())


def test_tensors_without_a_storage_of_their_own_are_no_obstacle(torch, record):
    embedding = torch.nn.Embedding(100, 64, sparse=True).cuda()
    embedding.never_called = torch.nn.LazyLinear(4).cuda()
    edges = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 1.0], (4, 4), device="cuda")
    embedding.register_buffer("edges", edges)
    optimizer = torch.optim.SGD(embedding.parameters(recurse=False))

    def train(_):
        embedding(torch.zeros(4, dtype=torch.long, device="cuda")).sum().backward()
        optimizer.step()

    names = {(row[2], row[3]) for row in record(train)["highwater_run"]["tensors"]}
    named = {("parameter", "Embedding.weight"), ("gradient", "Embedding.weight"), ("buffer", "Embedding.edges")}
    assert named <= names


def test_a_module_that_hides_its_parts_is_named_by_its_type(torch, record):
    class Hides(torch.nn.Module):
        def named_modules(self, *args, **kwargs):
            raise KeyError("no names")

        def __getattr__(self, name):
            raise LookupError(name)

        def forward(self, x):
            return x * 2

    snapshot = record(lambda run: Hides()(torch.zeros(4, device="cuda")))
    assert list(tagged_allocations(snapshot))[-1][1]["scope"] == "Hides"


def test_a_recording_in_inference_mode_ends_without_an_error(torch, record):
    model = torch.nn.Linear(8, 8).cuda()
    with torch.inference_mode():
        record(lambda run: model(torch.zeros(4, 8, device="cuda")))


def test_the_programs_steps_decide_which_are_recorded(torch, record):
    models = [torch.nn.Linear(8, 8).cuda() for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters()) for model in models]

    def train(run):
        for step in range(4):
            for model, optimizer in zip(models, optimizers):
                model(torch.zeros(step + 1, 8, device="cuda")).sum().backward()
                optimizer.step()
            run.step()

    snapshot = record(train, steps=range(1, 2), model=dict(zip("abc", models)))
    sizes = {event["size"] for event, tag in tagged_allocations(snapshot) if tag["phase"] == "forward"}
    assert sizes == {2 * 8 * 4, 4}, "outputs of step 1 and their sums"


def test_a_dump_of_a_step_that_is_not_recorded_is_an_error(torch, tmp_path):
    with pytest.warns(UserWarning, match="no step was in range"):
        with highwater.record_memory_history(tmp_path / "step.snap", steps=range(5, 6)) as run:
            with pytest.raises(RuntimeError, match="nothing is being recorded"):
                run.dump()
