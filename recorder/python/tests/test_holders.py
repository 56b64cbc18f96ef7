"""What holds tensors at the end of a recording, for programs that leak in the usual ways."""

import functools
import gc
import itertools
import json
import time

import pytest

import highwater

KEPT = {}


@pytest.fixture(autouse=True)
def collected():
    """Frees the cycles of other tests."""
    gc.collect()


class Trainer:
    def __init__(self):
        self.history = []


@pytest.fixture
def held(torch, record):
    """Returns the rows of a loop whose steps call `keep` with the loss: holder, tensors, bytes and graphs."""

    def held(keep, **options):
        model = torch.nn.Linear(64, 64).cuda()
        optimizer = torch.optim.SGD(model.parameters())

        def loop(_):
            for _ in range(12):
                loss = model(torch.zeros(32, 64, device="cuda")).sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                keep(loss)
            del loss

        run = record(loop, **options)["highwater_run"]
        return [tuple(row.values()) for row in json.loads(run.get("holders", "[]"))]

    yield held
    KEPT.clear()


def test_a_list_of_losses_is_named_with_its_graphs(held):
    trainer = Trainer()
    rows = held(trainer.history.append)
    function = test_a_list_of_losses_is_named_with_its_graphs.__name__
    assert rows[0] == (f"trainer.history in {function}() (list of 12, [] float32)", 12, 48, 12)


def test_a_total_with_a_graph_is_named(torch, held):
    total = 0

    def add(loss):
        nonlocal total
        total = total + loss

    assert any("total" in holder and graphs == 1 for holder, _, _, graphs in held(add))


def test_containers_of_a_module_and_of_a_variable_are_named(torch, held):
    rows = held(lambda loss: KEPT.setdefault("cache", []).append(torch.zeros(256, device="cuda")))
    assert (f"{__name__}.KEPT[cache] (list of 12, [256] float32)", 12, 12 * 1024, 0) in rows, rows


def test_a_closure_a_traceback_and_a_cycle_are_named(torch, held):
    hooks, errors = [], []

    def make():
        large = torch.zeros(256, device="cuda")
        return lambda: large

    def fail():
        inner = torch.zeros(256, device="cuda")
        raise ValueError(inner.shape)

    def leave_a_cycle():
        cycle = Trainer()
        cycle.history.append((cycle, torch.zeros(256, device="cuda")))

    def keep(loss):
        leave_a_cycle()
        hooks.append(make())
        try:
            fail()
        except ValueError as error:
            errors.append(error)

    gc.disable()
    try:
        rows = held(keep)
    finally:
        gc.enable()
    holders = {holder for holder, tensors, _, _ in rows if tensors == 12}
    assert any(
        holder.startswith("hooks → closure of ") and holder.endswith("(list of 12, [256] float32)")
        for holder in holders
    ), rows
    assert any(holder.startswith("errors → inner in fail()") for holder in holders), rows
    assert any(holder.startswith("no variable, but a tuple, as in a reference cycle") for holder in holders), rows


def test_entries_with_numbers_are_one_row_and_a_busy_machine_finds_as_much(torch, held, monkeypatch):
    # Other programs take the time.
    monkeypatch.setattr(time, "monotonic", itertools.count(step=60).__next__)

    def keep(loss):
        hooks = KEPT.setdefault("hooks", {})
        hooks[len(hooks)] = functools.partial(print, torch.zeros(256, device="cuda"))

    rows = held(keep)
    assert (f"{__name__}.KEPT[hooks] (dict of 12, [256] float32)", 12) in [row[:2] for row in rows], rows


def test_of_tensors_of_several_kinds_most_are_described(torch, held):
    def keep(loss):
        kept = KEPT.setdefault("cache", [])
        kept.append(torch.zeros(4, 64, dtype=torch.bfloat16, device="cuda"))
        if len(kept) == 12:
            kept[3] = torch.zeros(7, device="cuda")

    assert (f"{__name__}.KEPT[cache] (list of 12, [4, 64] bfloat16 and others)", 12) in [row[:2] for row in held(keep)]


def test_what_the_program_deletes_later_is_freed_and_the_search_can_be_left_out(torch, held, tmp_path):
    large = torch.zeros(1 << 20, device="cuda")
    before = torch.cuda.memory_allocated()
    rows = held(lambda loss: None)
    assert any(holder.startswith("large in ") for holder, *_ in rows), rows
    del large
    assert torch.cuda.memory_allocated() <= before - (4 << 20)
    assert held(lambda loss: None, holders=False) == []

    def has_its_own(value):
        mine = locals()
        held(lambda loss: None)
        return mine["value"] is value

    assert has_its_own([])


def test_growth_names_the_holders_beside_the_leak(torch, tmp_path):
    trainer, model = Trainer(), torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    with highwater.record_memory_history(tmp_path / "leak.snap") as run:
        for _ in range(6):
            output = model(torch.zeros(1 << 12, 64, device="cuda"))
            output.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            trainer.history.append(output)
    growth = highwater.Snapshot(run.path).growth()
    assert growth["leaks"]
    assert growth["holders"][0]["holder"].startswith("trainer.history in "), growth["holders"]
    text = highwater._binary.run(["growth", run.path])
    assert "held by" in text and "trainer.history in " in text


def test_fake_tensors_have_no_storages_and_asking_for_them_warns_nobody(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    from highwater._tensors import storages

    with FakeTensorMode():
        fake = torch.zeros(4, device="cuda")
    assert fake.is_cuda and storages(fake) == [] and len(storages(torch.zeros(4, device="cuda"))) == 1
