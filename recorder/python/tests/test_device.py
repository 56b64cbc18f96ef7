"""Devices other than CUDA's, by a module with the functions that `torch.xpu` has, over the allocator of CUDA."""

import types

import pytest

import highwater

GIB = 2**30


def make_module(torch):
    """A module as `torch.xpu`: its snapshots have neither tags nor annotations, and its counters are of bytes only."""
    cuda, calls = torch.cuda, []

    def record(enabled="all", context="all", stacks="all", max_entries=1, clear_history=False, skip_actions=None):
        calls.append(enabled)
        cuda.memory._record_memory_history(enabled, context=context, stacks=stacks, max_entries=max_entries)

    def snapshot(device=None, augment_with_fx_traces=False):
        taken = cuda.memory._snapshot()
        taken.pop("external_annotations")
        for event in (event for trace in taken["device_traces"] for event in trace):
            event.pop("user_metadata", None)
        return taken

    def stats(device=None):
        return {key: value for key, value in torch._C._cuda_memoryStats(0).items() if key.endswith("_bytes")}

    return types.SimpleNamespace(
        calls=calls,
        is_available=lambda: True,
        init=lambda: None,
        is_initialized=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        memory_reserved=cuda.memory_reserved,
        get_device_name=lambda device: "Fake 9000",
        get_device_properties=lambda device: types.SimpleNamespace(total_memory=3 * GIB),
        memory=types.SimpleNamespace(
            _record_memory_history=record, _snapshot=snapshot, memory_stats_as_nested_dict=stats
        ),
    )


@pytest.fixture
def fake(torch, monkeypatch):
    """The module, as that of the process's kind of device."""
    from highwater import _device, _session

    module = make_module(torch)
    monkeypatch.setattr(torch, "fake", module, raising=False)
    monkeypatch.setattr(_device, "name", lambda: "fake")
    monkeypatch.setattr(_session, "_has_observer", False)
    # The tensors are CUDA's.
    monkeypatch.setattr(_device, "has", lambda tensor: tensor.is_cuda)
    return module


def train(torch, steps, on_step=lambda step: None):
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    for step in range(steps):
        on_step(step)
        model(torch.zeros(64, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return model, optimizer


def test_a_device_with_a_recorder_is_recorded_without_modules_and_the_recording_says_so(torch, fake, tmp_path):
    original = fake.memory._record_memory_history
    with pytest.warns(UserWarning, match="'s allocator of 'fake' has no tags: modules are not recorded") as warned:
        with highwater.record_memory_history(tmp_path / "step.snap", steps=range(1, 3)) as run:
            # The program's own use of the recorder ends nothing.
            kept = train(torch, 4, lambda step: step == 2 and fake.memory._record_memory_history(None))
    assert len(warned) == 1 and len(kept) == 2
    assert fake.calls == ["all", None, None] and fake.memory._record_memory_history is original
    info = highwater.Snapshot(run.path).info()
    (device,) = info["devices"]
    assert (device["name"], device["capacity_bytes"]) == ("Fake 9000", 3 * GIB)
    assert device["allocs"] > 4 and device["peaks"]["allocated"]["bytes"] > 256 * 256 * 4
    assert any("has no tags" in note for note in info["notes"]), info["notes"]
    events = highwater.Snapshot(run.path).events(kind="alloc")["events"]
    assert sum(event["size"] == 4 for event in events) == 2 * 2, "the loss and its gradient in each wanted step"
    groups = highwater.Snapshot(run.path).peak(by="category")["groups"]
    sizes = {group["key"]: group["bytes"] for group in groups}
    # Models and optimizers are found all the same.
    assert sizes["parameter"] == sizes["optimizer_state"] == 4 * (256 * 256 + 256), sizes


def test_a_device_without_a_recorder_gets_one_sentence(torch, fake, tmp_path):
    del fake.memory._snapshot
    sentence = "no recorder for 'fake': torch.fake.memory has no _snapshot; nothing is recorded"
    with pytest.warns(UserWarning, match=sentence):
        with highwater.record_memory_history(tmp_path / "step.snap"):
            train(torch, 1)
    assert fake.calls == [] and list(tmp_path.iterdir()) == []
    torch.fake = None
    with pytest.warns(UserWarning, match="PyTorch finds no device of type 'fake'; nothing is recorded"):
        with highwater.record_memory_history(tmp_path / "step.snap"):
            pass


def test_a_failed_request_is_written_with_an_observer_and_without(torch, fake, tmp_path):
    def fail(name):
        with pytest.warns(UserWarning, match="has no tags"), pytest.raises(torch.OutOfMemoryError):
            with highwater.record_memory_history(tmp_path / name):
                torch.zeros(64, device="cuda")
                if hasattr(fake, "attach_out_of_memory_observer"):
                    observers[0](0, 1, 1, 1)
                raise torch.OutOfMemoryError("as the allocator does")
        return sorted(path.name for path in tmp_path.iterdir())

    from highwater import _session

    observers = []
    assert fail("without.snap") == ["without.snap"]
    fake.attach_out_of_memory_observer = observers.append
    _session._has_observer = False
    assert fail("with.snap") == ["with.oom.snap", "without.snap"]


def test_programs_are_recorded_from_their_first_use_of_any_device(torch, monkeypatch):
    from highwater import _device

    queued = []
    monkeypatch.setattr(torch, "fake", types.SimpleNamespace(_lazy_call=queued.append), raising=False)
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "fake")
    for kind in ("cuda", "xpu", "mtia"):
        monkeypatch.setattr(getattr(torch, kind), "_lazy_call", queued.append)
    begin = object()
    _device.call_at_first_use(begin)
    assert queued == [begin] * 4


def test_the_kind_is_that_of_the_accelerator_which_is_cuda_where_that_is_available(torch, monkeypatch):
    from highwater import _device

    assert _device.name() == "cuda" and _device.module() is torch.cuda and _device.why_unavailable() is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    accelerators = iter([torch.device("xpu"), None])
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: next(accelerators))
    assert _device.name.__wrapped__() == "xpu"
    assert _device.name.__wrapped__() == "cuda" and _device.why_unavailable() == "CUDA is not available"


@pytest.mark.parametrize(
    "kind, expected", [("xpu", None), ("mtia", "_record_memory_history and no _snapshot"), ("mps", "")]
)
def test_of_the_modules_of_this_pytorch_those_with_a_recorder_are_recorded(torch, monkeypatch, kind, expected):
    from highwater import _device

    if expected is None and not hasattr(torch.xpu.memory, "_snapshot"):
        pytest.skip("of a later PyTorch")
    monkeypatch.setattr(_device, "name", lambda: kind)
    monkeypatch.setattr(getattr(torch, kind), "is_available", lambda: True)
    reason = _device.why_unavailable()
    assert reason is None if expected is None else f"torch.{kind}.memory has no {expected}" in reason
